//! Which stripes wait for repair, the most endangered first.

use gabion_layout::StripeId;
use std::collections::{BTreeMap, BTreeSet};

/// How soon a stripe is to be repaired, smallest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Urgency(u32);

impl Urgency {
    /// A stripe that one more loss would end comes first. One that has lost data already comes
    /// last: to repair it takes nodes that return, and it must not hold up those that can be saved.
    fn of(failures_left: i32) -> Self {
        Self(u32::try_from(failures_left).unwrap_or(u32::MAX))
    }
}

/// Stripes to repair. A stripe is in at most one of two states, ready or waiting for its next try,
/// and may be running besides: what happened to it since its repair began needs another look.
#[derive(Debug, Default)]
pub(super) struct RepairQueue {
    /// Invariant: holds exactly the rows of `ready`, turned around.
    order: BTreeSet<(Urgency, StripeId)>,
    ready: BTreeMap<StripeId, Urgency>,
    waiting: BTreeMap<StripeId, Urgency>,
    running: BTreeMap<StripeId, Urgency>,
    /// How often in a row the repair of a stripe has failed.
    failures: BTreeMap<StripeId, u32>,
}

impl RepairQueue {
    /// Adds a stripe, or changes its place if it is there.
    pub(super) fn add(&mut self, stripe: StripeId, failures_left: i32) {
        self.make_ready(stripe, Urgency::of(failures_left));
    }

    /// Takes the most endangered stripe that is not being repaired already.
    pub(super) fn take(&mut self) -> Option<StripeId> {
        let free = |(_, stripe): &&(Urgency, StripeId)| !self.running.contains_key(stripe);
        let &(urgency, stripe) = self.order.iter().find(free)?;
        self.order.remove(&(urgency, stripe));
        self.ready.remove(&stripe);
        self.running.insert(stripe, urgency);
        Some(stripe)
    }

    /// Notes that a stripe's repair has ended well.
    pub(super) fn succeeded(&mut self, stripe: StripeId) {
        self.running.remove(&stripe);
        self.failures.remove(&stripe);
    }

    /// Notes that a stripe's repair has failed; it waits for [`RepairQueue::retry`]. How often in a
    /// row it has.
    pub(super) fn failed(&mut self, stripe: StripeId) -> u32 {
        let urgency = self.running.remove(&stripe);
        let urgency = urgency.expect("only a repair that runs can fail");
        if !self.ready.contains_key(&stripe) {
            self.waiting.insert(stripe, urgency);
        }
        let count = self.failures.entry(stripe).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Ends the wait of a stripe, if it waits.
    pub(super) fn retry(&mut self, stripe: StripeId) {
        if let Some(&urgency) = self.waiting.get(&stripe) {
            self.make_ready(stripe, urgency);
        }
    }

    /// Ends all waits: something has changed that may help.
    pub(super) fn retry_all(&mut self) {
        for (stripe, urgency) in std::mem::take(&mut self.waiting) {
            self.make_ready(stripe, urgency);
        }
    }

    fn make_ready(&mut self, stripe: StripeId, urgency: Urgency) {
        self.waiting.remove(&stripe);
        if let Some(before) = self.ready.insert(stripe, urgency) {
            self.order.remove(&(before, stripe));
        }
        self.order.insert((urgency, stripe));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StripeId = StripeId(1);
    const B: StripeId = StripeId(2);
    const C: StripeId = StripeId(3);

    #[test]
    fn the_most_endangered_comes_first_and_the_hopeless_last() {
        let mut queue = RepairQueue::default();
        for (stripe, failures_left) in [(A, -1), (B, 2), (C, 2)] {
            queue.add(stripe, failures_left);
        }
        queue.add(C, 0);
        let taken: Vec<_> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken, [C, B, A]);
    }

    #[test]
    fn a_stripe_is_repaired_once_at_a_time_and_again_if_it_was_hit_meanwhile() {
        let mut queue = RepairQueue::default();
        queue.add(A, 1);
        assert_eq!(queue.take(), Some(A));
        queue.add(A, 0);
        assert_eq!(queue.take(), None);
        queue.succeeded(A);
        assert_eq!(queue.take(), Some(A));
        queue.succeeded(A);
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn a_failed_repair_waits_and_counts() {
        let mut queue = RepairQueue::default();
        queue.add(A, 1);
        queue.add(B, 0);
        assert_eq!((queue.take(), queue.take()), (Some(B), Some(A)));
        assert_eq!(queue.failed(A), 1);
        assert_eq!(queue.failed(B), 1);
        assert_eq!(queue.take(), None);
        queue.retry(A);
        queue.retry(C);
        assert_eq!((queue.take(), queue.take()), (Some(A), None));
        assert_eq!(queue.failed(A), 2);
        queue.retry_all();
        assert_eq!((queue.take(), queue.take()), (Some(B), Some(A)));
        queue.succeeded(A);
        queue.add(A, 1);
        queue.take();
        assert_eq!(queue.failed(A), 1, "a success starts the count anew");
    }
}
