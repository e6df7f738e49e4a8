//! Appending records to reserves.

use crate::chunk::file::ChunkHeader;
use crate::disk::DiskFile;
use crate::error::{IoContext, StoreError, allocated};
use crate::journal::checkpoint::Room;
use crate::journal::entry::{Entry, Head, UpdateHead};
use crate::journal::frame;
use crate::paths::chunk_path;
use crate::records::lsn::Lsn;
use crate::records::record::Record;
use crate::reserve::Reserved;
use crate::state::State;
use crate::store::Shared;
use gabion_layout::{ByteRange, ChunkId, Sequence};

impl Shared {
    /// Gives a chunk's reserve its disk space before the first append to it, so that no later one
    /// fails for lack of it, and ensures that the journal can take a record of `frame_bytes`.
    /// Returns false if the disk is full.
    pub(crate) fn back_reserve(
        &self,
        state: &mut State,
        chunk: ChunkId,
        frame_bytes: u64,
    ) -> Result<bool, StoreError> {
        // A record's image, and its copy when it leaves the reserve, are in the journal.
        let grown = state.grow_segments(frame_bytes);
        match grown.and_then(|()| self.allocate_whole(state, chunk)) {
            Err(StoreError::NoSpace { .. }) => Ok(false),
            backed => self.require(backed).map(|()| true),
        }
    }

    fn allocate_whole(&self, state: &mut State, chunk: ChunkId) -> Result<(), StoreError> {
        let unbacked = state.reserve_mut(chunk).filter(|r| !r.is_backed);
        let Some(bytes) = unbacked.map(|reserve| reserve.bytes) else {
            return Ok(());
        };
        let header = state.header(chunk)?;
        let file = state.open_file(chunk)?;
        self.allocate_reserve(&header, &*file, ByteRange::new(0, bytes))?;
        if let Some(reserve) = state.reserve_mut(chunk) {
            reserve.is_backed = true;
        }
        Ok(())
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
