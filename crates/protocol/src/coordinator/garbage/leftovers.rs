//! The queue of chunks to remove from nodes: chunks that nodes may hold and should not, and the wake-up of
//! the task that removes these and garbage.

use crate::coordinator::core::lock;
use crate::wake_up::WakeUp;
use gabion_layout::{ChunkId, NodeId};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Chunks of live stripes that nodes may still have and should not. Those that once counted there are
/// former holders in the metadata, too; the others cost space and nothing else.
#[derive(Debug)]
pub(in crate::coordinator) struct Leftovers {
    chunks: Mutex<BTreeSet<(NodeId, ChunkId)>>,
    wake_up: WakeUp,
}

impl Leftovers {
    /// The former holders in the metadata.
    pub(in crate::coordinator) fn new(former: Vec<(NodeId, ChunkId)>) -> Self {
        Self {
            chunks: Mutex::new(former.into_iter().collect()),
            wake_up: WakeUp::default(),
        }
    }

    /// Notes that a node may have a chunk that is no longer its own, and queues its removal.
    pub(in crate::coordinator) fn add(&self, node: NodeId, chunk: ChunkId) {
        if lock(&self.chunks).insert((node, chunk)) {
            self.wake_up.wake();
        }
    }

    /// Notes that a node does not hold a chunk any more.
    pub(in crate::coordinator) fn remove(&self, node: NodeId, chunk: ChunkId) {
        lock(&self.chunks).remove(&(node, chunk));
    }

    /// The chunks that a node may hold and should not.
    pub(in crate::coordinator) fn of(&self, node: NodeId) -> Vec<ChunkId> {
        let all = lock(&self.chunks);
        let own = all.iter().filter(|(holder, _)| *holder == node);
        own.map(|&(_, chunk)| chunk).collect()
    }

    /// Wakes the removal: there is more to remove, or a node's state has changed.
    pub(in crate::coordinator) fn wake(&self) {
        self.wake_up.wake();
    }

    /// Waits for the next wake-up.
    pub(super) async fn woken(&self) {
        self.wake_up.woken().await;
    }

    pub(super) fn all(&self) -> Vec<(NodeId, ChunkId)> {
        lock(&self.chunks).iter().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.chunks).is_empty()
    }
}
