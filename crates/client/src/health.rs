//! This client's recent experience with nodes: which of them to ask last, how long reads take, and
//! how many of them may be hedged.
//!
//! This memory fades and proves nothing. The coordinator declares nodes as failed.

use gabion_layout::NodeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Time for which a node is asked last after its first failure, in milliseconds; doubles with each
/// further one.
const AILING_FIRST_MS: u64 = 1_000;
/// Longest such time.
const AILING_MAX_MS: u64 = 16_000;
/// Shortest interval between two reports of the same node to the coordinator.
const TELL_EVERY_MS: u64 = 1_000;
/// Latencies remembered for each kind of reads.
const LATENCY_COUNT: usize = 128;
/// Fewest latencies that give a 99th percentile.
const LATENCY_COUNT_MIN: usize = 16;
/// Limits of the delay before a read asks a second source, and the delay while nothing is known.
const HEDGE_AFTER_MIN_MS: u64 = 10;
const HEDGE_AFTER_MAX_MS: u64 = 500;
const HEDGE_AFTER_DEFAULT_MS: u64 = 250;
/// Share of hedged reads: each read earns this part of another one's second source, so one in
/// twenty is hedged.
const HEDGE_SHARE: f64 = 0.05;
/// Most second sources that accumulate.
const HEDGES_MAX: f64 = 8.0;
/// Upper bounds of the first kinds of reads, in bytes that are read at once; larger reads are the last kind. Pieces
/// that are read beside others share a link with them, so they are another kind than a piece alone.
const KIND_BYTES: [u64; 3] = [64 << 10, 1 << 20, 16 << 20];

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

/// The time during which a node is asked last, in milliseconds of the client's clock.
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
    /// Notes that a node has failed a read or was too slow for it. Returns whether to report it to
    /// the coordinator now.
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

    /// Nodes to ask last.
    pub(crate) fn ailing(&self, now_ms: u64) -> Vec<NodeId> {
        let memory = self.lock();
        let ailing = memory
            .nodes
            .iter()
            .filter(|(_, ailment)| now_ms < ailment.until);
        ailing.map(|(&node, _)| node).collect()
    }

    /// Notes the time of a read of `bytes` bytes.
    pub(crate) fn note_read(&self, bytes: u64, took_ms: u64) {
        let mut memory = self.lock();
        memory.latencies[kind(bytes)].note(took_ms);
        memory.hedges = (memory.hedges + HEDGE_SHARE).min(HEDGES_MAX);
    }

    /// Delay after which a read of this size asks a second source.
    pub(crate) fn hedge_after_ms(&self, bytes: u64) -> u64 {
        let p99_ms = self.lock().latencies[kind(bytes)].p99_ms();
        p99_ms.map_or(HEDGE_AFTER_DEFAULT_MS, |p99_ms| {
            p99_ms.clamp(HEDGE_AFTER_MIN_MS, HEDGE_AFTER_MAX_MS)
        })
    }

    /// Takes one of the allowed second sources, if there is one.
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
    fn each_failure_doubles_the_time_during_which_a_node_is_asked_last() {
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
        // After it has been well for some time, its history is cleared.
        health.note_failed(node, at(5));
        assert_eq!(health.ailing(at(6)), []);
    }

    #[test]
    fn the_delay_is_the_99th_percentile_within_limits() {
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
    fn one_read_in_twenty_may_be_hedged() {
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
