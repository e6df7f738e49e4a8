//! The coordinator that a message comes from, and the age of its metadata.

use gabion_layout::Start;
use serde::{Deserialize, Serialize};

/// The identity of the coordinator's metadata. A node remembers the newest one, so that an old copy is
/// detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The coordinator's start.
    pub start: Start,
    /// The number of changes to its metadata, all of them durable.
    pub change_count: u64,
}
