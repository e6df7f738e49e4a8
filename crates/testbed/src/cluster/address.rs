//! The address of a coordinator on this machine.

use crate::error::TestbedError;

/// Ports below those that systems assign by themselves; their number is prime.
const LASTING_PORTS: std::ops::Range<u16> = 20_011..29_984;

/// An address for a coordinator, which must get it again at every start. So its port is not one
/// that the system assigns to other processes.
pub(super) fn free_address() -> Result<String, TestbedError> {
    let count = LASTING_PORTS.end - LASTING_PORTS.start;
    // Clusters that start at the same time try different ones first.
    let first = std::process::id() % u32::from(count);
    let ports = (0..u32::from(count))
        .map(|step| LASTING_PORTS.start + ((first + step * 7) % u32::from(count)) as u16);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = ports.into_iter().find(is_free);
    let port = port.ok_or(TestbedError::NoPort)?;
    Ok(format!("127.0.0.1:{port}"))
}
