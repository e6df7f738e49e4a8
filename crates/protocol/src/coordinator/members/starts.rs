//! The number of this start of the coordinator. If a node knows a start that the metadata does not have, the metadata
//! is an old copy, and the coordinator stops.

use super::nodes::Nodes;
use crate::coordinator::core::{Core, lock};
use crate::message::{Cause, Denial, Origin};
use crate::ports::run_blocking;
use futures::FutureExt;
use gabion_layout::{NodeId, Start};
use gabion_meta::{KeyValue, MetaError, REMEMBERED_START_COUNT};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The starts of the coordinator in the metadata, and those that nodes report.
#[derive(Debug)]
pub(super) struct Starts {
    own: Start,
    /// The starts that are remembered, by their numbers, this one included.
    known: BTreeMap<u64, Known>,
    /// The newest start that each node knew when it first spoke to this run.
    first_words: Mutex<BTreeMap<NodeId, u64>>,
}

/// A start of the coordinator that the metadata remembers.
#[derive(Clone, Copy, Debug)]
struct Known {
    nonce: u64,
    /// The changes of the metadata before it.
    change_count: u64,
}

impl Starts {
    /// The starts that the metadata remembers, each with the changes before it. The last is this one.
    pub(super) fn new(known: &[(Start, u64)]) -> Self {
        let (own, _) = *known.last().expect("a run notes its own start");
        let known = known
            .iter()
            .map(|&(Start { number, nonce }, change_count)| {
                let known = Known {
                    nonce,
                    change_count,
                };
                (number, known)
            });
        Self {
            own,
            known: known.collect(),
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
        match self.known.get(&start.number) {
            Some(known) => known.nonce == start.nonce,
            None => start.number.saturating_add(REMEMBERED_START_COUNT) <= self.own.number,
        }
    }

    /// The changes that the metadata had at the end of a run; none for this run, which goes on.
    fn change_count_after(&self, start: Start) -> Option<u64> {
        let mut later = self.known.range(start.number.saturating_add(1)..);
        later.next().map(|(_, next)| next.change_count)
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
            // The changes since do not make up for those that are missing.
            let present_count = core.meta.change_count();
            let known_count = self.change_count_after(heard).unwrap_or(present_count);
            if change_count > known_count {
                let proof = format!(
                    "{node} has heard of change {change_count} of the metadata, and in this copy the coordinator of that \
                     time made no change after {known_count}"
                );
                return Err(contradicted(core, heard, proof));
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
        Err(contradicted(core, heard, proof))
    }
}

/// Stops the coordinator, whose metadata are an old copy, and has the metadata remember it: otherwise a coordinator
/// that is started again and again forgets the start that shows it.
fn contradicted<K: KeyValue + Send + Sync + 'static>(
    core: &Core<K>,
    heard: Start,
    proof: String,
) -> Denial {
    // The other start may be of the process that leads now.
    if let Err(error) = core.check_leads() {
        return error.into();
    }
    let (meta, ports) = (Arc::clone(&core.meta), Arc::clone(&core.ports));
    let note = async move {
        let noted = run_blocking(&*ports, move || meta.note_contradicted_start(heard.number));
        // The next coordinator with these metadata notes it, if this one cannot.
        let _ = noted.await;
    };
    core.ports.spawn(note.boxed());
    core.stop(MetaError::WentBack { proof }).into()
}
