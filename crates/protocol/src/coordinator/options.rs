//! A coordinator's options at its start.

use crate::message::{CLIENT_SESSION_MS, PUT_LEASE_MS};
use gabion_meta::{PENDING_STRIPES_MAX, Timing};
use gabion_planner::repair::Scheme;

/// For how long tickets and their keys are good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TicketTimes {
    /// Period of new keys.
    pub rotate_ms: u64,
    /// The time from the drawing of a key to its first use, in which nodes learn it. A ticket is good for a period
    /// without this time.
    pub lead_ms: u64,
    /// For how much longer nodes without a lease accept tickets.
    pub grace_ms: u64,
}

impl TicketTimes {
    /// For how long a ticket is good.
    pub const fn lifetime_ms(&self) -> u64 {
        self.rotate_ms.saturating_sub(self.lead_ms)
    }
}

impl Default for TicketTimes {
    fn default() -> Self {
        Self {
            rotate_ms: 3_600_000,
            lead_ms: 60_000,
            grace_ms: 24 * 3_600_000,
        }
    }
}

/// A coordinator's options at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoordinatorOptions {
    /// Timeouts of silent nodes.
    pub timing: Timing,
    /// Period of nodes' heartbeats in milliseconds; a lease should have several.
    pub heartbeat_ms: u64,
    /// The repair scheme, until a user changes it.
    pub repair_scheme: Scheme,
    /// Stripes that are repaired at once; at least 1.
    pub repair_parallel: usize,
    /// Bytes of a repair's slices.
    pub slice_bytes: u64,
    /// Longest time that the repair of one chunk may take.
    pub repair_deadline_ms: u64,
    /// Longest time without progress at a node of a repair before the stalled node is left out.
    pub repair_stall_ms: u64,
    /// Wait after a failed repair or removal; it doubles with each further failure of a stripe.
    pub retry_ms: u64,
    /// Most stripes of the part of a file that one look-up returns, unless a single segment has more.
    pub window_stripe_count: u64,
    /// Most stripes that a put reserves at a time, unless a single segment has more; at most half of
    /// [`PENDING_STRIPES_MAX`].
    pub reserved_count: u64,
    /// Most stripes of a removed file that one transaction makes garbage; at least 1.
    pub discarded_count: usize,
    /// Longest silence of a put's client. By default that of a client's session.
    pub put_timeout_ms: u64,
    /// The same for a replacement.
    pub replacement_timeout_ms: u64,
    /// Period of the checks for blocks that are due to be encoded.
    pub lifecycle_scan_ms: u64,
    /// Period of making nodes' journal positions durable.
    pub progress_ms: u64,
    /// Segments that are encoded, or replicated again, at once; at least 1.
    pub convert_parallel: usize,
    /// Longest time that one node may take to verify all that it stores.
    pub scrub_deadline_ms: u64,
    /// For how long tickets and their keys are good.
    pub tickets: TicketTimes,
    /// Seed of the places of stripes, so that files of the same size get the same places in all pools of a scheme's
    /// placement; none for random places.
    pub placement_seed: Option<u64>,
}

/// Shortest time that a single link may be broken: some checks in a row.
const LINK_PATIENCE_MS_MIN: u64 = 2_000;

impl CoordinatorOptions {
    /// Returns the time that a single link between two nodes may be broken before one of them is evicted: half as long
    /// as a silent node takes to be declared failed, and at least two seconds. That is the default too.
    pub const fn link_patience_ms(&self) -> u64 {
        let half_ms = self.timing.lease_ms.midpoint(self.timing.margin_ms);
        if half_ms > LINK_PATIENCE_MS_MIN {
            half_ms
        } else {
            LINK_PATIENCE_MS_MIN
        }
    }
}

impl Default for CoordinatorOptions {
    fn default() -> Self {
        Self {
            timing: Timing {
                lease_ms: 3_000,
                margin_ms: 500,
                grace_ms: 600_000,
            },
            heartbeat_ms: 1_000,
            repair_scheme: Scheme::default(),
            repair_parallel: 4,
            slice_bytes: 32 << 10,
            repair_deadline_ms: 120_000,
            repair_stall_ms: 5_000,
            retry_ms: 500,
            window_stripe_count: 512,
            reserved_count: PENDING_STRIPES_MAX / 2,
            discarded_count: 512,
            put_timeout_ms: PUT_LEASE_MS,
            replacement_timeout_ms: CLIENT_SESSION_MS,
            lifecycle_scan_ms: 2_000,
            progress_ms: 10_000,
            convert_parallel: 2,
            scrub_deadline_ms: 3_600_000,
            tickets: TicketTimes::default(),
            placement_seed: None,
        }
    }
}
