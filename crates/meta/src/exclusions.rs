//! Settlements that left nodes out. A node that was declared failed may come back with records of
//! updates that the others have decided without it, and whose numbers they may have used again. No
//! later settlement could tell what became of them, so each that leaves nodes out is noted here with
//! its outcome until those nodes hold nothing of the stripe any more.

use crate::kv::KeyValue;
use crate::schema::EXCLUSIONS;
use crate::stripes::live_stripe;
use crate::{Meta, MetaError};
use gabion_layout::{Epoch, NodeId, Sequence, StripeId};
use serde::{Deserialize, Serialize};

/// Exclusions of one stripe that are kept. A node that is away for longer has its chunk made anew.
const KEPT_COUNT_MAX: usize = 32;

/// A settlement that left nodes out, and how it ended for updates of earlier terms.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exclusion {
    /// The term of the settlement.
    pub epoch: Epoch,
    /// The nodes that were not asked.
    pub nodes: Vec<NodeId>,
    /// Updates up to here stand, but those `dropped`; updates behind it are dropped.
    pub mark: Sequence,
    /// Updates at or below the mark that were dropped, and perhaps others behind it.
    pub dropped: Vec<Sequence>,
}

/// The exclusions of one stripe by term. Invariant: at most [`KEPT_COUNT_MAX`] of them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Exclusions {
    /// Exclusions up to this term may have been forgotten.
    forgotten: Epoch,
    kept: Vec<Exclusion>,
}

/// What became of a returning node's records of one term.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Nobody has decided without the node; the next settlement asks it.
    Open,
    /// This settlement has decided.
    Decided(Exclusion),
    /// It was decided too long ago to be known.
    Forgotten,
}

impl<K: KeyValue> Meta<K> {
    /// Notes that a settlement leaves nodes out. To be durable before anybody acts on that
    /// settlement.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`].
    pub fn note_exclusion(&self, stripe: StripeId, exclusion: &Exclusion) -> Result<(), MetaError> {
        self.store.write(|txn| {
            let record = live_stripe(txn, stripe)?;
            let mut all = EXCLUSIONS.get(txn, &stripe)?.unwrap_or_default();
            all.kept.retain(|old| {
                let is_needed = old.nodes.iter().any(|node| record.nodes.contains(node));
                is_needed && old.epoch != exclusion.epoch
            });
            all.kept.push(exclusion.clone());
            if all.kept.len() > KEPT_COUNT_MAX {
                all.forgotten = all.kept.remove(0).epoch;
            }
            EXCLUSIONS.put(txn, &stripe, &all)
        })
    }

    /// What became of the records of term `epoch` that `node` holds above its mark: the first
    /// settlement after that term that left the node out has decided.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn fate(&self, stripe: StripeId, node: NodeId, epoch: Epoch) -> Result<Fate, MetaError> {
        let all = self.store.read(|txn| EXCLUSIONS.get(txn, &stripe))?;
        let all = all.unwrap_or_default();
        if epoch < all.forgotten {
            return Ok(Fate::Forgotten);
        }
        let mut later = all.kept.into_iter().filter(|e| e.epoch > epoch);
        let decided = later.find(|e| e.nodes.contains(&node));
        Ok(decided.map_or(Fate::Open, Fate::Decided))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterId, MemoryStore, Placement, PoolSpec};
    use gabion_layout::RackId;

    fn stripe_on_three_nodes() -> (Meta<MemoryStore>, StripeId) {
        let meta = Meta::create(MemoryStore::new(), ClusterId(1)).unwrap();
        let join = |n: u32| {
            meta.join(None, RackId(n), &format!("host:{}", 7000 + n), 1 << 40, 0)
                .unwrap()
        };
        let nodes: Vec<NodeId> = (0..3).map(join).collect();
        let spec = PoolSpec {
            name: "p".to_owned(),
            code: "rs(2,1)".to_owned(),
            k: 2,
            m: 1,
            sub_chunks: 1,
            chunk_bytes: 4096,
            survive: "1-node".parse().unwrap(),
            chunks_per_rack: 3,
        };
        let pool = meta.create_pool(&spec).unwrap().id;
        let chunk_bytes = 4096;
        let place = Placement { chunk_bytes, nodes };
        let put = meta.begin_put("f", pool, 8192, &[place], 0).unwrap();
        meta.commit_put(put.id, 0).unwrap();
        (meta, put.stripes[0].id)
    }

    fn exclusion(epoch: u64, node: u32) -> Exclusion {
        Exclusion {
            epoch: Epoch(epoch),
            nodes: vec![NodeId(node)],
            mark: Sequence(epoch * 10),
            dropped: vec![],
        }
    }

    #[test]
    fn the_first_settlement_without_the_node_decides() {
        let (meta, stripe) = stripe_on_three_nodes();
        let refused = meta.note_exclusion(StripeId(99), &exclusion(1, 1));
        assert_eq!(refused, Err(MetaError::UnknownStripe(StripeId(99))));
        for (epoch, node) in [(3, 1), (4, 2), (5, 1)] {
            meta.note_exclusion(stripe, &exclusion(epoch, node))
                .unwrap();
        }
        let fate = |node, epoch| meta.fate(stripe, NodeId(node), Epoch(epoch)).unwrap();
        assert_eq!(fate(1, 1), Fate::Decided(exclusion(3, 1)));
        assert_eq!(fate(1, 3), Fate::Decided(exclusion(5, 1)));
        assert_eq!(fate(1, 5), Fate::Open);
        assert_eq!(fate(2, 3), Fate::Decided(exclusion(4, 2)));
        assert_eq!(fate(0, 1), Fate::Open);
    }

    #[test]
    fn what_is_too_old_is_said_to_be_forgotten() {
        let (meta, stripe) = stripe_on_three_nodes();
        let count = KEPT_COUNT_MAX as u64 + 1;
        for epoch in 1..=count {
            meta.note_exclusion(stripe, &exclusion(epoch, 1)).unwrap();
        }
        let fate = |epoch| meta.fate(stripe, NodeId(1), Epoch(epoch)).unwrap();
        assert_eq!(fate(0), Fate::Forgotten);
        assert_eq!(fate(1), Fate::Decided(exclusion(2, 1)));
    }
}
