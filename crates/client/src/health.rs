//! What this client has met of nodes lately: which of them had better be asked last, how long reads
//! take, and how many of them may be asked for twice.
//!
//! It is a memory that fades and proves nothing. Whether a node is failed, the coordinator declares.

use gabion_layout::NodeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a node is asked last after its first failure; it doubles with each further one.
const AILING_FIRST_MS: u64 = 1_000;
/// The longest.
const AILING_MAX_MS: u64 = 16_000;
/// A node is suspected aloud at most once in so long.
const TELL_EVERY_MS: u64 = 1_000;
/// Latencies of each kind of reads that are remembered.
const LATENCY_COUNT: usize = 128;
/// Fewer say nothing about the 99th percentile.
const LATENCY_COUNT_MIN: usize = 16;
/// The limits of how long a read waits for its first source, and how long while nothing is known.
const HEDGE_AFTER_MIN_MS: u64 = 10;
const HEDGE_AFTER_MAX_MS: u64 = 500;
const HEDGE_AFTER_DEFAULT_MS: u64 = 250;
/// Each read allows so much of another one's second source: one in twenty is asked for twice.
const HEDGE_SHARE: f64 = 0.05;
/// Second sources that may be saved up.
const HEDGES_MAX: f64 = 8.0;
/// Upper bounds of the first kinds of reads, in bytes; larger reads are the last kind.
const KIND_BYTES: [u64; 2] = [64 << 10, 1 << 20];

/// A client's memory of its nodes.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Memory>);

#[derive(Debug)]
struct Memory {
    nodes: BTreeMap<NodeId, Ailment>,
    /// By kind.
    latencies: [Latencies; KIND_BYTES.len() + 1],
    hedges: f64,
}

/// Since when a node is asked last, in milliseconds of the client's clock.
#[derive(Debug)]
struct Ailment {
    until: u64,
    lasts: u64,
    told_at: Option<u64>,
}

/// The latest latencies of one kind of reads in milliseconds, in a ring.
#[derive(Debug, Default)]
struct Latencies {
    ring: Vec<u64>,
    next: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            latencies: Default::default(),
            hedges: HEDGES_MAX,
        }
    }
}

impl Health {
    /// A node has failed a read or was too slow for it. Whether the coordinator should hear of it now.
    pub(crate) fn note_failed(&self, node: NodeId, now_ms: u64) -> bool {
        let mut memory = self.lock();
        let ailment = memory.nodes.entry(node).or_insert(Ailment {
            until: now_ms,
            lasts: AILING_FIRST_MS / 2,
            told_at: None,
        });
        if now_ms >= ailment.until + ailment.lasts {
            // It was well for as long as it had been ailing.
            ailment.lasts = AILING_FIRST_MS / 2;
        }
        if now_ms >= ailment.until {
            ailment.lasts = (ailment.lasts * 2).min(AILING_MAX_MS);
            ailment.until = now_ms + ailment.lasts;
        }
        let is_due = ailment
            .told_at
            .is_none_or(|at_ms| now_ms >= at_ms + TELL_EVERY_MS);
        if is_due {
            ailment.told_at = Some(now_ms);
        }
        is_due
    }

    /// Nodes that had better be asked last.
    pub(crate) fn ailing(&self, now_ms: u64) -> Vec<NodeId> {
        let memory = self.lock();
        let ailing = memory
            .nodes
            .iter()
            .filter(|(_, ailment)| now_ms < ailment.until);
        ailing.map(|(&node, _)| node).collect()
    }

    /// Notes how long a read of `bytes` bytes took.
    pub(crate) fn note_read(&self, bytes: u64, took_ms: u64) {
        let mut memory = self.lock();
        memory.latencies[kind(bytes)].note(took_ms);
        memory.hedges = (memory.hedges + HEDGE_SHARE).min(HEDGES_MAX);
    }

    /// After how long a read of this size asks a second source.
    pub(crate) fn hedge_after_ms(&self, bytes: u64) -> u64 {
        let p99_ms = self.lock().latencies[kind(bytes)].p99_ms();
        p99_ms.map_or(HEDGE_AFTER_DEFAULT_MS, |p99_ms| {
            p99_ms.clamp(HEDGE_AFTER_MIN_MS, HEDGE_AFTER_MAX_MS)
        })
    }

    /// Takes one second source of those that are allowed, if there is one.
    pub(crate) fn take_hedge(&self) -> bool {
        let mut memory = self.lock();
        let may = memory.hedges >= 1.0;
        if may {
            memory.hedges -= 1.0;
        }
        may
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // Numbers and lists are consistent after every call, even if a caller panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Latencies {
    fn note(&mut self, took_ms: u64) {
        if self.ring.len() < LATENCY_COUNT {
            self.ring.push(took_ms);
        } else {
            self.ring[self.next] = took_ms;
        }
        self.next = (self.next + 1) % LATENCY_COUNT;
    }

    fn p99_ms(&self) -> Option<u64> {
        let mut sorted = self.ring.clone();
        if sorted.len() < LATENCY_COUNT_MIN {
            return None;
        }
        sorted.sort_unstable();
        Some(sorted[(sorted.len() * 99 / 100).min(sorted.len() - 1)])
    }
}

fn kind(bytes: u64) -> usize {
    KIND_BYTES.iter().filter(|&&limit| bytes > limit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_failed_is_asked_last_for_longer_each_time() {
        let (health, node) = (Health::default(), NodeId(3));
        let at = |seconds: u64| 7 + AILING_FIRST_MS * seconds;
        assert!(
            health.note_failed(node, at(0)),
            "the coordinator should hear of it"
        );
        assert!(!health.note_failed(node, at(0)), "not again at once");
        assert_eq!(health.ailing(at(0)), [node]);
        assert_eq!(health.ailing(at(1)), []);
        assert!(health.note_failed(node, at(1)));
        assert_eq!(
            health.ailing(at(2)),
            [node],
            "the second time it lasts twice as long"
        );
        assert_eq!(health.ailing(at(3)), []);
        // When it has been well for a while, it is as new.
        health.note_failed(node, at(5));
        assert_eq!(health.ailing(at(6)), []);
    }

    #[test]
    fn the_delay_is_what_one_read_in_a_hundred_exceeds_within_limits() {
        let health = Health::default();
        assert_eq!(health.hedge_after_ms(1), HEDGE_AFTER_DEFAULT_MS);
        (0..100).for_each(|_| health.note_read(1, 1));
        assert_eq!(health.hedge_after_ms(1), HEDGE_AFTER_MIN_MS);
        assert_eq!(
            health.hedge_after_ms(1 << 30),
            HEDGE_AFTER_DEFAULT_MS,
            "another kind"
        );
        (0..LATENCY_COUNT).for_each(|_| health.note_read(1, 40));
        assert_eq!(health.hedge_after_ms(1), 40);
        (0..2).for_each(|_| health.note_read(1, 3_000));
        assert_eq!(health.hedge_after_ms(1), HEDGE_AFTER_MAX_MS);
    }

    #[test]
    fn one_read_in_twenty_may_be_asked_for_twice() {
        let health = Health::default();
        let mut saved_up = 0;
        while health.take_hedge() {
            saved_up += 1;
        }
        assert_eq!(saved_up, 8);
        let mut taken = 0;
        for _ in 0..2_000 {
            health.note_read(1, 1);
            taken += u32::from(health.take_hedge());
        }
        assert!((95..=101).contains(&taken), "{taken}");
    }
}
