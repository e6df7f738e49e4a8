//! The stripes that wait for repair: the most endangered first; among equally endangered stripes, the one that has
//! waited longest.

use gabion_layout::StripeId;
use std::collections::{BTreeMap, BTreeSet};

/// The urgency of a stripe's repair; the smallest comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Urgency(u32);

impl Urgency {
    /// A stripe that one more loss would end comes first. One that has lost data already comes
    /// last: to repair it takes nodes that return, and it must not hold up those that can be saved.
    fn of(failures_left: i32) -> Self {
        Self(u32::try_from(failures_left).unwrap_or(u32::MAX))
    }
}

/// A stripe's place in the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    urgency: Urgency,
    /// Grows from stripe to stripe in the order in which they came to need repair.
    age: u64,
    stripe: StripeId,
}

/// Stripes to repair. A stripe is in at most one of two states, ready or waiting for its next try,
/// and may be running besides: what happened to it since its repair began needs another look.
#[derive(Debug, Default)]
pub struct RepairQueue {
    /// Invariant: holds exactly the values of `ready`.
    order: BTreeSet<Place>,
    ready: BTreeMap<StripeId, Place>,
    waiting: BTreeMap<StripeId, Place>,
    running: BTreeMap<StripeId, Place>,
    /// The number of failed repairs of a stripe in a row.
    failures: BTreeMap<StripeId, u32>,
    /// The age of the next stripe that comes.
    next_age: u64,
}

impl RepairQueue {
    /// Adds a stripe, or changes its urgency if it is there. It keeps its age until its repair has
    /// ended well.
    pub fn add(&mut self, stripe: StripeId, failures_left: i32) {
        let known = [&self.ready, &self.waiting, &self.running];
        let known = known.into_iter().find_map(|state| state.get(&stripe));
        let age = known.map_or(self.next_age, |place| place.age);
        self.next_age = self.next_age.max(age + 1);
        self.make_ready(Place {
            urgency: Urgency::of(failures_left),
            age,
            stripe,
        });
    }

    /// The stripes that could be repaired now, the most endangered first.
    pub fn ready(&self) -> impl Iterator<Item = StripeId> {
        let stripes = self.order.iter().map(|place| place.stripe);
        stripes.filter(|stripe| !self.running.contains_key(stripe))
    }

    /// Takes a stripe to repair it. Whether it is ready.
    pub fn take(&mut self, stripe: StripeId) -> bool {
        if self.running.contains_key(&stripe) {
            return false;
        }
        let Some(place) = self.ready.remove(&stripe) else {
            return false;
        };
        self.order.remove(&place);
        self.running.insert(stripe, place);
        true
    }

    /// Whether a stripe could be repaired, waits, or is being repaired.
    pub fn holds(&self, stripe: StripeId) -> bool {
        let known = [&self.ready, &self.waiting, &self.running];
        known.iter().any(|state| state.contains_key(&stripe))
    }

    /// Notes that a stripe's repair has ended well.
    pub fn succeeded(&mut self, stripe: StripeId) {
        self.running.remove(&stripe);
        self.failures.remove(&stripe);
    }

    /// Notes that a stripe's repair has failed; it waits for [`RepairQueue::retry`]. How often in a
    /// row it has.
    ///
    /// # Panics
    /// When the stripe is not being repaired.
    pub fn failed(&mut self, stripe: StripeId) -> u32 {
        let place = self.running.remove(&stripe);
        let place = place.expect("only a repair that runs can fail");
        if !self.ready.contains_key(&stripe) {
            self.waiting.insert(stripe, place);
        }
        let count = self.failures.entry(stripe).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Ends the wait of a stripe, if it waits.
    pub fn retry(&mut self, stripe: StripeId) {
        if let Some(&place) = self.waiting.get(&stripe) {
            self.make_ready(place);
        }
    }

    /// Ends all waits: something has changed that may help.
    pub fn retry_all(&mut self) {
        for place in std::mem::take(&mut self.waiting).into_values() {
            self.make_ready(place);
        }
    }

    /// Whether nothing is being repaired and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.running_count() + self.waiting_count() == 0
    }

    /// Stripes that are being repaired.
    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    /// Stripes that wait to be repaired, or to be tried again.
    pub fn waiting_count(&self) -> usize {
        self.ready.len() + self.waiting.len()
    }

    fn make_ready(&mut self, place: Place) {
        self.waiting.remove(&place.stripe);
        if let Some(before) = self.ready.insert(place.stripe, place) {
            self.order.remove(&before);
        }
        self.order.insert(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StripeId = StripeId(1);
    const B: StripeId = StripeId(2);
    const C: StripeId = StripeId(3);

    fn next(queue: &mut RepairQueue) -> Option<StripeId> {
        let stripe = queue.ready().next()?;
        assert!(queue.take(stripe));
        Some(stripe)
    }

    #[test]
    fn the_most_endangered_comes_first_and_the_hopeless_last() {
        let mut queue = RepairQueue::default();
        for (stripe, failures_left) in [(A, -1), (B, 2), (C, 2)] {
            queue.add(stripe, failures_left);
        }
        queue.add(C, 0);
        let taken: Vec<_> = std::iter::from_fn(|| next(&mut queue)).collect();
        assert_eq!(taken, [C, B, A]);
        assert_eq!((queue.running_count(), queue.waiting_count()), (3, 0));
        assert!(!queue.is_idle() && RepairQueue::default().is_idle());
    }

    #[test]
    fn of_equals_the_one_that_has_waited_the_longest_comes_first() {
        let mut queue = RepairQueue::default();
        for stripe in [C, A, B] {
            queue.add(stripe, 1);
        }
        queue.add(C, 2);
        queue.add(C, 1);
        assert_eq!(next(&mut queue), Some(C), "a change of risk keeps the age");
        queue.failed(C);
        queue.retry(C);
        assert_eq!(next(&mut queue), Some(C), "so does a failure");
        queue.succeeded(C);
        queue.add(C, 1);
        assert_eq!(queue.ready().collect::<Vec<_>>(), [A, B, C]);
    }

    #[test]
    fn a_stripe_is_repaired_once_at_a_time_and_again_if_it_was_hit_meanwhile() {
        let mut queue = RepairQueue::default();
        queue.add(A, 1);
        assert_eq!(next(&mut queue), Some(A));
        queue.add(A, 0);
        assert_eq!(next(&mut queue), None);
        assert!(!queue.take(A));
        queue.succeeded(A);
        assert_eq!(next(&mut queue), Some(A));
        queue.succeeded(A);
        assert_eq!(next(&mut queue), None);
        assert!(!queue.take(A));
    }

    #[test]
    fn a_failed_repair_waits_and_counts() {
        let mut queue = RepairQueue::default();
        queue.add(A, 1);
        queue.add(B, 0);
        assert_eq!((next(&mut queue), next(&mut queue)), (Some(B), Some(A)));
        assert_eq!(queue.failed(A), 1);
        assert_eq!(queue.failed(B), 1);
        assert_eq!(next(&mut queue), None);
        queue.retry(A);
        queue.retry(C);
        assert_eq!((next(&mut queue), next(&mut queue)), (Some(A), None));
        assert_eq!(queue.failed(A), 2);
        queue.retry_all();
        assert_eq!((next(&mut queue), next(&mut queue)), (Some(B), Some(A)));
        queue.succeeded(A);
        queue.add(A, 1);
        next(&mut queue);
        assert_eq!(queue.failed(A), 1, "a success starts the count anew");
    }
}
