//! Former holders: nodes that may still have a chunk of a live stripe after the chunk has moved
//! elsewhere. The transaction that moves the chunk writes the row, so no restart loses it. Every
//! term fences these nodes before it serves, since a reader with an old layout may still ask them.
//!
//! A row is removed when the node confirms that the chunk is removed, when the node gets the chunk
//! again, and when the node is declared failed or joins: a joining node removes foreign chunks
//! before it serves.
//!
//! *Absent holders* are failed nodes that have such a chunk. No term fences them, since they serve nothing before
//! they join. But while one may return, the stripe's record stays after the stripe has ended: otherwise it would be unknown
//! then what the chunk is.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::node_rows::node;
use crate::schema::{ABSENT_HOLDERS, FORMER_HOLDERS, GARBAGE, STRIPES};
use gabion_layout::{ChunkId, ChunkIndex, NodeId, StripeId};

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

    /// The failed nodes that have a chunk of a stripe which has moved elsewhere, unless they have joined since.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn absent_holders(&self, stripe: StripeId) -> Result<Vec<NodeId>, MetaError> {
        let absent = self.store.read(|txn| ABSENT_HOLDERS.get(txn, &stripe))?;
        Ok(absent.unwrap_or_default())
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

/// Removes a node from all lists: it has failed, and is absent now where it was noted, or it has joined.
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
    if !has_failed {
        for (stripe, mut absent) in ABSENT_HOLDERS.scan(txn, &ABSENT_HOLDERS.all(), usize::MAX)? {
            if absent.contains(&gone) {
                absent.retain(|node| *node != gone);
                put_absent(txn, stripe, &absent)?;
            }
        }
    }
    Ok(())
}

/// Whether a stripe is live or garbage. Of others, no record is kept for nodes that return.
fn is_known(txn: &dyn ReadTxn, stripe: StripeId) -> Result<bool, MetaError> {
    Ok(STRIPES.get(txn, &stripe)?.is_some() || GARBAGE.get(txn, &stripe)?.is_some())
}

fn note_absent(txn: &mut dyn WriteTxn, holder: NodeId, stripe: StripeId) -> Result<(), MetaError> {
    let mut absent = ABSENT_HOLDERS.get(txn, &stripe)?.unwrap_or_default();
    if !absent.contains(&holder) {
        absent.push(holder);
        put_absent(txn, stripe, &absent)?;
    }
    Ok(())
}

fn put_absent(
    txn: &mut dyn WriteTxn,
    stripe: StripeId,
    absent: &Vec<NodeId>,
) -> Result<(), MetaError> {
    if absent.is_empty() {
        return ABSENT_HOLDERS.delete(txn, &stripe);
    }
    ABSENT_HOLDERS.put(txn, &stripe, absent)
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
