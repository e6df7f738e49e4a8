//! The one error of this crate, with a plain sentence for each way an operation can be refused.

use crate::{ClusterId, Holder, PutId};
use gabion_layout::{ChunkId, Epoch, Generation, NodeId, RackId, StripeId};
use std::path::PathBuf;
use thiserror::Error;

/// Why a metadata operation did not happen. After every variant but [`MetaError::Storage`] the
/// state is exactly what it was before the call.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum MetaError {
    /// The engine failed. Whether a write's commit reached the disk is unknown: close the store
    /// and open it again before anything else.
    #[error("the metadata store could not {operation}: {reason}; check the disk, then restart")]
    Storage {
        /// What was being done.
        operation: &'static str,
        /// The engine's own words.
        reason: String,
    },
    /// Another process has the store open.
    #[error("{} is in use by another process; stop that process or choose another file", path.display())]
    Locked {
        /// The store's file.
        path: PathBuf,
    },
    /// There is no store where one was expected.
    #[error("there is no metadata store at {}; create a cluster first or correct the path", path.display())]
    NoStore {
        /// The file looked for.
        path: PathBuf,
    },
    /// The store's file is not one, or its pages do not match their checksums.
    #[error("{} is not an intact metadata store ({reason}); restore it from a backup", path.display())]
    Damaged {
        /// The store's file.
        path: PathBuf,
        /// The engine's own words.
        reason: String,
    },
    /// A row cannot be understood, or two rows contradict each other.
    #[error(
        "a row of the {table} table is corrupt (key {key}: {reason}); restore the store from a backup"
    )]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The row's key, in hexadecimal.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// A fresh store was opened as a cluster.
    #[error("the metadata store holds no cluster; create one first")]
    NoCluster,
    /// A cluster was to be created over another.
    #[error(
        "the metadata store already holds cluster {0}; open it, or choose an empty place for a new one"
    )]
    ClusterExists(ClusterId),
    /// Nodes know more than the metadata: it is a copy of another time.
    #[error(
        "the coordinator's metadata is an old copy ({proof}); nothing is served and nothing deleted: \
         put the newest copy back and start the coordinator again"
    )]
    WentBack {
        /// What a node knows that the metadata does not.
        proof: String,
    },
    /// A newer program wrote the store.
    #[error(
        "the metadata store has format {found}, but this program knows formats up to {supported}; use a newer program"
    )]
    NewerFormat {
        /// The store's format.
        found: u32,
        /// The newest format that this program knows.
        supported: u32,
    },
    /// A file name that is not allowed.
    #[error(
        "a file name {problem}; use 1 to {} bytes of UTF-8 without control characters",
        crate::FILE_NAME_BYTES
    )]
    FileName {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A pool name that is not allowed.
    #[error(
        "'{0}' is no pool name; use a lower-case letter, then up to 63 lower-case letters, digits, '-' or '_'"
    )]
    PoolName(String),
    /// A pool that could not keep its promise, or makes no sense.
    #[error("the pool is impossible: {0}")]
    Pool(String),
    /// A node's address that cannot be dialled.
    #[error("'{0}' is no address of a node; write host:port with a port from 1 to 65535")]
    Address(String),
    /// Another node has the address.
    #[error(
        "address {address} belongs to {node}, which has not failed; give the new node another address or that node's id"
    )]
    AddressInUse {
        /// The address.
        address: String,
        /// Who has it.
        node: NodeId,
    },
    /// A returning node stands in another rack than before.
    #[error(
        "{node} is recorded in {recorded} and says it is in {given}; start it with its old rack, or as a new node"
    )]
    RackChanged {
        /// The node.
        node: NodeId,
        /// Where it was.
        recorded: RackId,
        /// Where it says it is.
        given: RackId,
    },
    /// No such node.
    #[error("{0} is not in the cluster; join it as a new node")]
    UnknownNode(NodeId),
    /// The node is declared failed and gets no chunks.
    #[error("{0} is declared failed and can take no chunk; choose another node")]
    NodeFailed(NodeId),
    /// The node is being drained and gets no new chunks.
    #[error("{0} is leaving the cluster and can take no chunk; choose another node")]
    NodeLeaving(NodeId),
    /// The node has no running membership lease.
    #[error("{0} has no running membership lease; it must send a heartbeat before it asks again")]
    NodeNotLive(NodeId),
    /// Ids of a kind are used up.
    #[error("all {0} ids are used up; start another cluster")]
    IdsExhausted(&'static str),
    /// No such pool.
    #[error("there is no pool '{0}'; create it or use one from the list of pools")]
    UnknownPool(String),
    /// The pool's name is taken.
    #[error("there is a pool '{0}' already; choose another name")]
    PoolExists(String),
    /// No such file.
    #[error("there is no file '{0}'; check the name against the list of files")]
    UnknownFile(String),
    /// The file's name is taken.
    #[error("there is a file '{0}' already; remove it first or choose another name")]
    FileExists(String),
    /// Another file has the name.
    #[error("'{0}' is another file now; open it again")]
    FileReplaced(String),
    /// A stripe that is being replaced may have been updated meanwhile.
    #[error("{epoch} of {stripe} is over; begin the replacement again")]
    LeaseLost {
        /// The stripe.
        stripe: StripeId,
        /// The term under which it was being replaced.
        epoch: Epoch,
    },
    /// The stripe's lease has another holder by now, or none.
    #[error("{epoch} of {stripe} is over; a newer primary has taken over")]
    TermOver {
        /// The stripe.
        stripe: StripeId,
        /// The term.
        epoch: Epoch,
    },
    /// No such put: it was aborted or has expired.
    #[error("{0} is not under way; put the file again")]
    UnknownPut(PutId),
    /// The put was committed already.
    #[error("{0} was committed before")]
    CommittedBefore(PutId),
    /// A segment's place or size breaks a rule of its pool.
    #[error("segment {segment} cannot be placed: {problem}")]
    Placement {
        /// Position of the segment in its file.
        segment: usize,
        /// Which rule, and what it allows.
        problem: String,
    },
    /// No such stripe among those that files refer to.
    #[error("{0} belongs to no file; read the file's record again")]
    UnknownStripe(StripeId),
    /// No such chunk in the stripe.
    #[error("there is no {0}; read the stripe's record again")]
    UnknownChunk(ChunkId),
    /// The stripe's layout has changed since the caller read it.
    #[error("{stripe} is at {current}, not at {expected}; read its record again and decide anew")]
    GenerationChanged {
        /// The stripe.
        stripe: StripeId,
        /// What the caller expected.
        expected: Generation,
        /// What it is.
        current: Generation,
    },
    /// The node holds another chunk of the stripe.
    #[error("{node} already holds a chunk of {stripe}; choose a node outside the stripe")]
    NodeInStripe {
        /// The node.
        node: NodeId,
        /// The stripe.
        stripe: StripeId,
    },
    /// Another live holder has the stripe's lease.
    #[error("{stripe} is led by {holder} in {epoch}; send the update there or ask again later")]
    Held {
        /// The stripe.
        stripe: StripeId,
        /// Who has the lease.
        holder: Holder,
        /// Under which epoch.
        epoch: Epoch,
    },
}
