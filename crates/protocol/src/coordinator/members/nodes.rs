//! The coordinator's state of its nodes, for all rooms: which are up, how often each has joined, and their
//! reports about disks and links. The rest of `members` changes it; other rooms read it.
//!
//! Locks are taken in this order: joins, sessions, roster, suspicions. The others are held alone.

use super::fleet::Fleet;
use super::roster::Roster;
use super::sessions::Sessions;
use super::space::Reports;
use super::suspicions::Suspicions;
use crate::coordinator::core::{Core, lock};
use crate::message::{
    ArrayStatus, Cause, Denial, JoinCount, JoinProgress, LinkRate, Liveness, NodeHealth,
    NodeStatus, NodeUsage, Served,
};
use futures::lock::MutexGuard;
use gabion_layout::{NodeId, StripeId, Topology};
use gabion_meta::{KeyValue, Membership, Meta, MetaError};
use gabion_planner::manager::LinkMatrix;
use gabion_planner::placement::{Room, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Most stripes that do not await their failed nodes. More of them wait for the repairs of these.
const HASTENED_COUNT_MAX: usize = 4096;

/// The number of times each node has joined since the start.
pub(in crate::coordinator) type Joins = BTreeMap<NodeId, u64>;

/// The nodes as the coordinator knows them.
pub(in crate::coordinator) struct Nodes<K> {
    core: Arc<Core<K>>,
    /// Joins, declarations of failure and the last step of each repair hold this lock, because each depends
    /// on the others' changes.
    joins: futures::lock::Mutex<Joins>,
    /// The nodes that join now.
    pub(super) sessions: Mutex<Sessions>,
    /// The longest lease that a node may have had at this run's start.
    longest_lease_ms: u64,
    /// Records and leases.
    pub(super) roster: Mutex<Roster>,
    /// Suspicions against nodes whose leases run.
    pub(super) suspicions: Mutex<Suspicions>,
    /// Stripes that do not await their failed nodes.
    hastened: Mutex<Arc<BTreeSet<StripeId>>>,
    /// The last heartbeats of nodes.
    reports: Mutex<Reports>,
    /// Link rates, as nodes have reported them since the start.
    links: Mutex<LinkMatrix>,
}

impl<K: KeyValue + Send + Sync + 'static> Nodes<K> {
    /// The nodes of the metadata, each presumed to be up, announced to the ports.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(in crate::coordinator) fn new(core: &Arc<Core<K>>) -> Result<Self, MetaError> {
        let (records, standings) = (core.meta.nodes()?, core.meta.standings()?);
        let timing = core.options.timing;
        let longest_ms = core.meta.note_granted_lease(timing.lease_ms)?;
        let now_ms = core.ports.now_ms();
        let nodes = Self {
            core: Arc::clone(core),
            joins: futures::lock::Mutex::default(),
            sessions: Mutex::default(),
            // A lease that another process has granted may be longer than this one's.
            roster: Mutex::new(Roster::new(
                timing,
                records,
                standings,
                now_ms + (longest_ms - timing.lease_ms),
            )),
            longest_lease_ms: longest_ms,
            suspicions: Mutex::new(Suspicions::new(core.options.link_patience_ms())),
            hastened: Mutex::default(),
            reports: Mutex::default(),
            links: Mutex::default(),
        };
        core.ports.learn_nodes(&nodes.statuses());
        Ok(nodes)
    }

    /// Waits until all leases of earlier runs have ended, and notes that none is longer than this run's.
    pub(in crate::coordinator) async fn outlive_leases(self: Arc<Self>) {
        let timing = self.core.options.timing;
        if self.longest_lease_ms > timing.lease_ms {
            let wait_ms = self.longest_lease_ms.saturating_add(timing.margin_ms);
            self.core.ports.sleep_ms(wait_ms).await;
            let note = move |meta: &Meta<K>| meta.end_longer_leases(timing.lease_ms);
            // If it fails, the next run waits longer than it needs to.
            let _ = self.core.with_meta(note).await;
        }
    }

    /// All nodes at this instant.
    pub(in crate::coordinator) fn fleet(&self) -> Fleet {
        let hastened = Arc::clone(&lock(&self.hastened));
        let roster = lock(&self.roster);
        let fleet = roster.fleet(self.core.ports.now_ms(), &lock(&self.suspicions));
        fleet.hastening(hastened)
    }

    /// Awaits no failed node of a stripe any more, until its repair is over. Returns false when there are too many
    /// such stripes.
    pub(in crate::coordinator) fn hasten(&self, stripe: StripeId) -> bool {
        let mut hastened = lock(&self.hastened);
        if !hastened.contains(&stripe) {
            if hastened.len() >= HASTENED_COUNT_MAX {
                return false;
            }
            Arc::make_mut(&mut hastened).insert(stripe);
        }
        true
    }

    /// The repair of a stripe is over.
    pub(in crate::coordinator) fn note_repaired(&self, stripe: StripeId) {
        let mut hastened = lock(&self.hastened);
        if hastened.contains(&stripe) {
            Arc::make_mut(&mut hastened).remove(&stripe);
        }
    }

    /// The same, as other nodes are told.
    pub(in crate::coordinator) fn statuses(&self) -> Vec<NodeStatus> {
        let roster = lock(&self.roster);
        roster.statuses(self.core.ports.now_ms(), &lock(&self.suspicions))
    }

    /// The failed nodes.
    pub(in crate::coordinator) fn failed(&self) -> Vec<NodeId> {
        lock(&self.roster).failed()
    }

    /// A copy of the membership, for questions that metadata asks of it.
    pub(in crate::coordinator) fn membership(&self) -> Membership {
        lock(&self.roster).membership()
    }

    /// Holds back joins and declarations of failure. Returns how often each node has joined.
    pub(in crate::coordinator) async fn hold_joins(&self) -> MutexGuard<'_, Joins> {
        self.joins.lock().await
    }

    /// Returns the number of times a node has joined.
    pub(in crate::coordinator) async fn joins_of(&self, node: NodeId) -> Option<u64> {
        self.joins.lock().await.get(&node).copied()
    }

    /// Returns the number of times each of some nodes has joined; those that have not since the start are left out.
    pub(in crate::coordinator) async fn joins_of_all(&self, nodes: &BTreeSet<NodeId>) -> Joins {
        let joins = self.joins.lock().await;
        let known = nodes
            .iter()
            .filter_map(|node| Some((*node, *joins.get(node)?)));
        known.collect()
    }

    /// The joins so far, for a term that begins now.
    pub(in crate::coordinator) fn join_count(&self) -> JoinCount {
        JoinCount {
            incarnation: self.core.meta.incarnation(),
            count: lock(&self.sessions).turn_count(),
        }
    }

    /// Whether a failed node may have been told of a term of this stripe that began after `since`. The
    /// caller holds joins back.
    pub(in crate::coordinator) fn may_know(
        &self,
        node: NodeId,
        stripe: StripeId,
        since: JoinCount,
    ) -> bool {
        since.incarnation != self.core.meta.incarnation()
            || lock(&self.sessions).may_have_told(node, stripe, since.count)
    }

    /// Notes a change of a stripe on which answers to joining nodes depend. The caller holds joins back
    /// from before the change until after this.
    pub(in crate::coordinator) fn note_change(&self, nodes: &[NodeId], stripe: StripeId) {
        lock(&self.sessions).note_change(nodes, stripe);
    }

    /// Notes that a stripe with chunks on these nodes is garbage. The caller holds joins back.
    pub(in crate::coordinator) fn note_garbage(&self, nodes: &[NodeId], stripe: StripeId) {
        lock(&self.sessions).note_garbage(nodes, stripe);
    }

    /// Whether a node is joining now.
    pub(in crate::coordinator) fn is_joining(&self, node: NodeId) -> bool {
        lock(&self.sessions).is_joining(node)
    }

    /// The progress of the joins.
    pub(in crate::coordinator) fn joining(&self) -> BTreeMap<NodeId, JoinProgress> {
        lock(&self.sessions).progress()
    }

    /// The arrays of nodes that are not failed.
    pub(in crate::coordinator) fn arrays(&self) -> BTreeMap<NodeId, ArrayStatus> {
        lock(&self.roster).arrays(self.core.ports.now_ms())
    }

    /// Notes a node's report about its disk and its links.
    pub(super) fn note_health(&self, node: NodeId, health: &NodeHealth) {
        let now_ms = self.core.ports.now_ms();
        let event = lock(&self.reports).note(node, health, now_ms);
        if let Some(event) = event {
            self.core.ports.note_event(&event);
        }
        let mut links = lock(&self.links);
        for &(to, bytes_per_s) in &health.links {
            links.note(node, to, bytes_per_s, now_ms);
        }
    }

    /// Forgets the links of a node that is drained.
    pub(super) fn forget_links(&self, node: NodeId) {
        lock(&self.links).forget(node);
    }

    /// Returns the number of evictions of each node since the start.
    pub(in crate::coordinator) fn eviction_counts(&self) -> BTreeMap<NodeId, u64> {
        lock(&self.suspicions).eviction_counts()
    }

    /// Link rates.
    pub(in crate::coordinator) fn links(&self) -> LinkMatrix {
        lock(&self.links).clone()
    }

    /// The same, for users.
    pub(in crate::coordinator) fn link_rates(&self) -> Vec<LinkRate> {
        let now_ms = self.core.ports.now_ms();
        let links = lock(&self.links);
        let rates = links.all().map(|(from, to, measured)| LinkRate {
            from,
            to,
            bytes_per_s: measured.bytes_per_s,
            age_ms: now_ms.saturating_sub(measured.at_ms),
        });
        rates.collect()
    }

    /// The last reports about disks of nodes that are not failed, and their age.
    pub(in crate::coordinator) fn last_heard(
        &self,
        fleet: &Fleet,
    ) -> (BTreeMap<NodeId, Space>, BTreeMap<NodeId, u64>) {
        let now_ms = self.core.ports.now_ms();
        let reports = lock(&self.reports);
        let live: Vec<NodeId> = not_failed(fleet).collect();
        let nodes = live.iter().copied();
        let spaces = nodes.filter_map(|node| Some((node, reports.space(node)?)));
        let nodes = live.iter().copied();
        let silences = nodes.filter_map(|node| Some((node, reports.silence_ms(node, now_ms)?)));
        (spaces.collect(), silences.collect())
    }

    /// The disks of nodes that are not failed, from their last reports. A node that leaves gets no new chunks, so it
    /// has no free bytes.
    pub(in crate::coordinator) fn spaces(&self, fleet: &Fleet) -> BTreeMap<NodeId, Space> {
        let mut spaces = self.last_heard(fleet).0;
        for (&node, space) in &mut spaces {
            if fleet.is_leaving(node) {
                space.free_bytes = 0;
            }
        }
        spaces
    }

    /// The space that the stores of nodes that are not failed take, from their last reports.
    pub(in crate::coordinator) fn usages(&self, fleet: &Fleet) -> BTreeMap<NodeId, NodeUsage> {
        let reports = lock(&self.reports);
        let usages = not_failed(fleet).filter_map(|node| Some((node, reports.usage(node)?)));
        usages.collect()
    }

    /// The clients' requests that nodes that are not failed have served, from their last reports.
    pub(in crate::coordinator) fn served(&self, fleet: &Fleet) -> BTreeMap<NodeId, Served> {
        let reports = lock(&self.reports);
        let served = not_failed(fleet).filter_map(|node| Some((node, reports.served(node)?)));
        served.collect()
    }

    /// Those of some nodes that are not full; all of them if all are full.
    pub(in crate::coordinator) fn roomy(&self, nodes: Vec<NodeId>, bytes: u64) -> Vec<NodeId> {
        lock(&self.reports).roomy(nodes, bytes)
    }

    /// The free space of some nodes.
    pub(in crate::coordinator) fn room(&self, nodes: Topology) -> Room {
        Room::new(nodes, lock(&self.reports).spaces())
    }

    /// The denial of places for new chunks of `bytes` a node, if the cause is disks that are full `when`.
    pub(in crate::coordinator) fn no_room(
        &self,
        nodes: &Topology,
        bytes: u64,
        when: &str,
    ) -> Option<Denial> {
        let reports = lock(&self.reports);
        let is_short = |node: &NodeId| {
            let space = reports.space(*node);
            space.is_some_and(|space| space.free_bytes < bytes)
        };
        let short = nodes.nodes().map(|place| place.node).filter(is_short);
        let short: Vec<String> = short.map(|node| node.to_string()).collect();
        (!short.is_empty()).then(|| {
            Denial::new(Cause::NoSpace, format!(
                "the disk is full of {}{when}, and the other nodes are too few for a stripe; delete files or add nodes",
                short.join(", ")
            ))
        })
    }
}

fn not_failed(fleet: &Fleet) -> impl Iterator<Item = NodeId> {
    let nodes = fleet.nodes().iter();
    let live = nodes.filter(|status| status.liveness != Liveness::Failed);
    live.map(|status| status.node)
}
