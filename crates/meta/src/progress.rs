//! How far nodes' journals have come. A node whose journal ends before what it has once said went back in
//! time: its directory is a copy, or its disk has lost what it had synced.

use crate::kv::{KeyValue, WriteTxn};
use crate::schema::PROGRESS;
use crate::{Meta, MetaError};
use gabion_layout::NodeId;
use serde::{Deserialize, Serialize};

/// How far a run of a node has come. A later run counts for more, however far it is.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Progress {
    /// The run: the number of the node's start.
    pub incarnation: u64,
    /// All that its journal has before this position is durable.
    pub position: u64,
}

impl<K: KeyValue> Meta<K> {
    /// How far each node has come that was ever let in, by node. Rows may be behind what nodes have said.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn progress(&self) -> Result<Vec<(NodeId, Progress)>, MetaError> {
        let all = PROGRESS.all();
        self.store.read(|txn| PROGRESS.scan(txn, &all, usize::MAX))
    }

    /// Takes over how far nodes have come, all in one transaction. What a run says that is not the one
    /// let in last is left out.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn note_progress(&self, said: &[(NodeId, Progress)]) -> Result<(), MetaError> {
        self.store.write(|txn| {
            for &(node, progress) in said {
                let known = PROGRESS.get(txn, &node)?;
                if known.is_some_and(|known| {
                    known.incarnation == progress.incarnation && known < progress
                }) {
                    PROGRESS.put(txn, &node, &progress)?;
                }
            }
            Ok(())
        })
    }
}

/// Begins to count for a run that is let in; for one that was let in already, goes on.
pub(crate) fn begin(
    txn: &mut dyn WriteTxn,
    node: NodeId,
    progress: Progress,
) -> Result<(), MetaError> {
    let known = PROGRESS.get(txn, &node)?;
    if known.is_none_or(|known| known < progress) {
        PROGRESS.put(txn, &node, &progress)?;
    }
    Ok(())
}
