//! The addresses of coordinators and nodes on this machine.

use crate::error::TestbedError;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports of a kind of process, below those that systems assign by themselves; their number is prime.
type Ports = std::ops::Range<u16>;

/// A coordinator must get its port again at every start, so nodes take none of these.
pub(super) const COORDINATOR_PORTS: Ports = 20_011..29_984;
/// A node gets its port again unless another process has taken it.
pub(super) const NODE_PORTS: Ports = 10_007..19_980;

/// Spreads the numbers of processes that start one after another: odd, and near 2^32 over the golden ratio.
const SPREAD: u32 = 2_654_435_769;
/// The searches of this process.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Addresses whose ports the system assigns to no other process.
pub(super) fn free_addresses(of: &Ports, wanted: usize) -> Result<Vec<String>, TestbedError> {
    let count = of.end - of.start;
    // Clusters that start at the same time try different ones first, also those of one process.
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let first = std::process::id()
        .wrapping_add(turn << 16)
        .wrapping_mul(SPREAD)
        % u32::from(count);
    let ports =
        (0..u32::from(count)).map(|step| of.start + ((first + step * 7) % u32::from(count)) as u16);
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let free = ports.filter(is_free).take(wanted);
    let free: Vec<String> = free.map(|port| format!("127.0.0.1:{port}")).collect();
    if free.len() < wanted {
        return Err(TestbedError::NoPort);
    }
    Ok(free)
}

/// Whether a process may listen at an address of this machine: nothing does now.
pub(super) fn is_free(address: &str) -> bool {
    std::net::TcpListener::bind(address).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_is_not_free() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(!is_free(&address));
        drop(listener);
        assert!(is_free(&address));
        assert!(!is_free(""), "the node has none");
    }
}
