//! A node's reserves from period to period: when each is reviewed, what its pool has learnt, and the decisions.
//!
//! [`gabion_planner::reserve`] has the rules. A reserve's first period begins when this process first sees it with
//! records; before, it takes no space, and there is nothing to review. A pool's demand is learnt from this node's own
//! reserves: placement spreads the stripes of a pool over its nodes at random, so each node sees a fair sample, and no
//! message is needed. All is in memory only: after a restart a reserve keeps its size for one period, and demand is
//! learnt anew.

use gabion_layout::{ChunkId, PoolId, ReserveSpec, StripeId};
use gabion_planner::reserve::{Agenda, Budget, Demand, Policy, Reserve, Task, Usage};
use gabion_store::ReserveStats;
use std::collections::{BTreeMap, BTreeSet};

/// The reserves of a node's parity chunks.
#[derive(Debug, Default)]
pub(crate) struct Reserves {
    watched: BTreeMap<ChunkId, Watched>,
    /// The pools of these stripes, and their rules for reserves.
    specs: BTreeMap<StripeId, (PoolId, ReserveSpec)>,
    /// Only of pools in `specs`.
    demands: BTreeMap<PoolId, Demand>,
    agenda: Agenda,
}

/// A reserve and its history.
#[derive(Debug)]
struct Watched {
    reserve: Reserve,
    /// The start of the period.
    since_ms: u64,
    /// The stall count at that time.
    stalls_before: u64,
    /// Bytes of records by then.
    appended_before: u64,
}

/// The decisions of a check of all reserves, besides the work of reviews.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Decided {
    /// End of the next period.
    pub(crate) next_ms: u64,
    /// Reserves that grow at once, with their new sizes.
    pub(crate) grown: Vec<(ChunkId, u64)>,
    /// The sizes that unused reserves take with their first records.
    pub(crate) planned: Vec<(ChunkId, u64)>,
}

impl Reserves {
    /// Forgets all but the reserves found, which are in the order of their chunks.
    pub(crate) fn retain(&mut self, found: &[(ReserveStats, u64)]) {
        self.watched.retain(|chunk, _| {
            let known = found.binary_search_by_key(chunk, |(stats, _)| stats.chunk);
            known.is_ok()
        });
        let held = found.iter().map(|(stats, _)| stats.chunk.stripe);
        let held: BTreeSet<StripeId> = held.collect();
        self.specs.retain(|stripe, _| held.contains(stripe));
        let pools: BTreeSet<PoolId> = self.specs.values().map(|(pool, _)| *pool).collect();
        self.demands.retain(|pool, _| pools.contains(pool));
    }

    /// Some stripes of these reserves whose pools are not known.
    pub(crate) fn unknown(&self, found: &[(ReserveStats, u64)], limit: usize) -> Vec<StripeId> {
        let held = found.iter().map(|(stats, _)| stats.chunk.stripe);
        let unknown = held.filter(|stripe| !self.specs.contains_key(stripe));
        let unknown: BTreeSet<StripeId> = unknown.collect();
        unknown.into_iter().take(limit).collect()
    }

    /// Takes over the coordinator's answer about stripes: their pools, and the pools' rules.
    pub(crate) fn learn_specs(&mut self, specs: Vec<(StripeId, PoolId, ReserveSpec)>) {
        // The limit that depends on the size of chunks holds for the smallest, too.
        let valid = specs.into_iter().filter(|(_, _, spec)| spec.is_valid(1));
        self.specs
            .extend(valid.map(|(stripe, pool, spec)| (stripe, (pool, spec))));
    }

    /// The pool of a stripe, once it is known.
    pub(crate) fn pool_of(&self, stripe: StripeId) -> Option<PoolId> {
        self.specs.get(&stripe).map(|(pool, _)| *pool)
    }

    /// Reviews the reserves whose periods have ended, and decides which others grow, and how large unused ones begin.
    /// `found` has all reserves, each with the bytes of its chunk.
    pub(crate) fn decide(&mut self, found: &[(ReserveStats, u64)], now_ms: u64) -> Decided {
        let mut decided = Decided {
            next_ms: u64::MAX,
            ..Decided::default()
        };
        let mut tasks = Vec::new();
        for (stats, chunk_bytes) in found {
            let chunk = stats.chunk;
            let Some((pool, spec)) = self.specs.get(&chunk.stripe) else {
                continue;
            };
            let demand = self.demands.entry(*pool).or_default();
            let usual = Policy::of(spec, *chunk_bytes);
            let learnt_bytes = demand.first_bytes(&usual);
            // Records that are too large for it go to the journal, and it follows them.
            if stats.is_new && stats.reserved_bytes > 0 && stats.stalled_append_count == 0 {
                decided
                    .planned
                    .extend(learnt_bytes.map(|bytes| (chunk, bytes)));
                continue;
            }
            let policy = Policy {
                first_bytes: learnt_bytes.unwrap_or(usual.first_bytes),
                ..usual
            };
            let period_ms = spec.period_s * 1000;
            let watched = self.watched.entry(chunk);
            let watched = watched.or_insert_with(|| Watched::new(now_ms));
            let usage = watched.usage(stats);
            if now_ms >= watched.since_ms + period_ms {
                demand.note(&policy, watched.appended_bytes(stats));
                let review = watched.reserve.review(&policy, usage);
                tasks.push(Task { chunk, review });
                watched.begin_period(stats, now_ms);
            } else if let Some(grown_bytes) = watched.reserve.grow(&policy, usage) {
                self.agenda.forget(chunk);
                decided.grown.push((chunk, grown_bytes));
            }
            decided.next_ms = decided.next_ms.min(watched.since_ms + period_ms);
        }
        self.agenda.add(tasks);
        decided
    }

    /// The best work of reviews, if the budget pays for it.
    pub(crate) fn take(&mut self, budget: &mut Budget) -> Option<Task> {
        self.agenda.take(budget)
    }
}

impl Watched {
    /// A reserve that was not seen with records before. Its counts began with the process, so all of them are of its
    /// first period.
    fn new(now_ms: u64) -> Self {
        Self {
            reserve: Reserve::default(),
            since_ms: now_ms,
            stalls_before: 0,
            appended_before: 0,
        }
    }

    fn begin_period(&mut self, stats: &ReserveStats, now_ms: u64) {
        self.since_ms = now_ms;
        self.stalls_before = stats.stalled_append_count;
        self.appended_before = stats.appended_bytes;
    }

    /// The reserve's use in its current period.
    fn usage(&self, stats: &ReserveStats) -> Usage {
        Usage {
            reserved_bytes: stats.reserved_bytes,
            used_bytes: stats.used_bytes,
            // The counter restarts when the chunk is rebuilt.
            stall_count: stats
                .stalled_append_count
                .saturating_sub(self.stalls_before),
        }
    }

    /// Bytes of records in its current period.
    fn appended_bytes(&self, stats: &ReserveStats) -> u64 {
        stats.appended_bytes.saturating_sub(self.appended_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::ChunkIndex;

    const CHUNK_BYTES: u64 = 4 << 20;
    const RECORD_BYTES: u64 = 4 << 10;
    const PERIOD_MS: u64 = 3_600_000;
    const LIGHT: PoolId = PoolId(1);
    const HEAVY: PoolId = PoolId(2);

    /// Reserves of a pool's parity chunks, as a store has them, under the decisions of a node.
    #[derive(Default)]
    struct Bed {
        reserves: Reserves,
        learns: bool,
        found: Vec<(ReserveStats, u64)>,
        planned: BTreeMap<ChunkId, u64>,
        now_ms: u64,
    }

    impl Bed {
        fn new(learns: bool) -> Self {
            Self {
                learns,
                ..Self::default()
            }
        }

        /// A new stripe of a pool, which is not updated yet.
        fn put(&mut self, pool: PoolId) -> usize {
            let stripe = StripeId(self.found.len() as u64);
            let chunk = ChunkId {
                stripe,
                index: ChunkIndex(4),
            };
            let spec = ReserveSpec {
                period_s: PERIOD_MS / 1000,
                ..ReserveSpec::default()
            };
            self.reserves.learn_specs(vec![(stripe, pool, spec)]);
            let stats = ReserveStats {
                chunk,
                reserved_bytes: spec.initial_bytes(CHUNK_BYTES),
                is_new: true,
                backed_bytes: 0,
                used_bytes: 0,
                record_count: 0,
                oldest: None,
                newest: None,
                appended_bytes: 0,
                merge_count: 0,
                stalled_append_count: 0,
            };
            self.found.push((stats, CHUNK_BYTES));
            self.found.len() - 1
        }

        /// One record of a parity chunk.
        fn update(&mut self, at: usize) {
            let stats = &mut self.found[at].0;
            if stats.is_new {
                let planned = self.planned.get(&stats.chunk).filter(|_| self.learns);
                stats.reserved_bytes = *planned.unwrap_or(&stats.reserved_bytes);
                stats.is_new = false;
            }
            if stats.used_bytes + RECORD_BYTES > stats.reserved_bytes {
                stats.stalled_append_count += 1;
                stats.merge_count += 1;
                stats.used_bytes = 0;
            }
            if stats.reserved_bytes > 0 {
                stats.used_bytes += RECORD_BYTES;
                stats.appended_bytes += RECORD_BYTES;
            }
            stats.backed_bytes = stats.reserved_bytes;
        }

        fn look(&mut self) {
            let decided = self.reserves.decide(&self.found, self.now_ms);
            self.planned.extend(decided.planned);
            for (chunk, bytes) in decided.grown {
                self.set(chunk, bytes);
            }
            let mut rich = Budget::new(u64::MAX / 2);
            rich.pass(1000);
            while let Some(Task { chunk, review }) = self.reserves.take(&mut rich) {
                self.set(chunk, review.reserved_bytes);
                if review.merges {
                    self.found[chunk.stripe.0 as usize].0.used_bytes = 0;
                }
            }
        }

        fn set(&mut self, chunk: ChunkId, bytes: u64) {
            let stats = &mut self.found[chunk.stripe.0 as usize].0;
            (stats.reserved_bytes, stats.backed_bytes) = (bytes, bytes);
        }

        /// A period with a number of records for each of these chunks.
        fn period(&mut self, updated: &[(usize, u64)]) {
            let most = updated.iter().map(|(_, count)| *count).max().unwrap_or(0);
            for number in 0..most {
                for &(at, count) in updated {
                    if number < count {
                        self.update(at);
                    }
                }
                if number % 16 == 0 {
                    self.now_ms += 1;
                    self.look();
                }
            }
            self.now_ms += PERIOD_MS;
            self.look();
        }

        fn backed_bytes(&self) -> u64 {
            self.found.iter().map(|(stats, _)| stats.backed_bytes).sum()
        }

        fn merge_count(&self) -> u64 {
            self.found.iter().map(|(stats, _)| stats.merge_count).sum()
        }
    }

    /// Sixteen stripes are updated in a first period, and sixteen others of the same pool in a second one. Returns the
    /// bytes of the latter's reserves when their first records have come, and their merges.
    fn second_half(learns: bool, records: u64) -> (u64, u64) {
        let mut bed = Bed::new(learns);
        let all: Vec<usize> = (0..32).map(|_| bed.put(LIGHT)).collect();
        let updates = |half: &[usize]| half.iter().map(|&at| (at, records)).collect::<Vec<_>>();
        bed.look();
        bed.period(&updates(&all[..16]));
        let (reserved_bytes, merge_count) = (bed.backed_bytes(), bed.merge_count());
        for &at in &all[16..] {
            bed.update(at);
        }
        let first_bytes = bed.backed_bytes() - reserved_bytes;
        bed.period(&updates(&all[16..]));
        (first_bytes, bed.merge_count() - merge_count)
    }

    #[test]
    fn a_pool_of_sparse_updates_ends_with_small_first_reserves() {
        // 40 KiB of records in a period, behind chunks of 4 MiB.
        let (fixed_bytes, _) = second_half(false, 10);
        let (first_bytes, merge_count) = second_half(true, 10);
        assert_eq!(fixed_bytes, 16 * CHUNK_BYTES);
        assert_eq!((first_bytes, merge_count), (16 * (64 << 10), 0));
    }

    #[test]
    fn a_pool_of_many_updates_ends_with_large_first_reserves_and_fewer_merges() {
        // 20 MiB of records in a period, behind chunks of 4 MiB.
        let (fixed_bytes, fixed_count) = second_half(false, 5_120);
        let (first_bytes, merge_count) = second_half(true, 5_120);
        assert_eq!(fixed_bytes, 16 * CHUNK_BYTES);
        assert!(first_bytes > 16 * (20 << 20), "{first_bytes}");
        assert!(fixed_count >= 16 * 2, "{fixed_count}");
        assert_eq!(merge_count, 0);
    }

    #[test]
    fn each_pool_learns_for_itself_and_forgets_with_its_last_reserve() {
        let mut bed = Bed::new(true);
        let light: Vec<usize> = (0..9).map(|_| bed.put(LIGHT)).collect();
        let heavy: Vec<usize> = (0..9).map(|_| bed.put(HEAVY)).collect();
        bed.look();
        assert!(bed.planned.is_empty(), "nothing is learnt yet");
        let updates = |half: &[usize], records| half[..8].iter().map(|&at| (at, records)).collect();
        let all: [Vec<(usize, u64)>; 2] = [updates(&light, 10), updates(&heavy, 2_000)];
        bed.period(&all.concat());
        bed.look();
        let planned = |at: usize| bed.planned[&bed.found[at].0.chunk];
        assert_eq!(planned(light[8]), 64 << 10);
        assert!(planned(heavy[8]) > 2 * CHUNK_BYTES);
        assert_eq!(bed.planned.len(), 2, "used ones follow their own use");
        bed.reserves.retain(&bed.found[..9]);
        assert_eq!(bed.reserves.demands.keys().collect::<Vec<_>>(), [&LIGHT]);
    }

    #[test]
    fn a_reserve_grows_if_its_first_records_are_too_large_for_it() {
        let mut bed = Bed::new(true);
        let at = bed.put(LIGHT);
        bed.look();
        // Each went to the journal, so no record was ever in the reserve.
        for count in 1..=2 {
            bed.found[at].0.stalled_append_count = count;
            bed.look();
        }
        assert_eq!(bed.found[at].0.reserved_bytes, 2 * CHUNK_BYTES);
    }

    #[test]
    fn an_unused_reserve_is_not_reviewed_and_a_used_ones_period_begins_with_its_use() {
        let mut bed = Bed::new(true);
        let at = bed.put(LIGHT);
        for _ in 0..30 {
            bed.period(&[]);
        }
        assert_eq!(bed.found[at].0.reserved_bytes, CHUNK_BYTES, "still a hole");
        bed.now_ms += PERIOD_MS - 1;
        bed.update(at);
        bed.look();
        bed.now_ms += PERIOD_MS - 1;
        bed.look();
        assert_eq!(bed.found[at].0.used_bytes, RECORD_BYTES);
        bed.now_ms += 1;
        bed.look();
        assert_eq!(
            bed.found[at].0.used_bytes, 0,
            "a period after its first use"
        );
        for _ in 0..20 {
            bed.period(&[]);
        }
        assert_eq!(bed.found[at].0.reserved_bytes, 0);
    }
}
