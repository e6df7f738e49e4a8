//! Journal positions of nodes. A node whose journal ends before a position that it once reported
//! was rolled back: its directory is a copy, or its disk has lost synced bytes.

use crate::error::MetaError;
use crate::kv::{KeyValue, WriteTxn};
use crate::meta::Meta;
use crate::records::Progress;
use crate::schema::PROGRESS;
use gabion_layout::NodeId;

impl<K: KeyValue> Meta<K> {
    /// The position of each admitted node, by node. Rows may lag behind the nodes' reports.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn progress(&self) -> Result<Vec<(NodeId, Progress)>, MetaError> {
        let all = PROGRESS.all();
        self.store.read(|txn| PROGRESS.scan(txn, &all, usize::MAX))
    }

    /// Records nodes' positions, all in one transaction. Reports of a run other than the last
    /// admitted one are skipped.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn note_progress(&self, said: &[(NodeId, Progress)]) -> Result<(), MetaError> {
        self.change(|txn| {
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

/// Starts the position of a newly admitted run; keeps that of a run admitted before.
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
