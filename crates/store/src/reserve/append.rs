//! Appending records to reserves.

use crate::chunk::file::ChunkHeader;
use crate::chunk::gate::Gate;
use crate::disk::DiskFile;
use crate::error::{IoContext, StoreError, allocated};
use crate::journal::checkpoint::Room;
use crate::journal::entry::{Entry, Head, UpdateHead};
use crate::journal::frame;
use crate::paths::chunk_path;
use crate::records::lsn::Lsn;
use crate::records::record::Record;
use crate::reserve::{Reserve, Reserved};
use crate::state::State;
use crate::store::Shared;
use gabion_layout::{ByteRange, ChunkId, Sequence};

impl Shared {
    /// Gives a chunk's reserve its disk space before the first append to it, of a record of
    /// `frame_bytes`, so that no later one that fits fails for lack of it. On a full disk it stays without.
    pub(crate) fn back_reserve(&self, chunk: ChunkId, frame_bytes: u64) -> Result<(), StoreError> {
        let gate = self.lock().chunks.gate(chunk);
        let _changing = gate.begin_change();
        match self.allocate_whole(&gate, chunk, frame_bytes) {
            Err(StoreError::NoSpace { .. }) => Ok(()),
            backed => self.require(backed),
        }
    }

    /// Allocates a reserve in its planned size, and notes that size in the header. If a full disk
    /// has no room for a larger size, the reserve keeps that of its header.
    fn allocate_whole(
        &self,
        gate: &Gate,
        chunk: ChunkId,
        frame_bytes: u64,
    ) -> Result<(), StoreError> {
        let (header, old_bytes) = self.reserve_header(chunk)?;
        let (file, mut bytes) = {
            let mut state = self.lock();
            let unbacked_bytes = |reserve: &Reserve| reserve.unbacked_bytes(frame_bytes);
            let Some(bytes) = state.reserve(chunk).and_then(unbacked_bytes) else {
                return Ok(());
            };
            (state.open_file(chunk)?, bytes)
        };
        let allocate = |bytes| self.allocate_reserve(&header, &*file, ByteRange::new(0, bytes));
        match allocate(bytes) {
            Err(StoreError::NoSpace { .. }) if bytes > old_bytes => {
                bytes = old_bytes;
                allocate(bytes)?;
            }
            allocated => allocated?,
        }
        if bytes > old_bytes {
            self.sync_space(chunk, &*file)?;
        }
        if bytes != old_bytes {
            self.set_reserve_bytes(gate, chunk, bytes)?;
        }
        if let Some(reserve) = self.lock().reserve_mut(chunk) {
            reserve.is_backed = true;
        }
        Ok(())
    }

    /// Ensures that the journal can take a record of `frame_bytes` that goes to a reserve: its
    /// image, and its copy when it leaves the reserve. Returns false if the disk is full.
    pub(crate) fn journal_can_take(
        &self,
        state: &mut State,
        frame_bytes: u64,
    ) -> Result<bool, StoreError> {
        match state.grow_segments(frame_bytes) {
            Err(StoreError::NoSpace { .. }) => Ok(false),
            grown => self.require(grown).map(|()| true),
        }
    }

    /// Allocates disk space for a range of a reserve.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when the disk has no space beyond the bytes that must stay free;
    /// [`StoreError::Io`].
    pub(super) fn allocate_reserve(
        &self,
        header: &ChunkHeader,
        file: &dyn DiskFile,
        range: ByteRange,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "a reserve";
        let bytes = range.length;
        self.check_free(WHAT, bytes)?;
        let outcome = file.allocate(header.extent().reserve_offset() + range.offset, bytes);
        allocated(outcome, WHAT, &chunk_path(header.chunk), bytes)
    }

    /// Appends a record to its chunk's reserve, which has disk space and room for it.
    pub(crate) fn append_to_reserve(
        &self,
        state: &mut State,
        record: &Record<'_>,
        head: UpdateHead,
    ) -> Result<Lsn, StoreError> {
        let chunk = record.chunk;
        self.log_promises(state, record)?;
        let header = state.header(chunk)?;
        let file = state.open_file(chunk)?;
        let known_synced_lsn = self.reserve_syncs.synced_lsn(chunk);
        let body: Vec<&[u8]> = record.pieces.iter().map(|piece| piece.bytes).collect();
        let reserve = state.reserve_mut(chunk);
        let reserve = reserve.expect("the caller has checked for space");
        let lsn = reserve.end_lsn;
        let synced_lsn = known_synced_lsn.unwrap_or(lsn);
        let mut bytes = Vec::new();
        let (kind, head_bytes) = (head.frame_kind(), head.encode_head());
        frame::encode(&mut bytes, lsn, synced_lsn, kind, &head_bytes, &body);
        let offset = header.extent().reserve_offset() + reserve.used_bytes();
        assert!(
            reserve.fits(bytes.len() as u64),
            "the caller has checked for space"
        );
        let written = file.write_all_at(&bytes, offset);
        self.require(written.context("write", &chunk_path(chunk)))?;
        let record = Reserved {
            head,
            lsn,
            frame_bytes: bytes.len() as u32,
        };
        let end_lsn = reserve.append(record);
        self.counters.add(|c| &c.reserve_bytes, bytes.len() as u64);
        self.reserve_syncs.note(chunk, &file, synced_lsn, end_lsn);
        Ok(Lsn::in_reserve(chunk, end_lsn))
    }

    /// Logs a record's epoch and generation in the journal if they are new to the stripe: the
    /// reserve may be emptied before a checkpoint includes them.
    fn log_promises(&self, state: &mut State, record: &Record<'_>) -> Result<(), StoreError> {
        let stripe = state.index.stripe_or_new(record.chunk.stripe);
        let known = (stripe.epoch(), stripe.generation());
        if record.stamp.epoch > known.0 || record.generation > known.1 {
            stripe.learn(record.stamp.epoch, record.generation, Sequence(0));
            let entry = Entry::State {
                stripe: stripe.state_mark(record.chunk.stripe),
                dropped: Vec::new(),
            };
            self.append(state, &entry, &[], Room::Ordinary)?;
        }
        Ok(())
    }
}
