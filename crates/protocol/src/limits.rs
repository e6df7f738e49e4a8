//! Memory limits of a node.

/// Memory limits of a node. Beyond them the node forgets state that can be rebuilt, or refuses work until
/// there is room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Stripes in a primary's memory. Beyond this it forgets idle stripes whose term goes on or never
    /// began.
    pub primary_stripe_count: usize,
    /// New bytes that clients may have staged at one time. More are refused until updates have consumed
    /// theirs.
    pub staged_bytes: u64,
    /// The same for one client.
    pub client_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            primary_stripe_count: 16_384,
            staged_bytes: 256 << 20,
            client_bytes: 128 << 20,
        }
    }
}
