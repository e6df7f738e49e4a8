//! The space of files: allotting it, freeing it in whole or in part, and the space left.

use crate::allotment::Allotment;
use crate::device::Device;
use crate::error::FlashError;
use crate::files::{FileId, check_end, no_such};
use crate::format::{Cut, Inode};
use crate::geometry::PAGE_BYTES;
use crate::log::Writer;
use crate::nvram::Nvram;
use crate::page_map::{PageMap, Place};
use crate::store::{FlashStore, State};
use std::ops::Range;

/// A contiguous run of a file's bytes in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// The first byte, in the file.
    pub offset: u64,
    /// Its place in the log: stripe for stripe, slot for slot.
    pub place: u64,
    /// Length in bytes.
    pub length: u64,
}

impl State {
    /// Allotted pages of a file that are not written.
    pub(crate) fn pending_pages(&self, file: u32) -> u64 {
        let inode = self.files.get(file);
        inode.map_or(0, |inode| self.pending_of(file, &inode.allotment))
    }

    /// Unwritten pages of a file in an allotment that it has or may get.
    fn pending_of(&self, file: u32, allotment: &Allotment) -> u64 {
        let pending = |range: &Range<u32>| {
            u64::from(range.end - range.start) - self.map.count(file, range.start, range.end)
        };
        allotment.ranges().iter().map(pending).sum()
    }

    /// Whether a page may be written even when the store is full.
    pub(crate) fn is_granted(&self, file: u32, page: u32) -> bool {
        let is_allotted = |inode: &Inode| inode.allotment.contains(page);
        self.map.get(file, page).is_some() || self.files.get(file).is_some_and(is_allotted)
    }

    /// Sets a page's place in the map. Returns its previous place.
    pub(crate) fn set_place(&mut self, file: u32, page: u32, place: Place) -> Option<Place> {
        let older = self.map.set(file, page, place);
        let is_allotted = |inode: &Inode| inode.allotment.contains(page);
        if older.is_none() && self.files.get(file).is_some_and(is_allotted) {
            self.allotted_pages -= 1;
        }
        older
    }
}

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Bytes of whole pages that can still be allotted or written.
    pub fn available_bytes(&self) -> u64 {
        let usage = self.usage();
        let used_pages = usage.live_pages + usage.allotted_pages;
        usage.capacity_pages.saturating_sub(used_pages) * PAGE_BYTES as u64
    }

    /// Allots a range of a file, durably: writes to it find space even when the store is full.
    /// Written bytes stay; unwritten ones read as zeros. The file grows if needed.
    ///
    /// # Errors
    /// [`FlashError::NoSpace`] with nothing changed, [`FlashError::NoSuchFile`],
    /// [`FlashError::OutOfRange`], or the first failure of the store.
    pub fn allocate(&self, file: FileId, offset: u64, bytes: u64) -> Result<(), FlashError> {
        let end = offset.saturating_add(bytes);
        check_end(end)?;
        if bytes == 0 {
            return Ok(());
        }
        let page = PAGE_BYTES as u64;
        let pages = (offset / page) as u32..end.div_ceil(page) as u32;
        self.change(|state| {
            let older = state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
            let mut inode = older.clone();
            inode.allotment.add(pages.clone());
            inode.length_bytes = inode.length_bytes.max(end);
            if inode == *older {
                return Ok(());
            }
            // None is withdrawn, so the count does not shrink.
            let fresh = state.pending_of(file.0, &inode.allotment) - state.pending_pages(file.0);
            self.check_space(state, fresh)?;
            self.put_inode(state, file.0, Some(inode))
        })
    }

    /// The location of a range of a file in the log, in file order; holes have none. A buffer's
    /// slots have the place that they will have after the flush.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`].
    pub fn locate(
        &self,
        file: FileId,
        offset: u64,
        bytes: u64,
    ) -> Result<Vec<Located>, FlashError> {
        let state = self.lock();
        state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
        let page = PAGE_BYTES as u64;
        let end = offset.saturating_add(bytes);
        let mut found: Vec<Located> = Vec::new();
        for number in offset / page..end.div_ceil(page).min(u64::from(u32::MAX)) {
            let Some(Place(place)) = state.map.get(file.0, number as u32) else {
                continue;
            };
            let start = offset.max(number * page);
            let length = end.min((number + 1) * page) - start;
            let place = u64::from(place) * page + start % page;
            match found.last_mut() {
                Some(last)
                    if (last.offset + last.length, last.place + last.length) == (start, place) =>
                {
                    last.length += length;
                }
                _ => found.push(Located {
                    offset: start,
                    place,
                    length,
                }),
            }
        }
        Ok(found)
    }

    /// Makes a file longer, with zeros, or shorter, durably.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`], [`FlashError::OutOfRange`], [`FlashError::NoSpace`], or the first
    /// failure of the store.
    pub fn set_length(&self, file: FileId, length_bytes: u64) -> Result<(), FlashError> {
        check_end(length_bytes)?;
        let before = self.length(file)?;
        if length_bytes < before {
            // The rest of the last page becomes zeros, for a later growth.
            let page = PAGE_BYTES as u64;
            let end = length_bytes.next_multiple_of(page).min(before);
            let zeros = vec![0; (end - length_bytes) as usize];
            self.write_deferred(file, length_bytes, &zeros)?;
            self.cut(file, length_bytes.div_ceil(page) as u32, u32::MAX)?;
        }
        self.change(|state| {
            let inode = state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
            let inode = Inode {
                length_bytes,
                ..inode.clone()
            };
            self.put_inode(state, file.0, Some(inode))
        })
    }

    /// Makes a range of a file zeros, without space where whole pages allow it. Durable after
    /// [`FlashStore::sync`]. The file does not grow.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`], or the first failure of the store.
    pub fn punch_hole(&self, file: FileId, offset: u64, bytes: u64) -> Result<(), FlashError> {
        let page = PAGE_BYTES as u64;
        let end = offset.saturating_add(bytes).min(self.length(file)?);
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset.next_multiple_of(page), end - end % page);
        if first >= last {
            return self.write_deferred(file, offset, &vec![0; (end - offset) as usize]);
        }
        self.write_deferred(file, offset, &vec![0; (first - offset) as usize])?;
        self.write_deferred(file, last, &vec![0; (end - last) as usize])?;
        self.cut(file, (first / page) as u32, (last / page) as u32)
    }

    /// Frees pages of a file. The inode records that older pages are stale; if it has no space for
    /// that, the pages are overwritten with zeros.
    fn cut(&self, file: FileId, first: u32, end: u32) -> Result<(), FlashError> {
        let is_noted = self.attempt(Writer::User, |state| {
            let inode = state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
            let cut = Cut {
                first,
                end,
                sequence: state.sequence,
            };
            let Some(cuts) = with_cut(inode, cut, file.0, &state.map) else {
                return Ok(false);
            };
            let mut inode = Inode {
                cuts,
                ..inode.clone()
            };
            inode.allotment.subtract(&(first..end));
            self.put_inode(state, file.0, Some(inode))?;
            self.drop_pages(state, file.0, first, end);
            Ok(true)
        })?;
        if is_noted {
            return Ok(());
        }
        let pages: Vec<u32> = self.lock().map.pages_of(file.0).collect();
        for page in pages.into_iter().filter(|page| (first..end).contains(page)) {
            // Whole pages, also beyond the file's end: the file does not grow.
            self.write_page(file.0, page, &[0; PAGE_BYTES])?;
        }
        Ok(())
    }

    /// Removes pages of a file from the map.
    pub(crate) fn drop_pages(&self, state: &mut State, file: u32, first: u32, end: u32) {
        let before = state.pending_pages(file);
        let places = state.map.take(file, first, end);
        state.allotted_pages = state.allotted_pages - before + state.pending_pages(file);
        for place in places {
            self.release(state, place);
        }
    }
}

/// The cuts of a file with one more, if the inode has space for it. A cut within the new one is
/// dropped. One that touches it is joined to it if nothing was written there since.
fn with_cut(inode: &Inode, cut: Cut, number: u32, map: &PageMap) -> Option<Vec<Cut>> {
    let mut cuts = inode.cuts.clone();
    cuts.retain(|older| older.first < cut.first || older.end > cut.end);
    if cuts.len() < crate::format::CUTS_MAX {
        cuts.push(cut);
        return Some(cuts);
    }
    let is_hole = |older: &Cut| {
        let pages = map.pages_of(number);
        let mut outside = pages.filter(|page| {
            (older.first..older.end).contains(page) && !(cut.first..cut.end).contains(page)
        });
        older.end >= cut.first && cut.end >= older.first && outside.next().is_none()
    };
    let older = cuts.iter_mut().find(|older| is_hole(older))?;
    *older = Cut {
        first: older.first.min(cut.first),
        end: older.end.max(cut.end),
        sequence: cut.sequence,
    };
    Some(cuts)
}
