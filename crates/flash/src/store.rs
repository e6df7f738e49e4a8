//! The store: the state that its parts share, and how staged changes of the non-volatile memory
//! become durable.
//!
//! Lock order: `collecting`, `flushing`, `persisting`, `state`. No device is read or written, and
//! nothing is made durable, under `state`. So a write waits for another's bookkeeping, never for
//! its I/O, while free stripes and buffers remain.

use crate::array::Array;
use crate::buffers::Buffers;
use crate::device::Device;
use crate::error::FlashError;
use crate::files::Files;
use crate::format::{Entry, StripeState, encode_header};
use crate::geometry::{ENTRY_BYTES, Geometry, PAGE_BYTES, header_offset};
use crate::hotness::{Hotness, HotnessOptions};
use crate::nvram::Nvram;
use crate::page_map::{PageMap, Place};
use crate::stripes::{Stripes, Victims};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Options of a store; the devices do not record them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashOptions {
    /// Parameters of the grouping by hotness.
    pub hotness: HotnessOptions,
    /// Selection of the next stripe to collect.
    pub victims: Victims,
    /// Share of free stripes, in per mille of all and beyond the reserved ones, below which
    /// [`FlashStore::maintain`] collects: the thesis's active mode. With 0, only writes that find
    /// no free stripe and [`FlashStore::collect`] collect, which is the periodic mode.
    pub active_permille: u32,
    /// Whether free stripes are discarded on the devices (TRIM).
    pub discards: bool,
}

impl Default for FlashOptions {
    fn default() -> Self {
        Self {
            hotness: HotnessOptions::default(),
            victims: Victims::DecliningCost,
            active_permille: 5,
            discards: true,
        }
    }
}

/// Counters of a store since it was opened. Pages are of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlashCounts {
    /// Pages of files written, whole or in part.
    pub written_pages: u64,
    /// Pages of the table of files written.
    pub table_pages: u64,
    /// Pages whose older bytes were still in a buffer and never reached a device.
    pub absorbed_pages: u64,
    /// Pages that collection moved.
    pub moved_pages: u64,
    /// Stripes written from buffers.
    pub flushed_stripes: u64,
    /// Stripes written without a buffer.
    pub direct_stripes: u64,
    /// Stripes that collection emptied.
    pub collected_stripes: u64,
    /// Times that a write had to collect.
    pub stall_count: u64,
}

/// The space usage of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashUsage {
    /// Pages of files, the table included.
    pub live_pages: u64,
    /// Pages that are allotted to files and not written yet.
    pub allotted_pages: u64,
    /// Capacity for live and allotted pages; lower while there is no space below the devices.
    pub capacity_pages: u64,
    /// Free stripes.
    pub free_stripes: u32,
    /// All stripes.
    pub stripe_count: u32,
    /// Stripes on the devices.
    pub sealed_stripes: u32,
    /// Sealed stripes that lack a chunk now: its device is absent, or has not been rebuilt yet.
    pub degraded_stripes: u32,
}

/// Changes of the non-volatile memory that may not be durable.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    ranges: Vec<Range<u64>>,
    /// Changes so far.
    pub(crate) ticket: u64,
}

/// Everything under the state's lock.
pub(crate) struct State {
    pub(crate) map: PageMap,
    pub(crate) files: Files,
    pub(crate) stripes: Stripes,
    pub(crate) buffers: Buffers,
    pub(crate) hotness: Hotness,
    /// Sequence of the next entry.
    pub(crate) sequence: u64,
    /// Pages of files ever written: the store's clock.
    pub(crate) clock: u64,
    pub(crate) staged: Staged,
    /// Free stripes with an empty table, ready to be opened.
    pub(crate) prepared: Vec<u32>,
    pub(crate) counts: FlashCounts,
    /// Pages of all files that are allotted and not written.
    pub(crate) allotted_pages: u64,
    failure: Option<String>,
}

/// Memory for a stripe during its flush.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) data: Vec<u8>,
    pub(crate) parity: Vec<u8>,
}

/// A log-structured store of files over an array of devices.
pub struct FlashStore<D, N> {
    pub(crate) geometry: Geometry,
    pub(crate) identity: u64,
    pub(crate) options: FlashOptions,
    pub(crate) array: Array<D>,
    pub(crate) nvram: N,
    pub(crate) collecting: Mutex<()>,
    pub(crate) flushing: Mutex<Scratch>,
    persisting: Mutex<()>,
    /// Changes up to this ticket are durable. Grows under `persisting`.
    persisted: AtomicU64,
    state: Mutex<State>,
}

impl<D: Device, N: Nvram> FlashStore<D, N> {
    pub(crate) fn assemble(
        identity: u64,
        options: FlashOptions,
        array: Array<D>,
        nvram: N,
        found: Found,
    ) -> Self {
        let geometry = found.geometry;
        let mut state = State {
            map: found.map,
            files: found.files,
            stripes: found.stripes,
            buffers: found.buffers,
            hotness: Hotness::new(
                options.hotness,
                geometry.group_count,
                geometry.capacity_pages(),
            ),
            sequence: found.sequence,
            clock: 0,
            staged: Staged::default(),
            prepared: Vec::new(),
            counts: FlashCounts::default(),
            allotted_pages: 0,
            failure: None,
        };
        let numbers = state.files.all();
        state.allotted_pages = numbers.map(|number| state.pending_pages(number)).sum();
        Self {
            geometry,
            identity,
            options,
            array,
            nvram,
            collecting: Mutex::new(()),
            flushing: Mutex::new(Scratch::default()),
            persisting: Mutex::new(()),
            persisted: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// The store's parameters.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Its counters since it was opened.
    pub fn counts(&self) -> FlashCounts {
        self.lock().counts
    }

    /// Its space usage.
    pub fn usage(&self) -> FlashUsage {
        let absent = self.array.absent();
        let state = self.lock();
        let sealed = || state.stripes.sealed_missing();
        FlashUsage {
            live_pages: state.map.page_count(),
            allotted_pages: state.allotted_pages,
            capacity_pages: if state.stripes.is_full_below() {
                self.geometry.capacity_of(state.stripes.backed())
            } else {
                self.geometry.capacity_pages()
            },
            free_stripes: state.stripes.free_count(),
            stripe_count: state.stripes.count(),
            sealed_stripes: sealed().count() as u32,
            degraded_stripes: sealed().filter(|missing| missing | absent != 0).count() as u32,
        }
    }

    /// The non-volatile memory.
    pub fn nvram(&self) -> &N {
        &self.nvram
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses after an earlier write or sync failed.
    pub(crate) fn check(state: &State) -> Result<(), FlashError> {
        match &state.failure {
            Some(cause) => Err(FlashError::Failed {
                cause: cause.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Records a failure after which the store guarantees nothing. Lack of space below a device is
    /// not one.
    pub(crate) fn latch(&self, error: FlashError) -> FlashError {
        if matches!(error, FlashError::FullBelow { .. }) {
            return error;
        }
        let mut state = self.lock();
        state.failure.get_or_insert_with(|| error.to_string());
        error
    }

    /// Changes the non-volatile memory; it is durable once [`FlashStore::persist`] has passed.
    pub(crate) fn stage(
        &self,
        state: &mut State,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FlashError> {
        if let Err(source) = self.nvram.write(offset, bytes) {
            let error = FlashError::io("write to the non-volatile memory", source);
            state.failure.get_or_insert_with(|| error.to_string());
            return Err(error);
        }
        state.staged.ticket += 1;
        let end = offset + bytes.len() as u64;
        match state.staged.ranges.last_mut() {
            Some(last) if last.end == offset => last.end = end,
            _ => state.staged.ranges.push(offset..end),
        }
        Ok(())
    }

    pub(crate) fn stage_header(
        &self,
        state: &mut State,
        stripe: u32,
        header: StripeState,
    ) -> Result<(), FlashError> {
        let word = encode_header(stripe, state.stripes.get(stripe).base, header);
        self.stage(state, header_offset(stripe), &word)
    }

    /// Makes everything staged so far durable, and frees the slots that wait for that.
    ///
    /// # Errors
    /// Latches the store when the memory fails.
    pub(crate) fn persist(&self) -> Result<(), FlashError> {
        let wanted = self.lock().staged.ticket;
        self.persist_up_to(wanted)?;
        // Slots may have been retired after the sync that they wait for.
        let persisted = self.persisted.load(Ordering::Acquire);
        self.lock().buffers.settle(persisted);
        Ok(())
    }

    /// Makes changes up to a ticket durable. Callers that arrive during another's sync share the
    /// next one.
    ///
    /// # Errors
    /// Latches the store when the memory fails.
    pub(crate) fn persist_up_to(&self, wanted: u64) -> Result<(), FlashError> {
        let is_durable = || self.persisted.load(Ordering::Acquire) >= wanted;
        if is_durable() {
            return Ok(());
        }
        let _turn = self
            .persisting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if is_durable() {
            return Ok(());
        }
        let (ranges, ticket) = {
            let mut state = self.lock();
            Self::check(&state)?;
            let ranges = std::mem::take(&mut state.staged.ranges);
            (ranges, state.staged.ticket)
        };
        self.nvram
            .persist(&ranges)
            .map_err(|source| self.latch(FlashError::io("sync the non-volatile memory", source)))?;
        self.persisted.store(ticket, Ordering::Release);
        self.lock().buffers.settle(ticket);
        Ok(())
    }

    /// The slot of a place.
    pub(crate) fn split(&self, place: Place) -> (u32, u32) {
        let slots = self.geometry.slot_count();
        (place.0 / slots, place.0 % slots)
    }

    pub(crate) fn place(&self, stripe: u32, slot: u32) -> Place {
        Place(stripe * self.geometry.slot_count() + slot)
    }

    /// The table's entry of a place.
    pub(crate) fn entry(&self, state: &State, place: Place) -> Result<Option<Entry>, FlashError> {
        let (stripe, slot) = self.split(place);
        let mut bytes = [0; ENTRY_BYTES as usize];
        self.nvram
            .read(self.geometry.entry_offset(stripe, slot), &mut bytes)
            .map_err(|source| FlashError::io("read the non-volatile memory", source))?;
        Ok(Entry::decode(state.stripes.get(stripe).base, &bytes))
    }

    /// Offset of a buffer's slot in the non-volatile memory.
    pub(crate) fn slot_offset(&self, buffer: usize, slot: u32) -> u64 {
        self.geometry.buffer_offset(buffer) + u64::from(slot) * PAGE_BYTES as u64
    }
}

/// The initial contents of a store.
pub(crate) struct Found {
    pub(crate) geometry: Geometry,
    pub(crate) map: PageMap,
    pub(crate) files: Files,
    pub(crate) stripes: Stripes,
    pub(crate) buffers: Buffers,
    pub(crate) sequence: u64,
}
