//! Files by name: create, delete, rename, list. Their inodes are the contents of a file of the log, the
//! table, so that nothing about files needs a place of its own.

use crate::device::Device;
use crate::error::FlashError;
use crate::format::{Cut, INODE_BYTES, Inode, NAME_BYTES_MAX};
use crate::geometry::PAGE_BYTES;
use crate::log::Halt;
use crate::nvram::Nvram;
use crate::page_map::PageMap;
use crate::store::{FlashStore, State};
use std::collections::{BTreeMap, BTreeSet};

/// The number of the table file. 0 is no file.
pub(crate) const TABLE: u32 = 1;
/// The first number of a file with a name.
const FIRST_NAMED: u32 = 2;
/// Inodes of a page of the table.
pub(crate) const INODES_PER_PAGE: u32 = (PAGE_BYTES / INODE_BYTES) as u32;

/// A file that was looked up. It is good until the file is deleted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub(crate) u32);

/// All inodes.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    inodes: BTreeMap<u32, Inode>,
    numbers: BTreeMap<String, u32>,
    /// Numbers below `next` that are free.
    free: BTreeSet<u32>,
    next: u32,
}

impl Files {
    /// Files that a restart found. Of two with one name the later has it; the other is gone, and its
    /// number is among those given, whose inodes must be removed.
    pub(crate) fn new(found: BTreeMap<u32, Inode>) -> (Self, Vec<u32>) {
        let next = found
            .last_key_value()
            .map_or(FIRST_NAMED, |(&number, _)| number + 1);
        let mut files = Self {
            inodes: BTreeMap::new(),
            numbers: BTreeMap::new(),
            free: (FIRST_NAMED..next).collect(),
            next,
        };
        let mut replaced = Vec::new();
        for (number, inode) in found {
            if let Some(other) = files.number(&inode.name) {
                if files.inodes[&other].named > inode.named {
                    replaced.push(number);
                    continue;
                }
                replaced.push(other);
                files.remove(other);
            }
            files.insert(number, inode);
        }
        (files, replaced)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Inode> {
        self.inodes.get(&number)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    fn insert(&mut self, number: u32, inode: Inode) {
        self.free.remove(&number);
        self.next = self.next.max(number + 1);
        self.numbers.insert(inode.name.clone(), number);
        if let Some(older) = self.inodes.insert(number, inode)
            && self.numbers.get(&older.name) == Some(&number)
            && self.inodes[&number].name != older.name
        {
            self.numbers.remove(&older.name);
        }
    }

    fn remove(&mut self, number: u32) {
        if let Some(inode) = self.inodes.remove(&number) {
            self.free.insert(number);
            if self.numbers.get(&inode.name) == Some(&number) {
                self.numbers.remove(&inode.name);
            }
        }
    }

    fn unused(&self) -> u32 {
        self.free.first().copied().unwrap_or(self.next)
    }

    /// The page of the table with a file's inode, as it is once that has changed.
    fn table_page(&self, number: u32, inode: Option<&Inode>) -> (u32, Vec<u8>) {
        let page = number / INODES_PER_PAGE;
        let mut contents = vec![0; PAGE_BYTES];
        let numbers = page * INODES_PER_PAGE..(page + 1) * INODES_PER_PAGE;
        for (other, place) in numbers.zip(contents.chunks_exact_mut(INODE_BYTES)) {
            let inode = if other == number {
                inode
            } else {
                self.get(other)
            };
            if let Some(inode) = inode {
                inode.encode(place);
            }
        }
        (page, contents)
    }
}

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Makes an empty file, durably. A name is up to 120 bytes of any text.
    ///
    /// # Errors
    /// [`FlashError::Exists`], [`FlashError::OutOfRange`] for a name that is too long, or the first
    /// failure of the store.
    pub fn create(&self, name: &str) -> Result<FileId, FlashError> {
        check_name(name)?;
        let number = self.change(|state| {
            if state.files.number(name).is_some() {
                let name = name.to_owned();
                return Err(FlashError::Exists { name }.into());
            }
            let number = state.files.unused();
            let inode = Inode {
                name: name.to_owned(),
                born: state.sequence,
                named: state.sequence,
                ..Inode::default()
            };
            self.put_inode(state, number, Some(inode))?;
            Ok(number)
        })?;
        Ok(FileId(number))
    }

    /// The file of a name, if there is one.
    pub fn find(&self, name: &str) -> Option<FileId> {
        self.lock().files.number(name).map(FileId)
    }

    /// Names that begin with `prefix`, sorted.
    pub fn list(&self, prefix: &str) -> Vec<String> {
        let state = self.lock();
        let from = state.files.numbers.range(prefix.to_owned()..);
        let names = from.map(|(name, _)| name);
        names
            .take_while(|name| name.starts_with(prefix))
            .cloned()
            .collect()
    }

    /// Bytes of a file.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`].
    pub fn length(&self, file: FileId) -> Result<u64, FlashError> {
        let state = self.lock();
        let inode = state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
        Ok(inode.length_bytes)
    }

    /// Deletes a file, durably.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`], or the first failure of the store.
    pub fn delete(&self, file: FileId) -> Result<(), FlashError> {
        self.change(|state| {
            state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
            self.put_inode(state, file.0, None)?;
            self.drop_pages(state, file.0, 0, u32::MAX);
            state.hotness.forget(file.0);
            Ok(())
        })
    }

    /// Gives a file another name, durably. A file that has it is replaced, at one instant.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`], [`FlashError::OutOfRange`] for a name that is too long, or the
    /// first failure of the store.
    pub fn rename(&self, file: FileId, name: &str) -> Result<(), FlashError> {
        check_name(name)?;
        let replaced = self.change(|state| {
            let inode = state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
            let replaced = state.files.number(name).filter(|&other| other != file.0);
            let inode = Inode {
                name: name.to_owned(),
                named: state.sequence,
                ..inode.clone()
            };
            // From here on the later name counts, also after a crash that leaves both inodes.
            self.put_inode(state, file.0, Some(inode))?;
            Ok(replaced)
        })?;
        match replaced {
            Some(replaced) => self.delete(FileId(replaced)),
            None => Ok(()),
        }
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
            // The rest of the last page is zeros, for when the file grows again.
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

    /// Makes a range of a file zeros that take no space, where whole pages allow it. Durable after
    /// [`FlashStore::sync`]. A file does not grow by it.
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

    /// Gives pages of a file up. The inode remembers that what is older is stale; where it has no room
    /// for that, the pages are overwritten with zeros.
    fn cut(&self, file: FileId, first: u32, end: u32) -> Result<(), FlashError> {
        let is_noted = self.attempt(crate::log::Writer::User, |state| {
            let inode = state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
            let cut = Cut {
                first,
                end,
                sequence: state.sequence,
            };
            let Some(cuts) = with_cut(inode, cut, file.0, &state.map) else {
                return Ok(false);
            };
            let inode = Inode {
                cuts,
                ..inode.clone()
            };
            self.put_inode(state, file.0, Some(inode))?;
            self.drop_pages(state, file.0, first, end);
            Ok(true)
        })?;
        if is_noted {
            return Ok(());
        }
        let pages: Vec<u32> = self.lock().map.pages_of(file.0).collect();
        for page in pages.into_iter().filter(|page| (first..end).contains(page)) {
            // Whole pages, also beyond the end of the last one: the file does not grow by it.
            self.write_page(file.0, page, &[0; PAGE_BYTES])?;
        }
        Ok(())
    }

    /// Makes a change under the lock, and makes it durable.
    fn change<T>(
        &self,
        attempt: impl FnMut(&mut State) -> Result<T, Halt>,
    ) -> Result<T, FlashError> {
        let value = self.attempt(crate::log::Writer::User, attempt)?;
        self.persist()?;
        Ok(value)
    }

    /// Changes an inode in the log and then in memory.
    pub(crate) fn put_inode(
        &self,
        state: &mut State,
        number: u32,
        inode: Option<Inode>,
    ) -> Result<(), Halt> {
        let (page, contents) = state.files.table_page(number, inode.as_ref());
        self.append_written(state, &mut None, (TABLE, page), &contents)?;
        match inode {
            Some(inode) => state.files.insert(number, inode),
            None => state.files.remove(number),
        }
        Ok(())
    }

    fn drop_pages(&self, state: &mut State, file: u32, first: u32, end: u32) {
        for place in state.map.take(file, first, end) {
            self.release(state, place);
        }
    }
}

pub(crate) fn no_such(number: u32) -> FlashError {
    FlashError::NoSuchFile {
        name: format!("number {number}"),
    }
}

/// # Errors
/// [`FlashError::OutOfRange`] when no file can be so long.
pub(crate) fn check_end(end: u64) -> Result<(), FlashError> {
    let limit = u64::from(u32::MAX - 1) * PAGE_BYTES as u64;
    if end > limit {
        return Err(FlashError::OutOfRange {
            what: format!("a file cannot have {end} bytes"),
            limit: format!("at most {limit}"),
        });
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), FlashError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(FlashError::OutOfRange {
            what: format!("a name cannot have {} bytes", name.len()),
            limit: format!("1 to {NAME_BYTES_MAX}"),
        });
    }
    Ok(())
}

/// The cuts of a file with one more, if the inode has room for it. A cut that is within the new one is
/// forgotten. One that touches it is joined to it if nothing was written there since.
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
