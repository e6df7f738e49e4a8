//! The coordinator's figures for its process's metrics: the cluster's state and space, counted from the records, and
//! the ages of its queues.

use crate::coordinator::Coordinator;
use crate::coordinator::garbage::Garbage;
use crate::message::{ClusterStatus, ClusterUsage};
use gabion_meta::{KeyValue, Meta, MetaError};
use std::sync::Arc;

/// The state of the cluster at one instant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CoordinatorFigures {
    /// Redundancy and repair.
    pub status: ClusterStatus,
    /// Space.
    pub usage: ClusterUsage,
    /// Time that the stripe that has waited longest for the end of its repair has waited, in milliseconds; none when no
    /// stripe waits.
    pub repair_wait_ms: Option<u64>,
    /// Stripes whose chunks are still to be removed from nodes.
    pub garbage_stripe_count: u64,
    /// For how long each pass over all garbage has left some, in milliseconds; none when the last one left nothing.
    pub garbage_wait_ms: Option<u64>,
    /// Clients that wait for changes of names and inodes.
    pub follower_count: u64,
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Counts the cluster's state and space. It reads all stripes and files, so it must not be called often.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub async fn figures(self: &Arc<Self>) -> Result<CoordinatorFigures, MetaError> {
        let this = Arc::clone(self);
        let count = move |meta: &Meta<K>| {
            Ok(CoordinatorFigures {
                status: this.count_stripes(meta)?,
                usage: this.count_usage(meta)?,
                repair_wait_ms: this.shared.backlog.longest_wait_ms(),
                garbage_stripe_count: Garbage::stripe_count(meta)?,
                garbage_wait_ms: this.garbage.left_for_ms(),
                follower_count: this.shared.core.changes.asking_count(),
            })
        };
        self.shared.core.scan_meta(count).await
    }
}
