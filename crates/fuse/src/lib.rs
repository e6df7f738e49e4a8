//! A cluster's files as a mounted file system, by the kernel's FUSE protocol.
//!
//! [`Mount`] mounts a directory of the cluster's namespace and serves it until it is unmounted. `filesystem.rs` takes
//! the kernel's requests, `requests.rs` runs each as a task within limits; the operations are in `namespace.rs`
//! (names), `content.rs` (bytes), `locks.rs`, `opening.rs`, `directory.rs`, `attributes.rs`, `extended.rs` and
//! `space.rs`. A write that returned is durable, unless the mount has a cache (`write_back.rs`). docs/mount.md has the
//! semantics and limits.
//!
//! `fuser` brings the protocol and the mount; its ways to unmount have faults, so `mount_table.rs` does that.

mod attributes;
mod content;
mod directory;
mod errno;
mod extended;
mod filesystem;
mod following;
mod gateway;
mod handles;
mod listing;
mod lock_request;
mod locks;
mod mount;
mod mount_table;
mod namespace;
mod numbers;
mod open_files;
mod opening;
mod options;
mod pools;
mod requests;
mod served;
mod signals;
mod space;
mod times;
mod unstored;
mod write_back;

pub use mount::{Mount, MountError, MountSettings};
pub use mount_table::{UnmountError, unmount};
pub use options::{MountOptions, MountSource, OptionError, Programs};
