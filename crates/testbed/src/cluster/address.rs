//! The addresses of coordinators on this machine.

use crate::error::TestbedError;

/// Ports below those that systems assign by themselves; their number is prime.
const LASTING_PORTS: std::ops::Range<u16> = 20_011..29_984;

/// Addresses for coordinators, which must get them again at every start. So their ports are none
/// that the system assigns to other processes.
pub(super) fn free_addresses(wanted: usize) -> Result<Vec<String>, TestbedError> {
    let count = LASTING_PORTS.end - LASTING_PORTS.start;
    // Clusters that start at the same time try different ones first.
    let first = std::process::id() % u32::from(count);
    let ports = (0..u32::from(count))
        .map(|step| LASTING_PORTS.start + ((first + step * 7) % u32::from(count)) as u16);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let free = ports.filter(is_free).take(wanted);
    let free: Vec<String> = free.map(|port| format!("127.0.0.1:{port}")).collect();
    if free.len() < wanted {
        return Err(TestbedError::NoPort);
    }
    Ok(free)
}
