//! The records of replacements, as `records.rs` has the others.

use crate::records::{FencingToken, PutId};
use gabion_layout::{Epoch, StripeId};
use serde::{Deserialize, Serialize};

/// A stripe that a replacement removes from its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Displaced {
    /// The stripe.
    pub stripe: StripeId,
    /// The lease term under which the coordinator prevents other updates.
    pub epoch: Epoch,
}

/// The effect of a replacement on its file's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SizeChange {
    /// The file has at least this many bytes afterwards.
    AtLeast(u64),
    /// The file has exactly this many bytes afterwards. No extent may reach past them but new ones, whose
    /// bytes there are zero.
    Exactly(u64),
}

impl SizeChange {
    /// The size afterwards of a file that has `present` bytes.
    pub fn applied_to(self, present: u64) -> u64 {
        match self {
            Self::AtLeast(size) => present.max(size),
            Self::Exactly(size) => size,
        }
    }
}

/// The change of a replacement in its file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rewrite {
    /// The stripes that leave the file, with the offsets of their extents, in the file's order.
    pub displaced: Vec<(u64, Displaced)>,
    /// The offset of each new stripe's extent, in the file's order.
    pub offsets: Vec<u64>,
    /// The offsets of the displaced stripes that other files share. They get a copy each, so the replacement has as
    /// many more stripes.
    pub copied: Vec<u64>,
    /// The effect on the file's size.
    pub size: SizeChange,
    /// The version of the file's inline bytes that the new stripes have, if the file has some.
    pub inline: Option<u64>,
    /// The file's token as the writer knows it.
    pub token: FencingToken,
}

/// Makes a put a replacement: its stripes go into an existing file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplacementRecord {
    /// The put that made the file.
    pub file: PutId,
    /// The change, in one transaction.
    pub rewrite: Rewrite,
}
