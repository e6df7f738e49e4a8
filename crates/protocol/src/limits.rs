//! How much a node keeps at most.

/// What a node keeps at most. Beyond it a node forgets what nobody loses by it, or refuses work until there is room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Stripes that a primary remembers being asked about. Above that it forgets those on which nobody works and whose
    /// term goes on or never began.
    pub primary_stripe_count: usize,
    /// New bytes that clients may have staged at one time. More are refused until updates have taken theirs.
    pub staged_bytes: u64,
    /// Those of one client.
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
