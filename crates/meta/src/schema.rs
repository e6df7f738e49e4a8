//! All tables: tag, key, value and version. docs/metadata.md describes each and which rows must
//! agree.

use crate::error::MetaError;
use crate::kv::{ReadTxn, WriteTxn};
use crate::lock_ranges::HeldLock;
use crate::map_records::{Extent, MapRecord};
use crate::paths::DirectoryId;
use crate::quota_records::{DirectoryQuota, PoolUse, Quota};
use crate::records::{
    ChangeDone, ClientSessionId, DirectoryRecord, Exclusive, FileRecord, Growth, Inode,
    LeaseRecord, MapId, NodeRecord, Phase, PoolRecord, Progress, PutId, PutRecord, RepairSettings,
    RequestedForm, Secret, Standing, StartRecord, TicketKey,
};
use crate::replacement_records::ReplacementRecord;
use crate::table::{Key, Table};
use crate::verdicts::Exclusions;
use gabion_layout::ClusterId;
use gabion_layout::{ChunkIndex, Generation, NodeId, PoolId, StripeId, StripeRecord};
use std::collections::BTreeMap;

/// The format that this program writes, and the only one that it reads.
pub const FORMAT: u32 = 14;

/// The store's format. Its own shape never changes, so every program can read it.
pub(crate) const FORMATS: Table<(), u32> = Table::new("format", 0, 1);
/// The cluster's id.
pub(crate) const CLUSTER: Table<(), ClusterId> = Table::new("cluster", 1, 1);
/// Counters, which only one transaction at a time may change.
pub(crate) const COUNTERS: Table<Counter, u64> = Table::new("counters", 2, 1);
/// Nodes.
pub(crate) const NODES: Table<NodeId, NodeRecord> = Table::new("nodes", 3, 2);
/// Pools.
pub(crate) const POOLS: Table<PoolId, PoolRecord> = Table::new("pools", 4, 5);
/// Pools by name.
pub(crate) const POOL_NAMES: Table<String, PoolId> = Table::new("pool names", 5, 1);
/// The quotas of pools; a missing row means [`Quota::default`].
pub(crate) const QUOTAS: Table<PoolId, Quota> = Table::new("quotas", 55, 1);
/// The bytes and files that pools use.
pub(crate) const USES: Table<PoolId, PoolUse> = Table::new("uses of pools", 56, 1);
/// Directories with quotas.
pub(crate) const DIRECTORY_QUOTAS: Table<DirectoryId, DirectoryQuota> =
    Table::new("quotas of directories", 58, 1);
/// Visible files.
pub(crate) const FILES: Table<PutId, FileRecord> = Table::new("files", 6, 9);
/// The bytes of inline files; no row is empty.
pub(crate) const INLINE: Table<PutId, Vec<u8>> = Table::new("inline bytes", 57, 1);
/// Names in directories, of files and of directories: the key of a directory ends with `/`.
pub(crate) const NAMES: Table<(DirectoryId, String), Inode> = Table::new("names", 33, 2);
/// Directories. The root has a row too, but no name.
pub(crate) const DIRECTORIES: Table<DirectoryId, DirectoryRecord> =
    Table::new("directories", 40, 5);
/// The names of files beside their first ones.
pub(crate) const HARD_LINKS: Table<PutId, Vec<(DirectoryId, String)>> =
    Table::new("hard links", 42, 1);
/// Attributes that users have given to inodes, by their names.
pub(crate) const USER_ATTRIBUTES: Table<Inode, BTreeMap<String, Vec<u8>>> =
    Table::new("user attributes", 43, 1);
/// Extents of maps by offset in bytes; none hides an extent of a map below.
pub(crate) const EXTENTS: Table<(MapId, u64), Option<Extent>> = Table::new("extents", 34, 2);
/// The maps that have one below them.
pub(crate) const MAPS: Table<MapId, MapRecord> = Table::new("maps", 51, 1);
/// The same by the map below.
pub(crate) const MAPS_ABOVE: Table<(MapId, MapId), ()> = Table::new("maps above", 52, 1);
/// Stripes that a change of one file has put into a map below it, as copies of shared ones.
pub(crate) const COPIES: Table<StripeId, ()> = Table::new("copies", 54, 1);
/// Maps that take in the one below them, because no other map is above that.
pub(crate) const MERGES: Table<MapId, ()> = Table::new("merges", 53, 1);
/// Open puts.
pub(crate) const PUTS: Table<PutId, PutRecord> = Table::new("puts", 7, 6);
/// Stripes of open puts.
pub(crate) const PENDING: Table<StripeId, StripeRecord> = Table::new("pending stripes", 8, 2);
/// Stripes of open puts that were placed again: from their first id to their current one.
pub(crate) const PLACED_ANEW: Table<StripeId, StripeId> = Table::new("stripes placed anew", 26, 1);
/// Stripes of files.
pub(crate) const STRIPES: Table<StripeId, StripeRecord> = Table::new("stripes", 9, 2);
/// Stripes of files by the nodes that hold their chunks.
pub(crate) const STRIPES_ON: Table<(NodeId, StripeId), ()> = Table::new("stripes by node", 10, 1);
/// Stripes without a file whose chunks are still on nodes.
pub(crate) const GARBAGE: Table<StripeId, StripeRecord> = Table::new("garbage", 11, 2);
/// Those of them that no node serves any more, though failed ones may return with chunks.
pub(crate) const WITHDRAWN: Table<StripeId, ()> = Table::new("withdrawn garbage", 21, 1);
/// The last lease of each stripe that ever had one.
pub(crate) const LEASES: Table<StripeId, LeaseRecord> = Table::new("leases", 12, 3);
/// Stripes that nodes may update in place, each with the own map of its file: the map of each file for which a node has
/// asked.
pub(crate) const WRITTEN: Table<StripeId, Vec<MapId>> = Table::new("written stripes", 61, 1);
/// The same by the map.
pub(crate) const WRITTEN_IN: Table<(MapId, StripeId), ()> =
    Table::new("written stripes by map", 62, 1);
/// Settlements that left out nodes which may return.
pub(crate) const EXCLUSIONS: Table<StripeId, Exclusions> = Table::new("exclusions", 14, 2);
/// Stripes that may have updates that parity does not include yet.
pub(crate) const PHASES: Table<StripeId, Phase> = Table::new("append phases", 17, 2);
/// Stripes that have replaced others, which may still be served; until those are removed, no node
/// updates the new ones.
pub(crate) const PREDECESSORS: Table<StripeId, Vec<StripeId>> = Table::new("predecessors", 18, 1);
/// Nodes that may still have moved chunks of live stripes, each with the chunk.
pub(crate) const FORMER_HOLDERS: Table<StripeId, Vec<(NodeId, ChunkIndex)>> =
    Table::new("former holders", 24, 1);
/// Failed nodes that have chunks of live stripes or garbage which have moved elsewhere.
pub(crate) const ABSENT_HOLDERS: Table<StripeId, Vec<NodeId>> = Table::new("absent holders", 39, 1);
/// The same by the nodes.
pub(crate) const ABSENT_ON: Table<(NodeId, StripeId), ()> =
    Table::new("absent holders by node", 60, 1);
/// Chunks that were rebuilt since their stripe was made, each with the generation of that. Reports
/// about their nodes' earlier chunks do not concern them.
pub(crate) const REMADE: Table<StripeId, Vec<(ChunkIndex, Generation)>> =
    Table::new("remade chunks", 25, 1);
/// Moves of chunks that have begun and do not count yet: the generation that nodes of the stripe have been
/// told.
pub(crate) const MOVES: Table<StripeId, Generation> = Table::new("moves begun", 32, 1);
/// Users' requests for files that are replicated at first.
pub(crate) const REQUESTED_FORMS: Table<PutId, RequestedForm> =
    Table::new("requested forms", 19, 2);
/// Open puts whose stripes replace others.
pub(crate) const REPLACEMENTS: Table<PutId, ReplacementRecord> = Table::new("replacements", 13, 5);
/// Puts and replacements that were committed recently.
pub(crate) const COMMITTED: Table<PutId, ()> = Table::new("committed puts", 20, 1);
/// Stripes that have left a file without a successor, which nodes may serve yet, by the file.
pub(crate) const DROPPED: Table<(PutId, StripeId), ()> = Table::new("dropped stripes", 35, 1);
/// The numbers that clients drew for the last changes of names, attributes and inline bytes, with their outcomes.
pub(crate) const CHANGES_DONE: Table<u64, Vec<ChangeDone>> = Table::new("changes done", 41, 3);
/// The last growths of files by appends.
pub(crate) const GROWTHS: Table<PutId, Vec<Growth>> = Table::new("growths", 36, 1);
/// The clients that may write files of which a session was ever the only writer, or of which a snapshot was made.
pub(crate) const EXCLUSIVE: Table<PutId, Exclusive> = Table::new("exclusive opens", 37, 2);
/// Maps of no file any more whose stripes are not all garbage yet.
pub(crate) const REMOVED: Table<MapId, ()> = Table::new("removed maps", 38, 2);
/// Users' settings of the repair manager; a missing row means [`RepairSettings::default`].
pub(crate) const REPAIR_SETTINGS: Table<(), RepairSettings> = Table::new("repair settings", 15, 1);
/// Decisions about nodes other than their failure.
pub(crate) const STANDINGS: Table<NodeId, Standing> = Table::new("standings", 16, 1);

/// Reported journal positions of nodes.
pub(crate) const PROGRESS: Table<NodeId, Progress> = Table::new("progress", 31, 1);

/// The keys of tickets, oldest first; at most two.
pub(crate) const TICKET_KEYS: Table<(), Vec<TicketKey>> = Table::new("ticket keys", 44, 1);

/// The key that ties puts to the clients that have begun them.
pub(crate) const PUT_KEY: Table<(), Secret> = Table::new("put key", 45, 1);

/// The longest lease in milliseconds that a node may have been granted.
pub(crate) const GRANTED_LEASE: Table<(), u64> = Table::new("granted lease", 46, 1);

/// Numbers of the coordinator's starts of which a node knew more than the metadata, which were an old copy.
pub(crate) const CONTRADICTED: Table<u64, ()> = Table::new("contradicted starts", 47, 1);

/// Files without a name that clients may have open.
pub(crate) const ORPHANS: Table<PutId, ()> = Table::new("orphans", 59, 1);

/// Advisory locks by file and session; no row is empty.
pub(crate) const LOCKS: Table<(PutId, ClientSessionId), Vec<HeldLock>> = Table::new("locks", 48, 1);

/// The files in which a session has locks.
pub(crate) const LOCKED_FILES: Table<(ClientSessionId, PutId), ()> =
    Table::new("locked files", 49, 1);

/// Clients' sessions, each with the number of its locks.
pub(crate) const CLIENT_SESSIONS: Table<ClientSessionId, u64> =
    Table::new("client sessions", 50, 1);

/// The coordinator's last starts by their numbers.
pub(crate) const STARTS: Table<u64, StartRecord> = Table::new("starts", 30, 2);

/// Counters. A counter without a row is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counter {
    /// The id of the next new node.
    NextNode = 0,
    /// The id of the next pool.
    NextPool = 1,
    /// Ids of puts that were leased: all below this.
    LeasedPuts = 2,
    /// Ids of stripes that were leased.
    LeasedStripes = 3,
    /// Rows of [`STRIPES`].
    StripeCount = 4,
    /// The number of times the cluster has been opened.
    Incarnation = 5,
    /// Total run time of coordinators in milliseconds, as last noted.
    LifetimeMs = 6,
    /// Transactions that have changed the metadata.
    Changes = 7,
    /// Ids of directories that were leased. The root has the first.
    LeasedDirectories = 8,
    /// The number of the next session of a client.
    NextClientSession = 9,
    /// Locks of all sessions.
    LockCount = 10,
    /// The number above each stripe id that was garbage and reclaimed.
    ReclaimedStripes = 11,
    /// Rows of [`ORPHANS`].
    OrphanCount = 12,
}

impl Counter {
    const ALL: [Self; 13] = [
        Self::NextNode,
        Self::NextPool,
        Self::LeasedPuts,
        Self::LeasedStripes,
        Self::StripeCount,
        Self::Incarnation,
        Self::LifetimeMs,
        Self::Changes,
        Self::LeasedDirectories,
        Self::NextClientSession,
        Self::LockCount,
        Self::ReclaimedStripes,
        Self::OrphanCount,
    ];

    /// Its value.
    pub(crate) fn value(self, txn: &dyn ReadTxn) -> Result<u64, MetaError> {
        Ok(COUNTERS.get(txn, &self)?.unwrap_or(0))
    }

    /// Takes `count` ids below `limit`, and returns the first.
    pub(crate) fn take(
        self,
        txn: &mut dyn WriteTxn,
        count: u64,
        limit: u64,
        kind: &'static str,
    ) -> Result<u64, MetaError> {
        let first = self.value(txn)?;
        let next = first.checked_add(count).filter(|&next| next <= limit);
        let next = next.ok_or(MetaError::IdsExhausted(kind))?;
        COUNTERS.put(txn, &self, &next)?;
        Ok(first)
    }

    /// Adds `more`, and returns the new value.
    pub(crate) fn raise(self, txn: &mut dyn WriteTxn, more: u64) -> Result<u64, MetaError> {
        let value = self.value(txn)?.checked_add(more);
        self.set(txn, value)
    }

    /// Subtracts `fewer`, and returns the new value.
    pub(crate) fn lower(self, txn: &mut dyn WriteTxn, fewer: u64) -> Result<u64, MetaError> {
        let value = self.value(txn)?.checked_sub(fewer);
        self.set(txn, value)
    }

    /// Raises the counter to `value`, unless it is higher. Returns its value.
    pub(crate) fn reach(self, txn: &mut dyn WriteTxn, value: u64) -> Result<u64, MetaError> {
        let present = self.value(txn)?;
        if present < value {
            return self.set(txn, Some(value));
        }
        Ok(present)
    }

    fn set(self, txn: &mut dyn WriteTxn, value: Option<u64>) -> Result<u64, MetaError> {
        let value = value
            .ok_or_else(|| COUNTERS.contradiction(&self, "the count does not match the rows"))?;
        COUNTERS.put(txn, &self, &value)?;
        Ok(value)
    }
}

impl Key for Counter {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [byte] = bytes else {
            return None;
        };
        Self::ALL.get(usize::from(*byte)).copied()
    }
}
