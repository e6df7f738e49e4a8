//! Which start of the coordinator this is, and whether nodes know a start that its metadata does not: then
//! the metadata is an old copy, and the coordinator stops.

use super::nodes::Nodes;
use crate::coordinator::core::{Core, lock};
use crate::message::{Cause, Denial, Origin};
use gabion_layout::{NodeId, Start};
use gabion_meta::{KeyValue, MetaError};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The starts of the coordinator in the metadata, and those that nodes report.
#[derive(Debug)]
pub(super) struct Starts {
    own: Start,
    /// Nonces of the starts that are remembered, this one included.
    nonces: BTreeMap<u64, u64>,
    /// The newest start that each node knew when it first spoke to this run.
    first_words: Mutex<BTreeMap<NodeId, u64>>,
}

impl Starts {
    /// The starts that the metadata remembers, the last of which is this one.
    pub(super) fn new(known: &[Start]) -> Self {
        Self {
            own: *known.last().expect("a run notes its own start"),
            nonces: known
                .iter()
                .map(|start| (start.number, start.nonce))
                .collect(),
            first_words: Mutex::default(),
        }
    }

    /// This run.
    pub(super) fn own(&self) -> Start {
        self.own
    }

    /// Notes that a node which knows no coordinator has spoken to this run.
    pub(super) fn note_word(&self, node: NodeId) {
        lock(&self.first_words).entry(node).or_default();
    }

    /// Whether a node has spoken to this run and knew of no newer metadata.
    pub(super) fn has_confirmed(&self, node: NodeId) -> bool {
        lock(&self.first_words).contains_key(&node)
    }

    /// Whether a start may have been one of this metadata. Forgotten starts may have been.
    fn may_know(&self, start: Start) -> bool {
        let oldest = self.nonces.first_key_value().map(|(&number, _)| number);
        match self.nonces.get(&start.number) {
            Some(nonce) => *nonce == start.nonce,
            None => oldest.is_some_and(|oldest| start.number < oldest),
        }
    }

    /// Notes the newest start of a coordinator that a node knows. If the metadata does not know that start,
    /// it is an old copy and the coordinator stops, unless most nodes confirm it: then that node has
    /// followed a copy.
    pub(super) fn hear<K: KeyValue + Send + Sync + 'static>(
        &self,
        nodes: &Nodes<K>,
        core: &Core<K>,
        node: NodeId,
        heard: Option<Origin>,
    ) -> Result<(), Denial> {
        let Some(Origin {
            start: heard,
            change_count,
        }) = heard
        else {
            self.note_word(node);
            return Ok(());
        };
        if self.may_know(heard) {
            let own_count = core.meta.change_count();
            if change_count > own_count {
                let proof = format!(
                    "{node} has heard of change {change_count} of the metadata, which ends with change {own_count}"
                );
                return Err(core.stop(MetaError::WentBack { proof }).into());
            }
            lock(&self.first_words).entry(node).or_insert(heard.number);
            return Ok(());
        }
        let confirming = |number: &&u64| **number >= heard.number;
        let confirming_count = lock(&self.first_words).values().filter(confirming).count();
        if confirming_count * 2 > nodes.statuses().len() {
            return Err(Denial::new(
                Cause::Stale,
                format!(
                    "{node} has followed a coordinator with an old copy of the metadata; empty its data \
                 directory and start it as a new node with --init"
                ),
            ));
        }
        let proof = format!(
            "{node} has heard of start {} of the coordinator, which it does not know",
            heard.number
        );
        Err(core.stop(MetaError::WentBack { proof }).into())
    }
}
