//! Space below the devices. A device may be a file with holes, whose file system can be full when
//! the store fills them. So stripes get space on all devices before they are used, and a page is
//! granted only if stripes with space suffice for it: a full file system refuses new pages and
//! never a granted one, and the device does not count as failed. The thesis omits this; its devices
//! have all their space.

use crate::array::full_below;
use crate::device::Device;
use crate::error::FlashError;
use crate::log::{Halt, Shortage};
use crate::nvram::Nvram;
use crate::store::{FlashStore, State};

/// Stripes that get space together, if there is enough.
const BACKED_TOGETHER: u32 = 16;

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Allocates space for the store's contents at its start. Without it the store starts
    /// nevertheless: its contents can be read, and pages can be deleted.
    pub(crate) fn back_at_start(&self) {
        if !self.array.is_sparse() {
            return;
        }
        let needed = {
            let mut state = self.lock();
            let granted_pages = state.map.page_count() + state.allotted_pages;
            let needed = self.geometry.stripes_for(granted_pages);
            let needed = needed.max(state.stripes.end_of_used());
            state.stripes.set_backed(needed);
            needed
        };
        if self.array.reserve(needed).is_err() {
            self.lock().stripes.set_full_below();
        }
    }

    /// Allocates space for `stripe_count` stripes, and for some more if there is enough.
    ///
    /// # Errors
    /// [`FlashError::FullBelow`], until there is space.
    pub(crate) fn back(&self, stripe_count: u32) -> Result<(), FlashError> {
        let last = self.geometry.stripe_count;
        let wanted = stripe_count.min(last);
        let ample = wanted.saturating_add(BACKED_TOGETHER).min(last);
        let reserved = match self.array.reserve(ample) {
            Ok(()) => Ok(ample),
            Err(_) => self.array.reserve(wanted).map(|()| wanted),
        };
        let mut state = self.lock();
        match reserved {
            Ok(count) => {
                let backed = state.stripes.backed().max(count);
                state.stripes.set_backed(backed);
                Ok(())
            }
            Err(error) => {
                state.stripes.set_full_below();
                Err(error)
            }
        }
    }

    /// Checks for space again after there was none.
    pub(crate) fn back_again(&self) {
        let backed = {
            let state = self.lock();
            if !state.stripes.is_full_below() {
                return;
            }
            state.stripes.backed()
        };
        // If there is none, the next maintenance checks again.
        let _ = self.back(backed + 1);
    }

    /// Refuses pages beyond the store's capacity, and those that need space first.
    pub(crate) fn check_space(&self, state: &State, fresh_pages: u64) -> Result<(), Halt> {
        let capacity_pages = self.geometry.capacity_pages();
        let granted_pages = state.map.page_count() + state.allotted_pages + fresh_pages;
        if granted_pages > capacity_pages {
            return Err(FlashError::NoSpace { capacity_pages }.into());
        }
        if granted_pages > self.geometry.capacity_of(state.stripes.backed()) {
            let needed = self.geometry.stripes_for(granted_pages);
            return Err(Halt::Short(Shortage::Below(needed)));
        }
        Ok(())
    }

    /// Refuses a device for a place of the array if it has no space for the stripes that the others
    /// hold.
    ///
    /// # Errors
    /// [`FlashError::FullBelow`].
    pub(crate) fn check_room(&self, index: usize, device: &D) -> Result<(), FlashError> {
        let bytes = self.geometry.chunk_offset(self.lock().stripes.backed());
        let reserved = device.is_sparse().and_then(|is_sparse| {
            if is_sparse {
                device.reserve(bytes)
            } else {
                Ok(())
            }
        });
        reserved.map_err(|source| {
            full_below(index, &source)
                .unwrap_or_else(|| FlashError::io(format!("write to device {index}"), source))
        })
    }
}
