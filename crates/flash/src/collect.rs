//! Collection (`CodFS` thesis, section 6.2.2): the live pages of a stripe go back through the
//! hotness module into the buffers, which frees the stripe.
//!
//! The caller selects the thesis's mode: active is frequent [`FlashStore::maintain`], periodic is
//! [`FlashStore::collect`] at times of low load. Neither holds the state's lock for longer than one
//! page takes, so writes go on.

use crate::device::Device;
use crate::error::FlashError;
use crate::format::{Entry, StripeState};
use crate::geometry::{ENTRY_BYTES, PAGE_BYTES};
use crate::log::Writer;
use crate::nvram::Nvram;
use crate::store::FlashStore;
use std::sync::PoisonError;

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Runs due maintenance: checks for space below the devices after there was none, flushes a
    /// full buffer if none is idle, and collects while too few stripes are free. For a thread of
    /// the caller's, so that writes need not do this work.
    ///
    /// # Errors
    /// The first failure of the store.
    pub fn maintain(&self) -> Result<(), FlashError> {
        self.back_again();
        self.free_buffer()?;
        while self.lock().stripes.free_count() < self.wanted_free_count() {
            if !self.collect()? {
                break;
            }
        }
        Ok(())
    }

    /// Whether [`FlashStore::maintain`] has work.
    pub fn is_maintenance_due(&self) -> bool {
        let wanted = self.wanted_free_count();
        let state = self.lock();
        state.buffers.is_flush_due() || state.stripes.free_count() < wanted
    }

    /// Free stripes below which active collection begins.
    fn wanted_free_count(&self) -> u32 {
        let share = u64::from(self.options.active_permille) * u64::from(self.geometry.stripe_count);
        self.geometry.reserved_stripes() + (share / 1000) as u32
    }

    /// Empties one stripe. Returns false if none that can be emptied has stale pages: a stripe with an
    /// unreadable live page is set aside until the page is stale or the stripe is rebuilt
    /// ([`FlashStore::unreadable`] lists it), and the next one is taken.
    ///
    /// # Errors
    /// The first failure of the store.
    pub fn collect(&self) -> Result<bool, FlashError> {
        let _turn = self
            .collecting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let victim = loop {
            let victim = {
                let mut state = self.lock();
                Self::check(&state)?;
                let now = state.clock;
                state.stripes.choose(self.options.victims, now)
            };
            let Some(victim) = victim else {
                return Ok(false);
            };
            match self.empty(victim) {
                Ok(true) => break victim,
                Ok(false) => {}
                Err(error) => {
                    self.lock().stripes.give_back(victim);
                    return Err(error);
                }
            }
        };
        // The new copies of its pages must be durable before the stripe may be overwritten, and its
        // header must be free before any other use.
        self.persist()?;
        self.stage_header(&mut self.lock(), victim, StripeState::Free)?;
        self.persist()?;
        if self.options.discards {
            self.array.discard(victim);
        }
        let mut state = self.lock();
        state.stripes.free(victim);
        state.counts.collected_stripes += 1;
        Ok(true)
    }

    /// Moves the live pages of a sealed stripe to buffers. If one is unreadable, sets the stripe aside and
    /// returns false.
    fn empty(&self, victim: u32) -> Result<bool, FlashError> {
        let (live, base) = {
            let state = self.lock();
            let stripe = state.stripes.get(victim);
            (stripe.live, stripe.base)
        };
        if live == 0 {
            return Ok(true);
        }
        let table = self.table(victim)?;
        let mut contents = vec![0; PAGE_BYTES];
        for (slot, bytes) in (0_u32..).zip(table.chunks_exact(ENTRY_BYTES as usize)) {
            let Some(entry) = Entry::decode(base, bytes) else {
                continue;
            };
            let place = self.place(victim, slot);
            let missing = {
                let state = self.lock();
                let StripeState::Sealed { missing } = state.stripes.get(victim).state else {
                    unreachable!("a stripe that is being collected stays sealed");
                };
                if state.map.get(entry.file, entry.page) != Some(place) {
                    continue;
                }
                missing
            };
            let Ok(summed) = self.read_slot(place, &entry, missing, &mut contents) else {
                let mut state = self.lock();
                if state.map.get(entry.file, entry.page) == Some(place) {
                    state.stripes.set_aside(victim, slot);
                    return Ok(false);
                }
                continue;
            };
            self.attempt(Writer::Collector, |state| {
                // A write may have replaced the page during the move.
                if state.map.get(entry.file, entry.page) != Some(place) {
                    return Ok(());
                }
                let now = state.clock;
                let group = state.hotness.moved(entry.file, entry.page, now);
                let page = (entry.file, entry.page);
                self.append(
                    state,
                    Writer::Collector,
                    Some(group),
                    page,
                    (&contents, &summed),
                )?;
                state.counts.moved_pages += 1;
                Ok(())
            })?;
        }
        Ok(true)
    }
}
