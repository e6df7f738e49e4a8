//! The cluster at one time, and the rates between two times.

use gabion_client::{Client, ClientError, ClusterMeters};
use gabion_layout::{NodeId, RackId};
use gabion_protocol::message::{ClusterStatus, Meter, Purpose, Served};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// The cluster at one time.
#[derive(Debug)]
pub struct Sample {
    at: Instant,
    /// What the coordinator has said.
    pub status: ClusterStatus,
    /// What nodes have sent, and what was planned.
    pub meters: ClusterMeters,
}

/// What happens in a second. A node that was restarted between the two times counts from its start.
#[derive(Debug)]
pub struct Rates {
    /// By node, updates and parts of reads.
    pub served: BTreeMap<NodeId, (f64, f64)>,
    /// Cross-rack bytes, planned and metered, of purposes with any. None are planned if other nodes have answered than before.
    pub crossing: Vec<(Purpose, f64, f64)>,
}

/// Cross-rack bytes of a purpose.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Crossing {
    /// The purpose, such as `repair`.
    pub purpose: &'static str,
    /// The bytes that plans have said, a second.
    pub planned_bytes_per_s: f64,
    /// The bytes that nodes have sent, a second.
    pub metered_bytes_per_s: f64,
}

/// The purposes whose plans are known by link. Those of repairs and encodings are known as sums.
const BY_LINK: [Purpose; 4] = [
    Purpose::Update,
    Purpose::Replica,
    Purpose::Commit,
    Purpose::Grouping,
];

/// Bytes from one rack to another since the processes' start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct RackLink {
    /// The senders' rack.
    pub from_rack: u32,
    /// The receivers' rack.
    pub to_rack: u32,
    /// Planned bytes of updates, replicas, commits and grouping.
    pub planned_bytes: u64,
    /// Metered bytes of the same purposes.
    pub metered_bytes: u64,
    /// Metered bytes of repairs.
    pub repair_bytes: u64,
    /// Metered bytes of encodings and of reads.
    pub other_bytes: u64,
}

impl Rates {
    /// The cross-rack bytes by purpose.
    pub fn crossings(&self) -> Vec<Crossing> {
        let crossings = self.crossing.iter();
        let crossings = crossings.map(|&(purpose, planned, metered)| Crossing {
            purpose: purpose.name(),
            planned_bytes_per_s: planned,
            metered_bytes_per_s: metered,
        });
        crossings.collect()
    }

    /// Updates and parts of reads of all nodes.
    pub fn all_served(&self) -> (f64, f64) {
        let served = self.served.values();
        served.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

impl Sample {
    /// Asks the coordinator and all nodes.
    ///
    /// # Errors
    /// Those of [`Client::status`] and [`Client::meters`].
    pub async fn take(client: &Client) -> Result<Self, ClientError> {
        let at = Instant::now();
        let status = client.status().await?;
        let meters = client.meters().await?;
        Ok(Self { at, status, meters })
    }

    /// The links between racks, the busiest first.
    pub fn links(&self) -> Vec<RackLink> {
        let mut links: BTreeMap<(RackId, RackId), RackLink> = BTreeMap::new();
        let mut add = |meter: &Meter, count: fn(&mut RackLink, Purpose, u64)| {
            for (&(from, to, purpose), &bytes) in &meter.bytes {
                if let (Some(from), Some(to)) = (from, to)
                    && from != to
                {
                    let link = links.entry((from, to)).or_insert_with(|| RackLink {
                        from_rack: from.0,
                        to_rack: to.0,
                        planned_bytes: 0,
                        metered_bytes: 0,
                        repair_bytes: 0,
                        other_bytes: 0,
                    });
                    count(link, purpose, bytes);
                }
            }
        };
        add(&self.meters.planned, |link, purpose, bytes| {
            if BY_LINK.contains(&purpose) {
                link.planned_bytes += bytes;
            }
        });
        for meter in self.meters.nodes.values() {
            add(meter, |link, purpose, bytes| match purpose {
                Purpose::Repair => link.repair_bytes += bytes,
                _ if BY_LINK.contains(&purpose) => link.metered_bytes += bytes,
                _ => link.other_bytes += bytes,
            });
        }
        let mut links: Vec<RackLink> = links.into_values().collect();
        links.sort_by_key(|link| {
            let all = link.metered_bytes + link.repair_bytes + link.other_bytes;
            std::cmp::Reverse(all.max(link.planned_bytes))
        });
        links
    }

    /// How long ago that was.
    pub fn age(&self) -> Duration {
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
    pub fn since(&self, before: &Self) -> Rates {
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
