//! The cost of a plan: bytes by link, and disk operations. The lab prints these numbers, the
//! simulator times them, and the wire must carry exactly these bytes.

use crate::step::{Log, Plan, Step};
use gabion_layout::{Keeping, NodeId, RackId, Topology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Payload bytes from one node to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LinkBytes {
    /// Sender.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    /// Payload bytes.
    pub bytes: u64,
}

/// The cost of one or several plans. Bytes are payload, without frames and headers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes sent between nodes of different racks.
    pub cross_rack_bytes: u64,
    /// Bytes sent between nodes of one rack.
    pub inner_rack_bytes: u64,
    /// Bytes between a node and the initiator, which is in no rack, and new bytes that the
    /// initiator gave to nodes.
    pub client_bytes: u64,
    /// Bytes read from chunks and logs.
    pub read_bytes: u64,
    /// Read and recall steps, and reads of a merge.
    pub read_count: u64,
    /// Bytes written to chunks and logs.
    pub write_bytes: u64,
    /// Write and append steps, and writes of a merge.
    pub write_count: u64,
    /// Disk positions at which reads and writes begin: a spinning disk seeks to each.
    pub seek_count: u64,
    /// Bytes by link, sorted by sender and receiver.
    pub links: Vec<LinkBytes>,
}

impl Cost {
    /// The cost of one plan up to its answer. Records with [`Keeping::AtOnce`] are in their chunks
    /// by then, or at the next update; [`Cost::of_merge`] gives the later cost of other records.
    ///
    /// # Panics
    /// If the plan is inconsistent, which [`crate::check`] finds before.
    pub fn of(plan: &Plan, topology: &Topology) -> Self {
        let mut cost = Self::default();
        let streams = plan.streams();
        for step in &plan.steps {
            match step {
                Step::Input { node, slices, .. } => {
                    if *node != NodeId::CLIENT {
                        cost.client_bytes += slices.bytes();
                    }
                }
                Step::Read { slices, .. } | Step::Recall { slices, .. } => {
                    cost.read(slices.bytes());
                    cost.seek_count += 1;
                }
                Step::Write { slices, .. } => {
                    cost.write(slices.bytes());
                    cost.seek_count += 1;
                }
                Step::Append { slices, log, .. } => {
                    cost.write(slices.bytes());
                    cost.seek_count += 1;
                    if plan.keepings.of(*log).is_at_once() {
                        cost.bring_in(*log, slices.bytes());
                    }
                }
                Step::Send { from, to, value } => {
                    let bytes = streams[value.at()].bytes();
                    cost.send(
                        LinkBytes {
                            from: *from,
                            to: *to,
                            bytes,
                        },
                        topology,
                    );
                }
                Step::Combine { .. } | Step::Deliver { .. } => {}
            }
        }
        cost
    }

    /// The cost of merging a plan's records into their chunks later, each by itself. Updates of the
    /// same bytes that are merged together cost less, never more.
    pub fn of_merge(plan: &Plan) -> Self {
        let mut cost = Self::default();
        for step in &plan.steps {
            let Step::Append { slices, log, .. } = step else {
                continue;
            };
            match plan.keepings.of(*log) {
                // Copies for a commit are dropped after it, and the commit itself is a plan.
                _ if matches!(log, Log::Replica | Log::Original) => {}
                keeping if keeping.is_at_once() => {}
                // Reserved space begins where its chunk ends, so it needs no seek.
                Keeping::Reserve { .. } => {
                    cost.read(slices.bytes());
                    cost.bring_in(*log, slices.bytes());
                }
                _ => {
                    cost.read(slices.bytes());
                    cost.seek_count += 1;
                    cost.bring_in(*log, slices.bytes());
                }
            }
        }
        cost
    }

    /// Merges a record that is in memory into its chunk: deltas are added to the stored bytes, new
    /// bytes replace them.
    fn bring_in(&mut self, log: Log, bytes: u64) {
        if matches!(log, Log::Parity { .. } | Log::ParitySum) {
            self.read(bytes);
        }
        self.write(bytes);
        self.seek_count += 1;
    }

    fn read(&mut self, bytes: u64) {
        self.read_bytes += bytes;
        self.read_count += 1;
    }

    fn write(&mut self, bytes: u64) {
        self.write_bytes += bytes;
        self.write_count += 1;
    }

    /// Adds another cost to this one.
    pub fn add(&mut self, other: &Self) {
        self.cross_rack_bytes += other.cross_rack_bytes;
        self.inner_rack_bytes += other.inner_rack_bytes;
        self.client_bytes += other.client_bytes;
        self.read_bytes += other.read_bytes;
        self.read_count += other.read_count;
        self.write_bytes += other.write_bytes;
        self.write_count += other.write_count;
        self.seek_count += other.seek_count;
        for link in &other.links {
            self.count_link(*link);
        }
    }

    /// The most bytes that one node sends or receives between nodes: with equal links and enough
    /// slices, this node's link bounds the time of the plan from below.
    pub fn busiest_link_bytes(&self) -> u64 {
        let ends = self.links.iter().flat_map(|l| [l.from, l.to]);
        let sent = |node| {
            self.links
                .iter()
                .filter(|l| l.from == node)
                .map(|l| l.bytes)
                .sum()
        };
        let received = |node| {
            self.links
                .iter()
                .filter(|l| l.to == node)
                .map(|l| l.bytes)
                .sum()
        };
        ends.map(|node| u64::max(sent(node), received(node)))
            .max()
            .unwrap_or(0)
    }

    /// Bytes sent, by the racks of sender and receiver, as nodes measure them. The initiator is in
    /// no rack.
    pub fn by_racks(&self, topology: &Topology) -> BTreeMap<(Option<RackId>, Option<RackId>), u64> {
        let mut sums = BTreeMap::new();
        for link in &self.links {
            let racks = (topology.rack_of(link.from), topology.rack_of(link.to));
            *sums.entry(racks).or_default() += link.bytes;
        }
        sums
    }

    fn send(&mut self, link: LinkBytes, topology: &Topology) {
        match (topology.rack_of(link.from), topology.rack_of(link.to)) {
            (Some(a), Some(b)) if a != b => self.cross_rack_bytes += link.bytes,
            (Some(_), Some(_)) => self.inner_rack_bytes += link.bytes,
            _ => self.client_bytes += link.bytes,
        }
        self.count_link(link);
    }

    fn count_link(&mut self, link: LinkBytes) {
        match self
            .links
            .binary_search_by_key(&(link.from, link.to), |l| (l.from, l.to))
        {
            Ok(at) => self.links[at].bytes += link.bytes,
            Err(at) => self.links.insert(at, link),
        }
    }
}
