//! What the nodes know and hold. All requests of a recovery to nodes are here, and none of them changes a node.

use super::judge::{Answered, Told};
use crate::coordinator::core::{Core, lock};
use crate::message::{
    Cause, Denial, Departure, HeldScope, KnownCluster, KnownStripes, Liveness, NodeStatus,
    TicketKeys, ask,
};
use crate::ports::ask_living;
use futures::StreamExt;
use futures::lock::Mutex as AsyncMutex;
use futures::stream;
use gabion_layout::{NodeId, Start, StripeId, StripeRecord};
use gabion_meta::{KeyValue, Meta, MetaError, NodeRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Time for which the nodes that have answered count as up.
const ASK_EVERY_MS: u64 = 5_000;
/// Time limit of a node's answer. Its disk may be slow; a node that does not live is left out sooner.
const DEADLINE_MS: u64 = 5_000;
/// Rounds in which nodes are asked that earlier rounds have brought.
const ROUND_COUNT: usize = 2;
/// Nodes that are asked at a time.
const AT_ONCE_COUNT: usize = 64;
/// Stripes of a question about chunks. On a slow disk each chunk takes a read.
const HELD_COUNT: usize = 128;
/// Most nodes of a node's answer that are believed to be there.
const NODES_MAX: usize = 10_000;

/// The nodes, and the keys that they know.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownFleet {
    /// All nodes. Those that have answered are up, and all others are suspect.
    pub(super) nodes: Vec<NodeStatus>,
    /// The keys of tickets of the node that has heard the newest coordinator.
    pub(super) keys: TicketKeys,
    /// The newest start that a node has followed.
    heard: Option<Start>,
}

impl KnownFleet {
    /// The nodes that have answered, or those that have not.
    pub(super) fn which(&self, liveness: Liveness) -> impl Iterator<Item = NodeId> {
        let nodes = self.nodes.iter();
        let wanted = nodes.filter(move |status| status.liveness == liveness);
        wanted.map(|status| status.node)
    }
}

/// Asks the nodes.
pub(super) struct Survey<K> {
    core: Arc<Core<K>>,
    /// The nodes of the metadata.
    recorded: Vec<NodeStatus>,
    /// The outcome of the last survey, and when it came.
    last: Mutex<Option<(u64, Result<KnownFleet, Denial>)>>,
    /// Held by the request that asks all nodes.
    asking: AsyncMutex<()>,
}

impl<K: KeyValue + Send + Sync + 'static> Survey<K> {
    /// Nothing is asked yet. Waits for the disk.
    ///
    /// # Errors
    /// When the nodes cannot be read.
    pub(super) fn new(core: &Arc<Core<K>>) -> Result<Self, MetaError> {
        let recorded: Vec<NodeStatus> = core.meta.nodes()?.into_iter().map(recorded).collect();
        core.ports.learn_nodes(&recorded);
        Ok(Self {
            core: Arc::clone(core),
            recorded,
            last: Mutex::default(),
            asking: AsyncMutex::default(),
        })
    }

    /// The nodes, as they have answered a short time ago at most.
    ///
    /// # Errors
    /// When a coordinator has changed the copy of the metadata, or the metadata cannot be read.
    pub(super) async fn fleet(&self) -> Result<KnownFleet, Denial> {
        let _one = self.asking.lock().await;
        let now_ms = self.core.ports.now_ms();
        let last = lock(&self.last).clone();
        if let Some((asked_ms, found)) = last
            && now_ms < asked_ms.saturating_add(ASK_EVERY_MS)
        {
            return found;
        }
        let found = self.survey().await;
        *lock(&self.last) = Some((self.core.ports.now_ms(), found.clone()));
        found
    }

    async fn survey(&self) -> Result<KnownFleet, Denial> {
        let known = self.ask_all().await;
        if let Some(heard) = known.heard
            && self.was_started_on(heard).await?
        {
            let sentence = "a coordinator that no node follows has started on this copy of the metadata and has changed \
                it; restore it again, and start the new one with --recover only; if the backup itself has that start, \
                restore one from before it";
            return Err(Denial::new(Cause::Stale, sentence));
        }
        Ok(known)
    }

    /// Whether a coordinator has started on the copy since it was made: it has not noted its start, nodes have
    /// followed an earlier start or another one with its number, or they have contradicted it. It has abandoned the
    /// moves of chunks that were unfinished at the copy's time. So layouts that have ended may have the generations of
    /// those that have replaced them.
    async fn was_started_on(&self, heard: Start) -> Result<bool, MetaError> {
        let read = move |meta: &Meta<K>| {
            // An opening abandons moves, and the start is noted after it.
            let opened = meta.incarnation();
            let Some(last) = meta.last_start()?.filter(|last| last.number == opened) else {
                return Ok(true);
            };
            let is_later =
                last.number > heard.number || (last.number == heard.number && last != heard);
            Ok(is_later || meta.is_contradicted_from(last.number)?)
        };
        self.core.with_meta(read).await
    }

    /// Asks all nodes of the metadata, and those that these know: nodes may have joined or moved since.
    async fn ask_all(&self) -> KnownFleet {
        let mut known = KnownFleet {
            nodes: self.recorded.clone(),
            ..KnownFleet::default()
        };
        let mut told: BTreeMap<NodeId, KnownCluster> = BTreeMap::new();
        let mut due: Vec<NodeId> = known.nodes.iter().map(|status| status.node).collect();
        for _ in 0..ROUND_COUNT {
            let calls = due.into_iter().map(|node| async move {
                let asked = ask_living(&*self.core.ports, node, ask::Cluster, DEADLINE_MS);
                (node, asked.await.ok())
            });
            let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE_COUNT);
            while let Some((node, answer)) = calls.next().await {
                told.extend(answer.map(|answer| (node, *answer)));
            }
            let before = std::mem::replace(&mut known, known_fleet(&self.recorded, &told));
            self.core.ports.learn_nodes(&known.nodes);
            // A node that was silent and has not moved is silent yet.
            let places = before.nodes.iter().map(|s| (s.node, s.address.as_str()));
            let asked: BTreeSet<(NodeId, &str)> = places.collect();
            let is_due = |s: &&NodeStatus| {
                !told.contains_key(&s.node) && !asked.contains(&(s.node, s.address.as_str()))
            };
            due = known.nodes.iter().filter(is_due).map(|s| s.node).collect();
            if due.is_empty() {
                break;
            }
        }
        known
    }

    /// The chunks of these stripes on the nodes of their layouts that are up, as far as these tell in this time, and
    /// the nodes that have not told all.
    pub(super) async fn held(
        &self,
        fleet: &KnownFleet,
        stripes: &[&StripeRecord],
        limit_ms: u64,
    ) -> (Told, BTreeSet<NodeId>) {
        let end_ms = self.core.ports.now_ms().saturating_add(limit_ms);
        let mut wanted: BTreeMap<NodeId, Vec<StripeId>> =
            fleet.which(Liveness::Up).map(|n| (n, Vec::new())).collect();
        for record in stripes {
            for node in &record.nodes {
                if let Some(stripes) = wanted.get_mut(node) {
                    stripes.push(record.id);
                }
            }
        }
        wanted.retain(|_, stripes| !stripes.is_empty());
        let calls = wanted.into_iter().map(|(node, mut stripes)| async move {
            stripes.sort_unstable();
            stripes.dedup();
            (node, self.held_by(node, &stripes, end_ms).await)
        });
        let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE_COUNT);
        let (mut told, mut silent) = (Told::new(), BTreeSet::new());
        while let Some((node, (answered, is_whole))) = calls.next().await {
            told.insert(node, answered);
            if !is_whole {
                silent.insert(node);
            }
        }
        (told, silent)
    }

    /// The chunks of these stripes on a node, as far as it answers, and whether it has answered about all.
    async fn held_by(&self, node: NodeId, stripes: &[StripeId], end_ms: u64) -> (Answered, bool) {
        let mut answered = Answered::new();
        for some in stripes.chunks(HELD_COUNT) {
            if self.core.ports.now_ms() >= end_ms {
                return (answered, false);
            }
            let Some(page) = self.ask_held(node, HeldScope::Of(some.to_vec())).await else {
                return (answered, false);
            };
            answered.extend(some.iter().map(|&stripe| (stripe, None)));
            for known in page.stripes {
                // A stripe that was not asked for is no answer.
                if let Some(answer) = answered.get_mut(&known.stripe) {
                    *answer = Some(known);
                }
            }
        }
        (answered, true)
    }

    /// A page of the stripes on a node; none if it does not answer.
    pub(super) async fn behind(
        &self,
        node: NodeId,
        after: Option<StripeId>,
    ) -> Option<KnownStripes> {
        self.ask_held(node, HeldScope::Behind(after)).await
    }

    async fn ask_held(&self, node: NodeId, scope: HeldScope) -> Option<KnownStripes> {
        let asked = ask_living(&*self.core.ports, node, ask::Held { scope }, DEADLINE_MS);
        asked.await.ok()
    }
}

/// A node as the metadata have it.
fn recorded(record: NodeRecord) -> NodeStatus {
    NodeStatus {
        node: record.id,
        rack: record.rack,
        address: record.address,
        liveness: Liveness::Suspect,
        departure: Departure::None,
    }
}

/// The nodes of the metadata, with what the node knows that has heard the newest coordinator. A node that waits to
/// join has heard one, and has no keys; others that have keys are believed first.
fn known_fleet(recorded: &[NodeStatus], told: &BTreeMap<NodeId, KnownCluster>) -> KnownFleet {
    let newest = told.values().max_by_key(|known| {
        let heard = known.heard.as_ref();
        let heard = heard.map(|origin| (origin.start.number, origin.change_count));
        (!known.keys.keys.is_empty(), heard)
    });
    let newest_nodes = newest.map_or(&[][..], |known| known.nodes.as_slice());
    let nodes = recorded.iter().chain(newest_nodes.iter().take(NODES_MAX));
    let nodes: BTreeMap<NodeId, NodeStatus> = nodes.map(|s| (s.node, s.clone())).collect();
    let judged = nodes.into_values().map(|status| NodeStatus {
        liveness: if told.contains_key(&status.node) {
            Liveness::Up
        } else {
            Liveness::Suspect
        },
        ..status
    });
    let heard = told.values().filter_map(|known| Some(known.heard?.start));
    KnownFleet {
        nodes: judged.collect(),
        keys: newest.map_or_else(TicketKeys::default, |known| known.keys.clone()),
        heard: heard.max_by_key(|start| start.number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Origin;
    use gabion_layout::RackId;
    use gabion_meta::{Secret, TicketKey};

    fn status(node: u32, address: &str) -> NodeStatus {
        NodeStatus {
            node: NodeId(node),
            rack: RackId(0),
            address: address.to_owned(),
            liveness: Liveness::Suspect,
            departure: Departure::None,
        }
    }

    fn known(number: u64, change_count: u64, nodes: Vec<NodeStatus>) -> KnownCluster {
        let start = Start { number, nonce: 9 };
        KnownCluster {
            heard: Some(Origin {
                start,
                change_count,
            }),
            nodes,
            keys: TicketKeys {
                now_ms: change_count,
                ..TicketKeys::default()
            },
        }
    }

    #[test]
    fn the_node_that_has_heard_the_newest_coordinator_tells_the_fleet() {
        let metadata = [status(1, "a:1"), status(2, "b:1"), status(3, "c:1")];
        let told = BTreeMap::from([
            // A node that was cut off knows less.
            (NodeId(1), known(4, 90, vec![status(2, "old:1")])),
            (
                NodeId(3),
                known(5, 70, vec![status(2, "b:2"), status(4, "d:1")]),
            ),
        ]);
        let fleet = known_fleet(&metadata, &told);
        let places: Vec<(u32, &str)> = fleet
            .nodes
            .iter()
            .map(|status| (status.node.0, status.address.as_str()))
            .collect();
        assert_eq!(places, [(1, "a:1"), (2, "b:2"), (3, "c:1"), (4, "d:1")]);
        let up: Vec<NodeId> = fleet.which(Liveness::Up).collect();
        assert_eq!(up, [NodeId(1), NodeId(3)]);
        assert_eq!(fleet.keys.now_ms, 70);
    }

    #[test]
    fn a_node_without_keys_tells_no_fleet() {
        let metadata = [status(1, "a:1"), status(2, "b:1")];
        let mut member = known(4, 90, vec![status(2, "b:2")]);
        member.keys.keys.push(TicketKey {
            number: 3,
            secret: Secret([3; 32]),
            drawn_ms: 0,
        });
        // It has heard a later coordinator, and waits to join.
        let waiting = known(5, 0, Vec::new());
        let told = BTreeMap::from([(NodeId(1), member), (NodeId(2), waiting)]);
        let fleet = known_fleet(&metadata, &told);
        assert_eq!(fleet.keys.keys.len(), 1);
        assert_eq!(fleet.nodes[1].address, "b:2");
        assert_eq!(fleet.heard.unwrap().number, 5, "the copy is judged by it");
    }
}
