//! The store's shared state: what is locked by what, how room is made in the journal, how many
//! callers share one sync, and how a failure latches.

use crate::chunk::file::{self, ChunkHeader, ReadFailure};
use crate::chunk::open_files::OpenFiles;
use crate::counts::Counters;
use crate::disk::{Disk, Source};
use crate::error::{IoContext, StoreError};
use crate::identity::Identity;
use crate::index::{Chunk, Gate, Header, Pending, Stripe};
use crate::journal::entry::Entry;
use crate::journal::frame;
use crate::journal::{Journal, Position, SEGMENT_HEADER_BYTES};
use crate::paths::segment_path;
use crate::records::listed::{Swapped, SwappedRecords};
use crate::records::lsn::Lsn;
use crate::records::pin::Pins;
use crate::records::record::Damage;
use crate::records::runs::RunOrder;
use crate::reserve::sync::ReserveSyncs;
use crate::reserve::witness::{WITNESS_BYTES_MAX, Witness};
use crate::reserve::{self, HeadCache};
use gabion_layout::{ChunkId, Keeping, Sequence, StripeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, TryLockError};

/// Sizes that a store is opened with. They may change from one start to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of a journal segment; two are allocated at any time. The largest record is a quarter.
    pub segment_bytes: u64,
    /// Bytes that new chunks leave free on the disk, so that the journal can go on.
    pub free_bytes: u64,
    /// Above this many segments, an apply copies the last needed records out of the oldest one.
    pub segment_count_max: usize,
    /// Settled records of chunks that keep them in the log are merged in the background only while
    /// there are more than so many bytes of them.
    pub log_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            free_bytes: 256 << 20,
            segment_count_max: 16,
            log_bytes: 256 << 20,
        }
    }
}

/// Smallest segment that makes sense: a quarter of it holds a block's image with all headers.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

impl Options {
    pub(crate) fn segment_bytes(self) -> u64 {
        self.segment_bytes.max(SEGMENT_BYTES_MIN)
    }

    /// Largest record, so that one always fits into a fresh segment, and its image too.
    pub(crate) fn record_bytes_max(self) -> u64 {
        self.segment_bytes() / 4
    }
}

/// One node's durable chunks, records and promises. Clones share one store. All operations block;
/// call them from threads that may.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) counters: Arc<Counters>,
    pub(crate) reserve_syncs: Arc<ReserveSyncs>,
    state: Mutex<State>,
    pub(crate) group: Group,
    /// As it is on the disk.
    pub(crate) identity: Mutex<Identity>,
    /// The first failure of a required write or sync.
    latch: OnceLock<String>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("failed", &self.latch.get())
            .finish_non_exhaustive()
    }
}

/// Lets one caller sync the journal for all who wait.
pub(crate) struct Group {
    pub(crate) synced_lsn: Arc<AtomicU64>,
    /// Whether somebody is syncing.
    is_led: Mutex<bool>,
    done: Condvar,
}

/// Everything under the state lock.
pub(crate) struct State {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) stripes: BTreeMap<StripeId, Stripe>,
    pub(crate) journal: Journal,
    pub(crate) gates: BTreeMap<ChunkId, Arc<Gate>>,
    pub(crate) files: OpenFiles,
    /// Chunks that damage to the journal may concern; none of them is served. While there are
    /// any, damaged segments stay, so that the next start distrusts the same chunks.
    pub(crate) suspects: BTreeSet<ChunkId>,
    /// Directories of chunks that are known to exist durably.
    pub(crate) directories: BTreeSet<String>,
    /// Names the next file in the directory of unfinished chunks.
    pub(crate) next_temporary: u64,
    /// Stripes whose mark is higher than the journal says.
    pub(crate) unlogged_marks: BTreeSet<StripeId>,
    /// Bytes of the frames of all pending records.
    pub(crate) pending_bytes: u64,
    pub(crate) pins: Pins,
    pub(crate) reserve_syncs: Arc<ReserveSyncs>,
    pub(crate) witnesses: BTreeMap<ChunkId, Witness>,
    pub(crate) head_cache: HeadCache,
    pub(crate) swapped_cache: BTreeMap<ChunkId, SwappedRecords>,
    pub(crate) run_order: RunOrder,
    /// Chunks that are about to be visible, each with the update up to which no run is known.
    pub(crate) making: BTreeMap<ChunkId, Sequence>,
}

/// Whether an append may use the room that is set aside for making room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// No: it can be refused.
    Ordinary,
    /// Yes: it settles, fences or frees.
    Reserved,
}

const POISONED: &str = "no thread panics while it holds this lock";

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
        Ok(state.gate(chunk))
    }

    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        options: Options,
        identity: Identity,
        state: State,
    ) -> Self {
        Self {
            disk,
            options,
            group: Group {
                synced_lsn: state.journal.synced(),
                is_led: Mutex::new(false),
                done: Condvar::new(),
            },
            counters: state.journal.counters(),
            reserve_syncs: Arc::clone(&state.reserve_syncs),
            identity: Mutex::new(identity),
            state: Mutex::new(state),
            latch: OnceLock::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(POISONED)
    }

    /// The state, unless somebody uses it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{POISONED}"),
        }
    }

    /// Refuses when an earlier required write or sync failed.
    pub(crate) fn check_latch(&self) -> Result<(), StoreError> {
        match self.latch.get() {
            None => Ok(()),
            Some(cause) => Err(StoreError::Failed {
                cause: cause.clone(),
            }),
        }
    }

    /// Passes a required write's or sync's outcome on, and latches the store when it failed. A
    /// clean refusal for want of space is none.
    pub(crate) fn require<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ StoreError::Io { .. }) = &outcome {
            // Only the first cause is kept; a second failure changes nothing.
            let _ = self.latch.set(error.to_string());
        }
        outcome
    }

    /// Appends an entry, making room first. Latches the store when the disk fails.
    pub(crate) fn append(
        &self,
        state: &mut State,
        entry: &Entry,
        body: &[&[u8]],
        room: Room,
    ) -> Result<Position, StoreError> {
        self.check_latch()?;
        let head = entry.encode_head();
        let body_bytes = body.iter().map(|part| part.len()).sum();
        let frame_bytes = frame::frame_bytes(head.len(), body_bytes) as u64;
        let made = state.make_room(frame_bytes, self.options, room);
        self.require(made)?;
        self.require(state.journal.append(entry.kind(), &head, body))
    }

    /// Returns once everything before `lsn` is durable. One of the callers that wait syncs for
    /// all.
    pub(crate) fn sync(&self, lsn: u64) -> Result<(), StoreError> {
        let mut is_led = self.group.is_led.lock().expect(POISONED);
        loop {
            if self.group.synced_lsn.load(Ordering::Acquire) >= lsn {
                return Ok(());
            }
            self.check_latch()?;
            if !*is_led {
                break;
            }
            is_led = self.group.done.wait(is_led).expect(POISONED);
        }
        *is_led = true;
        drop(is_led);
        let outcome = self.lead_sync();
        *self.group.is_led.lock().expect(POISONED) = false;
        self.group.done.notify_all();
        outcome
    }

    fn lead_sync(&self) -> Result<(), StoreError> {
        let tail = self.lock().journal.tail();
        let (number, file, end_lsn) =
            tail.expect("what waits for a sync was appended to a segment");
        self.require(file.sync().context("sync", &segment_path(number)))?;
        self.counters.add(|c| &c.sync_count, 1);
        self.group.synced_lsn.fetch_max(end_lsn, Ordering::AcqRel);
        // The last entry of a quiet journal has no later one that says it was synced, so damage to
        // it would look like a torn tail. This marker says so, from the next sync on.
        let mut state = self.lock();
        let is_last = (state.journal.needed_lsn, state.journal.end_lsn) == (end_lsn, end_lsn);
        if is_last && state.journal.fits(frame::frame_bytes(0, 0) as u64) {
            self.require(state.journal.append(Entry::Synced.kind(), &[], &[]))?;
        }
        Ok(())
    }
}

impl Store {
    /// Makes the record appended at `lsn` durable, and all before it in the same log. Callers that
    /// wait for the journal, or for the same chunk's reserve, share one sync.
    ///
    /// # Errors
    /// [`StoreError::Io`] and [`StoreError::Failed`]: it is not known what is durable.
    pub fn sync(&self, lsn: Lsn) -> Result<(), StoreError> {
        match lsn.place() {
            (None, behind) => self.shared.sync(behind),
            (Some(chunk), behind) => self.shared.sync_reserve(chunk, behind),
        }
    }

    /// Makes everything appended so far durable, marks that are otherwise allowed to be lost
    /// included. A store that ends this way starts with nothing torn.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn sync_all(&self) -> Result<(), StoreError> {
        self.log_marks()?;
        let end_lsn = self.shared.lock().journal.end_lsn;
        self.shared.sync(end_lsn)?;
        self.shared.sync_reserves()
    }

    /// Bytes of the disk that new chunks may take.
    ///
    /// # Errors
    /// When the disk does not say.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        let available = self.shared.disk.available_bytes().context("measure", "")?;
        Ok(available.saturating_sub(self.shared.options.free_bytes))
    }

    /// Bytes of the journal that pending records take. Records in reserves are not in it.
    pub fn pending_bytes(&self) -> u64 {
        self.shared.lock().pending_bytes
    }

    /// Shows that the store still takes writes, with a marker in the journal and a sync. Reads do
    /// not latch: after one that the disk refused, this tells a bad page from a dead disk.
    ///
    /// # Errors
    /// As [`Store::sync`]; [`StoreError::NoSpace`] and [`StoreError::Busy`], which show nothing.
    pub fn prove_writable(&self) -> Result<(), StoreError> {
        let lsn = {
            let mut state = self.shared.lock();
            let marker = Entry::Synced;
            let position = self
                .shared
                .append(&mut state, &marker, &[], Room::Reserved)?;
            position.end_lsn()
        };
        self.shared.sync(lsn)
    }

    /// The first failure of a required write or sync, if there was one.
    pub fn failure(&self) -> Option<String> {
        self.shared.latch.get().cloned()
    }
}

impl State {
    pub(crate) fn new(disk: Arc<dyn Disk>, journal: Journal, options: Options) -> Self {
        Self {
            disk,
            stripes: BTreeMap::new(),
            journal,
            gates: BTreeMap::new(),
            files: OpenFiles::default(),
            suspects: BTreeSet::new(),
            directories: BTreeSet::new(),
            next_temporary: 0,
            unlogged_marks: BTreeSet::new(),
            pending_bytes: 0,
            pins: Pins::default(),
            reserve_syncs: Arc::new(ReserveSyncs::default()),
            witnesses: BTreeMap::new(),
            head_cache: HeadCache::default(),
            swapped_cache: BTreeMap::new(),
            run_order: RunOrder::new(options),
            making: BTreeMap::new(),
        }
    }

    pub(crate) fn chunk(&self, chunk: ChunkId) -> Option<&Chunk> {
        self.stripes.get(&chunk.stripe)?.chunks.get(&chunk.index)
    }

    pub(crate) fn chunk_mut(&mut self, chunk: ChunkId) -> Option<&mut Chunk> {
        let stripe = self.stripes.get_mut(&chunk.stripe)?;
        stripe.chunks.get_mut(&chunk.index)
    }

    /// The gate of a chunk, whether or not the chunk is here.
    pub(crate) fn gate(&mut self, chunk: ChunkId) -> Arc<Gate> {
        Arc::clone(self.gates.entry(chunk).or_default())
    }

    /// The header of a chunk, read from its file when it is needed for the first time.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`], [`StoreError::Corrupt`] for the whole chunk,
    /// [`StoreError::Failed`] for one that could not be written, and [`StoreError::Io`] when the disk
    /// fails.
    pub(crate) fn header(&mut self, chunk: ChunkId) -> Result<ChunkHeader, StoreError> {
        let corrupt = StoreError::Corrupt {
            chunk,
            range: Damage::WHOLE,
        };
        let entry = self.chunk(chunk).ok_or(StoreError::NoSuchChunk { chunk })?;
        match entry.header {
            Header::Known(header) => return Ok(header),
            Header::Damaged => return Err(corrupt),
            Header::Torn => {
                let cause = format!("{chunk} was being written");
                return Err(StoreError::Failed { cause });
            }
            Header::Unread => {}
        }
        let file = self.open_chunk(chunk)?;
        let witness = self.witnesses.get(&chunk).copied();
        let read = file::read_header(Source::File(&*file), chunk).and_then(|header| {
            // A header beside a reserve changes without an image in the journal, so after a failed
            // sync the system's memory may have another than the device.
            match header.spec.keeping {
                Keeping::Reserve { .. } => file::read_header(Source::Device(&*file), chunk),
                Keeping::InPlace | Keeping::AtOnce | Keeping::Log => Ok(header),
            }
        });
        let found = read.and_then(|header| {
            let synced_lsn = witness.map_or(0, |witness| witness.of(&header));
            Ok((header, reserve::find(&*file, &header, synced_lsn)?))
        });
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

    /// Takes over a chunk's header as it is on disk now: the stripe learns from it, and records
    /// that it includes are no longer pending.
    pub(crate) fn set_header(&mut self, header: ChunkHeader) {
        let (included, swapped) = self.take_included(header);
        self.forget(included);
        if let Some(swapped) = swapped {
            self.forget_swapped(swapped);
        }
    }

    /// Serves nothing of a chunk until it is replaced, now or at any later start.
    pub(crate) fn suspect(&mut self, chunk: ChunkId) {
        if let Some(entry) = self.chunk_mut(chunk) {
            entry.header = Header::Damaged;
            entry.reserve = None;
            let untrusted = std::mem::take(&mut entry.pending);
            let swapped = entry.swapped.take();
            self.forget(untrusted);
            if let Some(swapped) = swapped {
                self.forget_swapped(swapped);
            }
            self.suspects.insert(chunk);
        }
    }

    /// Drops the pending records of a chunk that lie before a position.
    pub(crate) fn forget_before(&mut self, chunk: ChunkId, lsn: u64) {
        let Some(entry) = self.chunk_mut(chunk) else {
            return;
        };
        let is_before = |_: &Sequence, record: &mut Pending| record.position.lsn < lsn;
        let untrusted = entry.pending.extract_if(.., is_before).collect();
        self.forget(untrusted);
    }

    /// Takes over that a chunk was replaced or removed.
    pub(crate) fn clear_suspicion(&mut self, chunk: ChunkId) {
        if self.suspects.remove(&chunk) && self.suspects.is_empty() {
            self.journal.clear_damage();
        }
    }

    /// As [`State::set_header`], but the journal goes on keeping the records, for the caller to
    /// [`State::forget`].
    pub(crate) fn take_included(
        &mut self,
        header: ChunkHeader,
    ) -> (BTreeMap<Sequence, Pending>, Option<Swapped>) {
        let (chunk, spec) = (header.chunk, header.spec);
        let stripe = self.stripes.entry(chunk.stripe).or_default();
        stripe.learn(stripe.epoch, spec.generation, spec.base);
        let entry = stripe.chunks.entry(chunk.index).or_default();
        entry.header = Header::Known(header);
        entry.reserve = match (reserve::reserve_of(&header), entry.reserve.take()) {
            (Some(fresh), Some(known)) => Some(known.changed_to(fresh.first_lsn, fresh.bytes)),
            (fresh, _) => fresh,
        };
        let next = spec.base.0.checked_add(1);
        let later = next.map(|next| entry.pending.split_off(&Sequence(next)));
        let swapped = entry.swapped.take_if(|swapped| swapped.newest <= spec.base);
        let included = std::mem::replace(&mut entry.pending, later.unwrap_or_default());
        (included, swapped)
    }

    /// Reads the headers of all chunks of a stripe, so that its state includes what they say.
    /// Damaged ones say nothing.
    pub(crate) fn know_stripe(&mut self, stripe: StripeId) -> Result<(), StoreError> {
        let Some(known) = self.stripes.get(&stripe) else {
            return Err(StoreError::NoSuchStripe { stripe });
        };
        let unread = |(index, chunk): (&_, &Chunk)| {
            matches!(chunk.header, Header::Unread).then_some(ChunkId {
                stripe,
                index: *index,
            })
        };
        for chunk in known.chunks.iter().filter_map(unread).collect::<Vec<_>>() {
            match self.header(chunk) {
                Ok(_) | Err(StoreError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds a record to the pending ones of its chunk, which must be here.
    pub(crate) fn remember(&mut self, pending: Pending) {
        self.journal.keep(pending.position);
        self.adopt(pending);
    }

    /// As [`State::remember`] for a record that the journal keeps already.
    pub(crate) fn adopt(&mut self, pending: Pending) {
        let (position, sequence) = (pending.position, pending.head.stamp.sequence);
        self.pending_bytes += u64::from(position.frame_bytes);
        let chunk = pending.head.chunk;
        let entry = self
            .chunk_mut(chunk)
            .expect("records are kept for chunks that are here");
        if let Some(older) = entry.pending.insert(sequence, pending) {
            self.forget(BTreeMap::from([(sequence, older)]));
        }
    }

    /// Lets the journal know that records are needed no more.
    pub(crate) fn forget(&mut self, records: BTreeMap<Sequence, Pending>) {
        for pending in records.into_values() {
            self.pending_bytes -= u64::from(pending.position.frame_bytes);
            self.journal.release(pending.position);
        }
    }

    /// Sees to it that a frame of this size can be appended.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when the disk is full, with nothing changed that matters.
    pub(crate) fn make_room(
        &mut self,
        frame_bytes: u64,
        options: Options,
        room: Room,
    ) -> Result<(), StoreError> {
        if !self.journal.fits(frame_bytes) {
            self.rotate(options)?;
        }
        if !self.journal.fits(frame_bytes) {
            // A full disk has left a small segment.
            return Err(StoreError::NoSpace {
                operation: "the journal",
                needed_bytes: frame_bytes,
            });
        }
        if room == Room::Ordinary && !self.journal.has_spare(1) {
            self.make_spare(options)?;
        }
        Ok(())
    }

    /// Allocates the next segment.
    pub(crate) fn make_spare(&mut self, options: Options) -> Result<(), StoreError> {
        let least_bytes = self.spare_bytes_min(options);
        self.journal
            .make_spare(least_bytes.max(options.segment_bytes()))
    }

    /// Begins a new segment with a checkpoint of all stripes.
    pub(crate) fn rotate(&mut self, options: Options) -> Result<(), StoreError> {
        self.dismiss_witnesses();
        let least_bytes = self.spare_bytes_min(options);
        if !self.journal.has_spare(least_bytes) {
            match self.make_spare(options) {
                // Half a segment is enough to apply and so to make room.
                Err(StoreError::NoSpace { .. }) => self.journal.make_spare(least_bytes)?,
                other => other?,
            }
        }
        let state_of = |(id, stripe): (&StripeId, &Stripe)| Entry::State {
            stripe: stripe.state_mark(*id),
            dropped: stripe.dropped.clone(),
        };
        self.unlogged_marks.clear();
        let states = self.stripes.iter().map(state_of);
        let witnesses = self.witnesses.iter().map(|(chunk, w)| w.entry(*chunk));
        let runs = self.runs_checkpoint().into_iter();
        self.journal.rotate(states.chain(runs).chain(witnesses))?;
        self.runs_are_logged();
        Ok(())
    }

    /// Bytes that the next segment needs to hold a checkpoint and still be of use.
    fn spare_bytes_min(&self, options: Options) -> u64 {
        // A stripe's state has at most 4 numbers and a count, of 10 bytes each at most, and as
        // much as two numbers for each update dropped. Tens of bytes are usual.
        let bound = |stripe: &Stripe| frame::frame_bytes(50 + 20 * stripe.dropped.len(), 0) as u64;
        let states_bytes: u64 = self.stripes.values().map(bound).sum();
        let checkpoint_bytes = states_bytes
            + self.runs_checkpoint_bytes_max()
            + WITNESS_BYTES_MAX * self.witnesses.len() as u64;
        SEGMENT_HEADER_BYTES + checkpoint_bytes + options.segment_bytes() / 2
    }
}
