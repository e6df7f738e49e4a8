//! Whether a joining node went back in time within its last run: the journal position that the coordinator
//! and other nodes remember, against the end of its journal now.
//!
//! The coordinator gets it with each heartbeat and makes the positions of all nodes durable every few
//! seconds, in one transaction. Other nodes keep in memory the positions from answers and marks; they are
//! asked when the node joins.

use super::nodes::Nodes;
use crate::coordinator::core::{Core, lock};
use crate::event::Event;
use crate::message::{Applicant, Denial, Liveness, NodeStatus, ask};
use crate::ports::Ask as _;
use futures::future::join_all;
use gabion_layout::NodeId;
use gabion_meta::{KeyValue, Meta, MetaError, Progress};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Time limit of other nodes' answers. The joining node waits for them.
const ASK_DEADLINE_MS: u64 = 500;

/// The farthest position of each node from its heartbeats; some of them are not durable yet.
pub(in crate::coordinator) struct Positions<K> {
    core: Arc<Core<K>>,
    nodes: Arc<Nodes<K>>,
    /// Each with a flag: not durable yet.
    known: Mutex<BTreeMap<NodeId, (Progress, bool)>>,
}

impl<K: KeyValue + Send + Sync + 'static> Positions<K> {
    /// The durable positions at the coordinator's own start.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(super) fn new(core: &Arc<Core<K>>, nodes: &Arc<Nodes<K>>) -> Result<Self, MetaError> {
        let durable = core.meta.progress()?.into_iter();
        Ok(Self {
            core: Arc::clone(core),
            nodes: Arc::clone(nodes),
            known: Mutex::new(durable.map(|(node, at)| (node, (at, false))).collect()),
        })
    }

    /// Notes a member's report.
    pub(super) fn note(&self, node: NodeId, progress: Progress) {
        let mut all = lock(&self.known);
        let (known, is_news) = all.entry(node).or_insert((progress, true));
        if *known < progress {
            (*known, *is_news) = (progress, true);
        }
    }

    fn of(&self, node: NodeId) -> Option<Progress> {
        lock(&self.known).get(&node).map(|&(progress, _)| progress)
    }

    /// The positions that are not durable yet; they count as durable from now on.
    fn take_news(&self) -> Vec<(NodeId, Progress)> {
        let mut all = lock(&self.known);
        let news = all.iter_mut().filter_map(|(&node, (progress, is_news))| {
            std::mem::take(is_news).then_some((node, *progress))
        });
        news.collect()
    }

    /// Whether an applicant's journal ends before a position that its last run had made durable. The same
    /// run still has everything in memory, so it may join again from any position.
    pub(super) async fn shows_less(&self, applicant: &Applicant) -> Result<bool, Denial> {
        let Some(node) = applicant.node else {
            return Ok(false);
        };
        let record = self.core.with_meta(move |meta| meta.node(node)).await;
        let Some(admitted) = record.ok().and_then(|record| record.admitted) else {
            return Ok(false);
        };
        if admitted == applicant.start {
            return Ok(false);
        }
        let mut said = self.ask_others(node).await;
        said.extend(self.of(node));
        let of_last_run = |progress: &&Progress| progress.incarnation == admitted.number;
        let farthest = said.iter().filter(of_last_run).max();
        Ok(farthest.is_some_and(|farthest| applicant.position < farthest.position))
    }

    /// Checks the journal position of a joining run, and logs if it went back.
    pub(super) fn note_arrival(&self, node: NodeId, run: (u64, u64), went_back: bool) {
        let (incarnation, position) = run;
        let progress = Progress {
            incarnation,
            position,
        };
        self.note(node, progress);
        if went_back {
            self.core.ports.note_event(&Event::WentBack(node));
        }
    }

    /// The positions of a node that the other nodes that are up remember. Late answers are left out.
    async fn ask_others(&self, node: NodeId) -> Vec<Progress> {
        let is_asked = |other: &NodeStatus| other.node != node && other.liveness == Liveness::Up;
        let others = self.nodes.statuses().into_iter().filter(is_asked);
        let asked = others.map(|other| {
            let question = ask::Progress { node };
            self.core
                .ports
                .ask_node(other.node, question, ASK_DEADLINE_MS)
        });
        let said = join_all(asked).await.into_iter();
        said.flatten().flatten().collect()
    }

    /// Makes nodes' positions durable periodically, until the metadata store fails.
    pub(in crate::coordinator) async fn keep(self: Arc<Self>) {
        while !self.core.is_broken() {
            self.core
                .ports
                .sleep_ms(self.core.options.progress_ms)
                .await;
            let news = self.take_news();
            if news.is_empty() {
                continue;
            }
            let noted = self
                .core
                .with_meta(move |meta: &Meta<K>| meta.note_progress(&news))
                .await;
            if let Err(error) = noted {
                self.core.note_error(error.to_string());
            }
        }
    }
}
