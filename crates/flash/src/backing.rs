//! Room below the devices. A device may be a file with holes, whose file system can be full when the store
//! fills them. So stripes get room on all devices before they are used, and pages are granted only where
//! stripes with room suffice for them: a full file system refuses new pages and never one that was granted,
//! and is no fault of a device. The thesis has nothing of this; its devices have all their room.

use crate::array::full_below;
use crate::device::Device;
use crate::error::FlashError;
use crate::log::{Halt, Shortage};
use crate::nvram::Nvram;
use crate::store::{FlashStore, State};

/// Stripes that get room together, where there is enough.
const BACKED_TOGETHER: u32 = 16;

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Gets room for what the store holds, at its start. Where there is none it starts nevertheless: what
    /// it holds can be read, and pages can be deleted.
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

    /// Gets room for so many stripes, and for some more where there is enough.
    ///
    /// # Errors
    /// [`FlashError::FullBelow`], which passes when there is room.
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

    /// Looks whether there is room again, where there was none.
    pub(crate) fn back_again(&self) {
        let backed = {
            let state = self.lock();
            if !state.stripes.is_full_below() {
                return;
            }
            state.stripes.backed()
        };
        // If not, it is looked for the next time.
        let _ = self.back(backed + 1);
    }

    /// Refuses pages beyond what the store may hold, and those that need room first.
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

    /// Refuses a device for a place of the array that has no room for what others have.
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
