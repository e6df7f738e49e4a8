//! Settlements that left nodes out. A node that was declared failed may come back with records of
//! updates that the others have decided without it, and whose numbers they may have used again. No
//! later settlement could tell what became of them, so each that leaves nodes out is noted here with
//! its outcome until those nodes hold nothing of the stripe any more.

use crate::kv::KeyValue;
use crate::schema::EXCLUSIONS;
use crate::stripes::{add_stale, live_stripe};
use crate::{Meta, MetaError};
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence, StripeId, StripeRecord};
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

/// What is known of settlements without a node since some term.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// None: the next settlement asks the node.
    Open,
    /// One, or several that ended alike: the node's records of that term and before are decided.
    /// This is the newest.
    Decided(Exclusion),
    /// Several that ended otherwise, or some so long ago that they are forgotten. A note is made before its settlement
    /// has any effect, and one that had none may be followed by one that ended otherwise; so it is
    /// not known what became of the node's records. This is the newest term among them.
    Unclear(Epoch),
}

impl<K: KeyValue> Meta<K> {
    /// Notes whom a settlement leaves out, if anybody, and which chunks missed an update that
    /// stands, in one transaction. To be durable before anybody acts on that settlement.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`], [`MetaError::UnknownChunk`].
    pub fn note_settlement(
        &self,
        stripe: StripeId,
        exclusion: &Exclusion,
        stale: &[ChunkIndex],
    ) -> Result<StripeRecord, MetaError> {
        self.store.write(|txn| {
            let mut record = live_stripe(txn, stripe)?;
            for &chunk in stale {
                record = add_stale(txn, stripe, chunk)?;
            }
            if exclusion.nodes.is_empty() {
                return Ok(record);
            }
            let mut all = EXCLUSIONS.get(txn, &stripe)?.unwrap_or_default();
            all.kept.retain(|old| {
                let is_needed = old.nodes.iter().any(|node| record.nodes.contains(node));
                is_needed && old.epoch != exclusion.epoch
            });
            all.kept.push(exclusion.clone());
            if all.kept.len() > KEPT_COUNT_MAX {
                all.forgotten = all.kept.remove(0).epoch;
            }
            EXCLUSIONS.put(txn, &stripe, &all)?;
            Ok(record)
        })
    }

    /// What is known of settlements after term `epoch` that left `node` out.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn fate(&self, stripe: StripeId, node: NodeId, epoch: Epoch) -> Result<Fate, MetaError> {
        let all = self.store.read(|txn| EXCLUSIONS.get(txn, &stripe))?;
        let all = all.unwrap_or_default();
        let is_without = |e: &Exclusion| e.epoch > epoch && e.nodes.contains(&node);
        let mut without: Vec<Exclusion> = all.kept.into_iter().filter(is_without).collect();
        let newest = without.last().map_or(all.forgotten, |last| last.epoch);
        let ended_like = |last: &Exclusion| {
            let is_like = |e: &Exclusion| e.mark == last.mark && e.dropped == last.dropped;
            without.iter().all(is_like)
        };
        let is_clear = without.last().is_none_or(ended_like) && epoch >= all.forgotten;
        Ok(match without.pop() {
            _ if !is_clear => Fate::Unclear(newest),
            None => Fate::Open,
            Some(last) => Fate::Decided(last),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterId, MemoryStore, Placement, PoolSpec};
    use gabion_layout::{RackId, UpdateScheme};

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
            update: UpdateScheme::Pl,
            reserve: None,
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
    fn settlements_without_the_node_decide_unless_they_ended_otherwise() {
        let (meta, stripe) = stripe_on_three_nodes();
        let refused = meta.note_settlement(StripeId(99), &exclusion(1, 1), &[]);
        assert_eq!(refused, Err(MetaError::UnknownStripe(StripeId(99))));
        for (epoch, node) in [(3, 1), (4, 2), (5, 1)] {
            meta.note_settlement(stripe, &exclusion(epoch, node), &[])
                .unwrap();
        }
        let fate = |node, epoch| meta.fate(stripe, NodeId(node), Epoch(epoch)).unwrap();
        assert_eq!(fate(1, 2), Fate::Unclear(Epoch(5)));
        assert_eq!(fate(1, 3), Fate::Decided(exclusion(5, 1)));
        assert_eq!(fate(1, 5), Fate::Open);
        assert_eq!(fate(2, 3), Fate::Decided(exclusion(4, 2)));
        assert_eq!(fate(0, 1), Fate::Open);
        let again = Exclusion {
            mark: exclusion(4, 2).mark,
            ..exclusion(6, 2)
        };
        meta.note_settlement(stripe, &again, &[]).unwrap();
        assert_eq!(fate(2, 3), Fate::Decided(again), "it ended alike");
    }

    #[test]
    fn what_is_too_old_is_unclear() {
        let (meta, stripe) = stripe_on_three_nodes();
        let count = KEPT_COUNT_MAX as u64 + 1;
        for epoch in 1..=count {
            meta.note_settlement(stripe, &exclusion(epoch, 1), &[])
                .unwrap();
        }
        assert_eq!(
            meta.fate(stripe, NodeId(0), Epoch(0)),
            Ok(Fate::Unclear(Epoch(1)))
        );
        assert_eq!(meta.fate(stripe, NodeId(0), Epoch(1)), Ok(Fate::Open));
    }

    #[test]
    fn a_note_and_its_stale_chunks_are_there_together_or_not_at_all() {
        let (meta, stripe) = stripe_on_three_nodes();
        let stale = [ChunkIndex(1), ChunkIndex(7)];
        let refused = meta.note_settlement(stripe, &exclusion(1, 1), &stale);
        assert!(
            matches!(refused, Err(MetaError::UnknownChunk(_))),
            "{refused:?}"
        );
        assert_eq!(meta.fate(stripe, NodeId(1), Epoch(0)), Ok(Fate::Open));
        assert_eq!(meta.stripe(stripe).unwrap().stale, []);
        let noted = meta
            .note_settlement(stripe, &exclusion(1, 1), &stale[..1])
            .unwrap();
        assert_eq!(noted.stale, stale[..1]);
    }
}
