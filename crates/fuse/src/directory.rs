//! Lists directories for the kernel.

use crate::errno::Errno;
use crate::gateway::{Gateway, Stat};
use crate::listing::{BEHIND_DOTS, Listing};
use fuser::{FileHandle, INodeNo};
use gabion_meta::{DirectoryId, Inode};
use tokio::sync::Mutex as AsyncMutex;

/// An entry for the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The number behind it.
    pub(crate) offset: u64,
    pub(crate) name: String,
    pub(crate) stat: Stat,
}

impl Gateway {
    /// Begins a listing.
    pub(crate) async fn open_directory(&self, number: INodeNo) -> Result<FileHandle, Errno> {
        let directory = self.directory(number)?;
        self.status(Inode::Directory(directory)).await?;
        Ok(self
            .listings
            .insert(AsyncMutex::new(Listing::new(directory))))
    }

    /// Gives the entries of a directory behind a number to `add`, until that says that there is no more room.
    pub(crate) async fn list(
        &self,
        handle: FileHandle,
        offset: u64,
        mut add: impl FnMut(Entry) -> bool,
    ) -> Result<(), Errno> {
        let listing = self.listings.get(handle)?;
        let mut listing = listing.lock().await;
        let directory = listing.directory;
        let (mut behind, mut after) = listing.start(offset);
        if offset < BEHIND_DOTS && !self.add_dots(directory, offset, &mut add).await? {
            return Ok(());
        }
        let mut count = 0;
        loop {
            let asked = self.ask_now();
            let page = self
                .client
                .read_directory(directory, after.as_ref(), listing.page_count);
            let (entries, has_more) = page.await?;
            let last = entries.last().cloned();
            for entry in entries {
                let next = listing.number(behind, &entry);
                let entry = Entry {
                    offset: next,
                    stat: self.stat(&entry.status, &asked),
                    name: entry.name,
                };
                if !add(entry) {
                    listing.note_room(count);
                    return Ok(());
                }
                (behind, count) = (next, count + 1);
            }
            if !has_more || last.is_none() {
                return Ok(());
            }
            after = last;
        }
    }

    /// Adds `.` and `..`. The kernel knows which directory is above.
    async fn add_dots(
        &self,
        directory: DirectoryId,
        offset: u64,
        add: &mut impl FnMut(Entry) -> bool,
    ) -> Result<bool, Errno> {
        let stat = self.stat_inode(Inode::Directory(directory)).await?;
        let dots = [(1, "."), (BEHIND_DOTS, "..")];
        for (number, name) in dots.into_iter().filter(|(number, _)| *number > offset) {
            let entry = Entry {
                offset: number,
                name: name.to_owned(),
                stat,
            };
            if !add(entry) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
