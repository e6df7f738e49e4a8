//! Nodes: the cluster's members, their racks, and whether they are declared failed.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::names::check_address;
use crate::node_rows::{checked, node};
use crate::records::{NodeRecord, Progress};
use crate::schema::{Counter, NODES};
use crate::standings::change_standing;
use crate::{former_holders, progress};
use gabion_layout::{NodeId, NodePlace, RackId, Start, Topology};

impl<K: KeyValue> Meta<K> {
    /// Admits a node: a new one without an id, or a returning one with its id. A returning node may
    /// change its address and capacity, and keeps its rack. If it is declared failed, it stays so
    /// until [`Meta::declare_returned`].
    ///
    /// # Errors
    /// [`MetaError::Address`], [`MetaError::AddressInUse`], [`MetaError::UnknownNode`],
    /// [`MetaError::RackChanged`], [`MetaError::IdsExhausted`].
    pub fn join(
        &self,
        returning: Option<NodeId>,
        rack: RackId,
        address: &str,
        capacity_bytes: u64,
        now_ms: u64,
    ) -> Result<NodeId, MetaError> {
        check_address(address)?;
        self.change(|txn| {
            let (id, failed, admitted) = match returning {
                Some(id) => {
                    let known = node(txn, id)?;
                    if known.rack != rack {
                        return Err(MetaError::RackChanged {
                            node: id,
                            recorded: known.rack,
                            given: rack,
                        });
                    }
                    (id, known.failed, known.admitted)
                }
                None => (new_node_id(txn)?, false, None),
            };
            check_address_is_free(txn, id, address)?;
            let record = NodeRecord {
                id,
                rack,
                address: address.to_owned(),
                capacity_bytes,
                failed,
                joined_ms: now_ms,
                admitted,
            };
            NODES.put(txn, &id, &record)?;
            Ok(id)
        })
    }

    /// Removes the address of a node that no longer listens there, for another node that does. The
    /// node has none until it joins again.
    ///
    /// # Errors
    /// [`MetaError::UnknownNode`].
    pub fn forget_address(&self, id: NodeId) -> Result<NodeRecord, MetaError> {
        self.change(|txn| {
            let mut record = node(txn, id)?;
            record.address.clear();
            NODES.put(txn, &id, &record)?;
            Ok(record)
        })
    }

    /// The record of one node.
    ///
    /// # Errors
    /// [`MetaError::UnknownNode`].
    pub fn node(&self, id: NodeId) -> Result<NodeRecord, MetaError> {
        self.store.read(|txn| node(txn, id))
    }

    /// All nodes, by id.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn nodes(&self) -> Result<Vec<NodeRecord>, MetaError> {
        self.store.read(nodes)
    }

    /// The racks of all nodes, failed ones included: their chunks keep their place as long as the
    /// nodes hold them.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn topology(&self) -> Result<Topology, MetaError> {
        let mut topology = Topology::default();
        for node in self.nodes()? {
            let place = NodePlace {
                node: node.id,
                rack: node.rack,
            };
            topology
                .add(place)
                .map_err(|error| NODES.contradiction(&node.id, error.to_string()))?;
        }
        Ok(topology)
    }

    /// Declares a node's chunks as lost. Has no effect if they are.
    ///
    /// # Errors
    /// [`MetaError::UnknownNode`].
    pub fn declare_failed(&self, id: NodeId) -> Result<NodeRecord, MetaError> {
        let change = |record: &mut NodeRecord| record.failed = true;
        self.change(|txn| declare(txn, id, change))
    }

    /// Undoes [`Meta::declare_failed`] when this start of the node is admitted, with its journal at
    /// this position: its chunks are valid again, except those that became stale since.
    ///
    /// # Errors
    /// [`MetaError::UnknownNode`].
    pub fn declare_returned(
        &self,
        id: NodeId,
        start: Start,
        position: u64,
    ) -> Result<NodeRecord, MetaError> {
        let change = |record: &mut NodeRecord| {
            record.failed = false;
            record.admitted = Some(start);
        };
        self.change(|txn| {
            let incarnation = start.number;
            let progress = Progress {
                incarnation,
                position,
            };
            progress::begin(txn, id, progress)?;
            declare(txn, id, change)
        })
    }
}

fn declare(
    txn: &mut dyn WriteTxn,
    id: NodeId,
    change: impl Fn(&mut NodeRecord),
) -> Result<NodeRecord, MetaError> {
    let known = node(txn, id)?;
    let mut record = known.clone();
    change(&mut record);
    if record != known {
        NODES.put(txn, &id, &record)?;
    }
    // It removes foreign chunks before it serves again.
    former_holders::forget_node(txn, id, record.failed)?;
    if !record.failed {
        change_standing(txn, id, |standing| standing.abandoned = false)?;
    }
    Ok(record)
}

fn nodes(txn: &dyn ReadTxn) -> Result<Vec<NodeRecord>, MetaError> {
    let rows = NODES.scan(txn, &NODES.all(), usize::MAX)?;
    rows.into_iter()
        .map(|(id, record)| checked(id, record))
        .collect()
}

fn new_node_id(txn: &mut dyn WriteTxn) -> Result<NodeId, MetaError> {
    let limit = u64::from(NodeId::CLIENT.0);
    let id = Counter::NextNode.take(txn, 1, limit, "node")?;
    let id = u32::try_from(id).expect("the limit is below a node id's reserved one");
    Ok(NodeId(id))
}

/// Two nodes at one address would each get the other's messages. A failed node has no claim: its
/// machine may have returned with empty disks, as a new node.
fn check_address_is_free(txn: &dyn ReadTxn, id: NodeId, address: &str) -> Result<(), MetaError> {
    let taken = |other: &NodeRecord| other.id != id && !other.failed && other.address == address;
    match nodes(txn)?.into_iter().find(taken) {
        Some(other) => Err(MetaError::AddressInUse {
            address: other.address,
            node: other.id,
        }),
        None => Ok(()),
    }
}
