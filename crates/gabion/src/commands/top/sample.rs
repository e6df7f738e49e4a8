//! The cluster at one time, and the rates between two times.

use crate::failure::Failure;
use gabion_client::{Client, ClusterMeters};
use gabion_protocol::message::{ClusterStatus, Purpose, Served};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The cluster at one time.
pub(super) struct Sample {
    at: Instant,
    pub(super) status: ClusterStatus,
    meters: ClusterMeters,
}

/// What happens in a second. A node that was restarted between the two times counts from its start.
pub(super) struct Rates {
    /// By node, updates and parts of reads.
    pub(super) served: BTreeMap<gabion_layout::NodeId, (f64, f64)>,
    /// Cross-rack bytes, planned and metered, of purposes with any. None are planned if other nodes have answered than before.
    pub(super) crossing: Vec<(Purpose, f64, f64)>,
}

impl Rates {
    /// Updates and parts of reads of all nodes.
    pub(super) fn all_served(&self) -> (f64, f64) {
        let served = self.served.values();
        served.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

impl Sample {
    /// Asks the coordinator and all nodes.
    pub(super) async fn take(client: &Client) -> Result<Self, Failure> {
        let at = Instant::now();
        let status = client.status().await?;
        let meters = client.meters().await?;
        Ok(Self { at, status, meters })
    }

    /// How long ago that was.
    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// Cross-rack bytes of a purpose that were planned so far. Repairs and encodings have sums of their own.
    fn planned(&self, purpose: Purpose) -> u64 {
        let lifecycle = &self.status.lifecycle;
        let coordinators = match purpose {
            Purpose::Repair => self.status.repair.planned_cross_rack_bytes,
            Purpose::Encode => {
                lifecycle.planned_encode_cross_rack_bytes
                    + lifecycle.planned_promote_cross_rack_bytes
            }
            _ => 0,
        };
        self.meters.planned.cross_rack(purpose) + coordinators
    }

    /// The rates since an earlier sample.
    pub(super) fn since(&self, before: &Self) -> Rates {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(0.001);
        let rate = |now: u64, before: u64| {
            let change = if now >= before { now - before } else { now };
            change as f64 / seconds
        };
        let served = self.status.served.iter().map(|(&node, now)| {
            let before = before.status.served.get(&node).copied();
            let before = before.unwrap_or(Served { ..*now });
            let updates = rate(now.update_count, before.update_count);
            (node, (updates, rate(now.read_count, before.read_count)))
        });
        let metered = |purpose: Purpose| {
            let nodes = self.meters.nodes.iter();
            let rates = nodes.filter_map(|(node, now)| {
                let before = before.meters.nodes.get(node)?;
                Some(rate(now.cross_rack(purpose), before.cross_rack(purpose)))
            });
            rates.sum::<f64>()
        };
        // The plans are known as a sum over the nodes that have answered.
        let are_same = self.meters.nodes.keys().eq(before.meters.nodes.keys());
        let crossing = Purpose::ALL.into_iter().map(|purpose| {
            let now = self.planned(purpose);
            let then = if are_same {
                before.planned(purpose)
            } else {
                now
            };
            (purpose, rate(now, then.min(now)), metered(purpose))
        });
        Rates {
            served: served.collect(),
            crossing: crossing
                .filter(|(_, planned, metered)| planned + metered > 0.0)
                .collect(),
        }
    }
}
