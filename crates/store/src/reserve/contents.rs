//! Contents of reserves: loaded when a chunk is first needed, and read again on demand.

use crate::chunk::file;
use crate::disk::{DiskFile, Source};
use crate::error::StoreError;
use crate::journal::segment::{Holder, Located};
use crate::records::layer::Layer;
use crate::records::record::Damage;
use crate::reserve::{FoundReserve, Heads, Reserved, stretch};
use crate::state::State;
use gabion_layout::{ChunkId, Sequence};
use std::sync::Arc;

impl State {
    /// Takes over the records found in the reserve of a chunk whose header is known.
    pub(crate) fn adopt_reserve(
        &mut self,
        chunk: ChunkId,
        found: FoundReserve,
        file: &Arc<dyn DiskFile>,
    ) {
        let Some(stripe) = self.index.stripe_mut(chunk.stripe) else {
            return;
        };
        for record in &found.records {
            let head = &record.head;
            stripe.learn(head.stamp.epoch, head.generation, Sequence(0));
        }
        let mark = stripe.mark();
        let Some(reserve) = self.reserve_mut(chunk) else {
            return;
        };
        let of = |record: &Reserved| (record.head.stamp.sequence, record.head.runs.clone());
        let runs: Vec<_> = found.records.iter().map(of).collect();
        let end_lsn = found.end_lsn;
        reserve.adopt(found, mark);
        let (first_lsn, is_used) = (reserve.first_lsn, reserve.used_bytes() > 0);
        for (sequence, runs) in runs {
            self.note_runs(chunk, sequence, &runs);
        }
        if is_used {
            // Frames left by a killed process may be in the page cache only.
            self.reserves.syncs.note(chunk, file, first_lsn, end_lsn);
        }
    }

    /// The heads of all records in a chunk's reserve, in order; empty if it has no reserve.
    ///
    /// # Errors
    /// As [`State::header`]; [`StoreError::Corrupt`] for the whole chunk when the reserve is
    /// unreadable somewhere.
    pub(crate) fn reserved(&mut self, chunk: ChunkId) -> Result<Arc<Vec<Reserved>>, StoreError> {
        let header = self.header(chunk)?;
        let reserve = self.reserve(chunk);
        let Some((first_lsn, end_lsn)) = reserve.map(|r| (r.first_lsn, r.end_lsn)) else {
            return Ok(Arc::default());
        };
        if first_lsn == end_lsn {
            return Ok(Arc::default());
        }
        let known = self.reserves.heads.take(chunk);
        let known = known.filter(|known| known.first_lsn == first_lsn);
        let mut heads = known.unwrap_or_else(|| Heads {
            first_lsn,
            end_lsn: first_lsn,
            records: Arc::default(),
        });
        if heads.end_lsn < end_lsn {
            let file = self.open_file(chunk)?;
            let mut frames = vec![0; (end_lsn - heads.end_lsn) as usize];
            let offset = header.extent().reserve_offset() + (heads.end_lsn - first_lsn);
            file::read_exact(Source::File(&*file), &mut frames, offset, Damage::WHOLE)
                .map_err(|failure| failure.into_error(chunk))?;
            let found = stretch(&frames, chunk, heads.end_lsn, (0, Some(end_lsn)));
            if !found.is_readable {
                return Err(StoreError::corrupt_whole(chunk));
            }
            Arc::make_mut(&mut heads.records).extend(found.records);
            heads.end_lsn = end_lsn;
        }
        let records = Arc::clone(&heads.records);
        self.reserves.heads.put(chunk, heads);
        Ok(records)
    }

    /// A record of a chunk's reserve for reading.
    pub(crate) fn layer(&mut self, chunk: ChunkId, record: &Reserved) -> Result<Layer, StoreError> {
        let header = self.header(chunk)?;
        Ok(Layer {
            head: record.head.clone(),
            located: Located {
                file: self.open_file(chunk)?,
                offset: header.extent().reserve_offset() + (record.lsn - header.reserve_lsn),
                lsn: record.lsn,
                frame_bytes: record.frame_bytes,
                holder: Holder::Chunk(chunk),
            },
        })
    }
}
