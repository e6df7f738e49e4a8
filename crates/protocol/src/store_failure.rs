//! What a node does about a disk that fails: it reports damage of chunks while its store works, and
//! leaves the cluster once it does not.
//!
//! A store that has failed to write or sync promises nothing any more, so the node refuses every
//! request, tells the coordinator, and its process ends. The coordinator declares it failed at once, as
//! it would after the lease had run out: from the first refusal on the node serves nothing.

use crate::joining::MEMBERSHIP_DEADLINE_MS;
use crate::message::{Damage, StoreFailure, ask};
use crate::node::Node;
use crate::ports::Ask as _;
use futures::FutureExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Node {
    /// Tells the coordinator of damage; a report that is lost is made again by the next read or
    /// scrub. The store shows first that it still takes writes: a dead disk refuses reads too, and
    /// then it is the node that has failed, and not these chunks.
    pub(crate) fn report(self: &Arc<Self>, damage: Vec<Damage>) {
        let node = Arc::clone(self);
        let report = async move {
            // A full disk shows nothing, and is none of it.
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
            // Whether it was heard, the next read or scrub finds out.
            let _ = told.await;
        };
        self.participant.ports.spawn(report.boxed());
    }

    /// Ends the membership beside whatever is going on if the store has failed, once. Whether it has.
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

    /// Tells the coordinator that the store has failed. If it cannot be reached, the lease runs out.
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
