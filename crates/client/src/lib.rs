//! The client library: put, get, update and degraded read. The command line and all gateways use
//! the cluster through it.
//!
//! A [`Client`] talks to the coordinator for names and layouts, and to the nodes for bytes: it
//! plans encodings and reads itself and takes part in them as [`gabion_layout::NodeId::CLIENT`];
//! updates it stages at the data nodes and leaves to each stripe's primary. [`File`] keeps a file's
//! layout, so that many small reads and writes cost no look-up each.
//!
//! A [`CachedFile`] reads and writes through a cache of segments in memory, and promises less: its
//! writes are durable when it is flushed or closed.
//!
//! Everything that may pass with time (a node that is down, a primary that moves, an update that
//! is not settled) is tried again with growing pauses until a deadline; see [`ClientOptions`]. No
//! call starts a run-time: all of them want to be polled on tokio, of any flavour.
//!
//! # What readers may rely on
//! What is read of one stripe with one call is as of one moment that is not before the call, with
//! every acknowledged update up to then and none of an update's bytes without the others. Stripes
//! have moments of their own: a read across a border of stripes is one for each. A write is atomic
//! whatever it spans; see [`File::write`].

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod attempts;
mod cache;
mod cached_file;
mod client;
mod cut;
mod elsewhere;
mod error;
mod extent;
mod file;
mod health;
mod hedge;
mod inspect;
mod losses;
mod memory;
mod primary;
mod put;
mod read;
mod rehearsal;
mod remedy;
mod replace;
mod runs;
mod task;
mod write;

pub use cache::CacheCounts;
pub use cached_file::CachedFile;
pub use client::{Client, ClientOptions};
pub use error::{ClientError, ErrorKind};
pub use file::File;
pub use inspect::{ClusterMeters, FileStat, Planned, ScrubReport};
pub use put::PutSummary;

/// Is told how far a long operation is.
pub trait Progress: Send + Sync {
    /// `done_bytes` of `total_bytes` are stored durably, or handed to the reader.
    fn advanced(&self, done_bytes: u64, total_bytes: u64);
}

/// Tells nobody.
impl Progress for () {
    fn advanced(&self, _: u64, _: u64) {}
}
