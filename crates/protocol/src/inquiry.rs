//! Finds the cause of a failed run: the participants' answers after its end, and the missing answers. The
//! result is a list of nodes to avoid; it proves no failure.

use crate::message::Refusal;
use crate::ports::Ports;
use futures::stream::{FusedStream, StreamExt};
use futures::{FutureExt, select_biased};
use gabion_layout::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Time limit of participants' answers after an abort.
const GRACE_MS: u64 = 2_000;

/// A participant's answer about its part, if there is one.
pub(crate) type Answer = Option<Result<(), Refusal>>;

/// The answers and missing answers of a failed run's participants.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    /// Participants without an answer.
    silent: BTreeSet<NodeId>,
    /// The nodes that stalled participants have waited for.
    awaited: BTreeMap<NodeId, Vec<NodeId>>,
}

impl Inquiry {
    /// An inquiry among these nodes.
    pub(crate) fn new(among: impl IntoIterator<Item = NodeId>) -> Self {
        Self {
            silent: among.into_iter().collect(),
            awaited: BTreeMap::new(),
        }
    }

    /// Notes an answer.
    pub(crate) fn hear(&mut self, node: NodeId, answer: Answer) {
        let Some(answer) = answer else { return };
        self.silent.remove(&node);
        if let Err(Refusal::Stalled(awaited)) = answer {
            self.awaited.insert(node, awaited);
        }
    }

    /// Collects the answers that arrive soon.
    pub(crate) async fn ask(
        &mut self,
        ports: &dyn Ports,
        answers: &mut (impl FusedStream<Item = (NodeId, Answer)> + Unpin),
    ) {
        let mut over = ports.sleep_ms(GRACE_MS).fuse();
        loop {
            select_biased! {
                answer = answers.next() => match answer {
                    Some((node, answer)) => self.hear(node, answer),
                    None => return,
                },
                () = over => return,
            }
        }
    }

    /// The nodes that did not answer. If all did: the nodes that others waited for and that waited for no
    /// other. If there is none: both ends of each link over which two nodes wait for each other.
    pub(crate) fn suspects(&self) -> Vec<NodeId> {
        if !self.silent.is_empty() {
            return self.silent.iter().copied().collect();
        }
        let own_fault =
            |(&node, awaited): (&NodeId, &Vec<NodeId>)| awaited.is_empty().then_some(node);
        let at_fault: Vec<NodeId> = self.awaited.iter().filter_map(own_fault).collect();
        if !at_fault.is_empty() {
            return at_fault;
        }
        let waits = |a: NodeId, b: NodeId| self.awaited.get(&a).is_some_and(|of| of.contains(&b));
        let is_mutual = |node: &NodeId| self.awaited[node].iter().any(|&peer| waits(peer, *node));
        self.awaited.keys().copied().filter(is_mutual).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suspects among nodes 0 to 4, a chain in this order, by each one's answer: the node that it waits
    /// for, or none.
    #[track_caller]
    fn check(said: [Option<&[u32]>; 5], expected: &[u32]) {
        let mut inquiry = Inquiry::new((0..5).map(NodeId));
        for (node, awaited) in (0..).map(NodeId).zip(said) {
            let awaited = awaited.map(|of| of.iter().copied().map(NodeId).collect());
            inquiry.hear(node, awaited.map(|of| Err(Refusal::Stalled(of))));
        }
        let expected: Vec<NodeId> = expected.iter().copied().map(NodeId).collect();
        assert_eq!(inquiry.suspects(), expected);
    }

    #[test]
    fn the_silent_are_suspected_before_all_others() {
        check([Some(&[1]), Some(&[2]), None, Some(&[2]), Some(&[3])], &[2]);
        check([None, Some(&[2]), None, Some(&[2]), Some(&[3])], &[0, 2]);
    }

    #[test]
    fn a_node_that_waits_for_no_other_is_slow_itself() {
        check(
            [Some(&[1]), Some(&[2]), Some(&[]), Some(&[2]), Some(&[3])],
            &[2],
        );
    }

    #[test]
    fn a_link_that_carries_nothing_has_two_ends() {
        check(
            [Some(&[1]), Some(&[2]), Some(&[1]), Some(&[2]), Some(&[3])],
            &[1, 2],
        );
    }

    #[test]
    fn other_refusals_make_no_node_suspect() {
        let mut inquiry = Inquiry::new([NodeId(1), NodeId(2)]);
        inquiry.hear(NodeId(1), Some(Err(Refusal::NoSpace)));
        inquiry.hear(NodeId(2), Some(Ok(())));
        assert_eq!(inquiry.suspects(), []);
    }
}
