//! A snapshot of one stripe, and whether its repair can succeed now.

use super::Repair;
use crate::coordinator::members::fleet::Fleet;
use crate::coordinator::pool_facts::PoolFacts;
use crate::coordinator::rejection::Rejection;
use crate::message::{Denial, Liveness, Refusal};
use gabion_layout::{ChunkId, ChunkIndex, NodeId, Sequence, StripeId, StripeRecord, Topology};
use gabion_meta::{KeyValue, Meta, MetaError};
use gabion_planner::{Stripe, placement};
use std::sync::Arc;

/// A chunk and its new node.
pub(super) type Target = (ChunkIndex, NodeId);

/// The reason why background work on a stripe fails, as a plain sentence.
#[derive(Debug)]
pub(in crate::coordinator) struct TaskError(pub(in crate::coordinator) String);

impl<E: std::error::Error> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl From<Denial> for TaskError {
    fn from(denial: Denial) -> Self {
        Self(denial.sentence)
    }
}

impl From<Rejection> for TaskError {
    fn from((Rejection::Busy(why) | Rejection::Refused(why)): Rejection) -> Self {
        why.into()
    }
}

/// The same may be tried again later.
impl From<TaskError> for Rejection {
    fn from(TaskError(sentence): TaskError) -> Self {
        Self::busy(sentence)
    }
}

/// A snapshot of a stripe with the facts that its repair needs.
pub(in crate::coordinator) struct Survey {
    pub(in crate::coordinator) stripe: StripeRecord,
    pub(in crate::coordinator) facts: Arc<PoolFacts>,
    pub(in crate::coordinator) fleet: Fleet,
    /// Nodes that may still have former chunks of the stripe.
    pub(in crate::coordinator) former: Vec<NodeId>,
    /// Whether it may have updates that parity does not cover.
    pub(in crate::coordinator) appends: bool,
    /// Chunks that were left out of updates, each with the last update before these, which still have all
    /// appended updates: a stripe with a lost chunk takes no appends, and no settlement has let one stand
    /// without these chunks.
    pub(in crate::coordinator) keepers: Vec<(ChunkIndex, Sequence)>,
}

impl Survey {
    /// The nodes that are declared failed.
    pub(in crate::coordinator) fn failed(&self) -> Vec<NodeId> {
        self.fleet.with(Liveness::Failed)
    }

    /// Refuses a repair that cannot succeed now, before it holds up the stripe's primary.
    pub(super) fn check_hope(&self) -> Result<(), TaskError> {
        let is_silent = |node: &&NodeId| self.fleet.liveness(**node) == Liveness::Suspect;
        if let Some(node) = self.stripe.nodes.iter().find(is_silent) {
            let chunk = self.stripe.chunk_on(*node);
            let chunk = chunk.expect("the node was found in the stripe");
            return Err(TaskError(format!(
                "{node} is silent but not declared failed; its answer about {chunk} is needed"
            )));
        }
        if let Some(node) = self.former.iter().find(is_silent) {
            return Err(TaskError(format!(
                "{node} is silent but not declared failed, and may still have a chunk that was moved"
            )));
        }
        let helpers = self.readable();
        let rebuilt = |chunk: &ChunkIndex| self.facts.code.repair_equations(chunk.at(), &helpers);
        let mut tries = self
            .fleet
            .due(&self.stripe)
            .into_iter()
            .map(|c| rebuilt(&c));
        match tries.next() {
            Some(Err(error)) if tries.all(|tried| tried.is_err()) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The positions of the chunks that count and whose nodes answer.
    pub(super) fn readable(&self) -> Vec<usize> {
        let unreadable = self.fleet.unreadable(&self.stripe);
        let readable = self.stripe.chunks().filter(|c| !unreadable.contains(c));
        readable.map(ChunkIndex::at).collect()
    }

    /// The candidates among `can_take` for a chunk that is lost or to be moved: its own node if it is up
    /// and stays, or else the nodes that keep the rack limit.
    pub(super) fn requestors(
        &self,
        chunk: ChunkIndex,
        can_take: impl Fn(NodeId) -> bool,
    ) -> Vec<NodeId> {
        self.requestors_beside(chunk, &[], can_take)
    }

    /// The same when `taken` chunks also go to their new nodes.
    pub(super) fn requestors_beside(
        &self,
        chunk: ChunkIndex,
        taken: &[Target],
        can_take: impl Fn(NodeId) -> bool,
    ) -> Vec<NodeId> {
        let holder = self.stripe.nodes[chunk.at()];
        if self.fleet.is_up(holder) && !self.fleet.is_leaving(holder) && can_take(holder) {
            return vec![holder];
        }
        let mut candidates = self.fleet.welcoming();
        candidates.retain(|&node| node != holder && can_take(node));
        let per_rack = self.facts.record.spec.chunks_per_rack;
        let mut nodes = self.stripe.nodes.clone();
        for &(chunk, node) in taken {
            nodes[chunk.at()] = node;
        }
        placement::replacements(&self.topology(), &candidates, &nodes, chunk, per_rack)
    }

    /// The chunk that a refusal says is damaged or missing, if it is this stripe's.
    pub(in crate::coordinator) fn blamed(&self, refusal: &Refusal) -> Option<ChunkIndex> {
        let chunk = match refusal {
            Refusal::Damaged(damage) => damage.chunk,
            Refusal::NoSuchChunk(chunk) => *chunk,
            _ => return None,
        };
        let fresh = chunk.stripe == self.stripe.id && !self.stripe.is_stale(chunk.index);
        (fresh && self.stripe.node_of(chunk.index).is_some()).then_some(chunk.index)
    }

    /// The last update that a chunk has, if it only missed later ones and its node is up to take them.
    pub(in crate::coordinator) fn behind(&self, chunk: ChunkIndex) -> Option<Sequence> {
        let stale = self.stripe.staleness(chunk)?;
        let node = self.stripe.nodes[chunk.at()];
        stale.missed_after.filter(|_| self.fleet.is_up(node))
    }

    /// The chunks that must not be read: those that do not count or do not answer, and those of nodes
    /// that were `absent` when the stripe was settled. Sorted.
    pub(in crate::coordinator) fn unreadable(&self, absent: &[NodeId]) -> Vec<ChunkIndex> {
        let mut unreadable = self.fleet.unreadable(&self.stripe);
        unreadable.extend(absent.iter().filter_map(|&node| self.stripe.chunk_on(node)));
        unreadable.sort_unstable();
        unreadable.dedup();
        unreadable
    }

    /// The stripe as planners see it, without the `lost` chunks.
    pub(in crate::coordinator) fn stripe_for_plans<'a>(
        &'a self,
        lost: &'a [ChunkIndex],
    ) -> Result<Stripe<'a>, TaskError> {
        Ok(Stripe {
            id: self.stripe.id,
            code: &self.facts.code,
            geometry: self.facts.geometry(self.stripe.chunk_bytes)?,
            placement: &self.stripe.nodes,
            lost,
        })
    }

    pub(in crate::coordinator) fn id(&self, index: ChunkIndex) -> ChunkId {
        ChunkId {
            stripe: self.stripe.id,
            index,
        }
    }

    pub(in crate::coordinator) fn topology(&self) -> Topology {
        self.fleet.topology(|_| true)
    }
}

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Reads a stripe. None when it is gone.
    pub(in crate::coordinator) async fn survey(
        self: &Arc<Self>,
        id: StripeId,
    ) -> Result<Option<Survey>, TaskError> {
        let (nodes, pools) = (Arc::clone(&self.nodes), Arc::clone(&self.pools));
        let look = move |meta: &Meta<K>| {
            // Read before the stripe: the record then has the stale chunks of every node that has returned.
            let fleet = nodes.fleet();
            let stripe = match meta.stripe(id) {
                Ok(stripe) => stripe,
                Err(MetaError::UnknownStripe(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            let facts = pools.facts(meta, stripe.pool)?;
            let appends = meta.appends(id)?;
            let mut keepers = Vec::new();
            for stale in stripe.stale.iter().filter(|_| appends) {
                let index = stale.chunk;
                let up = stripe.node_of(index).is_some_and(|node| fleet.is_up(node));
                if let Some(last) = stale.missed_after.filter(|_| up)
                    && !meta.may_have_missed(ChunkId { stripe: id, index }, last)?
                {
                    keepers.push((index, last));
                }
            }
            Ok(Some(Survey {
                stripe,
                facts,
                fleet,
                former: meta.former_holders(id)?,
                appends,
                keepers,
            }))
        };
        Ok(self.core.with_meta(look).await?)
    }
}
