//! Telling nodes the committed marks of stripes: soon, but not once per update.
//!
//! A mark is a hint. A participant of a stripe's next update gets the mark with its part, and a reader that
//! finds a record above its mark asks the primary; so a mark may be lost or late. Here it is only late:
//! marks for a node that is being told, and for a short time after, are sent together, and only the newest
//! one of each stripe. A mark after a pause is sent at once.

use crate::message::{CommittedMark, Progress, ask};
use crate::ports::{Ask as _, Ports};
use futures::FutureExt;
use gabion_layout::{NodeId, StripeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The pause after a message to a node. A reader of newer writes at that node has to ask the primary first.
const TELL_AGAIN_AFTER_MS: u64 = 50;
/// Time limit of a node's confirmation.
const TELL_DEADLINE_MS: u64 = 5_000;

/// Returns the primary's journal position.
pub(crate) type OwnProgress = Arc<dyn Fn() -> Progress + Send + Sync>;

/// Marks that are still to be sent to other nodes.
pub(crate) struct Marks {
    ports: Arc<dyn Ports>,
    node: NodeId,
    own_progress: OwnProgress,
    /// By node; each node with a sending task has an entry, which may be empty.
    owed: Mutex<BTreeMap<NodeId, Owed>>,
}

/// The newest mark of each stripe.
type Owed = BTreeMap<StripeId, CommittedMark>;

impl Marks {
    pub(crate) fn new(ports: Arc<dyn Ports>, node: NodeId, own_progress: OwnProgress) -> Arc<Self> {
        let owed = Mutex::default();
        Arc::new(Self {
            ports,
            node,
            own_progress,
            owed,
        })
    }

    /// Sends a mark to a node, now or later. The node must have all of the stripe's updates up to it.
    pub(crate) fn tell(self: &Arc<Self>, node: NodeId, mark: CommittedMark) {
        let mut all = self.lock();
        let is_told = all.contains_key(&node);
        let owed = all.entry(node).or_default();
        let newest = owed.entry(mark.stripe).or_insert(mark);
        if (newest.epoch, newest.sequence) < (mark.epoch, mark.sequence) {
            *newest = mark;
        }
        drop(all);
        if !is_told {
            let marks = Arc::clone(self);
            let telling = async move { marks.tell_all(node).await };
            self.ports.spawn(telling.boxed());
        }
    }

    /// Sends a node its marks until none are left.
    async fn tell_all(&self, node: NodeId) {
        while let Some(marks) = self.take(node) {
            let from = Some((self.node, (self.own_progress)()));
            let told = ask::Committed { marks, from };
            // No guarantee depends on it: a node without the mark asks.
            let _ = self.ports.ask_node(node, told, TELL_DEADLINE_MS).await;
            self.ports.sleep_ms(TELL_AGAIN_AFTER_MS).await;
        }
    }

    /// The marks for a node; when there are none, its task ends.
    fn take(&self, node: NodeId) -> Option<Vec<CommittedMark>> {
        let mut all = self.lock();
        let owed = all.remove(&node).filter(|owed| !owed.is_empty())?;
        all.insert(node, Owed::new());
        Some(owed.into_values().collect())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Owed>> {
        // The map is consistent after every step, even if a caller panics between two of them.
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{
        CoordinatorReply, CoordinatorRequest, Flow, NodeReply, NodeRequest, NodeStatus, Refusal,
    };
    use crate::ports::{Address, CallError};
    use futures::channel::mpsc::UnboundedReceiver;
    use futures::channel::oneshot::{Sender, channel};
    use futures::future::BoxFuture;
    use futures::task::noop_waker_ref;
    use gabion_layout::{Epoch, Sequence};
    use std::task::Context;

    /// A message to a node, and the channel for its answer.
    struct Call {
        node: NodeId,
        marks: Vec<CommittedMark>,
        answer: Sender<bool>,
    }

    /// Calls and pauses that end when the test says so.
    #[derive(Default)]
    struct Wire {
        calls: Mutex<Vec<Call>>,
        pauses: Mutex<Vec<Sender<()>>>,
        tasks: Mutex<Vec<BoxFuture<'static, ()>>>,
    }

    impl Ports for Wire {
        fn call_node(
            &self,
            node: NodeId,
            request: NodeRequest,
            _: u64,
        ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
            let NodeRequest::Committed(ask::Committed { marks, .. }) = request else {
                panic!("only marks are told here");
            };
            let (answer, receiver) = channel();
            let call = Call {
                node,
                marks,
                answer,
            };
            self.calls.lock().expect("no panic").push(call);
            let peer = node.to_string();
            let reason = "is silent".to_owned();
            let answer = async move {
                let is_heard = receiver.await.expect("the test answers");
                is_heard
                    .then_some(NodeReply::Done)
                    .ok_or(CallError { peer, reason })
            };
            answer.boxed()
        }

        fn call_coordinator(
            &self,
            _: CoordinatorRequest,
            _: u64,
        ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
            unreachable!("marks ask the coordinator nothing")
        }

        fn send_flows(
            &self,
            _: Address,
            _: UnboundedReceiver<Flow>,
        ) -> BoxFuture<'static, Result<(), Refusal>> {
            unreachable!("marks are no flows")
        }

        fn learn_nodes(&self, _: &[NodeStatus]) {}

        fn now_ms(&self) -> u64 {
            0
        }

        fn sleep_ms(&self, _: u64) -> BoxFuture<'static, ()> {
            let (sender, receiver) = channel();
            self.pauses.lock().expect("no panic").push(sender);
            async { receiver.await.expect("the test ends it") }.boxed()
        }

        fn spawn(&self, task: BoxFuture<'static, ()>) {
            self.tasks.lock().expect("no panic").push(task);
        }

        fn blocking(&self, _: Box<dyn FnOnce() + Send>) {
            unreachable!("marks wait for no disk")
        }

        fn random(&self) -> u64 {
            0
        }
    }

    impl Wire {
        /// The messages sent now, by node, each mark as its stripe and sequence; `is_heard` answers them.
        fn told(&self, is_heard: bool) -> Vec<(u32, Vec<(u64, u64)>)> {
            self.run();
            let calls = std::mem::take(&mut *self.calls.lock().expect("no panic"));
            let told = calls.into_iter().map(|call| {
                call.answer.send(is_heard).expect("the caller waits");
                let brief = |mark: &CommittedMark| (mark.stripe.0, mark.sequence.0);
                (call.node.0, call.marks.iter().map(brief).collect())
            });
            let told = told.collect();
            self.run();
            told
        }

        fn end_pauses(&self) {
            for pause in self.pauses.lock().expect("no panic").drain(..) {
                pause.send(()).expect("a task pauses");
            }
        }

        /// Runs all tasks as far as they come.
        fn run(&self) {
            let mut tasks = std::mem::take(&mut *self.tasks.lock().expect("no panic"));
            let mut context = Context::from_waker(noop_waker_ref());
            tasks.retain_mut(|task| task.poll_unpin(&mut context).is_pending());
            self.tasks.lock().expect("no panic").extend(tasks);
        }
    }

    fn mark(stripe: u64, sequence: u64) -> CommittedMark {
        CommittedMark {
            stripe: StripeId(stripe),
            epoch: Epoch(1),
            sequence: Sequence(sequence),
        }
    }

    #[test]
    fn a_mark_after_a_pause_leaves_at_once_and_later_ones_together() {
        let wire = Arc::new(Wire::default());
        let marks = Marks::new(
            Arc::clone(&wire) as Arc<dyn Ports>,
            NodeId(0),
            Arc::new(Progress::default),
        );
        marks.tell(NodeId(7), mark(1, 1));
        marks.tell(NodeId(8), mark(1, 1));
        assert_eq!(wire.told(true), [(7, vec![(1, 1)]), (8, vec![(1, 1)])]);
        for (stripe, sequence) in [(1, 2), (2, 9), (1, 4), (1, 3)] {
            marks.tell(NodeId(7), mark(stripe, sequence));
        }
        assert_eq!(wire.told(true), [], "both were told just now");
        wire.end_pauses();
        assert_eq!(wire.told(true), [(7, vec![(1, 4), (2, 9)])]);
        wire.end_pauses();
        assert_eq!(wire.told(true), []);
        assert!(marks.lock().is_empty(), "no mark is left to send");
        marks.tell(NodeId(7), mark(1, 5));
        assert_eq!(wire.told(true), [(7, vec![(1, 5)])], "without a pause");
    }

    #[test]
    fn a_silent_node_is_told_the_newest_mark_next_time_and_delays_no_other_node() {
        let wire = Arc::new(Wire::default());
        let marks = Marks::new(
            Arc::clone(&wire) as Arc<dyn Ports>,
            NodeId(0),
            Arc::new(Progress::default),
        );
        marks.tell(NodeId(7), mark(1, 1));
        wire.run();
        marks.tell(NodeId(7), mark(1, 2));
        marks.tell(NodeId(8), mark(1, 2));
        assert_eq!(wire.told(false), [(7, vec![(1, 1)]), (8, vec![(1, 2)])]);
        wire.end_pauses();
        assert_eq!(wire.told(true), [(7, vec![(1, 2)])]);
    }

    #[test]
    fn a_mark_of_a_later_term_is_newer() {
        let wire = Arc::new(Wire::default());
        let marks = Marks::new(
            Arc::clone(&wire) as Arc<dyn Ports>,
            NodeId(0),
            Arc::new(Progress::default),
        );
        let later = CommittedMark {
            epoch: Epoch(2),
            ..mark(1, 4)
        };
        marks.tell(NodeId(7), later);
        marks.tell(NodeId(7), mark(1, 5));
        let owed = marks.take(NodeId(7)).expect("it is owed a mark");
        assert_eq!(owed, [later]);
    }
}
