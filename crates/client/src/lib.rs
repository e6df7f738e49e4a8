//! The client library: put, get, update and degraded read. The command line and all gateways access
//! the cluster through it.
//!
//! A [`Client`] asks the coordinator for names and layouts, and the nodes for bytes. It plans
//! encodings and reads itself and takes part in them as [`gabion_layout::NodeId::CLIENT`]; for
//! updates it stages the bytes at the data nodes and leaves the rest to each stripe's primary.
//! [`File`] keeps a file's layout, so that many small reads and writes need no look-up each.
//!
//! Files have holes, grow and shrink: `append.rs`, `resize.rs` and `allocate.rs` have the operations, and `rewrite.rs`
//! plans which segments they store anew.
//!
//! A [`CachedFile`] reads and writes through a cache of segments in memory, with weaker guarantees:
//! its writes are durable when it is flushed or closed.
//!
//! Temporary problems (a node that is down, a primary that moves, an update that is not settled)
//! are retried with growing pauses until a deadline; see [`ClientOptions`]. No call starts a
//! run-time: poll them on tokio, of any flavour.
//!
//! # What readers may rely on
//! Bytes of one stripe read with one call are as of one moment, not before the call, with every
//! update acknowledged by then and each update atomic. Stripes have separate moments: a read across
//! a border of stripes is one for each. A write is atomic whatever it spans; see [`File::write`].

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod allocate;
mod append;
#[cfg(test)]
mod asking_tests;
mod attempts;
mod attributes;
mod byte_budget;
mod cache;
mod cached_cluster;
mod cached_file;
mod changes;
mod chosen_cut;
mod client;
mod cut;
mod elsewhere;
mod encoder;
mod error;
mod exclusive;
mod extent;
mod file;
mod health;
mod hedge;
mod inline;
mod inline_facts;
mod inspect;
mod keeper;
mod layout;
mod locks;
mod losses;
mod memory;
mod moment;
mod names;
mod open_runs;
mod own_changes;
mod place;
mod primary;
mod progress;
mod put;
mod read;
mod reading;
mod replace;
mod resize;
mod retry;
mod rewrite;
mod runs;
#[cfg(test)]
mod scripted_ports;
mod session;
mod sessions;
mod space;
mod storing_all;
mod task;
mod timed_repair;
mod windows;
mod write;

pub use attributes::Presence;
pub use cache::CacheCounts;
pub use cached_file::CachedFile;
pub use changes::{Follower, OthersChanges};
pub use client::{Client, ClientOptions};
pub use error::{ClientError, ErrorKind};
pub use exclusive::TakeOver;
pub use file::File;
pub use gabion_meta::Existing;
pub use gabion_protocol::message::{Cause, Denial, ScrubReport};
pub use inspect::{ClusterMeters, FileSpace, FileStat, Planned};
pub use locks::{LockHandle, LockOutcome, LockPatience};
pub use progress::Progress;
pub use put::{NewFile, PutSummary};
pub use read::ReadPart;
pub use resize::StoredWindow;
pub use space::{DataSpace, reserved_share};
