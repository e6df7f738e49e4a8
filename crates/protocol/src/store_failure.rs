//! A node's reaction to a failing disk: it reports damaged chunks while its store works, and leaves the
//! cluster when the store has failed. If the disk does not answer, it finds out whether the disk hangs.
//!
//! A store that has failed to write or sync guarantees nothing any more, so the node refuses every request,
//! tells the coordinator, and its process ends. The coordinator declares it failed at once, as it would
//! after the lease had expired: after the first refusal the node does not serve.

use crate::joining::MEMBERSHIP_DEADLINE_MS;
use crate::message::{Damage, StoreFailure, ask};
use crate::node::Node;
use crate::ports::Ask as _;
use futures::FutureExt;
use futures::channel::oneshot;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Time between two tries of a disk on which work is delayed.
const TRY_EVERY_MS: u64 = 1_000;

impl Node {
    /// Reports damage to the coordinator; a lost report is repeated by the next read or scrub. The store
    /// first proves that it still takes writes: a dead disk refuses reads too, and then the node has
    /// failed, and not these chunks.
    pub(crate) fn report(self: &Arc<Self>, damage: Vec<Damage>) {
        let node = Arc::clone(self);
        let report = async move {
            // A full disk cannot prove it, and is no damage.
            let _ = node
                .participant
                .with_store(gabion_store::Store::prove_writable)
                .await;
            if node.leave_if_failed() {
                return;
            }
            let request = ask::ReportDamage {
                node: node.id,
                damage,
            };
            let told = node
                .participant
                .ports
                .ask_coordinator(request, MEMBERSHIP_DEADLINE_MS);
            // If the report was lost, the next read or scrub repeats it.
            let _ = told.await;
        };
        self.participant.ports.spawn(report.boxed());
    }

    /// Tries the disk with a short write whenever work on it is delayed: a disk that hangs may still read.
    pub(crate) async fn try_disk(self: Arc<Self>) {
        let ports = &self.participant.ports;
        loop {
            ports.disk_delay().await;
            let store = Arc::clone(&self.participant.store);
            let (sender, ended) = oneshot::channel::<()>();
            ports.try_disk(Box::new(move || {
                // A failure latches the store. Without space the disk has answered too.
                let _ = store.try_disk();
                drop(sender);
            }));
            let _ = ended.await;
            ports.sleep_ms(TRY_EVERY_MS).await;
        }
    }

    /// Ends the membership if the store has failed, once, beside other work. Returns whether it has.
    pub(crate) fn leave_if_failed(self: &Arc<Self>) -> bool {
        let Some(cause) = self.participant.store.failure() else {
            return false;
        };
        if self.has_announced.swap(true, Ordering::AcqRel) {
            return true;
        }
        let node = Arc::clone(self);
        let announced = async move { node.announce_failure(cause).await };
        self.participant.ports.spawn(announced.boxed());
        true
    }

    /// Tells the coordinator that the store has failed. If it cannot be reached, the lease expires.
    pub(crate) async fn announce_failure(&self, reason: String) {
        let request = StoreFailure {
            node: self.id,
            incarnation: self.options.start.number,
            reason,
        };
        let ports = &self.participant.ports;
        let told = ports.ask_coordinator(request, MEMBERSHIP_DEADLINE_MS);
        let _ = told.await;
    }
}
