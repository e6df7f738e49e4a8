//! Loads chunk headers on first use, opens chunk files, and stops serving chunks that cannot be
//! trusted.

use crate::chunk::Header;
use crate::chunk::file::{ChunkHeader, ReadFailure, read_header};
use crate::chunk::gate::Gate;
use crate::disk::{DiskFile, Source};
use crate::error::{IoContext, StoreError, is_shortage};
use crate::index::Stripe;
use crate::paths::chunk_path;
use crate::records::Obsolete;
use crate::reserve::{self, FoundReserve};
use crate::state::State;
use crate::store::Shared;
use gabion_layout::{ChunkId, ChunkIndex, StripeId};
use std::sync::Arc;

impl Shared {
    /// The gate of a chunk that is here.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`].
    pub(crate) fn gate_of(&self, chunk: ChunkId) -> Result<Arc<Gate>, StoreError> {
        let mut state = self.lock();
        if state.chunk(chunk).is_none() {
            return Err(StoreError::NoSuchChunk { chunk });
        }
        Ok(state.chunks.gate(chunk))
    }

    /// Latches the store when a write to a chunk in use failed, and stops serving the chunk: the
    /// state of its file is unknown until the next start.
    pub(crate) fn require_or_distrust<T>(
        &self,
        chunk: ChunkId,
        outcome: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let outcome = self.require(outcome);
        if outcome.is_err()
            && let Some(entry) = self.lock().chunk_mut(chunk)
        {
            entry.lose(Header::Torn);
        }
        outcome
    }

    /// Writes the first bytes of a chunk's file, which are its header, and makes them durable.
    pub(crate) fn write_header(
        &self,
        chunk: ChunkId,
        file: &dyn DiskFile,
        header: &[u8],
    ) -> Result<(), StoreError> {
        let written = file.write_all_at(header, 0);
        let written = written.and_then(|()| self.sync_chunk(chunk, file));
        self.require_or_distrust(chunk, written.context("write", &chunk_path(chunk)))
    }
}

impl State {
    /// The header of a chunk, read from its file on first use.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`], [`StoreError::Corrupt`] for the whole chunk,
    /// [`StoreError::Failed`] for one that could not be written, and [`StoreError::Io`] when the disk
    /// fails.
    pub(crate) fn header(&mut self, chunk: ChunkId) -> Result<ChunkHeader, StoreError> {
        let entry = self.chunk(chunk).ok_or(StoreError::NoSuchChunk { chunk })?;
        match entry.header() {
            Header::Known(header) => return Ok(header),
            Header::Damaged => return Err(StoreError::corrupt_whole(chunk)),
            Header::Torn => {
                let cause = format!("{chunk} was being written");
                return Err(StoreError::Failed { cause });
            }
            Header::Unread => {}
        }
        let file = self.open_chunk(chunk)?;
        let found = match self.load(chunk, &*file) {
            // One failed read must not cost the chunk.
            Err(ReadFailure::Corrupt(_)) => self.load(chunk, &*file),
            found => found,
        };
        match found {
            Ok((header, found)) => {
                self.set_header(header);
                if let Some(found) = found {
                    self.adopt_reserve(chunk, found, &file);
                }
                Ok(header)
            }
            Err(failure @ ReadFailure::Io(_)) => Err(failure.into_error(chunk)),
            Err(ReadFailure::Corrupt(_)) => Err(self.lose(chunk)),
        }
    }

    /// Reads a chunk's header and the records in its reserve from its file.
    fn load(
        &self,
        chunk: ChunkId,
        file: &dyn DiskFile,
    ) -> Result<(ChunkHeader, Option<FoundReserve>), ReadFailure> {
        let mut header = read_header(Source::File(file), chunk)?;
        if header.spec.keeping.reserve_bytes().is_some() {
            // The header of a chunk with a reserve changes without an image in the journal, so
            // after a failed sync the page cache may differ from the device.
            header = read_header(Source::Device(file), chunk)?;
        }
        let synced_lsn = self.reserves.witnessed_lsn(&header);
        Ok((header, reserve::find(file, &header, synced_lsn)?))
    }

    /// Takes over a chunk's header as it is on disk now: the stripe's state includes it, and
    /// records that the chunk includes are no longer pending.
    pub(crate) fn set_header(&mut self, header: ChunkHeader) {
        let included = self.take_included(header);
        self.release(included);
    }

    /// As [`State::set_header`], but the journal goes on keeping the records, for the caller to
    /// [`State::release`].
    pub(crate) fn take_included(&mut self, header: ChunkHeader) -> Obsolete {
        let (chunk, spec) = (header.chunk, header.spec);
        let stripe = self.index.stripe_or_new(chunk.stripe);
        stripe.learn(stripe.epoch(), spec.generation, spec.base);
        self.index.chunk_or_new(chunk).follow(header)
    }

    /// A stripe whose chunk headers have all been read, so that its state includes them. Damaged
    /// headers are skipped.
    ///
    /// # Errors
    /// [`StoreError::NoSuchStripe`], and as [`State::header`].
    pub(crate) fn know_stripe(&mut self, stripe: StripeId) -> Result<&Stripe, StoreError> {
        let known = self.find_stripe(stripe)?;
        known.ok_or(StoreError::NoSuchStripe { stripe })
    }

    /// As [`State::know_stripe`]; `None` if the store holds nothing of the stripe.
    pub(crate) fn find_stripe(&mut self, stripe: StripeId) -> Result<Option<&Stripe>, StoreError> {
        let chunks = self
            .index
            .stripe(stripe)
            .into_iter()
            .flat_map(Stripe::chunks);
        let unread = chunks.filter(|(_, chunk)| chunk.is_unread());
        let unread: Vec<ChunkIndex> = unread.map(|(index, _)| index).collect();
        for index in unread {
            match self.header(ChunkId { stripe, index }) {
                Ok(_) | Err(StoreError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.index.stripe(stripe))
    }

    /// Stops serving a chunk with an unusable file, until it is replaced.
    pub(crate) fn lose(&mut self, chunk: ChunkId) -> StoreError {
        if let Some(entry) = self.chunk_mut(chunk) {
            entry.lose(Header::Damaged);
        }
        StoreError::corrupt_whole(chunk)
    }

    /// Stops serving a chunk until it is replaced, also after later starts.
    pub(crate) fn suspect(&mut self, chunk: ChunkId) {
        if let Some(entry) = self.chunk_mut(chunk) {
            entry.lose(Header::Damaged);
            let untrusted = entry.records_mut().take_all();
            self.release(untrusted);
            self.chunks.suspects.insert(chunk);
        }
    }

    /// Notes that a chunk was replaced or removed.
    pub(crate) fn clear_suspicion(&mut self, chunk: ChunkId) {
        if self.chunks.suspects.remove(&chunk) && !self.chunks.has_suspects() {
            self.journal.clear_damage();
        }
    }

    /// Opens a chunk's file. If the file is missing or cannot be opened twice in a row, the chunk is
    /// lost.
    fn open_chunk(&mut self, chunk: ChunkId) -> Result<Arc<dyn DiskFile>, StoreError> {
        let path = chunk_path(chunk);
        let opened = match self.chunks.disk.open(&path) {
            // One failure must not cost the chunk.
            Err(source) if !is_shortage(&source) => self.chunks.disk.open(&path),
            opened => opened,
        };
        match opened {
            Err(source) if !is_shortage(&source) => Err(self.lose(chunk)),
            opened => opened.context_or_busy("open", &path),
        }
    }

    /// A chunk's file. The caller holds the chunk's gate, so that the file is not replaced.
    pub(crate) fn open_file(&mut self, chunk: ChunkId) -> Result<Arc<dyn DiskFile>, StoreError> {
        if let Some(file) = self.chunks.open.get(chunk) {
            return Ok(file);
        }
        let file = self.open_chunk(chunk)?;
        self.chunks.open.insert(chunk, Arc::clone(&file));
        Ok(file)
    }
}
