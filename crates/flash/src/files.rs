//! Files by name: create, delete, rename, list. Their inodes are the contents of a file of the log,
//! the table, so that they need no separate place.

use crate::device::Device;
use crate::error::FlashError;
use crate::format::{INODE_BYTES, Inode, NAME_BYTES_MAX, Summed};
use crate::geometry::PAGE_BYTES;
use crate::log::Halt;
use crate::nvram::Nvram;
use crate::store::{FlashStore, State};
use std::collections::{BTreeMap, BTreeSet};

/// The number of the table file. 0 is no file.
pub(crate) const TABLE: u32 = 1;
/// The first number of a file with a name.
const FIRST_NAMED: u32 = 2;
/// Inodes in a page of the table.
pub(crate) const INODES_PER_PAGE: u32 = (PAGE_BYTES / INODE_BYTES) as u32;

/// A file that was looked up. Valid until the file is deleted.
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
    /// Takes the files that a restart found. Of two with one name the later keeps it; the other is
    /// removed, and so is one without a name. Also returns the numbers of removed files, whose
    /// inodes must be cleared.
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
            if inode.name.is_empty() {
                replaced.push(number);
                continue;
            }
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

    /// The numbers of all files.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> {
        self.inodes.keys().copied()
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    fn insert(&mut self, number: u32, inode: Inode) {
        self.free.remove(&number);
        self.next = self.next.max(number + 1);
        let (name, named) = (inode.name.clone(), inode.named);
        if let Some(older) = self.inodes.insert(number, inode)
            && older.name != name
            && self.number(&older.name) == Some(number)
        {
            self.numbers.remove(&older.name);
        }
        // A file that lost its name to another may live on and change, without getting it back.
        let holder = self.number(&name);
        let is_ours = holder.is_none_or(|holder| self.inodes[&holder].named <= named);
        if is_ours && !name.is_empty() {
            self.numbers.insert(name, number);
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

    /// The page of the table with a file's changed inode.
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
    /// Creates an empty file, durably. A name is up to 120 bytes of any text.
    ///
    /// # Errors
    /// [`FlashError::Exists`], [`FlashError::OutOfRange`] for a name that is too long,
    /// [`FlashError::NoSpace`], or the first failure of the store.
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
            // Later changes of the inode overwrite an existing page.
            if state.map.get(TABLE, number / INODES_PER_PAGE).is_none() {
                self.check_space(state, 1)?;
            }
            self.put_inode(state, number, Some(inode))?;
            Ok(number)
        })?;
        Ok(FileId(number))
    }

    /// The file with this name, if any.
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

    /// Removes a file's name, durably. The file can be read and written until it is deleted;
    /// opening the store deletes it.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`], or the first failure of the store.
    pub fn unlink(&self, file: FileId) -> Result<(), FlashError> {
        self.change(|state| self.put_name(state, file, String::new()))?;
        Ok(())
    }

    /// Renames a file, durably. A file that had the name loses it at that instant, as if by
    /// [`FlashStore::unlink`], and is returned for the caller to delete. Threads that change the
    /// same names must serialize themselves.
    ///
    /// # Errors
    /// [`FlashError::NoSuchFile`], [`FlashError::OutOfRange`] for a name that is too long, or the
    /// first failure of the store.
    pub fn rename(&self, file: FileId, name: &str) -> Result<Option<FileId>, FlashError> {
        check_name(name)?;
        let replaced = self.change(|state| {
            let replaced = state.files.number(name).filter(|&other| other != file.0);
            // From here on the later name counts, even after a crash that leaves both inodes.
            self.put_name(state, file, name.to_owned())?;
            Ok(replaced)
        })?;
        // Its inode still has the name, which it must not regain once the file that took it is
        // gone. This comes last: in the other order, a crash in between would leave the name
        // without a file.
        let replaced = replaced.map(FileId);
        replaced.map_or(Ok(()), |replaced| self.unlink(replaced))?;
        Ok(replaced)
    }

    fn put_name(&self, state: &mut State, file: FileId, name: String) -> Result<(), Halt> {
        let inode = state.files.get(file.0).ok_or_else(|| no_such(file.0))?;
        let inode = Inode {
            name,
            named: state.sequence,
            ..inode.clone()
        };
        self.put_inode(state, file.0, Some(inode))
    }

    /// Makes a change under the lock, then makes it durable.
    pub(crate) fn change<T>(
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
        let contents = (&contents[..], &Summed::of(&contents));
        self.append_written(state, &mut None, (TABLE, page), contents)?;
        let before = state.pending_pages(number);
        match inode {
            Some(inode) => state.files.insert(number, inode),
            None => state.files.remove(number),
        }
        state.allotted_pages = state.allotted_pages - before + state.pending_pages(number);
        Ok(())
    }
}

pub(crate) fn no_such(number: u32) -> FlashError {
    FlashError::NoSuchFile {
        name: format!("number {number}"),
    }
}

/// # Errors
/// [`FlashError::OutOfRange`] when the file would exceed the size limit.
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
