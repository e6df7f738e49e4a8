//! Stripes with bytes that the present devices do not give, because a page is unreadable beside a missing
//! device. Collection and rebuilds leave these stripes and go on with the others.
//!
//! Only memory lists these stripes: a start tries all of them again.

use crate::device::Device;
use crate::files::TABLE;
use crate::nvram::Nvram;
use crate::store::FlashStore;

/// A stripe that collection or a rebuild has left because some of its bytes are unreadable.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnreadableStripe {
    /// The stripe's number.
    pub stripe: u32,
    /// The page that collection could not move. None if only a rebuild has found the stripe.
    pub page: Option<UnreadablePage>,
}

/// An unreadable page of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnreadablePage {
    /// The file's name. None for the table of files, and for a file without a name.
    pub file: Option<String>,
    /// The page's number in the file.
    pub page: u32,
}

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Stripes that collection or a rebuild has left because some of their bytes are unreadable. Reads of
    /// other pages of these stripes still work. A stripe leaves the list when it is rebuilt or freed, and
    /// when the page that collection could not move is overwritten or deleted.
    pub fn unreadable(&self) -> Vec<UnreadableStripe> {
        let state = self.lock();
        let listed = state.stripes.unreadable().map(|(stripe, unreadable)| {
            let entry = unreadable.slot.and_then(|slot| {
                let entry = self.entry(&state, self.place(stripe, slot));
                entry.ok().flatten()
            });
            let page = entry.map(|entry| {
                let inode = state.files.get(entry.file).filter(|_| entry.file != TABLE);
                let file = inode.map(|inode| inode.name.clone());
                UnreadablePage {
                    file: file.filter(|name| !name.is_empty()),
                    page: entry.page,
                }
            });
            UnreadableStripe { stripe, page }
        });
        listed.collect()
    }

    /// Lets collection and rebuilds try the stripes of [`FlashStore::unreadable`] again: a failed read may
    /// have been temporary.
    pub fn retry_unreadable(&self) {
        self.lock().stripes.retry_all();
    }
}
