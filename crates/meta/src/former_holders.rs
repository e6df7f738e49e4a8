//! Former holders: nodes that may still have a chunk of a live stripe after the chunk has moved
//! elsewhere. The transaction that moves the chunk writes the row, so no restart loses it. Every
//! term fences these nodes before it serves, since a reader with an old layout may still ask them.
//!
//! A row is removed when the node confirms that the chunk is removed, when the node gets the chunk
//! again, and when the node is declared failed or joins: a joining node removes foreign chunks
//! before it serves.
//!
//! *Absent holders* are failed nodes that have such a chunk. No term fences them, since they serve nothing before
//! they join. But while one may return, the stripe's record stays after the stripe has ended: otherwise it would be
//! unknown then what the chunk is. When a node has joined, its notes mean nothing. There may be one for each chunk
//! that the node had, so the join leaves them, and [`Meta::forget_absences`] removes them, some at a time.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::node_rows::node;
use crate::schema::{ABSENT_HOLDERS, ABSENT_ON, FORMER_HOLDERS, GARBAGE, NODES, STRIPES};
use gabion_layout::{ChunkId, ChunkIndex, NodeId, StripeId};
use std::collections::BTreeSet;

/// The former holders of one stripe, each with the chunk that it may still have.
type Holders = Vec<(NodeId, ChunkIndex)>;

impl<K: KeyValue> Meta<K> {
    /// The nodes that may still have moved chunks of a stripe, unordered, each once.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn former_holders(&self, stripe: StripeId) -> Result<Vec<NodeId>, MetaError> {
        let holders = self.store.read(|txn| holders_of(txn, stripe))?;
        let mut nodes: Vec<NodeId> = holders.into_iter().map(|(node, _)| node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    /// The failed nodes that may have a chunk of a stripe which has moved elsewhere. A node that has joined since and
    /// has failed again may be among them.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn absent_holders(&self, stripe: StripeId) -> Result<Vec<NodeId>, MetaError> {
        self.store.read(|txn| {
            let mut failed = Vec::new();
            for holder in absent_of(txn, stripe)? {
                if node(txn, holder)?.failed {
                    failed.push(holder);
                }
            }
            Ok(failed)
        })
    }

    /// Removes at most `limit` notes that a node is an absent holder which has joined since. Returns whether there may
    /// be more. No note is lost that means something: the node has removed its foreign chunks before it joined, and
    /// only a failed node gets new notes.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn forget_absences(&self, limit: usize) -> Result<bool, MetaError> {
        let Some(joined) = self.store.read(joined_holder)? else {
            return Ok(false);
        };
        self.change(|txn| {
            // It may have failed again since it was found.
            if node(txn, joined)?.failed {
                return Ok(());
            }
            let next = NodeId(joined.0.saturating_add(1));
            let span = ABSENT_ON.between(&(joined, StripeId(0)), &(next, StripeId(0)));
            for ((holder, stripe), ()) in ABSENT_ON.scan(txn, &span, limit)? {
                forget_absence(txn, holder, stripe)?;
            }
            Ok(())
        })?;
        Ok(true)
    }

    /// All former holders, each with the chunk that it may still have.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn all_former_holders(&self) -> Result<Vec<(NodeId, ChunkId)>, MetaError> {
        let rows = self
            .store
            .read(|txn| FORMER_HOLDERS.scan(txn, &FORMER_HOLDERS.all(), usize::MAX))?;
        let of_stripe = |(stripe, holders): (StripeId, Holders)| {
            let with_id = move |(node, index)| (node, ChunkId { stripe, index });
            holders.into_iter().map(with_id)
        };
        Ok(rows.into_iter().flat_map(of_stripe).collect())
    }

    /// Notes that a node no longer has a chunk that it once held. Writes nothing if that is known.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn forget_former_holder(&self, node: NodeId, chunk: ChunkId) -> Result<(), MetaError> {
        let holders = self.store.read(|txn| holders_of(txn, chunk.stripe))?;
        if !holders.contains(&(node, chunk.index)) {
            return Ok(());
        }
        self.change(|txn| forget(txn, node, chunk))
    }
}

fn holders_of(txn: &dyn ReadTxn, stripe: StripeId) -> Result<Holders, MetaError> {
    Ok(FORMER_HOLDERS.get(txn, &stripe)?.unwrap_or_default())
}

/// Notes that a chunk has moved away from `holder`. A node that is declared failed removes it
/// before it serves again, and is noted as absent.
pub(crate) fn leave_behind(
    txn: &mut dyn WriteTxn,
    holder: NodeId,
    chunk: ChunkId,
) -> Result<(), MetaError> {
    if node(txn, holder)?.failed {
        return note_absent(txn, holder, chunk.stripe);
    }
    let mut holders = holders_of(txn, chunk.stripe)?;
    if holders.contains(&(holder, chunk.index)) {
        return Ok(());
    }
    holders.push((holder, chunk.index));
    FORMER_HOLDERS.put(txn, &chunk.stripe, &holders)
}

/// Removes a former holder from a stripe's list.
pub(crate) fn forget(
    txn: &mut dyn WriteTxn,
    holder: NodeId,
    chunk: ChunkId,
) -> Result<(), MetaError> {
    let holders = holders_of(txn, chunk.stripe)?;
    keep(txn, chunk.stripe, &holders, |it| {
        it != (holder, chunk.index)
    })
}

/// Removes a node from all lists of former holders: it has failed, and is absent now where it was noted, or it has
/// joined. The lists are few and short: a node is in one only while it is up and has not confirmed that a chunk is
/// removed.
pub(crate) fn forget_node(
    txn: &mut dyn WriteTxn,
    gone: NodeId,
    has_failed: bool,
) -> Result<(), MetaError> {
    let rows = FORMER_HOLDERS.scan(txn, &FORMER_HOLDERS.all(), usize::MAX)?;
    for (stripe, holders) in rows {
        let is_noted = holders.iter().any(|(node, _)| *node == gone);
        if has_failed && is_noted && is_known(txn, stripe)? {
            note_absent(txn, gone, stripe)?;
        }
        keep(txn, stripe, &holders, |(node, _)| node != gone)?;
    }
    Ok(())
}

/// Removes the notes about the absent holders of a stripe that is forgotten.
pub(crate) fn forget_absent_holders(
    txn: &mut dyn WriteTxn,
    stripe: StripeId,
) -> Result<(), MetaError> {
    for holder in absent_of(txn, stripe)? {
        forget_absence(txn, holder, stripe)?;
    }
    Ok(())
}

/// A sentence for each wrong row. Former holders are nodes that may serve and do not hold the chunk. Absent holders are
/// known nodes, and their stripes are live or garbage; the rows by node are the same.
pub(crate) fn contradictions(txn: &dyn ReadTxn) -> Result<Vec<String>, MetaError> {
    let mut faults = Vec::new();
    for (id, holders) in FORMER_HOLDERS.scan(txn, &FORMER_HOLDERS.all(), usize::MAX)? {
        let record = STRIPES.get(txn, &id)?;
        for (node, chunk) in holders {
            let serves = NODES.get(txn, &node)?.is_some_and(|node| !node.failed);
            let holder = record.as_ref().and_then(|record| record.node_of(chunk));
            if !serves || holder == Some(node) {
                faults.push(format!(
                    "{node} cannot be a former holder of {chunk} of {id}"
                ));
            }
        }
    }
    let by_node = ABSENT_ON.scan(txn, &ABSENT_ON.all(), usize::MAX)?;
    let by_node: BTreeSet<(NodeId, StripeId)> = by_node.into_iter().map(|(key, ())| key).collect();
    let mut noted = BTreeSet::new();
    for (id, holders) in ABSENT_HOLDERS.scan(txn, &ABSENT_HOLDERS.all(), usize::MAX)? {
        if holders.is_empty() || !is_known(txn, id)? {
            faults.push(format!(
                "{id} has absent holders, but is neither live nor garbage"
            ));
        }
        for node in holders {
            if NODES.get(txn, &node)?.is_none() {
                faults.push(format!("{node} is no absent holder of {id}"));
            }
            noted.insert((node, id));
        }
    }
    if noted != by_node {
        faults.push("absent holders and their index by node differ".to_owned());
    }
    Ok(faults)
}

/// Whether a stripe is live or garbage. Of others, no record is kept for nodes that return.
fn is_known(txn: &dyn ReadTxn, stripe: StripeId) -> Result<bool, MetaError> {
    Ok(STRIPES.get(txn, &stripe)?.is_some() || GARBAGE.get(txn, &stripe)?.is_some())
}

/// The first node that is noted as an absent holder and has joined since.
fn joined_holder(txn: &dyn ReadTxn) -> Result<Option<NodeId>, MetaError> {
    let mut first = NodeId(0);
    while first < NodeId::CLIENT {
        let span = ABSENT_ON.between(&(first, StripeId(0)), &(NodeId::CLIENT, StripeId(0)));
        let rows = ABSENT_ON.scan(txn, &span, 1)?;
        let Some(&((holder, _), ())) = rows.first() else {
            break;
        };
        if !node(txn, holder)?.failed {
            return Ok(Some(holder));
        }
        first = NodeId(holder.0.saturating_add(1));
    }
    Ok(None)
}

/// The nodes that are noted as absent holders of a stripe; some may have joined since.
fn absent_of(txn: &dyn ReadTxn, stripe: StripeId) -> Result<Vec<NodeId>, MetaError> {
    Ok(ABSENT_HOLDERS.get(txn, &stripe)?.unwrap_or_default())
}

fn note_absent(txn: &mut dyn WriteTxn, holder: NodeId, stripe: StripeId) -> Result<(), MetaError> {
    let mut absent = absent_of(txn, stripe)?;
    if absent.contains(&holder) {
        return Ok(());
    }
    absent.push(holder);
    ABSENT_HOLDERS.put(txn, &stripe, &absent)?;
    ABSENT_ON.put(txn, &(holder, stripe), &())
}

/// Removes the note that a node is an absent holder of a stripe.
fn forget_absence(
    txn: &mut dyn WriteTxn,
    holder: NodeId,
    stripe: StripeId,
) -> Result<(), MetaError> {
    ABSENT_ON.delete(txn, &(holder, stripe))?;
    let mut absent = absent_of(txn, stripe)?;
    absent.retain(|node| *node != holder);
    if absent.is_empty() {
        return ABSENT_HOLDERS.delete(txn, &stripe);
    }
    ABSENT_HOLDERS.put(txn, &stripe, &absent)
}

/// Writes a stripe's list if it has changed.
fn keep(
    txn: &mut dyn WriteTxn,
    stripe: StripeId,
    holders: &[(NodeId, ChunkIndex)],
    stays: impl Fn((NodeId, ChunkIndex)) -> bool,
) -> Result<(), MetaError> {
    let left: Holders = holders.iter().copied().filter(|&it| stays(it)).collect();
    if left.len() == holders.len() {
        return Ok(());
    }
    if left.is_empty() {
        return FORMER_HOLDERS.delete(txn, &stripe);
    }
    FORMER_HOLDERS.put(txn, &stripe, &left)
}
