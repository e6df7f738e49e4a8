//! A node's membership: it renews its lease, ends its membership when the coordinator or the disk demands it, and
//! joins again.

use super::Node;
use crate::event::Event;
use crate::joining::{JoinError, MEMBERSHIP_DEADLINE_MS, ask_to_join};
use crate::locks::lock;
use crate::message::{EndCause, NodeHealth, NodeStatus, Standing, ask};
use crate::ports::Ask as _;
use futures::{FutureExt, select_biased};
use gabion_planner::placement::Space;
use gabion_store::Store;
use std::sync::atomic::Ordering;

impl Node {
    /// Waits until the next heartbeat is due, or until the coordinator asks for it.
    pub(super) async fn until_heartbeat(&self) {
        let period_ms = self.heartbeat_ms.load(Ordering::Relaxed);
        let is_due = self.participant.ports.sleep_ms(period_ms);
        select_biased! {
            () = self.renewal.woken().fuse() => {}
            () = is_due.fuse() => {}
        }
    }

    /// Sends the next heartbeat at once.
    pub(super) fn hasten_heartbeat(&self) {
        self.renewal.wake();
    }

    /// Renews the lease, or joins anew if the membership has ended.
    pub(super) async fn heartbeat(&self) {
        let ports = &self.participant.ports;
        if ports.disk_hangs() {
            if !self.must_join.load(Ordering::Acquire) {
                ports.note_event(&Event::DiskHangs(self.id));
                self.serve_nothing_more();
                self.tell_end(EndCause::DiskHangs).await;
            }
            return;
        }
        if self.must_join.load(Ordering::Acquire) {
            return self.join_anew().await;
        }
        let sent_ms = ports.now_ms();
        let request = ask::Heartbeat {
            node: self.id,
            incarnation: self.options.start.number,
            heard: self.participant.heard(),
            position: self.participant.store.position(),
            health: self.take_health().await,
        };
        match ports.ask_coordinator(request, MEMBERSHIP_DEADLINE_MS).await {
            Ok(Standing::Alive {
                coordinator,
                lease_ms,
                nodes,
                keys,
            }) => {
                let is_followed = match coordinator {
                    Some(coordinator) => self.participant.follow(coordinator).await.is_ok(),
                    None => true,
                };
                if is_followed {
                    lock(&self.keyring).learn(keys, sent_ms);
                    // The coordinator may have been restarted with shorter leases.
                    self.heartbeat_ms
                        .fetch_min((lease_ms / 3).max(1), Ordering::Relaxed);
                    self.renew(sent_ms.saturating_add(lease_ms), nodes);
                }
            }
            Ok(Standing::Rejoin) => {
                self.serve_nothing_more();
                // At once: parts that hang in a disk hold up a new membership only.
                self.tell_end(EndCause::Told).await;
                self.join_anew().await;
            }
            Ok(Standing::Leave) => {
                self.lease_until_ms.store(0, Ordering::Release);
                self.has_left.store(true, Ordering::Release);
            }
            // The lease runs on, and expires if this lasts.
            Err(_) => {}
        }
    }

    /// Refuses all requests until the node has joined again.
    fn serve_nothing_more(&self) {
        self.must_join.store(true, Ordering::Release);
        self.lease_until_ms.store(0, Ordering::Release);
        lock(&self.staging).withdraw_all(self.participant.ports.now_ms());
        self.primaries.end_membership();
    }

    /// Tells the coordinator that the node no longer serves under this membership: others need not wait for
    /// its lease to expire. If the message is lost, they do.
    async fn tell_end(&self, cause: EndCause) {
        let session = *lock(&self.session);
        let request = ask::EndMembership { session, cause };
        let ports = &self.participant.ports;
        let told = ports.ask_coordinator(request, MEMBERSHIP_DEADLINE_MS);
        let _ = told.await;
    }

    async fn take_health(&self) -> NodeHealth {
        let ports = &self.participant.ports;
        let free_bytes = self.participant.with_store(Store::free_bytes).await;
        NodeHealth {
            space: free_bytes.ok().map(|free_bytes| Space {
                capacity_bytes: self.options.capacity_bytes,
                free_bytes,
            }),
            links: ports.take_link_rates(),
            array: ports.array(),
            usage: lock(&self.usage).clone(),
            served: *lock(&self.served),
            ..std::mem::take(&mut *lock(&self.health))
        }
    }

    /// Joins again, and does not serve before it has succeeded. The coordinator may count the node as a
    /// member although its answer, with decisions made during the join, was lost. So the node sends no
    /// heartbeat until there is an answer.
    async fn join_anew(&self) {
        match ask_to_join(&self.participant, &self.options).await {
            Ok(membership) => {
                *lock(&self.session) = membership.session;
                *lock(&self.keyring) = membership.keyring;
                self.heartbeat_ms
                    .store(membership.heartbeat_ms, Ordering::Relaxed);
                self.renew(membership.lease_until_ms, membership.nodes);
                self.must_join.store(false, Ordering::Release);
                lock(&self.join_refused).take();
            }
            Err(refused @ (JoinError::Refused(_) | JoinError::Superseded(_))) => {
                let why = refused.to_string();
                let last = lock(&self.join_refused).replace(why.clone());
                if last.as_ref() != Some(&why) {
                    let refused = Event::JoinRefused(self.id, why);
                    self.participant.ports.note_event(&refused);
                }
            }
            // It tries again.
            Err(_) => {}
        }
    }

    fn renew(&self, lease_until_ms: u64, nodes: Vec<NodeStatus>) {
        self.participant.ports.learn_nodes(&nodes);
        *lock(&self.nodes) = nodes;
        self.lease_until_ms.store(lease_until_ms, Ordering::Release);
    }
}
