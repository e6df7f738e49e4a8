//! A node's figures for its process's metrics.

use super::Node;
use crate::locks::lock;
use crate::message::{Meter, NodeUsage};
use gabion_planner::placement::Space;
use gabion_store::StoreCounts;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The state of a node at one instant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFigures {
    /// Milliseconds until its lease expires; 0 when it has expired.
    pub lease_ms: u64,
    /// Whether its store has failed.
    pub has_failed: bool,
    /// The space of its disk; none when the disk does not report it.
    pub space: Option<Space>,
    /// The space that its store takes; none before it is counted.
    pub usage: Option<NodeUsage>,
    /// Counters of its store.
    pub store: StoreCounts,
    /// Bytes of records in its journal that are not in their chunks yet; none while its disk hangs.
    pub pending_bytes: Option<u64>,
    /// For how long each round of upkeep has left such records, in milliseconds; none when the last one left none.
    pub pending_ms: Option<u64>,
    /// Bytes that clients have staged.
    pub staged_bytes: u64,
    /// Bytes of slices that wait for their parts.
    pub waiting_bytes: u64,
    /// The number of times each limit on these has refused some.
    pub limited: BTreeMap<&'static str, u64>,
    /// Stripes in its memory as a primary.
    pub led_stripe_count: u64,
    /// Bytes that nodes should have sent for the updates and commits that it has run as a primary.
    pub planned: Meter,
}

impl Node {
    /// Collects its figures. Waits for its disk, for some seconds if that hangs.
    pub async fn figures(&self) -> NodeFigures {
        let participant = &self.participant;
        let measured = participant.with_store(|store| {
            let free_bytes = store.free_bytes().ok();
            Ok((free_bytes, store.pending_bytes()))
        });
        // A disk that hangs hides these two, and nothing else.
        let (free_bytes, pending_bytes) = match measured.await {
            Ok((free_bytes, pending_bytes)) => (free_bytes, Some(pending_bytes)),
            Err(_) => (None, None),
        };
        let now_ms = participant.ports.now_ms();
        let (staged_bytes, waiting_bytes, limited) = lock(&self.staging).figures();
        let lease_until_ms = self.lease_until_ms.load(Ordering::Acquire);
        let pending_since_ms = *lock(&self.pending_since_ms);
        NodeFigures {
            lease_ms: lease_until_ms.saturating_sub(now_ms),
            has_failed: participant.store.failure().is_some(),
            space: free_bytes.map(|free_bytes| Space {
                capacity_bytes: self.options.capacity_bytes,
                free_bytes,
            }),
            usage: lock(&self.usage).clone(),
            store: participant.store.counts(),
            pending_bytes,
            pending_ms: pending_since_ms.map(|since_ms| now_ms.saturating_sub(since_ms)),
            staged_bytes,
            waiting_bytes,
            limited,
            led_stripe_count: self.primaries.stripe_count(),
            planned: self.primaries.planned(),
        }
    }
}
