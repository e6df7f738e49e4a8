//! The records of the maps of extents, as `records.rs` has the others.

use crate::records::{MapId, PutId};
use gabion_layout::StripeId;
use serde::{Deserialize, Serialize};

/// A map of extents above another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct MapRecord {
    /// The map below it. Its extents belong to this one too, where this one says nothing.
    pub(crate) below: MapId,
    /// The file whose own map it is; none for a map below others, and for a removed one.
    pub(crate) file: Option<PutId>,
}

/// Bytes of a file that one stripe holds, from the offset in the row's key on. Ranges without an
/// extent are holes: their bytes are zero. An extent begins where a segment begins, which is as long as a full stripe
/// of the pool, and is no longer than that. Its bytes past the file's size are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Extent {
    /// The stripe.
    pub stripe: StripeId,
    /// The data bytes that it can hold; those past the file's size are padding.
    pub length_bytes: u64,
}
