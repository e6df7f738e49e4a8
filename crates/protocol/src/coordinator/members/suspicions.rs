//! The state of suspicions against nodes that others do not reach, and the decisions on it. `suspicion`
//! runs the checks.

use gabion_layout::NodeId;
use std::collections::BTreeMap;

/// Period of the checks of a suspected node, in milliseconds.
const LOOK_EVERY_MS: u64 = 1_000;
/// The same while consecutive checks find it cut off or a link to it broken, from the beginning of one check to the
/// next, and the least time between them: others wait until it is evicted.
const LOOK_AGAIN_EVERY_MS: u64 = 700;
const LOOK_PAUSE_MS: u64 = 100;
/// A node is evicted when this many consecutive checks find it cut off, and may return when this many do
/// not.
const LOOK_COUNT: u32 = 3;
/// Shortest eviction of a node; it doubles with each eviction, up to the maximum.
const EVICTED_MS: u64 = 5_000;
const EVICTED_MS_MAX: u64 = 600_000;

/// Suspicions against nodes, in memory only: a coordinator that restarts checks anew.
#[derive(Debug)]
pub(super) struct Suspicions {
    held: BTreeMap<NodeId, Suspicion>,
    /// Time that a single link may be broken before one of its ends is evicted.
    link_patience_ms: u64,
}

#[derive(Debug, Default)]
struct Suspicion {
    /// Whether a task checks it.
    is_watched: bool,
    /// It has not answered the coordinator lately.
    is_silent: bool,
    /// The others that could not use it at the last check.
    complainants: Vec<NodeId>,
    /// The link to the only other node that cannot use it.
    link: Option<BrokenLink>,
    /// Consecutive checks that found a reason to change its state.
    look_count: u32,
    /// The run of it whose heartbeats have arrived since those checks began, if any have.
    heard: Option<u64>,
    evicted: Option<Eviction>,
    eviction_count: u32,
    /// The operator knows that it would be evicted if others did not need it.
    is_told: bool,
}

/// A link over which the node at its other end cannot use this one.
#[derive(Clone, Copy, Debug)]
struct BrokenLink {
    to: NodeId,
    since_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Eviction {
    since_ms: u64,
    /// The run of the node that is evicted.
    incarnation: u64,
    /// The other end, if the node is evicted for a single broken link.
    link_to: Option<NodeId>,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// It answers the coordinator.
    pub(super) answers: bool,
    /// The other nodes that are up and cannot use it.
    pub(super) complainants: Vec<NodeId>,
    /// The number of other nodes that are up.
    pub(super) other_count: usize,
}

/// The next step after a check of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// No suspicion is left.
    Cleared,
    /// Check again.
    Open,
    /// Check again, and also check the only other node that cannot use it.
    LinkIsBroken(NodeId),
    /// Evict it if the others do not need it.
    Evict,
    /// The same, for the broken link to one other node.
    EvictForLink(NodeId),
}

impl Suspicions {
    /// No suspicions.
    pub(super) const fn new(link_patience_ms: u64) -> Self {
        let held = BTreeMap::new();
        Self {
            held,
            link_patience_ms,
        }
    }

    /// Whether to avoid a node although its lease runs.
    pub(super) fn is_suspect(&self, node: NodeId) -> bool {
        let held = self.held.get(&node);
        held.is_some_and(|held| held.is_silent || held.evicted.is_some())
    }

    /// Whether a node is evicted.
    pub(super) fn is_evicted(&self, node: NodeId) -> bool {
        let held = self.held.get(&node);
        held.is_some_and(|held| held.evicted.is_some())
    }

    /// Whether this run of a node is evicted.
    pub(super) fn is_run_evicted(&self, node: NodeId, incarnation: u64) -> bool {
        let held = self.held.get(&node).and_then(|held| held.evicted);
        held.is_some_and(|evicted| incarnation <= evicted.incarnation)
    }

    pub(super) fn evicted_count(&self) -> usize {
        let held = self.held.values();
        held.filter(|held| held.evicted.is_some()).count()
    }

    /// A run of a node has joined. Suspicions against an earlier run do not apply to a new one.
    pub(super) fn hear(&mut self, node: NodeId, incarnation: u64) {
        let is_evicted = self.is_run_evicted(node, incarnation);
        if let Some(held) = self.held.get_mut(&node) {
            (held.is_silent, held.look_count, held.heard) = (false, 0, None);
            held.link = None;
            if !is_evicted {
                held.evicted = None;
            }
        }
    }

    /// A heartbeat of a member has come.
    pub(super) fn hear_heartbeat(&mut self, node: NodeId, incarnation: u64) {
        if let Some(held) = self.held.get_mut(&node) {
            held.heard = Some(incarnation);
        }
    }

    /// The wait until the next check of a node, after a check of this duration.
    pub(super) fn look_after_ms(&self, node: NodeId, look_took_ms: u64) -> u64 {
        match self.held.get(&node) {
            Some(held) if held.is_about_to_be_evicted() => {
                let left_ms = LOOK_AGAIN_EVERY_MS.saturating_sub(look_took_ms);
                left_ms.max(LOOK_PAUSE_MS)
            }
            _ => LOOK_EVERY_MS,
        }
    }

    /// Begins to check a node; false when a task does already.
    pub(super) fn watch(&mut self, node: NodeId) -> bool {
        !std::mem::replace(&mut self.held.entry(node).or_default().is_watched, true)
    }

    /// Whether the link for which a node is evicted is still broken, or at least two others cannot use the
    /// node, and they are most of them or reach more nodes than it does: a complaint may be the
    /// complainant's own fault. Of nodes that reach equally many, the first is believed.
    fn is_cut_off(&self, node: NodeId, look: &Look) -> bool {
        let is_broken = |other| look.complainants.contains(&other);
        if self.evicted_for_link(node).is_some_and(is_broken) {
            return true;
        }
        let count = look.complainants.len();
        let complaint_count =
            |of: &NodeId| self.held.get(of).map_or(0, |held| held.complainants.len());
        let reaches_more = |other: &&NodeId| (complaint_count(other), **other) < (count, node);
        let credible_count = look.complainants.iter().filter(reaches_more).count();
        credible_count >= 2 || (count >= 2 && count * 2 > look.other_count)
    }

    /// Whether a node with a broken link to another one stays, because that one is evicted: the other one
    /// has the higher number and cannot be used by this node alone, or cannot be used by more nodes.
    fn is_outranked(&self, node: NodeId, other: NodeId) -> bool {
        self.held.get(&other).is_some_and(|held| {
            let rank = (held.complainants.len(), other);
            held.complainants.contains(&node) && rank > (1, node)
        })
    }

    /// The other end of the link for which a node is evicted; none if the node is not evicted, or not for a
    /// single link.
    pub(super) fn evicted_for_link(&self, node: NodeId) -> Option<NodeId> {
        self.held.get(&node)?.evicted?.link_to
    }

    /// Notes the result of a check.
    pub(super) fn note(&mut self, node: NodeId, look: &Look, now_ms: u64) -> Verdict {
        let is_cut_off = self.is_cut_off(node, look);
        let patience_ms = self.link_patience_ms;
        let is_outranked = look.link_to().is_some_and(|to| self.is_outranked(node, to));
        let held = self.held.entry(node).or_default();
        held.is_silent = !look.answers;
        held.complainants.clone_from(&look.complainants);
        let would_change = is_cut_off != held.evicted.is_some();
        let is_same_link = held.note_link(look.link_to(), now_ms);
        if held.look_count == 0 && !is_same_link {
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
        if let Some(BrokenLink { to, since_ms }) = held.link {
            let is_due = now_ms >= since_ms.saturating_add(patience_ms) && held.heard.is_some();
            return if is_due && !is_outranked {
                Verdict::EvictForLink(to)
            } else {
                Verdict::LinkIsBroken(to)
            };
        }
        held.is_watched = false;
        Verdict::Cleared
    }

    /// The others need the node. Returns whether the operator is to be told of that.
    pub(super) fn note_needed(&mut self, node: NodeId) -> bool {
        let held = self.held.get_mut(&node);
        held.is_some_and(|held| !std::mem::replace(&mut held.is_told, true))
    }

    /// The others need the node: its broken link is tolerated for the same time again.
    pub(super) fn bear_link(&mut self, node: NodeId, now_ms: u64) {
        if let Some(held) = self.held.get_mut(&node) {
            held.link = held.link.map(|link| BrokenLink {
                since_ms: now_ms,
                ..link
            });
        }
    }

    /// Evicts the run of a node whose heartbeats arrived during the checks, perhaps for the broken link to
    /// one other node; false when another run has joined.
    pub(super) fn evict(&mut self, node: NodeId, link_to: Option<NodeId>, now_ms: u64) -> bool {
        let held = self.held.entry(node).or_default();
        let Some(incarnation) = held.heard.take() else {
            return false;
        };
        held.evicted = Some(Eviction {
            since_ms: now_ms,
            incarnation,
            link_to,
        });
        (held.look_count, held.link) = (0, None);
        held.eviction_count += 1;
        true
    }

    /// The checks end: the node is declared failed, and is checked when it joins.
    pub(super) fn drop_watch(&mut self, node: NodeId) {
        if let Some(held) = self.held.get_mut(&node) {
            (held.is_watched, held.is_silent, held.link) = (false, false, None);
            held.complainants.clear();
        }
    }

    /// Returns the number of evictions of each node.
    pub(super) fn eviction_counts(&self) -> BTreeMap<NodeId, u64> {
        let counts = self.held.iter();
        let counts = counts.map(|(&node, held)| (node, u64::from(held.eviction_count)));
        counts.filter(|&(_, count)| count > 0).collect()
    }
}

impl Suspicion {
    /// Whether others wait until it is evicted.
    fn is_about_to_be_evicted(&self) -> bool {
        self.evicted.is_none()
            && (self.link.is_some() || (1..LOOK_COUNT).contains(&self.look_count))
    }

    /// Notes the broken link of a check, if there is one. Returns whether the last check found the same.
    fn note_link(&mut self, link_to: Option<NodeId>, now_ms: u64) -> bool {
        let found = link_to.filter(|_| self.evicted.is_none());
        let is_same = found.is_some() && self.link.map(|link| link.to) == found;
        if !is_same {
            let since_ms = now_ms;
            self.link = found.map(|to| BrokenLink { to, since_ms });
        }
        is_same
    }
}

impl Look {
    /// The only other node that cannot use the node, if all others can.
    fn link_to(&self) -> Option<NodeId> {
        match self.complainants[..] {
            [other] if self.answers => Some(other),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);
    const PATIENCE_MS: u64 = 10_000;
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
        let mut suspicions = Suspicions::new(PATIENCE_MS);
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
        let mut suspicions = Suspicions::new(PATIENCE_MS);
        for node in 0..4 {
            is_cut_off(&mut suspicions, node, &[4, 5, 6, 7]);
            is_cut_off(&mut suspicions, node + 4, &[0, 1, 2, 3]);
        }
        assert!(!is_cut_off(&mut suspicions, 0, &[4, 5, 6, 7]));
        assert!(is_cut_off(&mut suspicions, 4, &[0, 1, 2, 3]));
    }

    #[test]
    fn a_silent_node_is_suspect_until_it_answers() {
        let mut suspicions = Suspicions::new(PATIENCE_MS);
        assert!(suspicions.watch(NODE) && !suspicions.watch(NODE));
        assert_eq!(suspicions.note(NODE, &silent(), 0), Verdict::Open);
        assert!(suspicions.is_suspect(NODE) && !suspicions.is_evicted(NODE));
        assert_eq!(suspicions.note(NODE, &fine(), 1_000), Verdict::Cleared);
        assert!(!suspicions.is_suspect(NODE));
        assert!(suspicions.watch(NODE), "the next report is looked into");
    }

    #[test]
    fn who_is_cut_off_for_some_looks_is_evicted_and_returns_later_each_time() {
        let mut suspicions = Suspicions::new(PATIENCE_MS);
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
            assert!(suspicions.evict(NODE, None, 0));
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
        let mut suspicions = Suspicions::new(PATIENCE_MS);
        assert_eq!(suspicions.note(NODE, &silent(), 0), Verdict::Open);
        suspicions.hear_heartbeat(NODE, 1);
        for _ in 0..2 * LOOK_COUNT {
            assert_eq!(suspicions.note(NODE, &cut_off(), 0), Verdict::Open);
        }
        suspicions.hear_heartbeat(NODE, 1);
        assert_eq!(suspicions.note(NODE, &cut_off(), 0), Verdict::Evict);
        suspicions.hear(NODE, 2);
        assert!(!suspicions.evict(NODE, None, 0), "another run has joined");
    }

    #[test]
    fn an_eviction_holds_for_the_run_that_was_evicted() {
        let mut suspicions = Suspicions::new(PATIENCE_MS);
        for _ in 0..LOOK_COUNT {
            suspicions.note(NODE, &cut_off(), 0);
            suspicions.hear_heartbeat(NODE, 4);
        }
        assert!(suspicions.evict(NODE, None, 0));
        assert!(suspicions.is_run_evicted(NODE, 4) && !suspicions.is_run_evicted(NODE, 5));
        suspicions.hear(NODE, 4);
        assert!(
            suspicions.is_evicted(NODE),
            "it asked before it was evicted"
        );
        suspicions.hear(NODE, 5);
        assert!(!suspicions.is_evicted(NODE));
    }

    /// Looks at both ends of a link once a second, each with these complainants, until one is to be evicted: which,
    /// and when. Heartbeats of both arrive.
    fn first_evicted(ends: [(u32, &[u32]); 2]) -> Option<(u32, u64)> {
        let mut suspicions = Suspicions::new(PATIENCE_MS);
        for now_ms in (0..3 * PATIENCE_MS).step_by(1_000) {
            for (node, complainants) in ends {
                let (id, look) = (NodeId(node), look(complainants));
                match suspicions.note(id, &look, now_ms) {
                    Verdict::EvictForLink(_) | Verdict::Evict => return Some((node, now_ms)),
                    _ => suspicions.hear_heartbeat(id, 1),
                }
            }
        }
        None
    }

    #[test]
    fn one_end_of_a_link_that_stays_broken_is_evicted() {
        let due = |node| Some((node, PATIENCE_MS));
        assert_eq!(first_evicted([(3, &[5]), (5, &[3])]), due(5), "the higher");
        assert_eq!(
            first_evicted([(5, &[3]), (3, &[5])]),
            due(5),
            "in any order"
        );
        // Of the other one it is not known whether it could use it again.
        assert_eq!(first_evicted([(3, &[5]), (5, &[])]), due(3), "one way");
        assert_eq!(first_evicted([(3, &[]), (5, &[])]), None);
        // The other one is cut off from more.
        let (evicted, _) = first_evicted([(3, &[5, 6]), (5, &[3])]).unwrap();
        assert_eq!(evicted, 3);
    }

    #[test]
    fn a_link_that_mends_in_between_costs_no_end_its_membership() {
        let mut suspicions = Suspicions::new(PATIENCE_MS);
        let broken = look(&[1]);
        for now_ms in (0..3 * PATIENCE_MS).step_by(1_000) {
            let is_mended = now_ms % PATIENCE_MS == 0;
            let look = if is_mended { fine() } else { broken.clone() };
            let verdict = suspicions.note(NODE, &look, now_ms);
            let expected = if is_mended {
                Verdict::Cleared
            } else {
                Verdict::LinkIsBroken(NodeId(1))
            };
            assert_eq!(verdict, expected, "{now_ms}");
            suspicions.hear_heartbeat(NODE, 1);
        }
    }

    #[test]
    fn a_node_evicted_for_a_link_returns_when_the_other_end_reaches_it() {
        let mut suspicions = Suspicions::new(0);
        suspicions.note(NODE, &look(&[1]), 0);
        suspicions.hear_heartbeat(NODE, 1);
        let verdict = suspicions.note(NODE, &look(&[1]), 0);
        assert_eq!(verdict, Verdict::EvictForLink(NodeId(1)));
        assert!(suspicions.evict(NODE, Some(NodeId(1)), 0));
        for _ in 0..2 * LOOK_COUNT {
            let verdict = suspicions.note(NODE, &look(&[1]), EVICTED_MS);
            assert_eq!(verdict, Verdict::Open, "the link is broken still");
        }
        for look_number in 1..=LOOK_COUNT {
            assert!(suspicions.is_evicted(NODE), "{look_number}");
            suspicions.note(NODE, &look(&[2]), EVICTED_MS);
        }
        assert!(!suspicions.is_evicted(NODE));
    }
}
