//! Bytes of files: reads, writes and syncs.

use crate::device::Device;
use crate::error::FlashError;
use crate::files::{FileId, check_end, no_such};
use crate::format::{Entry, Inode, StripeState, Summed};
use crate::geometry::PAGE_BYTES;
use crate::log::{Halt, Writer};
use crate::nvram::Nvram;
use crate::page_map::Place;
use crate::store::{FlashStore, State};
use std::cell::Cell;

const PAGE: u64 = PAGE_BYTES as u64;

/// The source of a page.
enum Fetched {
    /// A hole: zeros.
    Hole,
    /// A buffer.
    Buffered,
    /// The devices.
    Stored {
        place: Place,
        entry: Entry,
        missing: u16,
    },
}

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Reads into `output` from `offset` on. Returns the number of bytes, which is smaller only at
    /// the file's end.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`]; [`FlashError::Damaged`] and [`FlashError::TooManyMissing`] when
    /// the loss exceeds the array's tolerance.
    pub fn read(&self, file: FileId, offset: u64, output: &mut [u8]) -> Result<usize, FlashError> {
        let left = self.length(file)?.saturating_sub(offset);
        let wanted = (output.len() as u64).min(left) as usize;
        let mut done = 0;
        let mut page = vec![0; PAGE_BYTES];
        while done < wanted {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let part = (PAGE_BYTES - within).min(wanted - done);
            self.fetch(file.0, (at / PAGE) as u32, &mut page)?;
            output[done..done + part].copy_from_slice(&page[within..within + part]);
            done += part;
        }
        Ok(wanted)
    }

    /// Writes `bytes` at `offset`, durably; the file grows if needed. A crash during the write
    /// leaves each page either old or new.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`], [`FlashError::OutOfRange`], [`FlashError::NoSpace`], or the first
    /// failure of the store.
    pub fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        let ticket = self.stage_write(file, offset, bytes)?;
        self.persist_up_to(ticket)
    }

    /// Writes `bytes` at `offset` as [`FlashStore::write`] does, but it is durable only after
    /// [`FlashStore::sync`].
    ///
    /// # Errors
    /// As for [`FlashStore::write`].
    pub fn write_deferred(
        &self,
        file: FileId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FlashError> {
        self.stage_write(file, offset, bytes).map(|_| ())
    }

    /// Writes, and returns the ticket to persist.
    fn stage_write(&self, file: FileId, offset: u64, bytes: &[u8]) -> Result<u64, FlashError> {
        let end = offset.saturating_add(bytes.len() as u64);
        check_end(end)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        // Usually the page lies within the file, and one turn suffices.
        let is_page = bytes.len() == PAGE_BYTES && offset.is_multiple_of(PAGE);
        if is_page
            && let Some(ticket) = self.write_within(file.0, (offset / PAGE) as u32, end, bytes)?
        {
            return Ok(ticket);
        }
        self.grow(file, end)?;
        let stripe_bytes = self.geometry.slot_count() as usize * PAGE_BYTES;
        let mut done = 0;
        let mut ticket = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, within) = ((at / PAGE) as u32, (at % PAGE) as usize);
            let rest = &bytes[done..];
            if within == 0 && rest.len() >= stripe_bytes {
                // Durable when this returns, with all earlier changes.
                self.write_direct(file.0, page, &rest[..stripe_bytes])?;
                done += stripe_bytes;
            } else if within == 0 && rest.len() >= PAGE_BYTES {
                ticket = self.write_page(file.0, page, &rest[..PAGE_BYTES])?;
                done += PAGE_BYTES;
            } else {
                let part = rest.len().min(PAGE_BYTES - within);
                ticket = self.write_part(file.0, page, within, &rest[..part])?;
                done += part;
            }
        }
        Ok(ticket)
    }

    /// Makes every earlier write to any file durable.
    ///
    /// # Errors
    /// The first failure of the store.
    pub fn sync(&self) -> Result<(), FlashError> {
        self.persist()
    }

    /// Grows the file to `end`, before anything is written there.
    fn grow(&self, file: FileId, end: u64) -> Result<(), FlashError> {
        self.attempt(Writer::User, |state| {
            let inode = state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
            if inode.length_bytes >= end {
                return Ok(());
            }
            let inode = Inode {
                length_bytes: end,
                ..inode.clone()
            };
            self.put_inode(state, file.0, Some(inode))
        })
    }

    /// Replaces a page. The file keeps its length. Returns the ticket.
    pub(crate) fn write_page(
        &self,
        file: u32,
        page: u32,
        contents: &[u8],
    ) -> Result<u64, FlashError> {
        let written = self.write_within(file, page, 0, contents)?;
        Ok(written.expect("every file has at least length 0"))
    }

    /// Replaces a page if the file reaches to `end`. Returns the ticket, or none if the file is
    /// shorter.
    fn write_within(
        &self,
        file: u32,
        page: u32,
        end: u64,
        contents: &[u8],
    ) -> Result<Option<u64>, FlashError> {
        let mut group = None;
        let summed = Summed::of(contents);
        self.attempt(Writer::User, |state| {
            let inode = state.files.get(file).ok_or_else(|| no_such(file))?;
            if inode.length_bytes < end {
                return Ok(None);
            }
            self.check_fresh(state, file, page)?;
            self.append_written(state, &mut group, (file, page), (contents, &summed))?;
            Ok(Some(state.staged.ticket))
        })
    }

    /// Refuses a page of a deleted file, or one beyond the capacity.
    fn check_fresh(&self, state: &State, file: u32, page: u32) -> Result<(), Halt> {
        state.files.get(file).ok_or_else(|| no_such(file))?;
        if state.is_granted(file, page) {
            return Ok(());
        }
        self.check_space(state, 1)
    }

    /// Changes a part of a page, with concurrent writes to its other parts. Returns the ticket.
    fn write_part(
        &self,
        file: u32,
        page: u32,
        within: usize,
        part: &[u8],
    ) -> Result<u64, FlashError> {
        let mut group = None;
        let mut contents = vec![0; PAGE_BYTES];
        loop {
            let before = self.fetch(file, page, &mut contents)?;
            contents[within..within + part.len()].copy_from_slice(part);
            let summed = Summed::of(&contents);
            let written = self.attempt(Writer::User, |state| {
                self.check_fresh(state, file, page)?;
                let now = match state.map.get(file, page) {
                    Some(place) => self.entry(state, place)?.map(|entry| entry.sequence),
                    None => None,
                };
                if now != before {
                    return Ok(None);
                }
                self.append_written(state, &mut group, (file, page), (&contents, &summed))?;
                Ok(Some(state.staged.ticket))
            })?;
            if let Some(ticket) = written {
                return Ok(ticket);
            }
        }
    }

    /// Reads a page and returns its age; none for a hole.
    fn fetch(&self, file: u32, page: u32, output: &mut [u8]) -> Result<Option<u64>, FlashError> {
        let mut seen = None;
        loop {
            let (place, entry, missing) = match self.look_up(file, page, output)? {
                (Fetched::Hole, _) => return Ok(None),
                (Fetched::Buffered, sequence) => return Ok(Some(sequence)),
                (
                    Fetched::Stored {
                        place,
                        entry,
                        missing,
                    },
                    _,
                ) => (place, entry, missing),
            };
            // Without the lock, the stripe may be collected and rewritten during the read: then the
            // page has another place, and is read again from there.
            let is_moving = seen != Some((place, entry.sequence));
            match self.read_slot(place, &entry, missing, output) {
                Ok(_) => return Ok(Some(entry.sequence)),
                Err(_) if is_moving => seen = Some((place, entry.sequence)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Looks a page up, and reads it if it is in a buffer.
    fn look_up(
        &self,
        file: u32,
        page: u32,
        output: &mut [u8],
    ) -> Result<(Fetched, u64), FlashError> {
        let state = self.lock();
        let Some(place) = state.map.get(file, page) else {
            output.fill(0);
            return Ok((Fetched::Hole, 0));
        };
        let damaged = FlashError::Damaged { file, page };
        let entry = self.entry(&state, place)?;
        let Some(entry) = entry.filter(|entry| (entry.file, entry.page) == (file, page)) else {
            return Err(damaged);
        };
        let (stripe, slot) = self.split(place);
        let missing = match state.stripes.get(stripe).state {
            StripeState::Open { buffer } => {
                let offset = self.slot_offset(usize::from(buffer), slot);
                self.nvram
                    .read(offset, output)
                    .map_err(|source| FlashError::io("read the non-volatile memory", source))?;
                if !entry.fits(output) {
                    return Err(damaged);
                }
                return Ok((Fetched::Buffered, entry.sequence));
            }
            StripeState::Sealed { missing } => missing,
            StripeState::Free => return Err(damaged),
        };
        let found = Fetched::Stored {
            place,
            entry,
            missing,
        };
        Ok((found, 0))
    }

    /// Reads a slot of a sealed stripe, and returns the checksum over its contents. Bytes that fail
    /// their checksum are rebuilt from the other devices.
    pub(crate) fn read_slot(
        &self,
        place: Place,
        entry: &Entry,
        missing: u16,
        output: &mut [u8],
    ) -> Result<Summed, FlashError> {
        let (stripe, slot) = self.split(place);
        let page = self.geometry.summary_pages() + u64::from(slot);
        let (chunk, offset) = self.geometry.locate(page);
        // A read that succeeds ends with a check of `output`.
        let fitting = Cell::new(None);
        let fits = |bytes: &[u8]| {
            let summed = entry.fitting(bytes);
            fitting.set(summed);
            summed.is_some()
        };
        let array = &self.array;
        let is_read = array.read(stripe, missing, chunk, offset, output, &fits)?;
        match fitting.get() {
            Some(summed) if is_read => Ok(summed),
            _ => Err(FlashError::Damaged {
                file: entry.file,
                page: entry.page,
            }),
        }
    }
}
