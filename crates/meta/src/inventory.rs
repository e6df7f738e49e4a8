//! The metadata side of a joining node's inventory: a page of its stripes read in one transaction,
//! by ranges of ids where that is cheaper, and stale chunks noted in another.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn};
use crate::meta::Meta;
use crate::schema::{EXCLUSIONS, LEASES, REMADE, STRIPES, STRIPES_ON};
use crate::stripe_rows::{live_stripe, stripe_row};
use crate::stripes::add_stale;
use crate::table::Table;
use crate::verdicts::{Exclusions, Held, Verdict};
use gabion_layout::{ChunkIndex, Epoch, Generation, NodeId, StaleChunk, StripeId, StripeRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Most ids in a range per wanted id for which the range is read whole: skipping a row costs less
/// than looking one up.
const SPARSE_RATIO: u64 = 4;

/// The metadata of a stripe with a chunk on the node.
#[derive(Clone, Debug)]
pub struct StripeFacts {
    /// Its record.
    pub record: StripeRecord,
    last_epoch: Epoch,
    exclusions: Exclusions,
    /// Chunks that were made anew, and in which generation.
    remade: Vec<(ChunkIndex, Generation)>,
}

/// Stripes in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct FactsPage {
    /// Metadata of each.
    pub facts: Vec<StripeFacts>,
    /// The last stripe examined, if more of the range may follow.
    pub upto: Option<StripeId>,
}

impl StripeFacts {
    /// Whether a chunk was made anew after the generation of the one that a node holds. Then the node's directory
    /// is a copy of an earlier time, and nothing follows from what it knows: a chunk that is to be made anew in place
    /// is settled first, so its mark is ahead of its bytes.
    pub fn was_remade_after(&self, chunk: ChunkIndex, held: Generation) -> bool {
        let made_later = |&(index, made): &(ChunkIndex, Generation)| index == chunk && made > held;
        self.remade.iter().any(made_later)
    }

    /// Judges a chunk of the stripe, as [`Meta::judge`].
    pub fn judge(&self, held: &Held<'_>) -> Verdict {
        let last_epoch = self.last_epoch;
        Verdict {
            last_epoch,
            ..self.exclusions.judge(held)
        }
    }
}

impl<K: KeyValue> Meta<K> {
    /// At most `limit` stripes of files with a chunk on `node`, behind `after` and up to `upto`.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn facts_on(
        &self,
        node: NodeId,
        (after, upto): (Option<StripeId>, Option<StripeId>),
        limit: usize,
    ) -> Result<FactsPage, MetaError> {
        // Stripe ids end below the largest, so that one past an id is always an id.
        let past = |stripe: StripeId| StripeId(stripe.0.saturating_add(1));
        let first = after.map_or(StripeId(0), past);
        let end = upto.map_or(StripeId(u64::MAX), past);
        self.store.read(|txn| {
            let span = STRIPES_ON.between(&(node, first), &(node, end));
            let rows = STRIPES_ON.scan(txn, &span, limit)?;
            let ids: Vec<StripeId> = rows.into_iter().map(|((_, id), ())| id).collect();
            let is_cut = ids.len() == limit;
            Ok(FactsPage {
                upto: ids.last().copied().filter(|_| is_cut),
                facts: facts_of(txn, &ids)?,
            })
        })
    }

    /// Like [`Meta::facts_on`], for those of the given stripes, sorted, that have a chunk on
    /// `node`.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn facts_among(
        &self,
        node: NodeId,
        stripes: &[StripeId],
    ) -> Result<Vec<StripeFacts>, MetaError> {
        self.store.read(|txn| {
            let mut ids = Vec::new();
            for &id in stripes {
                ids.extend(STRIPES_ON.get(txn, &(node, id))?.map(|()| id));
            }
            facts_of(txn, &ids)
        })
    }

    /// Marks each of these chunks as stale, all in one transaction. Stripes that are gone are
    /// skipped. Returns the updated records in the same order.
    ///
    /// # Errors
    /// [`MetaError::UnknownChunk`]; nothing is written then.
    pub fn note_all_stale(
        &self,
        stale: &[(StripeId, StaleChunk)],
    ) -> Result<Vec<StripeRecord>, MetaError> {
        if stale.is_empty() {
            return Ok(Vec::new());
        }
        self.change(|txn| {
            let mut records = Vec::with_capacity(stale.len());
            for &(id, stale) in stale {
                match add_stale(txn, id, stale) {
                    Ok(record) => records.push(record),
                    Err(MetaError::UnknownStripe(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(records)
        })
    }
}

/// The metadata of live stripes, by id.
fn facts_of(txn: &dyn ReadTxn, ids: &[StripeId]) -> Result<Vec<StripeFacts>, MetaError> {
    let (Some(&first), Some(&last)) = (ids.first(), ids.last()) else {
        return Ok(Vec::new());
    };
    let mut records = rows_of(txn, &STRIPES, ids)?;
    let leases = rows_of(txn, &LEASES, ids)?;
    let span = EXCLUSIONS.between(&first, &StripeId(last.0.saturating_add(1)));
    let excluded = EXCLUSIONS.scan(txn, &span, usize::MAX)?;
    let mut remade = rows_of(txn, &REMADE, ids)?;
    let mut excluded: BTreeMap<StripeId, Exclusions> = excluded.into_iter().collect();
    let fact = |&id: &StripeId| {
        let record = match records.remove(&id) {
            Some(record) => stripe_row(&STRIPES, (id, record))?,
            None => live_stripe(txn, id)?,
        };
        Ok(StripeFacts {
            record,
            last_epoch: leases.get(&id).map_or(Epoch(0), |lease| lease.epoch),
            exclusions: excluded.remove(&id).unwrap_or_default(),
            remade: remade.remove(&id).unwrap_or_default(),
        })
    };
    ids.iter().map(fact).collect()
}

/// The rows of some ids, in order; ids without a row are left out. Other rows may be included.
fn rows_of<V: Serialize + DeserializeOwned>(
    txn: &dyn ReadTxn,
    table: &Table<StripeId, V>,
    ids: &[StripeId],
) -> Result<BTreeMap<StripeId, V>, MetaError> {
    let (Some(&first), Some(&last)) = (ids.first(), ids.last()) else {
        return Ok(BTreeMap::new());
    };
    if last.0 - first.0 <= SPARSE_RATIO * ids.len() as u64 {
        let span = table.between(&first, &StripeId(last.0.saturating_add(1)));
        return Ok(table.scan(txn, &span, usize::MAX)?.into_iter().collect());
    }
    let mut rows = BTreeMap::new();
    for id in ids {
        if let Some(row) = table.get(txn, id)? {
            rows.insert(*id, row);
        }
    }
    Ok(rows)
}
