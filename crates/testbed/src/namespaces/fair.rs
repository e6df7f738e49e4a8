//! Fair links: on each link, the traffic between two seats has a queue of its own, and non-empty
//! queues get equal shares at once (fair queueing), as in models of links. With one queue for all,
//! the senders' congestion control determines the shares, which can take longer than a chunk to
//! settle.
//!
//! The client's connections are distinguished by their ports, since there may be many clients.

use super::network::{Batch, line, queues};
use super::seats::{CLIENT, COORDINATOR, Seats, core_address, node_address};
use std::net::Ipv4Addr;

/// Queues for the connections of the client with one node.
const CLIENT_QUEUES: u16 = 16;

/// Burst size in bytes: two milliseconds, and a few packets. Each turn sends that much.
pub(super) fn frame_bytes(bytes_per_s: u64) -> u64 {
    (bytes_per_s / 500).clamp(6_000, 60_000)
}

/// Seats on one side of a link.
pub(super) struct Side(Vec<Ipv4Addr>);

impl Side {
    /// One node.
    pub(super) fn node(rack: u32, index: u32) -> Self {
        Self(vec![node_address(rack, index)])
    }

    /// A rack's nodes.
    pub(super) fn rack(shape: Seats, rack: u32) -> Self {
        let nodes = shape.nodes().filter(|&(at, _)| at == rack);
        Self(
            nodes
                .map(|(rack, index)| node_address(rack, index))
                .collect(),
        )
    }

    /// All nodes but these, and optionally coordinator and client.
    pub(super) fn others(&self, shape: Seats, with_core: bool) -> Self {
        let nodes = shape.nodes();
        let nodes = nodes.map(|(rack, index)| node_address(rack, index));
        let core = [COORDINATOR, CLIENT].map(core_address);
        let all = nodes.chain(core.into_iter().filter(|_| with_core));
        Self(all.filter(|seat| !self.0.contains(seat)).collect())
    }
}

/// Makes a device send from one side to the other at this rate, one frame of each connection in
/// turn. Other traffic has no limit.
pub(super) fn link(batch: &mut Batch, device: &str, bytes_per_s: u64, from: &Side, to: &Side) {
    let matches = matches(from, to);
    let frame = frame_bytes(bytes_per_s);
    let burst = (bytes_per_s / 200).max(2 * frame);
    let queue = (bytes_per_s / 40).max(8 * frame);
    // Bytes that a queue may send out of turn: next to nothing, so that turns decide.
    let own_bytes_per_s = (bytes_per_s / (2 * matches.len() as u64 + 1)).max(1);
    queues(batch, device);
    line(
        batch,
        format_args!(
            "class add dev {device} parent 1: classid 1:1 htb rate {bytes_per_s}bps burst {burst}b \
             cburst {burst}b quantum {frame}"
        ),
    );
    for (class, connections) in (2..).zip(matches) {
        line(
            batch,
            format_args!(
                "class add dev {device} parent 1:1 classid 1:{class:x} htb rate {own_bytes_per_s}bps \
                 ceil {bytes_per_s}bps burst {frame}b cburst {frame}b quantum {frame}"
            ),
        );
        line(
            batch,
            format_args!("qdisc add dev {device} parent 1:{class:x} bfifo limit {queue}b"),
        );
        line(
            batch,
            format_args!(
                "filter add dev {device} parent 1: protocol ip u32 {connections} flowid 1:{class:x}"
            ),
        );
    }
}

/// By queue, the filters into it.
fn matches(from: &Side, to: &Side) -> Vec<String> {
    let receivers = |&sender| to.0.iter().map(move |&receiver| (sender, receiver));
    let pairs = from.0.iter().flat_map(receivers);
    pairs.flat_map(|(from, to)| between(from, to)).collect()
}

/// The filters into the queues of two seats: one, or several if one of them is the client's.
fn between(sender: Ipv4Addr, receiver: Ipv4Addr) -> Vec<String> {
    let ends = format!("match ip src {sender}/32 match ip dst {receiver}/32");
    let client = core_address(CLIENT);
    if sender != client && receiver != client {
        return vec![ends];
    }
    // The ports follow the 20 bytes of a header without options.
    let at = if sender == client { 20 } else { 22 };
    // The lowest bit of a port that the kernel chooses is always the same.
    let mask = (CLIENT_QUEUES - 1) << 1;
    let ports = (0..CLIENT_QUEUES).map(|number| number << 1);
    ports
        .map(|port| format!("{ends} match u16 {port:#06x} {mask:#06x} at {at}"))
        .collect()
}
