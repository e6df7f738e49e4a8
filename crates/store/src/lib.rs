//! A node's durable state: chunks, the records of updates that the chunks do not include yet, and
//! the node's promises about stripes.
//!
//! This crate is the durable half of a participant in the update protocol, for data nodes (new
//! bytes, kept apart until they are settled) and parity nodes (parity deltas) alike. Each chunk has
//! a [`Keeping`](gabion_layout::Keeping), which places its records: in the node-wide journal, or in
//! space reserved behind the chunk, after "Parity Logging with Reserved Space" (`CodFS`, FAST '14).
//!
//! It makes no decisions: the protocol above decides which update stands, the planners where a
//! chunk is placed. It has no threads, clocks or sockets, and runs on any [`Disk`]: a directory
//! ([`RealDisk`]), an array of SSDs ([`FlashDisk`]), or memory that crashes on request
//! ([`SimDisk`]).
//!
//! Five rooms keep its state, each with its own fields:
//!
//! - `disk`: the store's interface to a disk, and its implementations;
//! - `journal`: segments of frames, checkpoints, group commit;
//! - `chunk`: files of chunks, their headers and checksums, reading, merging, removing;
//! - `reserve`: space behind a chunk that holds its records;
//! - `records`: records in the journal, runs, pins, and promises about stripes.
//!
//! The index (`index`) has an entry for each chunk, made of each room's state of it; `state` is
//! everything under the store's lock. A room's fields are private to its files: all others call its
//! methods. Types stand below the state and operations above it, so no file imports itself through
//! others.
//!
//! `docs/format.md` has the layout of every file and the effect of a crash on each.
//!
//! ```
//! use gabion_layout::{
//!     ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Keeping, RunId, Sequence, StripeId,
//! };
//! use gabion_store::{ChunkSpec, Cut, Options, Piece, Record, RecordKind, SimDisk, Store, UpdateStamp};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), gabion_store::StoreError> {
//! let (store, _) = Store::open(Arc::new(SimDisk::new(1)), Options::default())?;
//! let chunk = ChunkId { stripe: StripeId(7), index: ChunkIndex(0) };
//! let keeping = Keeping::InPlace;
//! let spec = ChunkSpec { generation: Generation(1), chunk_bytes: 8, base: Sequence(0), keeping };
//! let mut writer = store.create(chunk, spec)?;
//! writer.write_at(0, b"old text")?;
//! writer.finish()?;
//!
//! let lsn = store.append(&Record {
//!     chunk,
//!     generation: Generation(1),
//!     stamp: UpdateStamp { epoch: Epoch(1), sequence: Sequence(1) },
//!     runs: vec![RunId(5)],
//!     participants: vec![ChunkIndex(0), ChunkIndex(2)],
//!     kind: RecordKind::NewBytes,
//!     pieces: vec![Piece { data: ChunkIndex(0), offset: 0, bytes: b"new" }],
//! })?;
//! store.sync(lsn)?;
//!
//! let mut bytes = Vec::new();
//! let all = ByteRange::new(0, 8);
//! store.read(chunk, all, Cut::Exactly(Sequence(0)), &mut bytes)?;
//! assert_eq!(bytes, b"old text");
//! store.read(chunk, all, Cut::Committed { at_least: Sequence(1) }, &mut bytes)?;
//! assert_eq!(bytes, b"new text");
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod checksum;
mod chunk;
mod codec;
mod counts;
mod disk;
mod error;
mod format;
mod identity;
mod index;
mod journal;
mod options;
mod paths;
mod records;
mod recovery;
mod reserve;
mod state;
mod store;
mod sync_lock;
mod usage;

pub use chunk::apply::ApplySummary;
pub use chunk::fragments::Fragments;
pub use chunk::writer::ChunkWriter;
pub use counts::StoreCounts;
pub use disk::flash::{FlashDisk, FlashFile};
pub use disk::real::{RealDisk, free_bytes};
pub use disk::sim::{DiskCounts, SimDisk, SimFile};
pub use disk::{Disk, DiskFile, PhysicalExtent, SECTOR_BYTES};
pub use error::StoreError;
pub use identity::Identity;
pub use journal::scrub::JournalDamage;
pub use options::Options;
pub use paths::chunk_path;
pub use records::appended::Recalled;
pub use records::inventory::{Decision, HeldPage, HeldStripe};
pub use records::lsn::Lsn;
pub use records::record::{
    AppendedPiece, AppendedState, AppendedSummary, ChunkInfo, ChunkSpec, Cut, Damage, Piece,
    RECORD_RUN_COUNT_MAX, Record, RecordKind, RecordSummary, RunMemory, StripeState, UpdateStamp,
};
pub use recovery::RecoveryReport;
pub use reserve::resize::ReserveStats;
pub use store::Store;
pub use usage::chunk_disk_bytes;
