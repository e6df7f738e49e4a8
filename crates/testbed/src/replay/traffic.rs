//! The traffic of a replay between racks, planned and metered.

use crate::error::TestbedError;
use gabion_client::{Client, ClusterMeters};
use gabion_layout::{NodeId, RackId};
use gabion_protocol::message::{Meter, Purpose};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Payload bytes from one rack to another or within one; clients are in none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Flow {
    /// The sender's rack.
    pub from_rack: Option<u32>,
    /// The receiver's rack.
    pub to_rack: Option<u32>,
    /// Name of the purpose.
    pub purpose: &'static str,
    /// The bytes.
    #[serde(flatten)]
    pub moved: Moved,
}

/// Payload bytes that moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Moved {
    /// By the plans of this client.
    pub planned_bytes: u64,
    /// By the traffic of all nodes during the replay, for any client.
    pub metered_bytes: u64,
}

/// Planned and moved bytes so far.
pub(crate) struct Traffic {
    meters: ClusterMeters,
}

impl Traffic {
    /// All bytes until now.
    pub(crate) async fn now(client: &Client) -> Result<Self, TestbedError> {
        let meters = client.meters().await?;
        Ok(Self { meters })
    }

    /// Planned and moved bytes since, for each flow where one of the two is not zero.
    pub(crate) fn since(&self, before: &Self) -> Vec<Flow> {
        let mut flows: BTreeMap<_, Moved> = BTreeMap::new();
        for (&place, &bytes) in &self.meters.planned.bytes {
            flows.entry(place).or_default().planned_bytes = bytes;
        }
        for (&place, &bytes) in &before.meters.planned.bytes {
            // A process that restarted counts from zero again.
            let planned_bytes = &mut flows.entry(place).or_default().planned_bytes;
            *planned_bytes = planned_bytes.saturating_sub(bytes);
        }
        for (place, bytes) in self.metered_since(before).bytes {
            flows.entry(place).or_default().metered_bytes = bytes;
        }
        flows.retain(|_, moved| *moved != Moved::default());
        let flow =
            |((from, to, purpose), moved): ((Option<RackId>, Option<RackId>, Purpose), _)| Flow {
                from_rack: from.map(|rack| rack.0),
                to_rack: to.map(|rack| rack.0),
                purpose: purpose.name(),
                moved,
            };
        flows.into_iter().map(flow).collect()
    }

    /// Bytes that this client and each node have sent since. A node that did not report before is left out. A node
    /// whose count has decreased has restarted, and counts from then on.
    fn metered_since(&self, before: &Self) -> Meter {
        let mut metered = difference(&self.meters.client, &before.meters.client);
        for (node, now) in &self.meters.nodes {
            if before.meters.unreachable.contains(node) {
                continue;
            }
            match before.meters.nodes.get(node) {
                Some(earlier) if is_continued(now, earlier) => {
                    metered.add(&difference(now, earlier));
                }
                _ => metered.add(now),
            }
        }
        metered
    }

    /// Nodes that did not report their traffic now or before, have left since, or count less than before because they
    /// have restarted: metered bytes are too low.
    pub(crate) fn unmetered_nodes(&self, before: &Self) -> Vec<u32> {
        let unreachable = |traffic: &Self| traffic.meters.unreachable.clone();
        let is_interrupted = |(node, earlier): &(&NodeId, &Meter)| {
            let now = self.meters.nodes.get(node);
            !now.is_some_and(|now| is_continued(now, earlier))
        };
        let interrupted = before.meters.nodes.iter().filter(is_interrupted);
        let all = unreachable(before).into_iter().chain(unreachable(self));
        let all = all.chain(interrupted.map(|(&node, _)| node));
        let distinct: BTreeSet<u32> = all.map(|node| node.0).collect();
        distinct.into_iter().collect()
    }
}

/// Whether no count of a meter has decreased. After a restart, a process counts from zero; if it then sends more than
/// before, its meter does not show the restart.
fn is_continued(now: &Meter, earlier: &Meter) -> bool {
    let is_kept = |(place, &bytes)| now.bytes.get(place).is_some_and(|&now| now >= bytes);
    earlier.bytes.iter().all(is_kept)
}

/// The bytes that a meter has counted since it was as `earlier`.
fn difference(now: &Meter, earlier: &Meter) -> Meter {
    let mut since = now.clone();
    for (place, bytes) in &mut since.bytes {
        *bytes = bytes.saturating_sub(earlier.bytes.get(place).copied().unwrap_or_default());
    }
    since
}

/// Sums over different racks, by purpose.
#[must_use]
pub fn cross_rack(flows: &[Flow]) -> BTreeMap<&'static str, Moved> {
    let mut sums: BTreeMap<_, Moved> = BTreeMap::new();
    let crosses = |flow: &&Flow| {
        flow.from_rack.is_some() && flow.to_rack.is_some() && flow.from_rack != flow.to_rack
    };
    for flow in flows.iter().filter(crosses) {
        let sum = sums.entry(flow.purpose).or_default();
        sum.planned_bytes += flow.moved.planned_bytes;
        sum.metered_bytes += flow.moved.metered_bytes;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(updates: u64) -> Meter {
        let mut meter = Meter::default();
        meter.count(Some(RackId(0)), Some(RackId(1)), Purpose::Update, updates);
        meter
    }

    fn traffic(nodes: &[(u32, u64)], unreachable: &[u32]) -> Traffic {
        let nodes = nodes
            .iter()
            .map(|&(node, sent)| (NodeId(node), meter(sent)));
        Traffic {
            meters: ClusterMeters {
                nodes: nodes.collect(),
                unreachable: unreachable.iter().copied().map(NodeId).collect(),
                ..ClusterMeters::default()
            },
        }
    }

    #[test]
    fn bytes_are_counted_node_by_node_and_nodes_without_a_whole_count_are_named() {
        let before = traffic(&[(0, 100), (1, 100), (2, 100)], &[3, 4]);
        // Node 1 has restarted, node 2 is silent now, node 3 was silent before, and node 5 is new.
        let now = traffic(&[(0, 107), (1, 40), (3, 5000), (5, 200)], &[2, 4]);
        let flows = now.since(&before);
        let metered: Vec<u64> = flows.iter().map(|flow| flow.moved.metered_bytes).collect();
        assert_eq!(metered, [7 + 40 + 200]);
        assert_eq!(now.unmetered_nodes(&before), [1, 2, 3, 4]);
        // Without any trouble, no node is named.
        let later = traffic(&[(0, 107), (1, 100)], &[]);
        let earlier = traffic(&[(0, 107), (1, 40)], &[]);
        assert!(later.unmetered_nodes(&earlier).is_empty());
    }
}
