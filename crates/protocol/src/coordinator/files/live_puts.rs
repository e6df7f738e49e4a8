//! Puts with the time of their client's last message.

use crate::coordinator::leases::occupied::Occupation;

/// A replacement blocks other writers, so its client must report this many times as often as the
/// client of a put.
const REPLACEMENT_HASTE: u64 = 6;

/// A put with the time of its client's last message.
#[derive(Debug)]
pub(super) struct LivePut {
    pub(super) heard_ms: u64,
    /// The stripes that it is to replace, if that was begun in this run of the coordinator. Those of
    /// an earlier run need no guard: a node that takes one of their leases ends the replacement.
    pub(super) occupation: Option<Occupation>,
}

impl LivePut {
    /// Longest silence of its client.
    pub(super) fn timeout_ms(&self, put_timeout_ms: u64) -> u64 {
        match self.occupation {
            Some(_) => put_timeout_ms / REPLACEMENT_HASTE,
            None => put_timeout_ms,
        }
    }
}
