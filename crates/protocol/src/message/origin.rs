//! Which coordinator a message comes from, and how new its metadata is.

use gabion_layout::Start;
use serde::{Deserialize, Serialize};

/// Which metadata the coordinator decides by. A node remembers the newest, so that a copy of an earlier time
/// gives itself away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The coordinator's start.
    pub start: Start,
    /// How many changes its metadata has made, all of them durable.
    pub change_count: u64,
}
