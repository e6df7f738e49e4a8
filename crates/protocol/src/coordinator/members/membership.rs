//! Members: admission, leases, and declaring silent nodes failed.

use super::Members;
use crate::coordinator::core::{Answer, Rejection, lock};
use crate::event::Event;
use crate::message::{
    Applicant, Cause, Denial, EndCause, Liveness, NodeStatus, Origin, Standing, StoreFailure, ask,
};
use crate::ports::{Ask as _, REACH_DEADLINE_MS, reach};
use futures::FutureExt;
use gabion_layout::NodeId;
use gabion_meta::{KeyValue, Meta, MetaError, Progress};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Members<K> {
    /// Refuses a second process of a node whose first one still answers at its address, also when it has been
    /// declared failed: one of the two runs on a copy of the other's directory, and the first one may join again.
    pub(super) async fn refuse_copy(&self, applicant: &Applicant) -> Result<(), Denial> {
        let Some(first) = self.first_elsewhere(applicant) else {
            return Ok(());
        };
        if reach(&*self.core.ports, first.node).await.is_err() {
            return Ok(());
        }
        let NodeStatus { node, address, .. } = first;
        Err(Denial::new(
            Cause::InUse,
            format!(
                "{node} already runs at {address}; stop that process first, or stop this one if its data directory is \
                a copy"
            ),
        ))
    }

    /// The node of an applicant, if the process that joined as this node last has another address.
    fn first_elsewhere(&self, applicant: &Applicant) -> Option<NodeStatus> {
        let is_first = |status: &NodeStatus| {
            let is_elsewhere = !status.address.is_empty() && status.address != applicant.address;
            applicant.node == Some(status.node) && is_elsewhere
        };
        self.nodes.statuses().into_iter().find(is_first)
    }

    /// Puts off a process at another address than the node's last one while the lease of that one may run: it serves
    /// until its lease ends, even if it does not answer the coordinator. A process at the same address has the port of
    /// the last one, which has ended. The caller holds joins back, so that no process of the node joins before this is
    /// decided.
    fn await_lease_elsewhere(&self, applicant: &Applicant) -> Answer<()> {
        let Some(first) = self.first_elsewhere(applicant) else {
            return Ok(());
        };
        if first.liveness == Liveness::Failed {
            return Ok(());
        }
        let NodeStatus { node, address, .. } = first;
        let sentence = format!(
            "{node} may still run at {address}; it may join from another address when its lease \
            has ended"
        );
        Err(Rejection::busy(sentence))
    }

    /// Gives a node its record, unless it has to wait. The caller holds joins back.
    pub(super) async fn enter_member(self: &Arc<Self>, applicant: Applicant) -> Answer<NodeId> {
        self.await_lease_elsewhere(&applicant)?;
        let now_ms = self.core.ports.now_ms();
        let Applicant {
            node,
            start,
            rack,
            address,
            capacity_bytes,
            ..
        } = applicant;
        if let Some(node) = node {
            // Before the record gets the address: it belongs to the process whose session goes on.
            lock(&self.nodes.sessions).refuse_earlier(node, start, now_ms)?;
        }
        let admit = move |meta: &Meta<K>| meta.join(node, rack, &address, capacity_bytes, now_ms);
        match self.core.with_meta(admit.clone()).await {
            Err(MetaError::AddressInUse { address, node }) => {
                if !self.has_left_its_address(node) {
                    return Err(Rejection::busy(format!(
                        "{address} was the address of {node}, which may still use it"
                    )));
                }
                let forget = move |meta: &Meta<K>| meta.forget_address(node);
                let record = self.core.with_meta(forget).await?;
                {
                    let mut roster = lock(&self.nodes.roster);
                    // A node that has never joined to the end is no member.
                    if roster.is_known(node) {
                        roster.learn(record);
                    }
                }
                Ok(self.core.with_meta(admit).await?)
            }
            joined => Ok(joined?),
        }
    }

    /// Whether a node cannot listen at its last address: it was silent for a lease, or for two heartbeats
    /// of a coordinator that has just started. The operating system may give the port of an ended process
    /// to another.
    fn has_left_its_address(&self, node: NodeId) -> bool {
        if self.nodes.is_joining(node) {
            return false;
        }
        let now_ms = self.core.ports.now_ms();
        let roster = lock(&self.nodes.roster);
        let is_up = roster.liveness(node, now_ms) == Liveness::Up;
        let age_ms = self.core.age_ms();
        !is_up || (!roster.was_heard(node) && age_ms >= 2 * self.core.options.heartbeat_ms)
    }

    /// Refuses a node that belongs to another cluster or has no identity, and checks whether the metadata
    /// are as new as the node's last knowledge of them.
    pub(super) fn check_origin(
        &self,
        applicant: &Applicant,
        chunk_count: u64,
    ) -> Result<(), Denial> {
        let own = self.core.meta.cluster();
        if let Some(cluster) = applicant.cluster.filter(|&cluster| cluster != own) {
            return Err(Denial::new(
                Cause::Stale,
                format!(
                    "the node belongs to cluster {cluster}, and this is cluster {own}; check --join"
                ),
            ));
        }
        match applicant.node {
            Some(node) => self
                .starts
                .hear(&self.nodes, &self.core, node, applicant.heard),
            // Admitting it as a new node would lose its chunks.
            None if chunk_count > 0 => Err(Denial::new(
                Cause::Stale,
                format!(
                    "the node holds {chunk_count} chunks but has forgotten its id; restore its identity \
                 file, or start with an empty data directory as a new node"
                ),
            )),
            None => Ok(()),
        }
    }

    /// The identity of this coordinator's metadata.
    pub(super) fn origin(&self) -> Origin {
        Origin {
            start: self.starts.own(),
            change_count: self.core.meta.change_count(),
        }
    }

    /// Renews the lease of a node, which names the newest coordinator that it knows, unless it may leave.
    pub(in crate::coordinator) fn heartbeat(&self, told: &ask::Heartbeat) -> Answer<Standing> {
        let (node, incarnation, health) = (told.node, told.incarnation, &told.health);
        self.starts
            .hear(&self.nodes, &self.core, node, told.heard)?;
        let progress = Progress {
            incarnation,
            position: told.position,
        };
        self.nodes.note_health(node, health);
        let coordinator = self.is_vouched_for().then(|| self.origin());
        let now_ms = self.core.ports.now_ms();
        let mut roster = lock(&self.nodes.roster);
        let is_evicted = lock(&self.nodes.suspicions).is_evicted(node);
        Ok(if roster.is_drained(node) {
            Standing::Leave
        } else if !is_evicted && roster.renew(node, incarnation, now_ms) {
            roster.note_array(node, health.array.clone());
            self.positions.note(node, progress);
            lock(&self.nodes.suspicions).hear_heartbeat(node, incarnation);
            Standing::Alive {
                coordinator,
                lease_ms: self.core.options.timing.lease_ms,
                nodes: roster.statuses(now_ms, &lock(&self.nodes.suspicions)),
                keys: self.tickets.told(),
            }
        } else {
            Standing::Rejoin
        })
    }

    /// Declares a node failed after it has reported a failed store. Others act on it at once: the node no
    /// longer serves, so its lease need not expire first.
    pub(in crate::coordinator) async fn store_failed(
        self: &Arc<Self>,
        failure: StoreFailure,
    ) -> Answer<()> {
        let StoreFailure {
            node,
            incarnation,
            reason,
        } = failure;
        let now_ms = self.core.ports.now_ms();
        if lock(&self.nodes.roster).end(node, incarnation, now_ms) {
            self.core
                .note_error(format!("the store of {node} has failed: {reason}"));
            self.check_members().await?;
        }
        Ok(())
    }

    /// Declares a node failed after it has ended its membership: its lease need not expire first. A message
    /// about an earlier membership arrives too late and has no effect.
    pub(in crate::coordinator) async fn end_membership(
        self: &Arc<Self>,
        told: ask::EndMembership,
    ) -> Answer<()> {
        let ask::EndMembership { session, cause } = told;
        let has_ended = {
            // No node becomes a member between the check and the end.
            let _joins = self.nodes.hold_joins().await;
            let incarnation = lock(&self.nodes.sessions).incarnation_since(session);
            let now_ms = self.core.ports.now_ms();
            incarnation.is_some_and(|incarnation| {
                lock(&self.nodes.roster).end(session.node, incarnation, now_ms)
            })
        };
        if has_ended {
            if cause == EndCause::DiskHangs {
                self.core.ports.note_event(&Event::DiskHangs(session.node));
            }
            self.check_members().await?;
        }
        Ok(())
    }

    /// Waits until most nodes have contacted this run of the coordinator, and the leases of all others have
    /// expired. By then a coordinator with an old copy of the metadata has stopped: its background work
    /// would remove chunks that the copy does not know.
    pub(in crate::coordinator) async fn all_heard(&self) {
        self.wait_until(|| {
            let up = lock(&self.nodes.roster).up(self.core.ports.now_ms());
            self.is_vouched_for() && up.iter().all(|&node| self.starts.has_confirmed(node))
        })
        .await;
    }

    /// Waits until most nodes have contacted this run of the coordinator, however long that takes. Returns whether it
    /// still serves then.
    pub(in crate::coordinator) async fn until_most_heard(&self) -> bool {
        self.wait_until(|| self.is_vouched_for()).await;
        !self.core.is_broken()
    }

    /// Waits until most nodes have contacted this run of the coordinator, for as long as a lease.
    ///
    /// # Errors
    /// One sentence with the number of missing nodes.
    pub(in crate::coordinator) async fn most_heard(&self) -> Result<(), String> {
        let end_ms = self.core.ports.now_ms() + self.core.options.timing.lease_ms;
        self.wait_until(|| self.is_vouched_for() || self.core.ports.now_ms() >= end_ms)
            .await;
        if self.is_vouched_for() || self.core.is_broken() {
            return Ok(());
        }
        let (heard_count, expected_count) = self.heard_count();
        Err(format!(
            "since the start of the coordinator, {heard_count} of {expected_count} nodes have contacted it, but it \
            needs more than half to know that its metadata is the newest; start the others, or wait until their grace \
            period has ended"
        ))
    }

    /// Whether most nodes have contacted this run of the coordinator: most nodes have also contacted any
    /// other run that clients or nodes have followed. A failed node counts until the coordinator stops
    /// awaiting it.
    fn is_vouched_for(&self) -> bool {
        let (heard_count, expected_count) = self.heard_count();
        2 * heard_count > expected_count || expected_count == 0
    }

    /// Returns the number of nodes that have contacted this run of the coordinator, and the number of expected ones.
    fn heard_count(&self) -> (usize, usize) {
        let roster = lock(&self.nodes.roster);
        let heard = |&node: &NodeId| self.starts.has_confirmed(node);
        (
            roster.expected().filter(heard).count(),
            roster.expected().count(),
        )
    }

    /// Waits until this holds, or the coordinator stops.
    async fn wait_until(&self, holds: impl Fn() -> bool) {
        let tick_ms = (self.core.options.heartbeat_ms / 4).max(1);
        while !self.core.is_broken() && !holds() {
            self.core.ports.sleep_ms(tick_ms).await;
        }
    }

    /// Declares silent nodes failed, until the metadata store fails.
    pub(in crate::coordinator) async fn watch(self: Arc<Self>) {
        // Twice the heartbeat rate: a failure is detected soon after its timeout.
        let tick_ms = (self.core.options.heartbeat_ms / 2).max(1);
        while !self.core.is_broken() {
            self.core.ports.sleep_ms(tick_ms).await;
            if let Err(denial) = self.check_members().await {
                self.core.note_error(denial.sentence);
            }
        }
    }

    async fn check_members(self: &Arc<Self>) -> Result<(), Denial> {
        let abandoned = {
            let _joins = self.nodes.hold_joins().await;
            let dropped = lock(&self.nodes.sessions).drop_silent(self.core.ports.now_ms());
            for node in dropped {
                self.backlog.add_node_later(node);
            }
            let (late, silent, abandoned) = lock(&self.nodes.roster).tick(self.core.ports.now_ms());
            for node in late {
                self.note_loss(node, &Event::Suspect(node));
            }
            let any_silent = !silent.is_empty();
            for node in silent {
                let record = self
                    .core
                    .with_meta(move |meta| meta.declare_failed(node))
                    .await?;
                lock(&self.nodes.roster).learn(record);
                self.note_loss(node, &Event::Failed(node));
            }
            if any_silent {
                let fleet = self.nodes.fleet();
                // One that was silent just now may be a primary whose updates wait for this.
                let living = [Liveness::Up, Liveness::Suspect].map(|state| fleet.with(state));
                self.hasten_heartbeats(living.concat());
                // Repairs that waited for these nodes to answer or to fail.
                self.backlog.retry_all();
                self.leftovers.wake();
            }
            abandoned
        };
        self.abandon_nodes(abandoned).await?;
        self.check_departures().await
    }

    /// Has these nodes send their next heartbeats at once, without waiting for that: with the replies they hear of a
    /// change of the members, for which updates may wait. A node that does not get the message hears of it with the
    /// next heartbeat that is due.
    pub(super) fn hasten_heartbeats(&self, nodes: Vec<NodeId>) {
        for node in nodes {
            let ports = Arc::clone(&self.core.ports);
            let told = async move {
                let _ = ports.ask_node(node, ask::Renew, REACH_DEADLINE_MS).await;
            };
            self.core.ports.spawn(told.boxed());
        }
    }

    /// Logs that a node has become silent, unless it is drained: it holds nothing and may be switched off.
    pub(super) fn note_loss(&self, node: NodeId, event: &Event) {
        if !lock(&self.nodes.roster).is_drained(node) {
            self.core.ports.note_event(event);
        }
    }
}
