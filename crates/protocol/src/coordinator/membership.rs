//! Members: how nodes come in, stay in, and are declared failed when they are silent.

use super::inventory::{compare, find_fates};
use super::{Answer, Coordinator, Denied, lock};
use crate::message::{CoordinatorReply, HeldChunk, Vitals};
use gabion_layout::{NodeId, RackId};
use gabion_meta::{KeyValue, Meta};
use std::sync::Arc;

/// Who wants to be a member.
#[derive(Clone, Debug)]
pub(super) struct JoinRequest {
    pub(super) node: Option<NodeId>,
    pub(super) rack: RackId,
    pub(super) address: String,
    pub(super) capacity_bytes: u64,
    pub(super) incarnation: u64,
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Lets a node in that holds `chunks`. Its chunks count from then on, but those that it has
    /// lost or that missed an update, which is durable before they could count.
    pub(super) async fn join(
        self: &Arc<Self>,
        request: JoinRequest,
        chunks: Vec<HeldChunk>,
    ) -> Answer {
        if request.node.is_none() && !chunks.is_empty() {
            // To take it for a new node would be to delete what it holds.
            return Err(Denied(format!(
                "the node holds {} chunks but has forgotten its id; start it with its id, or \
                 empty its disk",
                chunks.len()
            )));
        }
        let mut joins = self.admission.lock().await;
        let now_ms = self.ports.now_ms();
        let JoinRequest {
            node,
            rack,
            address,
            capacity_bytes,
            incarnation,
        } = request;
        let admit = move |meta: &Meta<K>| meta.join(node, rack, &address, capacity_bytes, now_ms);
        let node = self.with_meta(admit).await?;
        // From here on, what repairs were about to do to this node is void.
        *joins.entry(node).or_default() += 1;
        let this = Arc::clone(self);
        let chunks = Arc::new(chunks);
        let held = Arc::clone(&chunks);
        let inventory = self
            .with_meta(move |meta| compare(&this, meta, node, &held))
            .await?;
        if !lock(&self.roster).admit(node, incarnation, self.ports.now_ms()) {
            return Err(Denied(format!(
                "a later run of {node} has joined already; stop this one"
            )));
        }
        let find = move |meta: &Meta<K>| find_fates(meta, node, &chunks);
        let fates = self.with_meta(find).await?;
        let record = self
            .with_meta(move |meta| meta.declare_returned(node))
            .await?;
        lock(&self.roster).learn(record);
        let mut to_repair = inventory.to_repair;
        to_repair.extend(fates.to_repair);
        lock(&self.leftovers).retain(|(holder, _)| *holder != node);
        drop(joins);
        let nodes = self.statuses();
        self.ports.learn_nodes(&nodes);
        self.add_repairs(to_repair).await?;
        self.retry_repairs();
        self.garbage_bell.ring();
        Ok(CoordinatorReply::Joined {
            node,
            lease_ms: self.options.timing.lease_ms,
            heartbeat_ms: self.options.heartbeat_ms,
            obsolete: inventory.obsolete,
            decided: fates.decided,
            nodes,
        })
    }

    /// Renews a node's lease, unless it may leave.
    pub(super) fn heartbeat(
        &self,
        node: NodeId,
        incarnation: u64,
        vitals: &Vitals,
    ) -> CoordinatorReply {
        self.note_vitals(node, vitals);
        let now_ms = self.ports.now_ms();
        let mut roster = lock(&self.roster);
        if roster.is_drained(node) {
            CoordinatorReply::Leave
        } else if roster.renew(node, incarnation, now_ms) {
            roster.note_array(node, vitals.array.clone());
            CoordinatorReply::Alive {
                lease_ms: self.options.timing.lease_ms,
                nodes: roster.statuses(now_ms),
            }
        } else {
            CoordinatorReply::Rejoin
        }
    }

    /// Declares silent nodes failed, until the metadata store fails.
    pub(super) async fn watch_members(self: Arc<Self>) {
        // Twice as often as nodes speak: a failure is found soon after it is one.
        let tick_ms = (self.options.heartbeat_ms / 2).max(1);
        while !self.is_broken() {
            self.ports.sleep_ms(tick_ms).await;
            if let Err(Denied(sentence)) = self.check_members().await {
                self.note_error(sentence);
            }
        }
    }

    async fn check_members(self: &Arc<Self>) -> Result<(), Denied> {
        let given_up = {
            let _joins = self.admission.lock().await;
            let (silent, given_up) = lock(&self.roster).tick(self.ports.now_ms());
            let any_silent = !silent.is_empty();
            for node in silent {
                let record = self
                    .with_meta(move |meta| meta.declare_failed(node))
                    .await?;
                lock(&self.roster).learn(record);
            }
            if any_silent {
                // Repairs that waited to hear which it is, alive or failed.
                self.retry_repairs();
                self.garbage_bell.ring();
            }
            given_up
        };
        self.give_nodes_up(given_up).await?;
        self.check_departures().await
    }
}
