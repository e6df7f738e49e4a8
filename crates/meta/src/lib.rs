//! The metadata state machine over an ordered key-value trait: nodes, pools, files, stripes and
//! leases, each operation one transaction, and the membership of nodes.
//!
//! It takes decisions that must be durable before they take effect. It has no clock (every `now_ms`
//! is an argument, from a clock that does not jump), no sockets and no threads; it does not place
//! chunks, and does not talk to nodes. Operations block on the disk: a server with an event loop
//! calls them from a thread that may wait. docs/metadata.md describes every table and the effects
//! of a crash.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod attributes;
mod backup;
mod changed;
mod changes_done;
mod check;
mod conversions;
mod copy;
mod directories;
mod directory_quotas;
mod directory_rows;
mod directory_uses;
mod displaced;
mod dropped;
mod entering;
mod error;
mod exchanges;
mod exclusions;
mod exclusive;
mod extents;
mod files;
mod former_holders;
mod generations;
mod group_commit;
mod growth;
mod hard_links;
mod ids;
mod inline;
mod inline_rows;
mod inodes;
mod inventory;
mod kv;
mod layers;
mod leases;
mod links;
mod lock_ranges;
mod lock_rows;
mod locks;
mod map_records;
mod maps;
mod membership;
mod memory_store;
mod meta;
mod metadata_log;
mod moves;
mod names;
mod node_rows;
mod nodes;
mod open_files;
mod orphans;
mod overlay;
mod paths;
mod pending;
mod phases;
mod placed_anew;
mod pool_spec;
mod pools;
mod predecessors;
mod progress;
mod puts;
mod quota_error;
mod quota_records;
mod quotas;
mod records;
mod redb_store;
mod removals;
mod replacement_records;
mod replacements;
mod requested_forms;
mod schema;
mod snapshots;
mod standings;
mod starts;
mod stripe_rows;
mod stripes;
mod table;
mod ticket_keys;
mod tokens;
mod tree;
mod verdicts;
mod wall_clock;
mod written;

pub use attributes::{AttributeChange, Attributes, NewAttributes, WallTime};
pub use backup::{BackedUp, BackupError, back_up, back_up_with_new_base};
pub use changed::{Changed, Observer};
pub use check::check_rows;
pub use copy::{Copied, copy_rows};
pub use directory_quotas::QUOTA_DIRECTORIES_MAX;
pub use directory_uses::QUOTA_ENTRIES_MAX;
pub use error::{MetaError, SnapshotError};
pub use exchanges::SeenName;
pub use files::{FilePart, Stripes};
pub use gabion_layout::ClusterId;
pub use inline::InlineWrite;
pub use inodes::{DirectoryEntry, InodeStatus, Kind};
pub use inventory::{FactsPage, StripeFacts};
pub use kv::{KeyValue, ReadTxn, Row, WriteTxn};
pub use lock_ranges::{HeldLock, LockChange, LockKind, LockMode, LockOwner, LockRange};
pub use locks::{FILE_LOCKS_MAX, LOCKS_MAX, LockHolder, Locking, SESSION_LOCKS_MAX};
pub use map_records::Extent;
pub use membership::{Heartbeat, Membership, NodeState, Timing, Transition};
pub use memory_store::MemoryStore;
pub use meta::Meta;
pub use metadata_log::{LogError, is_log_file};
pub use names::check_form;
pub use open_files::OpenFiles;
pub use orphans::ORPHANS_MAX;
pub use paths::{DirectoryId, RelativePath};
pub use pool_spec::{INLINE_BYTES_MAX, INLINE_BYTES_USUAL, PoolSpec};
pub use puts::{PENDING_STRIPES_MAX, Put};
pub use quota_error::QuotaError;
pub use quota_records::{DirectoryUse, Limit, PoolUse, Quota, QuotaChange, QuotaStatus};
pub use records::{
    ClientSessionId, Departure, DirectoryRecord, Exclusive, Existing, FILE_BYTES_MAX,
    FILE_NAME_BYTES, FILE_STRIPES_MAX, FencingToken, FileRecord, Holder, Inline, Inode, Lease,
    Listing, MapId, NodeRecord, Placement, PoolRecord, Progress, PutId, PutRecord, PutTarget,
    RepairSettings, RequestedForm, Secret, SessionId, Standing, StripeRun, StripeStatus, Symlink,
    TicketKey,
};
pub use redb_store::{RedbStore, Restored};
pub use replacement_records::{Displaced, ReplacementRecord, Rewrite, SizeChange};
pub use schema::FORMAT;
pub use snapshots::{TREE_BYTES_MAX, TREE_ENTRIES_MAX};
pub use starts::REMEMBERED_START_COUNT;
pub use verdicts::{Exclusion, Held, StoodUpdate, Verdict};
pub use wall_clock::WallClock;
