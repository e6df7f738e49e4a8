//! Node health by heartbeats. In memory only: a restarted coordinator treats every node as up for a
//! full lease before it draws conclusions.
//!
//! A node's lease runs for `lease_ms` from when the node *sent* a heartbeat that was answered; when
//! it ends, the node stops serving by itself. The coordinator counts from when it *received* the
//! heartbeat, which is later, and waits `margin_ms` more before it declares the node failed. So the
//! node has stopped by then, provided that the two clocks drift apart by less than the margin
//! during a lease. Clocks need not agree on the time, and messages may take any time.

use gabion_layout::NodeId;
use std::collections::BTreeMap;

/// Timeouts of membership, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Time for which a heartbeat lets a node serve.
    pub lease_ms: u64,
    /// Additional wait of the coordinator, for clock drift.
    pub margin_ms: u64,
    /// Time for a failed node to return before its chunks are repaired elsewhere.
    pub grace_ms: u64,
}

/// Health of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeState {
    /// Its lease runs.
    Up,
    /// Its lease has ended by the coordinator's clock, but by its own clock it may still serve.
    Suspect,
    /// It has stopped serving: its chunks count as lost, and its stripes may get new primaries.
    Failed,
    /// It has been failed for the grace time: its chunks are to be repaired.
    Dead,
}

/// A node's change of state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The node.
    pub node: NodeId,
    /// The old state.
    pub from: NodeState,
    /// The new state.
    pub to: NodeState,
}

/// Result of a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heartbeat {
    /// The node's lease is renewed. Contains the changes since the last tick, in order: a heartbeat
    /// that comes too late finds its node failed first, and then up again.
    Granted(Vec<Transition>),
    /// A later run of the node is known; this process must stop.
    Superseded {
        /// The later run.
        incarnation: u64,
    },
}

/// State of one node.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Its latest known run; none since the coordinator's own start.
    incarnation: Option<u64>,
    /// When its silence began.
    silent_since_ms: u64,
    /// Whether the node was declared failed when its silence began.
    began_failed: bool,
    /// The state last reported to the coordinator.
    told: NodeState,
}

/// The membership of a cluster.
#[derive(Clone, Debug)]
pub struct Membership {
    timing: Timing,
    members: BTreeMap<NodeId, Member>,
    /// When [`Membership::run`] was last called; none before the first call.
    ran_ms: Option<u64>,
}

impl Membership {
    /// A membership without nodes.
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            members: BTreeMap::new(),
            ran_ms: None,
        }
    }

    /// Its timing.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Adds a node whose record the coordinator finds at its own start. A node recorded as failed
    /// starts as failed, with a new grace time: others have acted on that failure. Any other node
    /// starts as up, as if its heartbeat had just arrived. A known node stays unchanged.
    pub fn expect(&mut self, node: NodeId, failed: bool, now_ms: u64) {
        self.members
            .entry(node)
            .or_insert_with(|| Member::found(failed, now_ms));
    }

    /// Notes that the coordinator runs, which it does several times a lease. A pause of half a lease or more means that
    /// its process was stopped. It received no heartbeats then, so the pause counts as no node's silence. Returns the
    /// pause in milliseconds; 0 if it was shorter.
    pub fn run(&mut self, now_ms: u64) -> u64 {
        let last_ms = self.ran_ms.replace(now_ms).unwrap_or(now_ms);
        let stopped_ms = now_ms.saturating_sub(last_ms);
        if stopped_ms < self.timing.lease_ms.div_ceil(2) {
            return 0;
        }
        for member in self.members.values_mut() {
            // The clock may have stepped, and no silence begins later than now.
            let later_ms = member.silent_since_ms.saturating_add(stopped_ms);
            member.silent_since_ms = later_ms.min(now_ms.max(member.silent_since_ms));
        }
        stopped_ms
    }

    /// Processes a heartbeat of a node that has joined. The reply must identify the heartbeat, so
    /// that the node counts its lease from when it sent that one.
    pub fn heartbeat(&mut self, node: NodeId, incarnation: u64, now_ms: u64) -> Heartbeat {
        let member = self
            .members
            .entry(node)
            .or_insert_with(|| Member::found(false, now_ms));
        if let Some(latest) = member.incarnation.filter(|&latest| latest > incarnation) {
            return Heartbeat::Superseded {
                incarnation: latest,
            };
        }
        let mut transitions = Vec::new();
        let state = member.state(self.timing, now_ms);
        member.tell_up_to(node, state, &mut transitions);
        if state != NodeState::Up {
            transitions.push(Transition {
                node,
                from: state,
                to: NodeState::Up,
            });
        }
        *member = Member {
            incarnation: Some(incarnation),
            // A clock that steps back must not shorten a granted lease.
            silent_since_ms: if state == NodeState::Up {
                now_ms.max(member.silent_since_ms)
            } else {
                now_ms
            },
            began_failed: false,
            told: NodeState::Up,
        };
        Heartbeat::Granted(transitions)
    }

    /// The latest run of a node that has sent a heartbeat since the coordinator's own start.
    pub fn incarnation(&self, node: NodeId) -> Option<u64> {
        self.members.get(&node)?.incarnation
    }

    /// Whether a node sent a heartbeat since the coordinator's own start.
    pub fn was_heard(&self, node: NodeId) -> bool {
        let member = self.members.get(&node);
        member.is_some_and(|member| member.incarnation.is_some())
    }

    /// Ends a node's lease at the request of this run of it: the node is failed from now on.
    /// Returns whether that changed anything; a later run, or a failure already noticed, stays
    /// unchanged.
    pub fn end(&mut self, node: NodeId, incarnation: u64, now_ms: u64) -> bool {
        let Some(member) = self.members.get_mut(&node) else {
            return false;
        };
        let is_later = |latest: u64| latest > incarnation;
        if member.incarnation.is_some_and(is_later)
            || member.state(self.timing, now_ms) >= NodeState::Failed
        {
            return false;
        }
        *member = Member {
            incarnation: Some(incarnation),
            silent_since_ms: now_ms,
            began_failed: true,
            told: member.told,
        };
        true
    }

    /// Gives a returning failed node a new grace time.
    pub fn await_return(&mut self, node: NodeId, now_ms: u64) {
        if let Some(member) = self.members.get_mut(&node)
            && member.state(self.timing, now_ms) == NodeState::Failed
        {
            member.silent_since_ms = now_ms;
            member.began_failed = true;
        }
    }

    /// A node's health; none for an unknown node.
    pub fn state(&self, node: NodeId, now_ms: u64) -> Option<NodeState> {
        let member = self.members.get(&node)?;
        Some(member.state(self.timing, now_ms))
    }

    /// Whether a node that is failed is likely to join soon: it has ended its membership less than a lease ago, or the
    /// coordinator has started less than three leases ago and has not heard from it yet.
    pub fn may_join_soon(&self, node: NodeId, now_ms: u64) -> bool {
        let window_ms = self.timing.lease_ms.saturating_add(self.timing.margin_ms);
        self.members.get(&node).is_some_and(|member| {
            let silence_ms = now_ms.saturating_sub(member.silent_since_ms);
            member.began_failed && silence_ms < window_ms
                || member.incarnation.is_none() && silence_ms < window_ms.saturating_mul(3)
        })
    }

    /// Whether the given run of a node may still serve, by its own clock. A later run ends an
    /// earlier one: a node's store admits one process at a time.
    pub fn may_serve(&self, node: NodeId, incarnation: u64, now_ms: u64) -> bool {
        self.members.get(&node).is_some_and(|member| {
            member.state(self.timing, now_ms) <= NodeState::Suspect
                && member
                    .incarnation
                    .is_none_or(|latest| latest <= incarnation)
        })
    }

    /// The changes of state since the last tick or heartbeat, by node and then by time. Reports
    /// each state passed through, however late the tick.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Transition> {
        let mut transitions = Vec::new();
        for (&node, member) in &mut self.members {
            let state = member.state(self.timing, now_ms);
            member.tell_up_to(node, state, &mut transitions);
        }
        transitions
    }
}

impl Member {
    /// A node of which only the record is known.
    fn found(failed: bool, now_ms: u64) -> Self {
        let told = if failed {
            NodeState::Failed
        } else {
            NodeState::Up
        };
        Self {
            incarnation: None,
            silent_since_ms: now_ms,
            began_failed: failed,
            told,
        }
    }

    fn state(&self, timing: Timing, now_ms: u64) -> NodeState {
        let silence_ms = now_ms.saturating_sub(self.silent_since_ms);
        let failed_ms = if self.began_failed {
            0
        } else {
            timing.lease_ms.saturating_add(timing.margin_ms)
        };
        let timed = if silence_ms >= failed_ms.saturating_add(timing.grace_ms) {
            NodeState::Dead
        } else if silence_ms >= failed_ms {
            NodeState::Failed
        } else if silence_ms >= timing.lease_ms {
            NodeState::Suspect
        } else {
            NodeState::Up
        };
        // Reported changes have taken effect; a clock that steps back does not undo them.
        timed.max(self.told)
    }

    /// Appends the steps from the state last reported to `state`.
    fn tell_up_to(&mut self, node: NodeId, state: NodeState, out: &mut Vec<Transition>) {
        while self.told < state {
            let next = match self.told {
                NodeState::Up => NodeState::Suspect,
                NodeState::Suspect => NodeState::Failed,
                NodeState::Failed | NodeState::Dead => NodeState::Dead,
            };
            out.push(Transition {
                node,
                from: self.told,
                to: next,
            });
            self.told = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NodeState::{Dead, Failed, Suspect, Up};
    use super::*;

    const TIMING: Timing = Timing {
        lease_ms: 100,
        margin_ms: 10,
        grace_ms: 1000,
    };
    const NODE: NodeId = NodeId(7);

    #[test]
    fn a_node_that_has_just_ended_its_membership_may_join_soon() {
        let mut membership = Membership::new(TIMING);
        membership.expect(NODE, false, 0);
        let check = |membership: &Membership, expected: &[(u64, bool)]| {
            for &(now_ms, expected) in expected {
                let found = membership.may_join_soon(NODE, now_ms);
                assert_eq!(found, expected, "{now_ms}");
            }
        };
        // The coordinator has not heard from it since its start.
        check(&membership, &[(110, true), (329, true), (330, false)]);
        membership.heartbeat(NODE, 1, 50);
        check(&membership, &[(160, false)]);
        assert!(membership.end(NODE, 1, 100));
        check(&membership, &[(100, true), (209, true), (210, false)]);
    }

    fn steps(transitions: &[Transition]) -> Vec<(NodeState, NodeState)> {
        transitions.iter().map(|t| (t.from, t.to)).collect()
    }

    fn granted(heartbeat: Heartbeat) -> Vec<(NodeState, NodeState)> {
        match heartbeat {
            Heartbeat::Granted(transitions) => steps(&transitions),
            Heartbeat::Superseded { .. } => panic!("{heartbeat:?}"),
        }
    }

    #[test]
    fn silence_leads_from_suspect_to_failed_to_dead() {
        // For a node last heard at 50: the time, the state, and the changes that a tick reports.
        let table = [
            (50, Up, vec![]),
            (149, Up, vec![]),
            (150, Suspect, vec![(Up, Suspect)]),
            (159, Suspect, vec![]),
            (160, Failed, vec![(Suspect, Failed)]),
            (1159, Failed, vec![]),
            (1160, Dead, vec![(Failed, Dead)]),
            (u64::MAX, Dead, vec![]),
        ];
        let mut membership = Membership::new(TIMING);
        assert_eq!(membership.state(NODE, 0), None);
        assert_eq!(granted(membership.heartbeat(NODE, 1, 50)), []);
        for (now_ms, state, told) in table {
            assert_eq!(membership.state(NODE, now_ms), Some(state), "at {now_ms}");
            assert_eq!(membership.may_serve(NODE, 1, now_ms), state <= Suspect);
            assert_eq!(steps(&membership.tick(now_ms)), told, "at {now_ms}");
        }
        assert_eq!(
            granted(membership.heartbeat(NODE, 1, 2000)),
            [(Dead, Up)],
            "even a dead node may return"
        );
    }

    #[test]
    fn no_node_is_silent_while_the_coordinator_is_stopped() {
        let mut membership = Membership::new(TIMING);
        let (failed, silent, heard) = (NodeId(1), NodeId(2), NodeId(3));
        membership.expect(failed, true, 0);
        membership.heartbeat(silent, 1, 20);
        assert_eq!(membership.run(30), 0, "the first run has none before it");
        membership.heartbeat(heard, 1, 70);
        assert_eq!(membership.run(79), 0, "49 of a lease of 100");
        assert_eq!(membership.run(10_079), 10_000);
        // Silences go on where they were at 79.
        assert_eq!(membership.state(silent, 10_119), Some(Up));
        assert_eq!(membership.state(silent, 10_120), Some(Suspect));
        assert_eq!(membership.state(heard, 10_169), Some(Up));
        assert_eq!(membership.state(failed, 10_999), Some(Failed));
        assert_eq!(membership.state(failed, 11_000), Some(Dead));
        // A clock that steps back is no stop.
        assert_eq!(membership.run(9_000), 0);
    }

    #[test]
    fn a_late_tick_reports_every_step_by_node() {
        let mut membership = Membership::new(TIMING);
        membership.heartbeat(NodeId(2), 1, 0);
        membership.heartbeat(NodeId(1), 1, 1040);
        let told = membership.tick(1150);
        let nodes: Vec<_> = told.iter().map(|t| (t.node.0, t.from, t.to)).collect();
        assert_eq!(
            nodes,
            [
                (1, Up, Suspect),
                (1, Suspect, Failed),
                (2, Up, Suspect),
                (2, Suspect, Failed),
                (2, Failed, Dead),
            ]
        );
        assert_eq!(membership.tick(1150), []);
    }

    #[test]
    fn a_heartbeat_before_the_tick_still_reports_the_failure() {
        let mut membership = Membership::new(TIMING);
        membership.heartbeat(NODE, 1, 0);
        assert_eq!(
            granted(membership.heartbeat(NODE, 1, 105)),
            [(Up, Suspect), (Suspect, Up)]
        );
        assert_eq!(
            granted(membership.heartbeat(NODE, 1, 215)),
            [(Up, Suspect), (Suspect, Failed), (Failed, Up)]
        );
        assert_eq!(membership.state(NODE, 314), Some(Up));
    }

    #[test]
    fn a_later_run_ends_an_earlier_one() {
        let mut membership = Membership::new(TIMING);
        membership.heartbeat(NODE, 2, 0);
        assert!(membership.may_serve(NODE, 2, 50));
        membership.heartbeat(NODE, 3, 50);
        assert!(!membership.may_serve(NODE, 2, 50));
        assert_eq!(
            membership.heartbeat(NODE, 2, 60),
            Heartbeat::Superseded { incarnation: 3 }
        );
        assert_eq!(membership.state(NODE, 149), Some(Up));
        assert_eq!(
            membership.state(NODE, 150),
            Some(Suspect),
            "the refused heartbeat renewed nothing"
        );
    }

    #[test]
    fn after_a_restart_nodes_count_as_up_for_a_lease() {
        let (healthy, lost) = (NodeId(1), NodeId(2));
        let mut membership = Membership::new(TIMING);
        membership.expect(healthy, false, 5000);
        membership.expect(lost, true, 5000);
        assert_eq!(membership.state(healthy, 5099), Some(Up));
        assert!(membership.may_serve(healthy, 0, 5109));
        assert_eq!(membership.state(lost, 5000), Some(Failed));
        assert!(!membership.may_serve(lost, 9, 5000));
        assert_eq!(membership.state(lost, 5999), Some(Failed));
        assert_eq!(steps(&membership.tick(6000)).last(), Some(&(Failed, Dead)));
        assert_eq!(granted(membership.heartbeat(lost, 9, 6001)), [(Dead, Up)]);
    }

    #[test]
    fn a_run_that_ends_its_lease_fails_at_once_unless_a_later_one_is_known() {
        let mut membership = Membership::new(TIMING);
        membership.heartbeat(NODE, 2, 0);
        assert!(!membership.end(NODE, 1, 10), "an earlier run has no lease");
        assert_eq!(membership.state(NODE, 10), Some(Up));
        assert!(membership.end(NODE, 2, 10));
        assert!(!membership.end(NODE, 2, 20), "it is known");
        assert_eq!(membership.state(NODE, 10), Some(Failed));
        assert!(!membership.may_serve(NODE, 2, 10));
        assert_eq!(
            steps(&membership.tick(10)),
            [(Up, Suspect), (Suspect, Failed)]
        );
        assert_eq!(membership.state(NODE, 1009), Some(Failed));
        assert_eq!(membership.state(NODE, 1010), Some(Dead));
        assert_eq!(
            granted(membership.heartbeat(NODE, 3, 1020)),
            [(Failed, Dead), (Dead, Up)]
        );
    }

    #[test]
    fn a_clock_that_steps_back_undoes_nothing() {
        let mut membership = Membership::new(TIMING);
        membership.heartbeat(NODE, 1, 1000);
        membership.heartbeat(NODE, 1, 900);
        assert_eq!(membership.state(NODE, 1099), Some(Up));
        assert_eq!(membership.tick(1110).len(), 2);
        assert_eq!(membership.state(NODE, 1000), Some(Failed));
    }
}
