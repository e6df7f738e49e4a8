//! Garbage: chunks of removed files and of aborted puts are removed from their nodes, and only then are
//! their stripes forgotten. So are chunks of live stripes that are no longer their nodes' own
//! (`leftovers`).

pub(in crate::coordinator) mod leftovers;

use super::core::{Core, PAGE, SHORT_DEADLINE_MS, each_page, lock};
use super::leases::occupied::Occupied;
use super::members::nodes::Nodes;
use super::shared_state::SharedState;
use crate::message::{Liveness, NodeReply, NodeRequest, ask};
use futures::future::join_all;
use futures::{FutureExt, select_biased};
use gabion_layout::{ChunkId, Epoch, NodeId, StripeId, StripeRecord};
use gabion_meta::{KeyValue, Meta, MetaError};
use leftovers::Leftovers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Longest time that a node may take to remove a page's chunks.
const REMOVE_DEADLINE_MS: u64 = 30_000;

/// The state of garbage stripes after their removal.
pub(in crate::coordinator) struct Removal {
    /// Whether every node that has not failed has removed its chunks.
    pub(in crate::coordinator) all_asked: bool,
    /// Whether no reader can read any of the stripes, whatever layout it has.
    pub(in crate::coordinator) none_served: bool,
}

/// State of an order to remove a chunk that does not belong to its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::coordinator) enum Discard {
    /// It was not sent.
    Unsent,
    /// The node has removed the chunk. A transport may still deliver a copy of the order.
    Confirmed,
    /// The node may execute it late.
    Unconfirmed,
}

/// Removes garbage chunks from the nodes.
pub(in crate::coordinator) struct Garbage<K> {
    core: Arc<Core<K>>,
    nodes: Arc<Nodes<K>>,
    occupied: Occupied,
    leftovers: Arc<Leftovers>,
    /// Since when a pass over all garbage has left some; none when the last one has left nothing.
    left_since_ms: Mutex<Option<u64>>,
}

impl<K: KeyValue + Send + Sync + 'static> Garbage<K> {
    pub(in crate::coordinator) fn new(shared: &SharedState<K>) -> Self {
        Self {
            core: Arc::clone(&shared.core),
            nodes: Arc::clone(&shared.nodes),
            occupied: shared.occupied.clone(),
            leftovers: Arc::clone(&shared.leftovers),
            left_since_ms: Mutex::default(),
        }
    }

    /// Stripes whose chunks are still to be removed.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub(in crate::coordinator) fn stripe_count(meta: &Meta<K>) -> Result<u64, MetaError> {
        let mut count = 0;
        each_page(
            |after: Option<&StripeId>| meta.garbage(after.copied(), PAGE),
            |stripe| stripe.id,
            |stripes| {
                count += stripes.len() as u64;
                Ok(())
            },
        )?;
        Ok(count)
    }

    /// Removes garbage, until the metadata store fails.
    pub(in crate::coordinator) async fn collect(self: Arc<Self>) {
        while !self.core.is_broken() {
            // Garbage that cannot be read now stays garbage.
            let all_gone = self.remove_garbage().await.unwrap_or(false)
                & self.remove_leftovers().await.unwrap_or(false);
            self.note_pass(all_gone);
            let woken = self.leftovers.woken();
            if all_gone {
                woken.await;
                continue;
            }
            // A node that joins or is declared failed wakes this task. A node that could not remove a chunk
            // does not.
            let wait_ms = self.core.options.retry_ms << 3;
            select_biased! {
                () = woken.fuse() => {}
                () = self.core.ports.sleep_ms(wait_ms).fuse() => {}
            }
        }
    }

    fn note_pass(&self, all_gone: bool) {
        let now_ms = self.core.ports.now_ms();
        let mut since_ms = lock(&self.left_since_ms);
        *since_ms = (!all_gone).then(|| since_ms.unwrap_or(now_ms));
    }

    /// For how long no pass over all garbage has left nothing; none when the last one did.
    pub(in crate::coordinator) fn left_for_ms(&self) -> Option<u64> {
        let since_ms = *lock(&self.left_since_ms);
        since_ms.map(|since_ms| self.core.ports.now_ms().saturating_sub(since_ms))
    }

    /// Goes over all garbage once. Returns whether none is left.
    async fn remove_garbage(self: &Arc<Self>) -> Result<bool, MetaError> {
        let limit = self.core.options.discarded_count;
        let discard = move |meta: &Meta<K>| meta.discard_removed(limit);
        let merge = move |meta: &Meta<K>| meta.merge_maps(limit);
        let forget = move |meta: &Meta<K>| meta.forget_absences(limit);
        while self.core.with_meta(discard).await?
            || self.core.with_meta(merge).await?
            || self.core.with_meta(forget).await?
        {}
        let mut after = None;
        let mut all_gone = true;
        loop {
            let page = self
                .core
                .with_meta(move |meta| meta.garbage(after, PAGE))
                .await?;
            let Some(last) = page.last() else {
                return Ok(all_gone);
            };
            after = Some(last.id);
            let removal = self.remove_stripes(&page, REMOVE_DEADLINE_MS).await?;
            all_gone &= removal.all_asked;
        }
    }

    /// Removes the chunks of garbage stripes. A stripe is forgotten when no node serves it and no failed node
    /// that may return has a chunk of it: until then it is known what such a chunk is.
    pub(in crate::coordinator) async fn remove_stripes(
        self: &Arc<Self>,
        stripes: &[StripeRecord],
        deadline_ms: u64,
    ) -> Result<Removal, MetaError> {
        let (answers, joining) = self.remove_page(stripes, deadline_ms).await;
        let fleet = self.nodes.fleet();
        let mut asked = Vec::with_capacity(stripes.len());
        for stripe in stripes {
            let nodes = || stripe.nodes.iter();
            if nodes().all(|node| answers.get(node) != Some(&false)) {
                let obeyed_count = nodes().filter(|node| answers.contains_key(node)).count();
                let is_owed = nodes().any(|node| joining.contains(node) || fleet.may_return(*node));
                asked.push((stripe.id, stripe.pool, obeyed_count, is_owed));
            }
        }
        let all_asked = asked.len() == stripes.len();
        let forget = move |meta: &Meta<K>| {
            let (mut none_served, mut withdrawn) = (all_asked, Vec::new());
            for (id, pool, obeyed_count, is_owed) in asked {
                let absent = meta.absent_holders(id)?;
                let is_owed = is_owed || absent.iter().any(|&node| fleet.may_return(node));
                // A failed node may be alive and answer quorum reads. Without k others it finds no quorum.
                if obeyed_count < meta.pool(pool)?.spec.k && !meta.is_withdrawn(id)? {
                    none_served = false;
                } else if is_owed {
                    withdrawn.push(id);
                } else {
                    meta.reclaimed(id)?;
                }
            }
            meta.withdrawn(&withdrawn)?;
            Ok(none_served)
        };
        Ok(Removal {
            all_asked,
            none_served: self.core.with_meta(forget).await?,
        })
    }

    /// Tells each node which chunks of the page's stripes to remove. Returns whether each has removed them, for
    /// the nodes that have not failed: a failed node is told when it joins. Returns the joining nodes, too.
    async fn remove_page(
        &self,
        page: &[StripeRecord],
        deadline_ms: u64,
    ) -> (BTreeMap<NodeId, bool>, BTreeSet<NodeId>) {
        let (fleet, joining) = {
            let _joins = self.nodes.hold_joins().await;
            let joining: BTreeSet<NodeId> = self.nodes.joining().into_keys().collect();
            if !joining.is_empty() {
                // It serves nothing, and does not become a member with a chunk that it was told to keep before
                // the stripe was garbage.
                for stripe in page {
                    self.nodes.note_garbage(&stripe.nodes, stripe.id);
                }
            }
            (self.nodes.fleet(), joining)
        };
        let mut chunks: BTreeMap<NodeId, Vec<ChunkId>> = BTreeMap::new();
        for stripe in page {
            for (&node, index) in stripe.nodes.iter().zip(stripe.chunks()) {
                let stripe = stripe.id;
                chunks
                    .entry(node)
                    .or_default()
                    .push(ChunkId { stripe, index });
            }
        }
        let removals = chunks.into_iter().map(|(node, chunks)| {
            let liveness = fleet.liveness(node);
            async move {
                let obeys = match liveness {
                    Liveness::Failed => return None,
                    Liveness::Suspect => false,
                    Liveness::Up => {
                        let order = ask::Remove { chunks };
                        self.obeys(node, order.into(), deadline_ms).await
                    }
                };
                Some((node, obeys))
            }
        });
        let answers = join_all(removals).await.into_iter().flatten();
        (answers.collect(), joining)
    }

    /// Orders a node to remove a chunk that is no longer its own, of a stripe that the caller occupies. The
    /// order is repeated until the node confirms it; a failed node gets it when it joins. If the order was sent, the
    /// node must not get that chunk again before a term after `epoch`, because from that term on it refuses the order.
    pub(in crate::coordinator) async fn discard(
        &self,
        node: NodeId,
        chunk: ChunkId,
        epoch: Epoch,
    ) -> Discard {
        let order = ask::Discard { chunk, epoch };
        self.take_away(node, chunk, order.into()).await
    }

    /// Orders a node to discard a chunk.
    async fn take_away(&self, node: NodeId, chunk: ChunkId, order: NodeRequest) -> Discard {
        let is_joining = self.nodes.is_joining(node);
        match self.nodes.fleet().liveness(node) {
            Liveness::Failed if !is_joining => {
                self.forget_leftover(node, chunk).await;
                Discard::Unsent
            }
            Liveness::Failed | Liveness::Suspect => {
                self.leftovers.add(node, chunk);
                Discard::Unsent
            }
            Liveness::Up if self.obeys(node, order, SHORT_DEADLINE_MS).await => {
                self.forget_leftover(node, chunk).await;
                Discard::Confirmed
            }
            Liveness::Up => {
                self.leftovers.add(node, chunk);
                Discard::Unconfirmed
            }
        }
    }

    /// Notes that a node no longer holds a chunk that was not its own.
    async fn forget_leftover(&self, node: NodeId, chunk: ChunkId) {
        // If the note is not durable, the next run of the coordinator repeats the order.
        let forget = move |meta: &Meta<K>| meta.forget_former_holder(node, chunk);
        let _ = self.core.with_meta(forget).await;
        self.leftovers.remove(node, chunk);
    }

    /// Goes over all leftovers once. Returns whether none is left.
    async fn remove_leftovers(self: &Arc<Self>) -> Result<bool, MetaError> {
        for (node, chunk) in self.leftovers.all() {
            // A repair of the stripe may be giving the chunk to this node.
            let Ok(_occupation) = self.occupied.occupy(vec![chunk.stripe]) else {
                continue;
            };
            let order = move |meta: &Meta<K>| match meta.stripe(chunk.stripe) {
                Ok(stripe) if stripe.node_of(chunk.index) == Some(node) => Ok(None),
                Ok(stripe) => {
                    // A repair that gives the node this chunk again does so in a later term.
                    let epoch = meta.last_epoch(stripe.id)?;
                    Ok(Some(ask::Discard { chunk, epoch }.into()))
                }
                Err(MetaError::UnknownStripe(_)) => {
                    let chunks = vec![chunk];
                    Ok(Some(ask::Remove { chunks }.into()))
                }
                Err(error) => Err(error),
            };
            if let Some(order) = self.core.with_meta(order).await? {
                self.take_away(node, chunk, order).await;
            } else {
                self.forget_leftover(node, chunk).await;
            }
        }
        Ok(self.leftovers.is_empty())
    }

    /// Gives a node an order. Returns whether the node confirms it in time. After the metadata store has
    /// failed, no order is given: the metadata may include the last commit although it was reported as
    /// failed, and a chunk that this run takes for discarded may count there.
    async fn obeys(&self, node: NodeId, order: NodeRequest, deadline_ms: u64) -> bool {
        if self.core.is_broken() {
            return false;
        }
        self.core.ports.call_node(node, order, deadline_ms).await == Ok(NodeReply::Done)
    }
}
