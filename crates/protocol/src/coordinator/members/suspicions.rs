//! What is held against nodes that others do not reach, and what follows from it. `suspicion` looks at them.

use gabion_layout::NodeId;
use std::collections::BTreeMap;

/// How often a suspected node is looked at, in milliseconds.
const LOOK_EVERY_MS: u64 = 1_000;
/// The same while looks in a row find it cut off, from one look's beginning to the next one's, and the least
/// time between them: others wait to do without it.
const LOOK_AGAIN_EVERY_MS: u64 = 700;
const LOOK_PAUSE_MS: u64 = 100;
/// A node is evicted when so many looks in a row find it cut off, and may return when so many in a row do not.
const LOOK_COUNT: u32 = 3;
/// How long a node stays evicted at least; it doubles with each eviction, up to the maximum.
const EVICTED_MS: u64 = 5_000;
const EVICTED_MS_MAX: u64 = 600_000;

/// What is held against nodes. In memory alone: a coordinator that starts anew finds out anew.
#[derive(Debug, Default)]
pub(super) struct Suspicions(BTreeMap<NodeId, Suspicion>);

#[derive(Debug, Default)]
struct Suspicion {
    /// Whether somebody looks after it.
    is_watched: bool,
    /// It has not answered the coordinator lately.
    is_silent: bool,
    /// How many of the others could not use it at the last look.
    complaint_count: usize,
    /// Looks in a row that found what would change its state.
    look_count: u32,
    /// The run of it whose heartbeats have come since those looks began, if any have.
    heard: Option<u64>,
    evicted: Option<Eviction>,
    eviction_count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Eviction {
    since_ms: u64,
    /// The run of the node that is evicted.
    incarnation: u64,
}

/// What a look at a node has found.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// It answers the coordinator.
    pub(super) answers: bool,
    /// The other nodes that are up and cannot use it.
    pub(super) complainants: Vec<NodeId>,
    /// How many other nodes are up.
    pub(super) other_count: usize,
}

/// What is to be done about a node that was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Nothing is held against it.
    Cleared,
    /// Look again.
    Open,
    /// It should be evicted, if the others can do without it.
    Evict,
}

impl Suspicions {
    /// Whether a node had better be left alone though its lease runs.
    pub(super) fn is_suspect(&self, node: NodeId) -> bool {
        let held = self.0.get(&node);
        held.is_some_and(|held| held.is_silent || held.evicted.is_some())
    }

    /// Whether a node is evicted.
    pub(super) fn is_evicted(&self, node: NodeId) -> bool {
        let held = self.0.get(&node);
        held.is_some_and(|held| held.evicted.is_some())
    }

    /// Whether this run of a node is evicted.
    pub(super) fn is_run_evicted(&self, node: NodeId, incarnation: u64) -> bool {
        let held = self.0.get(&node).and_then(|held| held.evicted);
        held.is_some_and(|evicted| incarnation <= evicted.incarnation)
    }

    pub(super) fn evicted_count(&self) -> usize {
        let held = self.0.values();
        held.filter(|held| held.evicted.is_some()).count()
    }

    /// A run of a node has joined. Of a new one nothing is known.
    pub(super) fn hear(&mut self, node: NodeId, incarnation: u64) {
        let is_evicted = self.is_run_evicted(node, incarnation);
        if let Some(held) = self.0.get_mut(&node) {
            (held.is_silent, held.look_count, held.heard) = (false, 0, None);
            if !is_evicted {
                held.evicted = None;
            }
        }
    }

    /// A heartbeat of a member has come.
    pub(super) fn hear_heartbeat(&mut self, node: NodeId, incarnation: u64) {
        if let Some(held) = self.0.get_mut(&node) {
            held.heard = Some(incarnation);
        }
    }

    /// In how long to look at a node again, after a look that took so long.
    pub(super) fn look_after_ms(&self, node: NodeId, look_took_ms: u64) -> u64 {
        match self.0.get(&node) {
            Some(held) if held.evicted.is_none() && (1..LOOK_COUNT).contains(&held.look_count) => {
                let left_ms = LOOK_AGAIN_EVERY_MS.saturating_sub(look_took_ms);
                left_ms.max(LOOK_PAUSE_MS)
            }
            _ => LOOK_EVERY_MS,
        }
    }

    /// Begins to look after a node; false when somebody does already.
    pub(super) fn watch(&mut self, node: NodeId) -> bool {
        !std::mem::replace(&mut self.0.entry(node).or_default().is_watched, true)
    }

    /// Whether at least two others cannot use a node, and they are most of them or reach more nodes than it does:
    /// a complaint says as much about who complains. Of nodes that reach equally many, the first is believed.
    fn is_cut_off(&self, node: NodeId, look: &Look) -> bool {
        let count = look.complainants.len();
        let complaint_count = |of: &NodeId| self.0.get(of).map_or(0, |held| held.complaint_count);
        let reaches_more = |other: &&NodeId| (complaint_count(other), **other) < (count, node);
        let credible_count = look.complainants.iter().filter(reaches_more).count();
        credible_count >= 2 || (count >= 2 && count * 2 > look.other_count)
    }

    /// Takes note of what a look has found.
    pub(super) fn note(&mut self, node: NodeId, look: &Look, now_ms: u64) -> Verdict {
        let is_cut_off = self.is_cut_off(node, look);
        let held = self.0.entry(node).or_default();
        held.is_silent = !look.answers;
        held.complaint_count = look.complainants.len();
        let would_change = is_cut_off != held.evicted.is_some();
        if held.look_count == 0 {
            held.heard = None;
        }
        held.look_count = if would_change { held.look_count + 1 } else { 0 };
        let is_due = held.look_count >= LOOK_COUNT;
        match held.evicted {
            None if is_due && held.heard.is_some() => return Verdict::Evict,
            Some(Eviction { since_ms, .. }) => {
                let doublings = held.eviction_count.saturating_sub(1).min(16);
                let term_ms = (EVICTED_MS << doublings).min(EVICTED_MS_MAX);
                if !is_due || now_ms < since_ms.saturating_add(term_ms) {
                    return Verdict::Open;
                }
                (held.evicted, held.look_count) = (None, 0);
            }
            None => {}
        }
        if held.is_silent || is_cut_off {
            return Verdict::Open;
        }
        held.is_watched = false;
        Verdict::Cleared
    }

    /// Evicts the run of a node that was heard while it was looked at; false when another has joined.
    pub(super) fn evict(&mut self, node: NodeId, now_ms: u64) -> bool {
        let held = self.0.entry(node).or_default();
        let Some(incarnation) = held.heard.take() else {
            return false;
        };
        held.evicted = Some(Eviction {
            since_ms: now_ms,
            incarnation,
        });
        held.look_count = 0;
        held.eviction_count += 1;
        true
    }

    /// Nobody looks any more: the node is declared failed, and proves itself when it joins.
    pub(super) fn drop_watch(&mut self, node: NodeId) {
        if let Some(held) = self.0.get_mut(&node) {
            (held.is_watched, held.is_silent, held.complaint_count) = (false, false, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);
    fn look(complainants: &[u32]) -> Look {
        Look {
            answers: true,
            complainants: complainants.iter().copied().map(NodeId).collect(),
            other_count: 8,
        }
    }

    fn fine() -> Look {
        look(&[])
    }

    fn cut_off() -> Look {
        look(&[0, 1, 2, 4, 5])
    }

    fn silent() -> Look {
        let answers = false;
        Look { answers, ..fine() }
    }

    #[test]
    fn the_node_that_reaches_fewest_is_cut_off_and_its_peers_are_not() {
        let mut suspicions = Suspicions::default();
        let is_cut_off = |suspicions: &mut Suspicions, node, complainants: &[u32]| {
            let (node, look) = (NodeId(node), look(complainants));
            let found = suspicions.is_cut_off(node, &look);
            suspicions.note(node, &look, 0);
            found
        };
        assert!(
            !is_cut_off(&mut suspicions, 3, &[1]),
            "one link has two ends"
        );
        assert!(is_cut_off(&mut suspicions, 3, &[1, 2, 4]));
        assert!(!is_cut_off(&mut suspicions, 1, &[3]), "it is the same link");
        // Node 6 is cut from the same nodes, which reach all others.
        assert!(is_cut_off(&mut suspicions, 6, &[1, 2, 4]));
        assert!(!is_cut_off(&mut suspicions, 1, &[3, 6]));
        // Two sides of the same size accuse each other.
        let mut suspicions = Suspicions::default();
        for node in 0..4 {
            is_cut_off(&mut suspicions, node, &[4, 5, 6, 7]);
            is_cut_off(&mut suspicions, node + 4, &[0, 1, 2, 3]);
        }
        assert!(!is_cut_off(&mut suspicions, 0, &[4, 5, 6, 7]));
        assert!(is_cut_off(&mut suspicions, 4, &[0, 1, 2, 3]));
    }

    #[test]
    fn a_silent_node_is_suspect_until_it_answers() {
        let mut suspicions = Suspicions::default();
        assert!(suspicions.watch(NODE) && !suspicions.watch(NODE));
        assert_eq!(suspicions.note(NODE, &silent(), 0), Verdict::Open);
        assert!(suspicions.is_suspect(NODE) && !suspicions.is_evicted(NODE));
        assert_eq!(suspicions.note(NODE, &fine(), 1_000), Verdict::Cleared);
        assert!(!suspicions.is_suspect(NODE));
        assert!(suspicions.watch(NODE), "the next report is looked into");
    }

    #[test]
    fn who_is_cut_off_for_some_looks_is_evicted_and_returns_later_each_time() {
        let mut suspicions = Suspicions::default();
        let evict = |suspicions: &mut Suspicions| {
            assert_eq!(suspicions.note(NODE, &cut_off(), 0), Verdict::Open);
            assert_eq!(
                suspicions.note(NODE, &fine(), 0),
                Verdict::Cleared,
                "it begins anew"
            );
            for _ in 1..LOOK_COUNT {
                assert_eq!(suspicions.note(NODE, &cut_off(), 0), Verdict::Open);
                suspicions.hear_heartbeat(NODE, 1);
            }
            assert_eq!(suspicions.note(NODE, &cut_off(), 0), Verdict::Evict);
            assert!(suspicions.evict(NODE, 0));
            assert!(suspicions.is_suspect(NODE) && suspicions.is_evicted(NODE));
        };
        evict(&mut suspicions);
        assert_eq!(suspicions.note(NODE, &cut_off(), EVICTED_MS), Verdict::Open);
        for look in 1..LOOK_COUNT {
            assert_eq!(
                suspicions.note(NODE, &fine(), EVICTED_MS),
                Verdict::Open,
                "{look}"
            );
        }
        assert_eq!(suspicions.note(NODE, &fine(), EVICTED_MS), Verdict::Cleared);
        assert!(!suspicions.is_suspect(NODE));
        evict(&mut suspicions);
        for _ in 0..2 * LOOK_COUNT {
            assert_eq!(suspicions.note(NODE, &fine(), EVICTED_MS), Verdict::Open);
        }
        assert_eq!(
            suspicions.note(NODE, &fine(), 2 * EVICTED_MS),
            Verdict::Cleared
        );
    }

    #[test]
    fn a_node_that_was_heard_only_before_the_looks_is_not_evicted() {
        let mut suspicions = Suspicions::default();
        assert_eq!(suspicions.note(NODE, &silent(), 0), Verdict::Open);
        suspicions.hear_heartbeat(NODE, 1);
        for _ in 0..2 * LOOK_COUNT {
            assert_eq!(suspicions.note(NODE, &cut_off(), 0), Verdict::Open);
        }
        suspicions.hear_heartbeat(NODE, 1);
        assert_eq!(suspicions.note(NODE, &cut_off(), 0), Verdict::Evict);
        suspicions.hear(NODE, 2);
        assert!(!suspicions.evict(NODE, 0), "another run has joined");
    }

    #[test]
    fn an_eviction_holds_for_the_run_that_was_evicted() {
        let mut suspicions = Suspicions::default();
        for _ in 0..LOOK_COUNT {
            suspicions.note(NODE, &cut_off(), 0);
            suspicions.hear_heartbeat(NODE, 4);
        }
        assert!(suspicions.evict(NODE, 0));
        assert!(suspicions.is_run_evicted(NODE, 4) && !suspicions.is_run_evicted(NODE, 5));
        suspicions.hear(NODE, 4);
        assert!(
            suspicions.is_evicted(NODE),
            "it asked before it was evicted"
        );
        suspicions.hear(NODE, 5);
        assert!(!suspicions.is_evicted(NODE));
    }
}
