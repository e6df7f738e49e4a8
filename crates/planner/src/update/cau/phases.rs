//! The append phases of one primary's stripes: which of them have updates that wait for a commit, and when the commit
//! is due ([`CommitPolicy`]). Access tickets, by which CAU keeps updates and commits of a stripe apart (section 4), are
//! the stripe's lease and its primary's queue: the primary makes both.

use super::policy::{AppendPhase, CommitPolicy};
use gabion_layout::{AppendSpec, PoolId, StripeId};
use std::collections::BTreeMap;

/// The phases of one primary in all pools. Times are in milliseconds of the caller's clock.
#[derive(Debug, Default)]
pub struct Phases {
    pools: BTreeMap<PoolId, Phase>,
}

/// The waiting updates of one pool.
#[derive(Debug)]
struct Phase {
    policy: CommitPolicy,
    /// Bytes in append logs, by stripe.
    stripes: BTreeMap<StripeId, u64>,
    /// When the oldest update came.
    since_ms: u64,
}

impl Phase {
    fn figures(&self) -> AppendPhase {
        AppendPhase {
            stripe_count: self.stripes.len() as u64,
            log_bytes: self.stripes.values().sum(),
            oldest_at: (!self.stripes.is_empty()).then_some(self.since_ms),
            is_demanded: false,
        }
    }

    fn stripes(&self) -> Vec<StripeId> {
        self.stripes.keys().copied().collect()
    }
}

impl Phases {
    /// Notes that a stripe of a pool has `bytes` more in append logs.
    pub fn note(
        &mut self,
        (pool, spec): (PoolId, &AppendSpec),
        stripe: StripeId,
        bytes: u64,
        now_ms: u64,
    ) {
        let phase = self.pools.entry(pool).or_insert_with(|| Phase {
            policy: CommitPolicy::of(spec),
            stripes: BTreeMap::new(),
            since_ms: now_ms,
        });
        if phase.stripes.is_empty() {
            phase.since_ms = now_ms;
        }
        *phase.stripes.entry(stripe).or_default() += bytes;
    }

    /// Forgets a stripe: nothing of it waits, or another primary commits it.
    pub fn end(&mut self, stripe: StripeId) {
        for phase in self.pools.values_mut() {
            phase.stripes.remove(&stripe);
        }
    }

    /// Whether no stripe waits.
    pub fn is_empty(&self) -> bool {
        let mut phases = self.pools.values();
        phases.all(|phase| phase.stripes.is_empty())
    }

    /// Whether a stripe waits.
    pub fn has(&self, stripe: StripeId) -> bool {
        self.pools
            .values()
            .any(|phase| phase.stripes.contains_key(&stripe))
    }

    /// The stripes to commit before a stripe of a pool appends `bytes` more. Each pool has limits of its own.
    pub fn due_before(
        &self,
        (pool, stripe): (PoolId, StripeId),
        bytes: u64,
        now_ms: u64,
    ) -> Vec<StripeId> {
        let phase = self
            .pools
            .get(&pool)
            .filter(|phase| !phase.stripes.is_empty());
        let due = phase.filter(|phase| {
            let is_new = !phase.stripes.contains_key(&stripe);
            let (policy, figures) = (&phase.policy, phase.figures());
            policy.before(&figures, is_new, bytes, now_ms).is_some()
        });
        due.map(Phase::stripes).unwrap_or_default()
    }

    /// The stripes to commit because of their age.
    pub fn due(&self, now_ms: u64) -> Vec<StripeId> {
        let phases = self.pools.values();
        let due = phases.filter(|phase| phase.policy.at(&phase.figures(), now_ms).is_some());
        due.flat_map(Phase::stripes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: AppendSpec = AppendSpec {
        replicas: 1,
        stripes_max: 2,
        log_bytes_max: 100,
        age_max_s: 10,
        grouping: None,
    };

    fn waiting() -> Phases {
        let mut phases = Phases::default();
        for (stripe, now_ms) in [(1, 500), (2, 900)] {
            phases.note((PoolId(1), &SPEC), StripeId(stripe), 30, now_ms);
        }
        phases
    }

    #[test]
    fn one_stripe_too_many_commits_all_and_one_that_waits_already_none() {
        let (both, phases) = ([1, 2].map(StripeId).to_vec(), waiting());
        let due = |stripe, bytes| phases.due_before((PoolId(1), StripeId(stripe)), bytes, 1000);
        assert_eq!(due(3, 1), both);
        assert_eq!(due(2, 40), []);
        assert_eq!(due(2, 41), both, "the log is full");
    }

    #[test]
    fn a_stripe_of_another_pool_commits_nothing_of_this_one() {
        let phases = waiting();
        let other = (PoolId(2), StripeId(3));
        assert_eq!(phases.due_before(other, 1000, 1000), []);
    }

    #[test]
    fn a_phase_begins_anew_after_its_last_commit() {
        let mut phases = waiting();
        assert_eq!(phases.due(10_499), []);
        assert_eq!(phases.due(10_500).len(), 2);
        phases.end(StripeId(1));
        phases.end(StripeId(2));
        assert_eq!(
            (phases.due(10_500), phases.has(StripeId(1))),
            (vec![], false)
        );
        phases.note((PoolId(1), &SPEC), StripeId(1), 30, 11_000);
        assert_eq!((phases.due(20_999), phases.due(21_000).len()), (vec![], 1));
    }
}
