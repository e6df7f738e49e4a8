//! The error of this crate, with one plain sentence for each refusal.

use crate::metadata_log::LogError;
use crate::paths::DirectoryId;
use crate::quota_error::QuotaError;
use crate::records::{FencingToken, Holder, PutId};
use gabion_layout::ClusterId;
use gabion_layout::{ChunkId, Epoch, Generation, NodeId, RackId, StripeId};
use std::path::PathBuf;
use thiserror::Error;

/// The reason why a metadata operation failed. The state is unchanged after every variant that does not end the store
/// ([`MetaError::ends_the_coordinator`]).
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum MetaError {
    /// The engine failed. It is unknown whether a commit reached the disk: close the store and
    /// reopen it before any other operation.
    #[error(
        "the metadata store could not {operation}: {reason}; check its disk or database, then restart"
    )]
    Storage {
        /// The operation.
        operation: &'static str,
        /// The engine's message.
        reason: String,
    },
    /// Another process uses the store's database now. Nothing of this one is committed since.
    #[error(
        "this process may not use the metadata any longer ({reason}); the request may be repeated at the coordinator that leads"
    )]
    Deposed {
        /// The cause, with the database.
        reason: String,
    },
    /// The store's database has not answered for some seconds, so another process may have taken it over. It may
    /// answer again.
    #[error("the database of the metadata does not answer ({reason}); the request may be repeated")]
    Away {
        /// The database.
        reason: String,
    },
    /// The store was closed.
    #[error("the coordinator is stopping; repeat the request at the next coordinator")]
    Closed,
    /// Another process has the store open.
    #[error("{} is in use by another process; stop that process or choose another file", path.display())]
    Locked {
        /// The store's file.
        path: PathBuf,
    },
    /// There is a file where a new store was to be.
    #[error("{} already exists; choose another file, or move it away", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// There is no store at the path.
    #[error("there is no metadata store at {}; correct the path, or make the file from a backup with 'gabion metadata restore'", path.display())]
    NoStore {
        /// The file.
        path: PathBuf,
    },
    /// A new store was to be in a directory that does not exist.
    #[error("the directory {} does not exist; create it, or correct the path", path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The file is not a store, or its pages do not match their checksums.
    #[error("{} is not an intact metadata store ({reason}); restore it from a backup", path.display())]
    Damaged {
        /// The store's file.
        path: PathBuf,
        /// The engine's message.
        reason: String,
    },
    /// The metadata log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A row cannot be decoded, or two rows contradict each other.
    #[error(
        "a row of the {table} table is corrupt (key {key}: {reason}); restore the store from a backup"
    )]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The row's key, in hexadecimal.
        key: String,
        /// The reason.
        reason: String,
    },
    /// A store without a cluster was opened.
    #[error("the metadata store holds no cluster; create one first")]
    NoCluster,
    /// The store to create a cluster in already holds one.
    #[error(
        "the metadata store already holds cluster {0}; open it, or choose another directory for a new one"
    )]
    ClusterExists(ClusterId),
    /// A store for a new cluster or a copy has rows.
    #[error(
        "the metadata store already has rows, possibly of an unfinished copy; use a new file or an empty database"
    )]
    NotBlank,
    /// A copy differs from its source.
    #[error(
        "the copy of the metadata differs from its source at key {key}; copy again into an empty store"
    )]
    CopyDiffers {
        /// The row's key, in hexadecimal.
        key: String,
    },
    /// Nodes or this process know later state than the metadata: it is an old copy.
    #[error(
        "the coordinator's metadata is an old copy ({proof}), so the coordinator serves and deletes nothing; restore \
        the newest copy and start the coordinator again"
    )]
    WentBack {
        /// The later state.
        proof: String,
    },
    /// A newer program wrote the store.
    #[error(
        "the metadata store has format {found}, but this program knows format {supported}; use a newer program"
    )]
    NewerFormat {
        /// The store's format.
        found: u32,
        /// The format that this program knows.
        supported: u32,
    },
    /// An older program wrote the store.
    #[error(
        "the metadata store has format {found}, but this program knows format {supported}; read the files \
         with the program that stored them, and store them in a new cluster"
    )]
    OlderFormat {
        /// The store's format.
        found: u32,
        /// The format that this program knows.
        supported: u32,
    },
    /// An invalid file name.
    #[error(
        "a file name {problem}; use 1 to {} bytes of UTF-8 without control characters, with '/' between names only",
        crate::records::FILE_NAME_BYTES
    )]
    FileName {
        /// The reason.
        problem: &'static str,
    },
    /// A name or a path that is too long.
    #[error(
        "a file name {problem}; use at most {} bytes in 64 names with '/' between them, and 255 in each",
        crate::records::FILE_NAME_BYTES
    )]
    NameTooLong {
        /// The reason.
        problem: &'static str,
    },
    /// A symbolic link must lead somewhere.
    #[error("a symbolic link needs {problem}")]
    Target {
        /// The reason.
        problem: &'static str,
    },
    /// The file is a symbolic link.
    #[error("'{name}' is a symbolic link to {target:?}; name the file to which it leads")]
    IsASymlink {
        /// Its name.
        name: String,
        /// The path to which it leads.
        target: String,
    },
    /// A file has as many names as it can have.
    #[error("'{0}' already has 1024 names, the maximum; store a copy of it instead")]
    TooManyNames(String),
    /// A limit of advisory locks.
    #[error(
        "{what} has {limit} advisory locks, which is the limit; release some, or lock larger ranges"
    )]
    TooManyLocks {
        /// The holder of the locks, as the beginning of a sentence.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A file cannot become an orphan.
    #[error(
        "clients have {limit} removed files open, which is the limit; close some of these, or end their clients"
    )]
    TooManyOrphans {
        /// The limit.
        limit: u64,
    },
    /// An invalid pool name.
    #[error(
        "'{0}' is not a valid pool name; use a lower-case letter, then up to 63 lower-case letters, digits, '-' or '_'"
    )]
    PoolName(String),
    /// A pool with contradictory parameters.
    #[error("invalid pool: {0}")]
    Pool(String),
    /// The pool's files have one form only.
    #[error(
        "pool {pool} has no replicated blocks; only pools made with --write replicate:3 can be {what}"
    )]
    NotReplicated {
        /// The pool.
        pool: String,
        /// The requested form of its files.
        what: &'static str,
    },
    /// An invalid address of a node.
    #[error("'{0}' is not a node address; write host:port with a port from 1 to 65535")]
    Address(String),
    /// Another node has the address.
    #[error(
        "address {address} belongs to {node}, which has not failed; give the new node another address or that node's id"
    )]
    AddressInUse {
        /// The address.
        address: String,
        /// The node that has it.
        node: NodeId,
    },
    /// A returning node reports another rack than before.
    #[error(
        "{node} is recorded in {recorded}, but reports {given}; start it with its old rack, or as a new node"
    )]
    RackChanged {
        /// The node.
        node: NodeId,
        /// The recorded rack.
        recorded: RackId,
        /// The reported rack.
        given: RackId,
    },
    /// No such node.
    #[error("{0} is not in the cluster; join it as a new node")]
    UnknownNode(NodeId),
    /// The node is declared failed and gets no chunks.
    #[error("{0} is declared failed and cannot take a chunk; choose another node")]
    NodeFailed(NodeId),
    /// Nodes that hold chunks of an uncommitted stripe have gone back to older copies of their
    /// directories or lost them, and too few chunks are left.
    #[error(
        "{missing_count} chunks of {stripe}, which is not committed yet, are lost with their nodes' \
         directories; store the file again"
    )]
    PutLost {
        /// The stripe.
        stripe: StripeId,
        /// The number of its missing chunks.
        missing_count: usize,
    },
    /// A client has the file open exclusively.
    #[error("a client has '{0}' open exclusively; end that client first")]
    InUse(String),
    /// A session has opened the file exclusively since the writer looked it up.
    #[error(
        "another client has opened the file exclusively, or a snapshot of it is taken (fencing token {}); look it up \
        again",
        current.0
    )]
    Superseded {
        /// The file's token.
        current: FencingToken,
    },
    /// A rule of snapshots and clones.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A pool's quota.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The node is being drained and gets no new chunks.
    #[error("{0} is leaving the cluster and cannot take a chunk; choose another node")]
    NodeLeaving(NodeId),
    /// The node's membership lease has expired.
    #[error("{0} has no valid membership lease; it must send a heartbeat before it retries")]
    NodeNotLive(NodeId),
    /// All ids of a kind are used up.
    #[error("all {0} ids are used up; start another cluster")]
    IdsExhausted(&'static str),
    /// No such pool.
    #[error("there is no pool '{0}'; create it or use one from the list of pools")]
    UnknownPool(String),
    /// The pool's name exists already.
    #[error("pool '{0}' already exists; choose another name")]
    PoolExists(String),
    /// Nothing has the path.
    #[error("there is no file and no directory '{0}'; check the name against the list of files")]
    UnknownPath(String),
    /// No such file.
    #[error("there is no file '{0}'; check the name against the list of files")]
    UnknownFile(String),
    /// The file's name exists already.
    #[error("file '{0}' already exists; remove it first or choose another name")]
    FileExists(String),
    /// The directory has been removed.
    #[error("the directory was removed; look its name up again")]
    DirectoryGone(DirectoryId),
    /// The directory has another name by now.
    #[error("the directory was renamed to '{0}'; look it up again")]
    DirectoryRenamed(String),
    /// A directory has the name already.
    #[error("'{0}' is a directory already; remove it first or choose another name")]
    DirectoryExists(String),
    /// The name is a directory's where a file's is expected.
    #[error("'{0}' is a directory; name a file")]
    IsADirectory(String),
    /// The root was to be removed or renamed.
    #[error("the root directory cannot be removed or renamed; name a directory below it")]
    Root,
    /// Attributes that no inode can have.
    #[error("these attributes are invalid: {problem}")]
    Attributes {
        /// The rule.
        problem: &'static str,
    },
    /// Users' attributes that no inode can have.
    #[error("a user attribute needs {problem}")]
    UserAttribute {
        /// The rule.
        problem: &'static str,
    },
    /// Users' attributes would take too much space.
    #[error(
        "the user attributes of a file or directory have at most {limit_bytes} bytes; remove others first"
    )]
    UserAttributesTooLarge {
        /// The limit, with their names.
        limit_bytes: usize,
    },
    /// Attributes go by an earlier state of the inode.
    #[error("another client changed the permissions or times; look them up again")]
    AttributesChanged,
    /// A file has a name where a directory's is expected.
    #[error("'{0}' is a file, not a directory; choose another name")]
    NotADirectory(String),
    /// The directory has files or directories in it.
    #[error("the directory '{0}' is not empty; remove its entries first")]
    NotEmpty(String),
    /// A directory, or a copy of it, would lie below itself.
    #[error("'{0}' lies below the directory itself; choose a name outside of it")]
    IntoItself(String),
    /// A directory below would have too many above it.
    #[error(
        "'{0}' is too deep for the directories that are or were below it; a file's path has at most 64 parts"
    )]
    TooDeep(String),
    /// The name belongs to another file now.
    #[error("another file now has the name '{0}'; look it up again")]
    FileReplaced(String),
    /// The names of the file are others by now.
    #[error("another client changed the names of '{0}'; look it up again")]
    FileRenamed(String),
    /// The file has been removed.
    #[error("the file was removed; look its name up again")]
    FileGone(PutId),
    /// Other changes of the file's extents do not go together with this one.
    #[error("the file has changed: {0}; look it up again")]
    FileChanged(&'static str),
    /// A stripe that has left a file may be served yet.
    #[error(
        "{0} no longer belongs to the file, but nodes may still serve it; try again, or start its failed nodes"
    )]
    StillServed(StripeId),
    /// The pool keeps no inline files of this size.
    #[error("the file is too large to be inline in its pool; store it in stripes")]
    NotInline,
    /// An earlier copy of the request was refused.
    #[error("the request was refused before, so it has no effect; make a new one")]
    WasRefused,
    /// The files of this pool keep their sizes.
    #[error(
        "files of a pool that replicates blocks first have fixed sizes and extents; store the file again to change them"
    )]
    FixedSize,
    /// A message of an earlier extension of a put.
    #[error("{put} is already at step {step}; this request is late")]
    PutStep {
        /// The put.
        put: PutId,
        /// Its step.
        step: u64,
    },
    /// A file would be too large.
    #[error(
        "a file has at most {} bytes and at most {} stripes; use several files",
        crate::records::FILE_BYTES_MAX,
        crate::records::FILE_STRIPES_MAX
    )]
    FileTooLarge,
    /// A stripe may have been updated during its replacement.
    #[error("{epoch} of {stripe} is over; start the replacement again")]
    LeaseLost {
        /// The stripe.
        stripe: StripeId,
        /// The term of the replacement.
        epoch: Epoch,
    },
    /// The stripe's lease has another holder, or none.
    #[error("{epoch} of {stripe} is over; a newer primary has taken over")]
    TermOver {
        /// The stripe.
        stripe: StripeId,
        /// The term.
        epoch: Epoch,
    },
    /// No such put: it was aborted or has expired.
    #[error("{0} was aborted or has expired; put the file again")]
    UnknownPut(PutId),
    /// The put has ended, and it is not remembered whether it was committed.
    #[error("{0} began too long ago to know whether it was committed; read the file")]
    PutForgotten(PutId),
    /// The put was already committed.
    #[error("{0} was already committed")]
    CommittedBefore(PutId),
    /// A segment's nodes or size break a rule of its pool.
    #[error("segment {segment} cannot be placed: {problem}")]
    Placement {
        /// The segment's index in its file.
        segment: usize,
        /// The broken rule and its limit.
        problem: String,
    },
    /// No file refers to the stripe.
    #[error("{0} belongs to no file; read the file's record again")]
    UnknownStripe(StripeId),
    /// No such chunk in the stripe.
    #[error("there is no {0}; read the stripe's record again")]
    UnknownChunk(ChunkId),
    /// The stripe's layout has changed since the caller read it.
    #[error("{stripe} is at {current}, not at {expected}; read its record again and retry")]
    GenerationChanged {
        /// The stripe.
        stripe: StripeId,
        /// The expected generation.
        expected: Generation,
        /// The current generation.
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
    #[error("{stripe} has the primary {holder} in {epoch}; send the update there or retry later")]
    Held {
        /// The stripe.
        stripe: StripeId,
        /// The holder of the lease.
        holder: Holder,
        /// Its epoch.
        epoch: Epoch,
    },
}

impl MetaError {
    /// Whether a coordinator must decide nothing more: what is durable is unknown, others decide now, or the metadata
    /// are of another time.
    pub fn ends_the_coordinator(&self) -> bool {
        matches!(
            self,
            Self::Storage { .. }
                | Self::Log(_)
                | Self::Deposed { .. }
                | Self::Closed
                | Self::WentBack { .. }
        )
    }
}

/// A rule of snapshots and clones that a request breaks.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SnapshotError {
    /// The file is a snapshot.
    #[error("'{0}' is a snapshot and is never changed; clone it to get a file to write")]
    ReadOnly(String),
    /// The directory is a snapshot's.
    #[error(
        "'{0}' is a directory of a snapshot, which accepts no new names; clone it to get a directory to write"
    )]
    ReadOnlyDirectory(String),
    /// Files share the stripe.
    #[error("{0} may be in several files and is not updated in place; look the file up again")]
    Shared(StripeId),
    /// A snapshot of the file is being taken.
    #[error("a snapshot of the file that {0} made is being taken; try again")]
    Frozen(PutId),
    /// Clients may write a file of which a snapshot was to be made.
    #[error(
        "clients have begun to write {0} while a snapshot of its directory is taken; try again"
    )]
    NotFrozen(PutId),
    /// One transaction makes the snapshot of a directory, and it would be too large.
    #[error(
        "there are more than {limit} files and directories below '{directory}', the most that one snapshot or clone has; \
        make one of each directory in it"
    )]
    TooManyEntries {
        /// The directory.
        directory: String,
        /// The limit.
        limit: usize,
    },
    /// The same for bytes.
    #[error(
        "the inline files, the targets of symbolic links and the attributes of users below '{directory}' have {bytes} bytes, \
        and those of one snapshot or clone at most {limit}; make one of each directory in it"
    )]
    TooManyBytes {
        /// The directory.
        directory: String,
        /// Their bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A file of a pool whose files cannot share stripes.
    #[error(
        "'{0}' is in a pool that replicates blocks first, and such files have no snapshots; copy the file"
    )]
    NotShareable(String),
    /// A file has as many maps of extents as a file may have.
    #[error(
        "'{name}' shares stripes with snapshots and clones of {count} moments, which is the limit; remove older ones, or \
        copy the file"
    )]
    TooMany {
        /// The file.
        name: String,
        /// The limit.
        count: usize,
    },
}
