//! Rows of nodes within a transaction: reading them, and whether the node may take a chunk.

use crate::error::MetaError;
use crate::kv::ReadTxn;
use crate::records::{Departure, NodeRecord};
use crate::schema::{NODES, STANDINGS};
use gabion_layout::NodeId;

/// The record of one node.
pub(crate) fn node(txn: &dyn ReadTxn, id: NodeId) -> Result<NodeRecord, MetaError> {
    let record = NODES.get(txn, &id)?.ok_or(MetaError::UnknownNode(id))?;
    checked(id, record)
}

/// Refuses a record of another node's key, and the id reserved for clients.
pub(crate) fn checked(id: NodeId, record: NodeRecord) -> Result<NodeRecord, MetaError> {
    if record.id != id || id == NodeId::CLIENT {
        return Err(NODES.contradiction(&id, format!("the record belongs to {}", record.id)));
    }
    Ok(record)
}

/// The record of a node that is to take a new chunk.
pub(crate) fn welcoming_node(txn: &dyn ReadTxn, id: NodeId) -> Result<NodeRecord, MetaError> {
    staying_node(txn, id)?;
    usable_node(txn, id)
}

/// The record of a node that is not being drained; it may have failed.
pub(crate) fn staying_node(txn: &dyn ReadTxn, id: NodeId) -> Result<NodeRecord, MetaError> {
    let standing = STANDINGS.get(txn, &id)?.unwrap_or_default();
    if standing.departure != Departure::None {
        return Err(MetaError::NodeLeaving(id));
    }
    node(txn, id)
}

/// The record of a node that is to take a chunk.
pub(crate) fn usable_node(txn: &dyn ReadTxn, id: NodeId) -> Result<NodeRecord, MetaError> {
    let record = node(txn, id)?;
    if record.failed {
        return Err(MetaError::NodeFailed(id));
    }
    Ok(record)
}
