//! The purposes of transfers.

use serde::{Deserialize, Serialize};

/// The purpose of a transfer; nodes count payload bytes by rack pair and purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// Deltas of updates.
    Update,
    /// Bytes to rebuild lost chunks.
    Repair,
    /// Bytes of new stripes.
    Encode,
    /// Bytes that a client reads, on their whole way to it.
    Client,
    /// Copies of new bytes, and old bytes, that wait for a commit (CAU's interim replicas, PARIX's data).
    Replica,
    /// Deltas that bring parity up to date at a commit.
    Commit,
    /// Chunks that data grouping moves between racks.
    Grouping,
}

impl Purpose {
    /// All purposes, in the order of their display.
    pub const ALL: [Self; 7] = [
        Self::Update,
        Self::Repair,
        Self::Encode,
        Self::Client,
        Self::Replica,
        Self::Commit,
        Self::Grouping,
    ];

    /// The purpose's name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Repair => "repair",
            Self::Encode => "encode",
            Self::Client => "client",
            Self::Replica => "replica",
            Self::Commit => "commit",
            Self::Grouping => "grouping",
        }
    }
}
