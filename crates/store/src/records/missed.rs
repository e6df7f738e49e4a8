//! The bytes of a stripe that changed since an update, as far as the records show.
//!
//! A node that was away missed updates. If the others' logs still hold all of them, only the ranges
//! that they touched need to be brought up to date.

use crate::error::StoreError;
use crate::store::Store;
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Sequence};
use std::collections::BTreeMap;

impl Store {
    /// The ranges that settled updates after `from` touched, with the data chunk of each change,
    /// joined and in order; `None` if the chunk's own bytes include later updates than `from`, so
    /// that some records may be gone. For a parity chunk, the ranges are those of the parity chunk.
    ///
    /// Covers updates up to the committed mark that this store knows, and only those in which the
    /// chunk took part.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`]; [`StoreError::Corrupt`] when the chunk as a whole is damaged;
    /// [`StoreError::Io`].
    pub fn missed_since(
        &self,
        chunk: ChunkId,
        from: Sequence,
    ) -> Result<Option<Vec<(ChunkIndex, ByteRange)>>, StoreError> {
        let mut state = self.shared.lock();
        let header = state.header(chunk)?;
        if header.spec.base > from {
            return Ok(None);
        }
        let mark = state.index.mark(chunk.stripe);
        let records = state.records(chunk, (from, mark), |head| !head.kind.is_appended())?;
        let missed = records
            .values()
            .flat_map(|record| &record.head.pieces)
            .map(|piece| (piece.data, piece.range));
        Ok(Some(join(missed)))
    }
}

/// Joins ranges of the same data chunk that overlap or touch.
fn join(touched: impl Iterator<Item = (ChunkIndex, ByteRange)>) -> Vec<(ChunkIndex, ByteRange)> {
    let mut by_data: BTreeMap<ChunkIndex, Vec<ByteRange>> = BTreeMap::new();
    for (data, range) in touched {
        by_data.entry(data).or_default().push(range);
    }
    let joined = |(data, ranges)| ByteRange::union(ranges).into_iter().map(move |r| (data, r));
    by_data.into_iter().flat_map(joined).collect()
}
