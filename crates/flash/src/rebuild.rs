//! Rebuilds the chunks of lost devices, stripe by stripe, while the store serves.

use crate::array::full_below;
use crate::device::Device;
use crate::error::FlashError;
use crate::format::{Entry, StripeState, decode_summary};
use crate::geometry::{ENTRY_BYTES, PAGE_BYTES};
use crate::nvram::Nvram;
use crate::store::FlashStore;
use std::collections::BTreeMap;
use std::sync::PoisonError;

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Rebuilds one stripe's missing chunks on present devices. A stripe with unreadable bytes is left until
    /// its devices change or [`FlashStore::retry_unreadable`] is called; [`FlashStore::unreadable`] lists it.
    /// Returns false if there was no stripe to try.
    ///
    /// # Errors
    /// When a device fails.
    pub fn rebuild(&self) -> Result<bool, FlashError> {
        let _turn = self
            .collecting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some((stripe, missing)) = self.next_lacking() else {
            return Ok(false);
        };
        if !self.rebuild_stripe(stripe, missing)? {
            self.lock().stripes.set_unbuilt(stripe);
        }
        Ok(true)
    }

    /// The first stripe that lacks chunks on present devices and may be rebuilt, and all that it lacks.
    fn next_lacking(&self) -> Option<(u32, u16)> {
        let absent = self.array.absent();
        let state = self.lock();
        let lacking = |stripe: u32| match state.stripes.get(stripe).state {
            StripeState::Sealed { missing } if missing & !absent != 0 => Some((stripe, missing)),
            _ => None,
        };
        let mut stripes = 0..state.stripes.count();
        stripes.find_map(|stripe| lacking(stripe).filter(|_| !state.stripes.is_unbuilt(stripe)))
    }

    /// Rebuilds the chunks that a stripe lacks on present devices. Returns false if some of their bytes are beyond
    /// recovery: too few others can be read, or are damaged.
    fn rebuild_stripe(&self, stripe: u32, missing: u16) -> Result<bool, FlashError> {
        let absent = self.array.absent();
        let mut left = missing;
        let pages = self.pages(stripe)?;
        let mut bytes = vec![0; self.geometry.chunk_bytes as usize];
        for chunk in 0..self.geometry.device_count() {
            let index = self.geometry.device_of(stripe, chunk);
            let bit = 1 << index;
            let Some(device) = self.array.device(index).filter(|_| missing & bit != 0) else {
                continue;
            };
            if !self.rebuild_chunk(stripe, missing | absent, chunk, &pages, &mut bytes) {
                return Ok(false);
            }
            let offset = self.geometry.chunk_offset(stripe);
            device
                .write_at(offset, &bytes)
                .and_then(|()| device.sync())
                .map_err(|source| {
                    if let Some(full) = full_below(index, &source) {
                        return full;
                    }
                    self.array.set_device(index, None);
                    FlashError::io(format!("write to device {index}"), source)
                })?;
            left &= !bit;
        }
        let mut state = self.lock();
        self.stage_header(&mut state, stripe, StripeState::Sealed { missing: left })?;
        state.stripes.set_missing(stripe, left);
        drop(state);
        self.persist()?;
        Ok(true)
    }

    /// Rebuilds a whole chunk into `bytes` from chunks that are not on `missing` devices. Every live page of these and
    /// of the result matches its checksum; stale pages and the summary do too, unless nothing sound is left of them.
    /// Returns false if too few sound pages are left.
    fn rebuild_chunk(
        &self,
        stripe: u32,
        missing: u16,
        chunk: usize,
        pages: &Pages,
        bytes: &mut [u8],
    ) -> bool {
        let rebuild = |offset: u64, output: &mut [u8], checked: Checked| {
            let is_sound = |of: usize, found: &[u8]| {
                if checked == Checked::All && !self.has_sound_summary(stripe, (of, offset), found) {
                    return false;
                }
                let end = offset + found.len() as u64;
                let mut within = pages.range((of, offset)..(of, end));
                within.all(|((_, at), (entry, is_live))| {
                    let start = (at - offset) as usize;
                    let is_checked = *is_live || checked == Checked::All;
                    !is_checked || entry.fits(&found[start..start + PAGE_BYTES])
                })
            };
            let rebuilt = self
                .array
                .rebuild(stripe, missing, chunk, offset, output, &is_sound);
            matches!(rebuilt, Ok(true))
        };
        // Pages of other chunks may be unreadable or damaged, but not at the same place in too many of them.
        let by_page = |bytes: &mut [u8], first: u64| {
            let mut outputs = (first..)
                .step_by(PAGE_BYTES)
                .zip(bytes.chunks_exact_mut(PAGE_BYTES));
            outputs.all(|(offset, output)| {
                // A stale page counts again if a crash loses the newer one.
                rebuild(offset, output, Checked::All) || rebuild(offset, output, Checked::Live)
            })
        };
        if rebuild(0, bytes, Checked::All) {
            return true;
        }
        // A summary has one checksum for all of its pages.
        let (summary, rest) = bytes.split_at_mut(self.summary_bytes());
        let rest_at = summary.len() as u64;
        (rebuild(0, summary, Checked::All) || by_page(summary, 0)) && by_page(rest, rest_at)
    }

    fn summary_bytes(&self) -> usize {
        self.geometry.summary_pages() as usize * PAGE_BYTES
    }

    /// Whether bytes of a chunk, from an offset, have a summary that matches its checksum, or none. A summary is at the
    /// start of its stripe's first chunk, and is needed if the non-volatile memory is lost.
    fn has_sound_summary(&self, stripe: u32, at: (usize, u64), found: &[u8]) -> bool {
        let Some(summary) = found.get(..self.summary_bytes()).filter(|_| at == (0, 0)) else {
            return true;
        };
        decode_summary(self.identity, stripe, summary).is_some()
    }

    /// The pages of a sealed stripe, from its table.
    fn pages(&self, stripe: u32) -> Result<Pages, FlashError> {
        let table = self.table(stripe)?;
        let state = self.lock();
        let base = state.stripes.get(stripe).base;
        let mut pages = Pages::new();
        for (slot, bytes) in (0_u32..).zip(table.chunks_exact(ENTRY_BYTES as usize)) {
            if let Some(entry) = Entry::decode(base, bytes) {
                let is_live =
                    state.map.get(entry.file, entry.page) == Some(self.place(stripe, slot));
                let page = self.geometry.summary_pages() + u64::from(slot);
                pages.insert(self.geometry.locate(page), (entry, is_live));
            }
        }
        Ok(pages)
    }
}

/// The entries of a sealed stripe, by chunk and offset in the chunk, and whether the page is live.
type Pages = BTreeMap<(usize, u64), (Entry, bool)>;

/// The pages that must match their checksums.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checked {
    All,
    Live,
}
