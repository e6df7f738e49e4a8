//! Empties a reserve without a merge: its records move to the journal.
//!
//! This happens in three cases: records that may not be merged yet, when the rest of the reserve is
//! merged; all records of a reserve, when one of them is dropped, since the drop must outlive the
//! record; and when a chunk's file is replaced. The journal's copies are durable before the header
//! gives the reserve its new beginning. A crash between leaves both copies, and the journal's are
//! used.

use crate::chunk::Header;
use crate::chunk::file::HEADER_BYTES;
use crate::chunk::gate::Gate;
use crate::error::StoreError;
use crate::journal::checkpoint::Room;
use crate::records::layer::Pending;
use crate::records::record::UpdateStamp;
use crate::state::State;
use crate::store::Shared;
use gabion_layout::{ChunkId, Sequence};

impl Shared {
    /// Appends copies of a reserve's records after `base`, except those `left_out`, to the journal.
    /// The journal keeps them for the caller, which passes them to [`State::adopt_spilled`] once
    /// the reserve is empty, or to [`State::unspill`].
    pub(crate) fn spill(
        &self,
        state: &mut State,
        chunk: ChunkId,
        base: Sequence,
        left_out: &[UpdateStamp],
    ) -> Result<Vec<Pending>, StoreError> {
        // The runs of merged records are logged nowhere else once the reserve is empty.
        self.log_runs(state, chunk)?;
        let mut spilled = Vec::new();
        match self.spill_into(state, chunk, base, left_out, &mut spilled) {
            Ok(()) => Ok(spilled),
            Err(error) => {
                state.unspill(spilled);
                Err(error)
            }
        }
    }

    fn spill_into(
        &self,
        state: &mut State,
        chunk: ChunkId,
        base: Sequence,
        left_out: &[UpdateStamp],
        spilled: &mut Vec<Pending>,
    ) -> Result<(), StoreError> {
        let mut buffer = Vec::new();
        for record in state.reserved(chunk)?.iter() {
            let stamp = record.head.stamp;
            let entry = state.chunk(chunk);
            let is_there = entry.is_some_and(|entry| entry.records().contains(stamp.sequence));
            let is_needed = stamp.sequence > base && !left_out.contains(&stamp) && !is_there;
            if !is_needed {
                continue;
            }
            let layer = state.layer(chunk, record)?;
            let body = layer.body(&mut buffer)?;
            let position = self.append(state, &layer.head, &[body], Room::Reserved)?;
            state.journal.keep(position);
            let head = layer.head;
            spilled.push(Pending { head, position });
        }
        let count = spilled.len() as u64;
        self.counters.add(|c| &c.spilled_record_count, count);
        Ok(())
    }

    /// Moves a reserve's records to the journal, durably, except those `left_out`, which are then
    /// gone. The caller has begun to change the chunk.
    pub(crate) fn empty_reserve(
        &self,
        gate: &Gate,
        chunk: ChunkId,
        left_out: &[UpdateStamp],
    ) -> Result<(), StoreError> {
        let outcome = self.empty_closed(gate, chunk, left_out);
        self.lock().open_reserve(chunk);
        outcome
    }

    fn empty_closed(
        &self,
        gate: &Gate,
        chunk: ChunkId,
        left_out: &[UpdateStamp],
    ) -> Result<(), StoreError> {
        let (header, file, spilled, journal_lsn) = {
            let mut state = self.lock();
            self.check_latch()?;
            let mut header = state.header(chunk)?;
            let Some(end_lsn) = state.close_reserve(chunk) else {
                return Ok(());
            };
            let file = state.open_file(chunk)?;
            let spilled = self.spill(&mut state, chunk, header.spec.base, left_out)?;
            header.reserve_lsn = end_lsn;
            (header, file, spilled, state.journal.needed_lsn())
        };
        if let Err(error) = self.sync(journal_lsn) {
            self.lock().unspill(spilled);
            return Err(error);
        }
        let _alone = gate.exclude_readers();
        self.write_header(chunk, &*file, &header.encode())?;
        self.counters.add(|c| &c.sync_count, 1);
        let mut state = self.lock();
        state.set_header(header);
        state.adopt_spilled(spilled);
        self.reserve_syncs.forget(chunk);
        Ok(())
    }

    /// Moves the records of a chunk's reserve after `base` to the journal, durably, where `base` is
    /// that of the file about to replace the chunk's. The reserve stays closed.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when a record after `base` cannot be read. The chunk is then lost,
    /// as at a start, so the next file replaces it without the reserve. [`StoreError::Busy`],
    /// [`StoreError::NoSpace`], [`StoreError::Io`] and [`StoreError::Failed`].
    pub(crate) fn spill_replaced(
        &self,
        chunk: ChunkId,
        base: Sequence,
    ) -> Result<Vec<Pending>, StoreError> {
        let mut state = self.lock();
        let reserve = state.reserve(chunk);
        let is_included = reserve.is_none_or(|reserve| reserve.newest <= Some(base));
        if state.close_reserve(chunk).is_none() || is_included {
            return Ok(Vec::new());
        }
        let spilled = match self.spill(&mut state, chunk, base, &[]) {
            Ok(spilled) => spilled,
            Err(StoreError::Corrupt { .. }) => return Err(state.lose(chunk)),
            Err(error) => {
                state.open_reserve(chunk);
                return Err(error);
            }
        };
        let needed_lsn = state.journal.needed_lsn();
        drop(state);
        self.sync(needed_lsn)?;
        Ok(spilled)
    }

    /// Marks a chunk durably as damaged as a whole: its records can neither be kept nor told from
    /// those that must be dropped.
    pub(crate) fn invalidate(&self, gate: &Gate, chunk: ChunkId) -> Result<(), StoreError> {
        let _alone = gate.exclude_readers();
        let file = self.lock().open_file(chunk)?;
        self.write_header(chunk, &*file, &[0; HEADER_BYTES])?;
        if let Some(entry) = self.lock().chunk_mut(chunk) {
            entry.lose(Header::Damaged);
        }
        Ok(())
    }
}

impl State {
    /// Refuses appends to a chunk's reserve, and returns its end; `None` if it is empty.
    pub(crate) fn close_reserve(&mut self, chunk: ChunkId) -> Option<u64> {
        self.reserve_mut(chunk)?.close()
    }

    /// Allows appends to a chunk's reserve again.
    pub(crate) fn open_reserve(&mut self, chunk: ChunkId) {
        if let Some(reserve) = self.reserve_mut(chunk) {
            reserve.is_closed = false;
        }
    }
}
