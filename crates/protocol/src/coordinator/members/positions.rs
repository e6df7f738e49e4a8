//! Whether a node that joins went back in time within its last run: what the coordinator and other nodes
//! remember of how far its journal had come, against where it ends now.
//!
//! The coordinator hears it with each heartbeat and makes it durable every few seconds, of all nodes in
//! one transaction. Other nodes remember in memory what they have heard in answers and marks; they are
//! asked when the node joins.

use super::nodes::Nodes;
use crate::coordinator::core::{Core, Denied, lock};
use crate::event::Event;
use crate::message::{Applicant, Liveness, NodeStatus, ask};
use crate::ports::Ask as _;
use futures::future::join_all;
use gabion_layout::NodeId;
use gabion_meta::{KeyValue, Meta, MetaError, Progress};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// How long other nodes may take to say what they remember. The joining node waits for it.
const ASK_DEADLINE_MS: u64 = 500;

/// The farthest that each node has come, by its heartbeats; some of it not durable yet.
pub(in crate::coordinator) struct Positions<K> {
    core: Arc<Core<K>>,
    nodes: Arc<Nodes<K>>,
    /// Each with whether it is news: not durable yet.
    known: Mutex<BTreeMap<NodeId, (Progress, bool)>>,
}

impl<K: KeyValue + Send + Sync + 'static> Positions<K> {
    /// What is durable at the coordinator's own start.
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

    /// Takes a member's word.
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

    /// What is not durable yet; it counts as durable from now on.
    fn take_news(&self) -> Vec<(NodeId, Progress)> {
        let mut all = lock(&self.known);
        let news = all.iter_mut().filter_map(|(&node, (progress, is_news))| {
            std::mem::take(is_news).then_some((node, *progress))
        });
        news.collect()
    }

    /// Whether an applicant's journal ends before a position that its last run had made durable. The run
    /// itself, which has all in memory, may join anew from anywhere.
    pub(super) async fn shows_less(&self, applicant: &Applicant) -> Result<bool, Denied> {
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

    /// Measures a run of a node that is let in by where its journal is, and has the log say if it went back.
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

    /// What the other nodes that are up remember of one. Those that do not answer soon have no say.
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

    /// Makes durable how far nodes have come, now and then, until the metadata store fails.
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
