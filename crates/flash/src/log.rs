//! The log module (`CodFS` thesis, section 6.2.2): pages go to the buffer of their group, full
//! buffers go to the devices as whole stripes, and writes as large as a stripe go there at once.

use crate::buffers::{Buffers, Room};
use crate::device::Device;
use crate::error::FlashError;
use crate::files::TABLE;
use crate::format::{Entry, StripeState, Summed, encode_summary};
use crate::geometry::{ENTRY_BYTES, PAGE_BYTES, header_offset};
use crate::nvram::Nvram;
use crate::page_map::Place;
use crate::store::{FlashStore, State};
use std::sync::PoisonError;

/// The origin of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writer {
    /// A user, who may not take the reserved stripes.
    User,
    /// Collection, which frees more than it takes.
    Collector,
}

/// The missing resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    /// A stripe that is ready to be opened.
    Stripe,
    /// An empty buffer.
    Buffer,
    /// Slots that wait for their successors to be durable.
    Slots,
    /// Space below the devices for this many stripes.
    Below(u32),
}

/// Causes that halt an attempt.
pub(crate) enum Halt {
    /// It may succeed once this resource is available.
    Short(Shortage),
    /// It cannot succeed.
    Failed(FlashError),
}

impl From<FlashError> for Halt {
    fn from(error: FlashError) -> Self {
        Self::Failed(error)
    }
}

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Attempts an operation under the state's lock. If it lacks a resource, obtains that without
    /// the lock and retries. An attempt that halts must have changed nothing.
    pub(crate) fn attempt<T>(
        &self,
        writer: Writer,
        mut attempt: impl FnMut(&mut State) -> Result<T, Halt>,
    ) -> Result<T, FlashError> {
        loop {
            let shortage = {
                let mut state = self.lock();
                Self::check(&state)?;
                match attempt(&mut state) {
                    Ok(value) => return Ok(value),
                    Err(Halt::Failed(error)) => return Err(error),
                    Err(Halt::Short(shortage)) => shortage,
                }
            };
            match shortage {
                Shortage::Stripe => self.prepare(writer)?,
                Shortage::Buffer => self.free_buffer()?,
                Shortage::Slots => self.persist()?,
                Shortage::Below(stripe_count) => self.back(stripe_count)?,
            }
        }
    }

    /// Puts a page into a group's buffer, or without a group into the one that will be flushed
    /// first, and updates the map.
    pub(crate) fn append(
        &self,
        state: &mut State,
        writer: Writer,
        group: Option<usize>,
        (file, page): (u32, u32),
        (contents, summed): (&[u8], &Summed),
    ) -> Result<(), Halt> {
        let (buffer, stripe, slot) = self.slot(state, writer, group)?;
        let sequence = state.sequence;
        state.sequence += 1;
        let entry = Entry::of(file, page, sequence, summed);
        self.stage(state, self.slot_offset(buffer, slot), contents)?;
        let base = state.stripes.get(stripe).base;
        let offset = self.geometry.entry_offset(stripe, slot);
        self.stage(state, offset, &entry.encode(base))?;
        let older = state.set_place(file, page, self.place(stripe, slot));
        state.stripes.gain(stripe);
        if let Some(older) = older {
            state.counts.absorbed_pages += u64::from(self.release(state, older));
        }
        Ok(())
    }

    /// Notes that the page of a place has moved or is gone. Returns whether it was in a buffer.
    pub(crate) fn release(&self, state: &mut State, place: Place) -> bool {
        let (stripe, slot) = self.split(place);
        let now = state.clock;
        state.stripes.lose(stripe, slot, now);
        let StripeState::Open { buffer } = state.stripes.get(stripe).state else {
            return false;
        };
        let ticket = state.staged.ticket;
        state
            .buffers
            .retire(usize::from(buffer), stripe, slot, ticket);
        true
    }

    /// Takes a slot of the group's buffer, and opens one if needed. Without a group it takes a slot
    /// that will be flushed soon.
    fn slot(
        &self,
        state: &mut State,
        writer: Writer,
        group: Option<usize>,
    ) -> Result<(usize, u32, u32), Halt> {
        let mut freed = match group {
            Some(_) => None,
            None => state.buffers.take_freed(),
        };
        let mut group = group.unwrap_or_else(|| state.buffers.fullest_group());
        loop {
            let room = freed.take();
            match room.unwrap_or_else(|| state.buffers.take(group)) {
                Room::Slot {
                    buffer,
                    stripe,
                    slot,
                } => {
                    let age = state.sequence - state.stripes.get(stripe).base;
                    if age > u64::from(u32::MAX) {
                        // An entry's sequence is relative to the stripe's base in 32 bits. A buffer
                        // too old for that is flushed as it is; that slot and its other free ones
                        // stay empty.
                        state.buffers.close(buffer);
                        continue;
                    }
                    return Ok((buffer, stripe, slot));
                }
                Room::Retired => return Err(Halt::Short(Shortage::Slots)),
                Room::None => {}
            }
            let Some(buffer) = state.buffers.idle() else {
                return Err(Halt::Short(Shortage::Buffer));
            };
            let Some(stripe) = state.prepared.pop() else {
                // If even collection finds no free stripe, any slot will do.
                let other = state.buffers.group_with_room();
                if writer == Writer::Collector
                    && state.stripes.free_count() == 0
                    && let Some(other) = other
                {
                    group = other;
                    continue;
                }
                return Err(Halt::Short(Shortage::Stripe));
            };
            let header = StripeState::Open {
                buffer: buffer as u8,
            };
            self.stage_header(state, stripe, header)?;
            state.stripes.open(stripe, buffer as u8);
            state.buffers.open(group, buffer, stripe);
        }
    }

    /// Makes a free stripe ready to be opened: its table is durably empty before its header marks
    /// it as used. Collects first if only reserved stripes are free.
    fn prepare(&self, writer: Writer) -> Result<(), FlashError> {
        let reserved = match writer {
            Writer::User => self.geometry.reserved_stripes(),
            Writer::Collector => 0,
        };
        let mut is_last = false;
        let stripe = loop {
            {
                let mut state = self.lock();
                Self::check(&state)?;
                if !state.prepared.is_empty() {
                    return Ok(());
                }
                let (base, now) = (state.sequence, state.clock);
                if state.stripes.ready_count() > reserved
                    && let Some(stripe) = state.stripes.take_free(base, now)
                {
                    self.stage_empty(&mut state, stripe, base)?;
                    break stripe;
                }
                if state.stripes.free_count() > reserved {
                    let wanted = state.stripes.backed() + 1;
                    drop(state);
                    match self.back(wanted) {
                        // Without space for more, stripes that have space are collected.
                        Ok(()) | Err(FlashError::FullBelow { .. }) => continue,
                        Err(error) => return Err(error),
                    }
                }
                state.counts.stall_count += u64::from(writer == Writer::User);
            }
            // Collection must not collect recursively, and gains nothing without stale pages.
            // Buffers that wait for a flush may be stale, and another thread may have freed a
            // stripe.
            let is_stuck = writer == Writer::Collector || !self.collect()?;
            if is_stuck && is_last {
                return Err(FlashError::NoSpace {
                    capacity_pages: self.geometry.capacity_pages(),
                });
            }
            if is_stuck && writer == Writer::User {
                self.flush()?;
            }
            is_last = is_stuck;
        };
        self.persist()?;
        self.lock().prepared.push(stripe);
        Ok(())
    }

    /// Clears the table of a stripe, and sets its base.
    fn stage_empty(&self, state: &mut State, stripe: u32, base: u64) -> Result<(), FlashError> {
        let zeros = vec![0; self.geometry.slot_count() as usize * ENTRY_BYTES as usize];
        let header = header_offset(stripe);
        self.stage(state, header + 8, &base.to_le_bytes())?;
        self.stage(state, self.geometry.entry_offset(stripe, 0), &zeros)
    }

    /// Writes all full buffers to the devices.
    ///
    /// # Errors
    /// Latches the store when more devices fail than the array survives, or the memory fails.
    pub(crate) fn flush(&self) -> Result<(), FlashError> {
        self.flush_while(Buffers::has_full)
    }

    /// Writes full buffers to the devices until one is idle, or none is full.
    ///
    /// # Errors
    /// As for [`FlashStore::flush`].
    pub(crate) fn free_buffer(&self) -> Result<(), FlashError> {
        self.flush_while(Buffers::is_flush_due)
    }

    fn flush_while(&self, is_due: fn(&Buffers) -> bool) -> Result<(), FlashError> {
        let mut scratch = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (buffer, stripe, base) = {
                let mut state = self.lock();
                Self::check(&state)?;
                if !is_due(&state.buffers) {
                    return Ok(());
                }
                let Some((buffer, stripe)) = state.buffers.next_full() else {
                    return Ok(());
                };
                (buffer, stripe, state.stripes.get(stripe).base)
            };
            // Entries of a sealed stripe are trusted without their pages, so they are made durable
            // first.
            self.persist()?;
            let mut table = self.table(stripe)?;
            let data = self.lay_out(stripe, base, &mut table, &mut scratch.data);
            self.nvram
                .read(self.geometry.buffer_offset(buffer), data)
                .map_err(|source| FlashError::io("read the non-volatile memory", source))?;
            let scratch = &mut *scratch;
            let written = self
                .array
                .write_stripe(stripe, &scratch.data, &mut scratch.parity);
            if let Err(FlashError::FullBelow { .. }) = written {
                self.lock().buffers.keep_full(buffer);
            }
            let missing = written.map_err(|error| self.latch(error))?;
            self.stage_header(&mut self.lock(), stripe, StripeState::Sealed { missing })?;
            self.persist()?;
            let mut state = self.lock();
            let now = state.clock;
            state.stripes.seal(stripe, missing, now);
            state.buffers.release(buffer);
            state.counts.flushed_stripes += 1;
        }
    }

    /// The table of a stripe, from the non-volatile memory.
    pub(crate) fn table(&self, stripe: u32) -> Result<Vec<u8>, FlashError> {
        let mut table = vec![0; self.geometry.slot_count() as usize * ENTRY_BYTES as usize];
        self.nvram
            .read(self.geometry.entry_offset(stripe, 0), &mut table)
            .map_err(|source| FlashError::io("read the non-volatile memory", source))?;
        Ok(table)
    }

    /// Lays `data` out as a stripe with its summary, and returns the part for its pages.
    fn lay_out<'a>(
        &self,
        stripe: u32,
        base: u64,
        table: &mut [u8],
        data: &'a mut Vec<u8>,
    ) -> &'a mut [u8] {
        data.resize(self.geometry.stripe_pages() as usize * PAGE_BYTES, 0);
        let summary_bytes = self.geometry.summary_pages() as usize * PAGE_BYTES;
        let (summary, pages) = data.split_at_mut(summary_bytes);
        encode_summary(self.identity, stripe, base, table, summary);
        pages
    }

    /// Writes a stripe's worth of pages of a file without a buffer. The file must already reach
    /// that far.
    pub(crate) fn write_direct(
        &self,
        file: u32,
        first: u32,
        contents: &[u8],
    ) -> Result<(), FlashError> {
        let slot_count = self.geometry.slot_count();
        let stripe = self.attempt(Writer::User, |state| {
            let pages = first..first + slot_count;
            let fresh = pages.filter(|&page| !state.is_granted(file, page));
            self.check_space(state, fresh.count() as u64)?;
            state.prepared.pop().ok_or(Halt::Short(Shortage::Stripe))
        })?;
        let mut scratch = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = &mut *scratch;
        let (base, sequence) = {
            let mut state = self.lock();
            let sequence = state.sequence;
            state.sequence += u64::from(slot_count);
            (state.stripes.get(stripe).base, sequence)
        };
        let pages = contents.chunks_exact(PAGE_BYTES).zip(0_u32..);
        let mut table: Vec<u8> = pages
            .flat_map(|(contents, slot)| {
                let sequence = sequence + u64::from(slot);
                Entry::of(file, first + slot, sequence, &Summed::of(contents)).encode(base)
            })
            .collect();
        self.lay_out(stripe, base, &mut table, &mut scratch.data)
            .copy_from_slice(contents);
        let written = self
            .array
            .write_stripe(stripe, &scratch.data, &mut scratch.parity);
        if let Err(FlashError::FullBelow { .. }) = written {
            self.lock().prepared.push(stripe);
        }
        let missing = written.map_err(|error| self.latch(error))?;
        let offset = self.geometry.entry_offset(stripe, 0);
        self.stage(&mut self.lock(), offset, &table)?;
        self.persist()?;
        self.stage_header(&mut self.lock(), stripe, StripeState::Sealed { missing })?;
        self.persist()?;
        self.adopt(stripe, missing, (file, first), sequence)
    }

    /// Updates the map for a stripe that was written without a buffer, except for pages that were
    /// rewritten during the write.
    fn adopt(
        &self,
        stripe: u32,
        missing: u16,
        (file, first): (u32, u32),
        sequence: u64,
    ) -> Result<(), FlashError> {
        let mut state = self.lock();
        for slot in 0..self.geometry.slot_count() {
            let (page, sequence) = (first + slot, sequence + u64::from(slot));
            let inode = state.files.get(file);
            let mut is_newest = inode.is_some_and(|inode| inode.holds(page, sequence));
            if let Some(place) = state.map.get(file, page) {
                let entry = self.entry(&state, place)?;
                is_newest &= entry.is_none_or(|entry| entry.sequence < sequence);
            }
            if is_newest {
                let older = state.set_place(file, page, self.place(stripe, slot));
                state.stripes.gain(stripe);
                if let Some(older) = older {
                    self.release(&mut state, older);
                }
            }
            let now = state.clock;
            state.hotness.written(file, page, now);
            state.clock += 1;
        }
        let now = state.clock;
        state.stripes.seal(stripe, missing, now);
        state.counts.direct_stripes += 1;
        state.counts.written_pages += u64::from(self.geometry.slot_count());
        Ok(())
    }

    /// Puts a page into the group of its hotness. For users; collection classifies the pages that
    /// it moves. Pages of the table go into the next flush, so that the devices hold a recent copy
    /// however hot it is.
    pub(crate) fn append_written(
        &self,
        state: &mut State,
        group: &mut Option<usize>,
        (file, page): (u32, u32),
        contents: (&[u8], &Summed),
    ) -> Result<(), Halt> {
        let clock = state.clock;
        // Classified once, over all attempts.
        let group = match file {
            TABLE => None,
            _ => Some(*group.get_or_insert_with(|| state.hotness.written(file, page, clock))),
        };
        self.append(state, Writer::User, group, (file, page), contents)?;
        if file == TABLE {
            state.counts.table_pages += 1;
        } else {
            state.clock += 1;
            state.counts.written_pages += 1;
        }
        Ok(())
    }
}
