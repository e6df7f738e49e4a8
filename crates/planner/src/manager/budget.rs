//! The rate limits of repairs: a token bucket for each port of a node or rack, and one for all together.
//!
//! A bucket is kept as the time until which its bytes are spent. A repair may start when none of its buckets is in
//! debt. Then all its bytes are taken at once, and the repair spreads them over the time that the slowest bucket needs
//! for them. So over any time a port carries at most its rate, a tenth of a second's worth and the repairs that have
//! begun.

use crate::port::{Port, by_port};
use gabion_layout::Topology;
use gabion_plan::LinkBytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The allowance that idle time may accumulate: enough to make up for a late start, not for a burst.
const SAVED_NS: u64 = 100_000_000;

/// The most that repairs may send, in bytes a second; none is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Into, and out of, each node.
    pub node_bytes_per_s: Option<u64>,
    /// Into, and out of, each rack, from and to others.
    pub rack_bytes_per_s: Option<u64>,
    /// Sent by all nodes together.
    pub total_bytes_per_s: Option<u64>,
}

impl Limits {
    fn of(&self, bucket: Bucket) -> Option<u64> {
        match bucket {
            Bucket::Port(Port::IntoNode(_) | Port::OutOfNode(_)) => self.node_bytes_per_s,
            Bucket::Port(Port::IntoRack(_) | Port::OutOfRack(_)) => self.rack_bytes_per_s,
            Bucket::Total => self.total_bytes_per_s,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Bucket {
    Port(Port),
    Total,
}

/// The bytes that a repair takes from each bucket.
type Loads = BTreeMap<Bucket, u64>;

fn loads(links: &[LinkBytes], topology: &Topology) -> Loads {
    let ports = by_port(links, topology).into_iter();
    let mut loads: Loads = ports.map(|(port, n)| (Bucket::Port(port), n)).collect();
    let total = links.iter().map(|link| link.bytes).sum();
    loads.insert(Bucket::Total, total);
    loads
}

/// The repair that may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The one at this position.
    Begin(usize),
    /// None before this time, in milliseconds.
    Later(u64),
    /// There are none.
    Nothing,
}

/// The buckets. Times are milliseconds of a clock that never steps back.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// Time until which each bucket's bytes are spent, in nanoseconds; buckets that are paid for may be
    /// missing.
    spent_until_ns: BTreeMap<Bucket, u64>,
}

impl Budget {
    /// From when on these links may be used, 0 if they may at once: when every bucket that they take
    /// from is paid for.
    #[must_use]
    pub fn free_at_ms(&self, links: &[LinkBytes], topology: &Topology, limits: &Limits) -> u64 {
        let limited = loads(links, topology).into_keys();
        let limited = limited.filter(|&bucket| limits.of(bucket).is_some());
        let free = limited.filter_map(|bucket| self.spent_until_ns.get(&bucket));
        free.max().map_or(0, |ns| ns.div_ceil(1_000_000))
    }

    /// The repair that may begin, given the links of each, the most urgent first: the first whose
    /// links are free, but none that would pass a more urgent one which waits for a bucket that both
    /// take from. If there is none, when to ask again.
    #[must_use]
    pub fn choose(
        &self,
        repairs: &[&[LinkBytes]],
        topology: &Topology,
        limits: &Limits,
        now_ms: u64,
    ) -> Choice {
        let mut awaited: BTreeSet<Bucket> = BTreeSet::new();
        let mut next_ms = None;
        for (at, links) in repairs.iter().enumerate() {
            let free_ms = self.free_at_ms(links, topology, limits);
            let limited = loads(links, topology).into_keys();
            let mut limited = limited.filter(|&bucket| limits.of(bucket).is_some());
            if free_ms <= now_ms && !limited.any(|bucket| awaited.contains(&bucket)) {
                return Choice::Begin(at);
            }
            if free_ms > now_ms {
                next_ms = Some(next_ms.map_or(free_ms, |known: u64| known.min(free_ms)));
            }
            awaited.extend(loads(links, topology).into_keys());
        }
        next_ms.map_or(Choice::Nothing, Choice::Later)
    }

    /// Takes what these links are to carry, paid for or not. Over how many milliseconds it is to be
    /// spread; 0 where nothing is limited.
    pub fn take(
        &mut self,
        links: &[LinkBytes],
        topology: &Topology,
        limits: &Limits,
        now_ms: u64,
    ) -> u64 {
        let now = now_ms.saturating_mul(1_000_000);
        let earliest = now.saturating_sub(SAVED_NS);
        self.spent_until_ns.retain(|_, until| *until > earliest);
        let mut spread_ns = 0;
        for (bucket, bytes) in loads(links, topology) {
            let Some(bytes_per_s) = limits.of(bucket) else {
                continue;
            };
            let ns = u128::from(bytes) * 1_000_000_000;
            let ns = ns.div_ceil(u128::from(bytes_per_s.max(1)));
            let ns = u64::try_from(ns).unwrap_or(u64::MAX);
            let until = self.spent_until_ns.entry(bucket).or_default();
            *until = (*until).max(earliest);
            *until = until.saturating_add(ns);
            spread_ns = ns.max(spread_ns);
        }
        spread_ns / 1_000_000
    }

    /// Forgets what is spent: limits have changed, and debts made under others mean nothing.
    pub fn clear(&mut self) {
        self.spent_until_ns.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::NodeId;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn link(from: u32, to: u32, bytes: u64) -> LinkBytes {
        LinkBytes {
            from: NodeId(from),
            to: NodeId(to),
            bytes,
        }
    }

    fn per_node(bytes_per_s: u64) -> Limits {
        Limits {
            node_bytes_per_s: Some(bytes_per_s),
            ..Limits::default()
        }
    }

    #[test]
    fn what_is_not_limited_is_free_and_not_spread() {
        let topology = Topology::uniform(2, 2);
        let mut budget = Budget::default();
        let links = [link(0, 2, MIB)];
        assert_eq!(budget.take(&links, &topology, &Limits::default(), 7), 0);
        assert_eq!(budget.free_at_ms(&links, &topology, &per_node(1)), 0);
    }

    #[test]
    fn a_port_is_free_again_when_its_bytes_are_paid_for() {
        let topology = Topology::uniform(2, 2);
        let limits = per_node(MIB);
        let mut budget = Budget::default();
        let spread_ms = budget.take(&[link(0, 1, 2 * MIB)], &topology, &limits, 1_000);
        assert_eq!(spread_ms, 2_000);
        let free = |links: &[LinkBytes]| budget.free_at_ms(links, &topology, &limits);
        assert_eq!(free(&[link(0, 3, 1)]), 2_900, "out of node 0");
        assert_eq!(free(&[link(3, 1, 1)]), 2_900, "into node 1");
        assert_eq!(free(&[link(1, 0, 1)]), 0, "the other way round");
        assert_eq!(free(&[link(2, 3, 1)]), 0, "other nodes");
    }

    #[test]
    fn racks_are_limited_across_and_all_together_by_what_is_sent() {
        let topology = Topology::uniform(2, 2);
        let mut budget = Budget::default();
        let limits = Limits {
            node_bytes_per_s: None,
            rack_bytes_per_s: Some(MIB),
            total_bytes_per_s: Some(4 * MIB),
        };
        let inner = [link(0, 1, 8 * MIB)];
        assert_eq!(budget.take(&inner, &topology, &limits, 1_000), 2_000);
        assert_eq!(budget.free_at_ms(&inner, &topology, &limits), 2_900);
        let crossing = [link(0, 2, 4 * MIB)];
        assert_eq!(budget.take(&crossing, &topology, &limits, 3_000), 4_000);
        assert_eq!(budget.free_at_ms(&inner, &topology, &limits), 3_900);
        assert_eq!(budget.free_at_ms(&crossing, &topology, &limits), 6_900);
        budget.clear();
        assert_eq!(budget.free_at_ms(&crossing, &topology, &limits), 0);
    }

    #[test]
    fn the_most_urgent_repair_that_is_free_begins_and_passes_no_other_on_its_way() {
        let topology = Topology::uniform(1, 6);
        let limits = per_node(MIB);
        let mut budget = Budget::default();
        budget.take(&[link(0, 1, MIB)], &topology, &limits, 1_000);
        let (waits, shares, apart) = ([link(0, 2, 1)], [link(3, 2, 1)], [link(4, 5, 1)]);
        let choose =
            |repairs: &[&[LinkBytes]], now_ms| budget.choose(repairs, &topology, &limits, now_ms);
        assert_eq!(choose(&[], 1_000), Choice::Nothing);
        assert_eq!(choose(&[&waits, &shares], 1_000), Choice::Later(1_900));
        assert_eq!(choose(&[&waits, &shares, &apart], 1_000), Choice::Begin(2));
        assert_eq!(choose(&[&shares, &waits], 1_000), Choice::Begin(0));
        assert_eq!(choose(&[&waits, &shares], 1_900), Choice::Begin(0));
    }

    proptest! {
        /// Repairs of any sizes that begin as early as they may: until the last begins, the port has
        /// been asked for no more than its rate and what was saved, beside that last one.
        #[test]
        fn the_rate_is_kept_over_any_time(
            sizes in prop::collection::vec(1u64..64 * MIB, 2..40),
            late_ms in prop::collection::vec(0u64..300, 40),
            mib_per_s in 1u64..100,
        ) {
            let topology = Topology::uniform(1, 2);
            let limits = per_node(mib_per_s * MIB);
            let mut budget = Budget::default();
            let mut now_ms = 10_000;
            let began_ms = now_ms;
            let mut before_last = 0;
            for (&bytes, late_ms) in sizes.iter().zip(late_ms) {
                let links = [link(0, 1, bytes)];
                now_ms = now_ms.max(budget.free_at_ms(&links, &topology, &limits)) + late_ms;
                let allowed = (now_ms - began_ms + SAVED_NS / 1_000_000) * mib_per_s * MIB / 1_000;
                prop_assert!(before_last <= allowed, "{before_last} of {allowed}");
                budget.take(&links, &topology, &limits, now_ms);
                before_last += bytes;
            }
        }
    }
}
