//! The traffic of a replay between racks, planned and metered.

use crate::error::TestbedError;
use gabion_client::{Client, ClusterMeters};
use gabion_layout::RackId;
use gabion_protocol::message::Purpose;
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
        for (&place, &bytes) in &self.meters.sum().bytes {
            flows.entry(place).or_default().metered_bytes = bytes;
        }
        for (place, bytes) in before.meters.sum().bytes {
            let metered_bytes = &mut flows.entry(place).or_default().metered_bytes;
            *metered_bytes = metered_bytes.saturating_sub(bytes);
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

    /// Nodes that did not report their traffic now or before, so that metered bytes are too low.
    pub(crate) fn unmetered_nodes(&self, before: &Self) -> Vec<u32> {
        let unreachable = |traffic: &Self| traffic.meters.unreachable.clone();
        let all = unreachable(before).into_iter().chain(unreachable(self));
        let distinct: BTreeSet<u32> = all.map(|node| node.0).collect();
        distinct.into_iter().collect()
    }
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
