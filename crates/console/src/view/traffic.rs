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
    /// The coordinator's answer.
    pub status: ClusterStatus,
    /// The sent bytes of nodes, and the planned bytes.
    pub meters: ClusterMeters,
}

/// Rates per second. A node that was restarted between the two times counts from its start.
#[derive(Debug)]
pub struct Rates {
    /// By node, updates and parts of reads.
    pub served: BTreeMap<NodeId, (f64, f64)>,
    /// Cross-rack bytes, planned and metered, of purposes with any. None are planned if other nodes have answered than
    /// before.
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

/// Bytes from one rack to another since the processes' start, or a second.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, ToSchema)]
pub struct LinkBytes {
    /// Planned bytes of updates, replicas, commits and grouping.
    pub planned: u64,
    /// Metered bytes of the same purposes.
    pub metered: u64,
    /// Metered bytes of repairs.
    pub repair: u64,
    /// Metered bytes of encodings and of reads.
    pub other: u64,
}

impl LinkBytes {
    fn most(&self) -> u64 {
        self.planned.max(self.metered + self.repair + self.other)
    }

    /// The increase since then, per second. A restarted process counts as idle once.
    fn rate_since(&self, before: &Self, seconds: f64) -> Self {
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
        Self {
            planned: rate(self.planned, before.planned),
            metered: rate(self.metered, before.metered),
            repair: rate(self.repair, before.repair),
            other: rate(self.other, before.other),
        }
    }
}

/// Traffic from one rack to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct RackLink {
    /// The senders' rack.
    pub from_rack: u32,
    /// The receivers' rack.
    pub to_rack: u32,
    /// Bytes since the processes' start.
    pub bytes: LinkBytes,
    /// Bytes a second; null until there are two looks.
    pub bytes_per_s: Option<LinkBytes>,
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

    /// The links between racks, the busiest first, with their rates since an earlier sample.
    pub fn links(&self, before: Option<&Self>) -> Vec<RackLink> {
        let then = before.map(|before| {
            let seconds = self.at.duration_since(before.at).as_secs_f64().max(0.001);
            (before.by_link(), seconds)
        });
        let links = self.by_link().into_iter();
        let links = links.map(|((from, to), bytes)| RackLink {
            from_rack: from.0,
            to_rack: to.0,
            bytes_per_s: then.as_ref().map(|(then, seconds)| {
                let none = LinkBytes::default();
                bytes.rate_since(then.get(&(from, to)).unwrap_or(&none), *seconds)
            }),
            bytes,
        });
        let mut links: Vec<RackLink> = links.collect();
        links.sort_by_key(|link| {
            let rate = link.bytes_per_s.as_ref().map_or(0, LinkBytes::most);
            std::cmp::Reverse((rate, link.bytes.most()))
        });
        links
    }

    fn by_link(&self) -> BTreeMap<(RackId, RackId), LinkBytes> {
        let mut links: BTreeMap<(RackId, RackId), LinkBytes> = BTreeMap::new();
        let mut add = |meter: &Meter, count: fn(&mut LinkBytes, Purpose, u64)| {
            for (&(from, to, purpose), &bytes) in &meter.bytes {
                if let (Some(from), Some(to)) = (from, to)
                    && from != to
                {
                    count(links.entry((from, to)).or_default(), purpose, bytes);
                }
            }
        };
        add(&self.meters.planned, |link, purpose, bytes| {
            if BY_LINK.contains(&purpose) {
                link.planned += bytes;
            }
        });
        for meter in self.meters.nodes.values() {
            add(meter, |link, purpose, bytes| match purpose {
                Purpose::Repair => link.repair += bytes,
                _ if BY_LINK.contains(&purpose) => link.metered += bytes,
                _ => link.other += bytes,
            });
        }
        links
    }

    /// The age of that answer.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, planned: u64, sent: &[(u32, u32, Purpose, u64)]) -> Sample {
        let mut meters = ClusterMeters::default();
        let update = Purpose::Update;
        let (one, two) = (Some(RackId(1)), Some(RackId(2)));
        meters.planned.count(one, two, update, planned);
        let meter = meters.nodes.entry(NodeId(0)).or_default();
        for &(from, to, purpose, bytes) in sent {
            meter.count(Some(RackId(from)), Some(RackId(to)), purpose, bytes);
        }
        meter.count(None, two, update, 1_000);
        Sample {
            at,
            status: ClusterStatus::default(),
            meters,
        }
    }

    #[test]
    fn links_between_racks_have_planned_and_metered_bytes_and_rates() {
        let begun = Instant::now();
        let (update, repair) = (Purpose::Update, Purpose::Repair);
        let first = [(1, 2, update, 100), (1, 1, update, 7)];
        let before = sample(begun, 100, &first);
        let then = [
            (1, 2, update, 500),
            (1, 2, Purpose::Client, 9),
            (2, 1, repair, 4_000),
        ];
        let now = sample(begun + Duration::from_secs(2), 500, &then);
        let link = |planned, metered, repair, other| LinkBytes {
            planned,
            metered,
            repair,
            other,
        };
        let links = now.links(Some(&before));
        let known: Vec<_> = links
            .iter()
            .map(|link| (link.from_rack, link.to_rack, link.bytes.clone()))
            .collect();
        let expected = [(2, 1, link(0, 0, 4_000, 0)), (1, 2, link(500, 500, 0, 9))];
        assert_eq!(known, expected, "the busiest first");
        assert_eq!(links[1].bytes_per_s, Some(link(200, 200, 0, 4)));
        assert_eq!(now.links(None)[0].bytes_per_s, None);
        let restarted = before.links(Some(&now));
        assert_eq!(restarted[0].bytes_per_s, Some(LinkBytes::default()));
    }
}
