//! Changes of names and inodes, which clients ask for to forget what they have cached.

use gabion_meta::Changed;
use serde::{Deserialize, Serialize};

/// Time that a request for changes waits at the coordinator if there are none, in milliseconds.
pub const CHANGES_WAIT_MS: u64 = 5_000;

/// A place in the order of a coordinator's changes. The default is none of any coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChangePlace {
    /// The run of the coordinator, which it has drawn at random.
    pub run: u64,
    /// The number of changes up to this place.
    pub count: u64,
}

/// A change that is durable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// The number that the client has drawn for its request, if the request has one.
    pub number: Option<u64>,
    /// The name or inode that has changed.
    pub changed: Changed,
}

/// The changes behind a place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChangePage {
    /// The place behind them.
    pub place: ChangePlace,
    /// The changes, oldest first; none if the coordinator does not know all changes behind the place that was asked
    /// for: anything may have changed.
    pub changes: Option<Vec<Change>>,
}
