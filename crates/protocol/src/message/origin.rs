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

impl Origin {
    /// Whether a node that knows this coordinator refuses another one: its start is older or differs from this one with
    /// the same number, or its metadata have fewer changes. Then it has an old copy of the metadata. Answers of one
    /// start may overtake each other.
    pub fn refuses(&self, other: &Self) -> bool {
        self.start != other.start
            && (self.start.number >= other.start.number || self.change_count > other.change_count)
    }
}
