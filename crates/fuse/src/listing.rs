//! Listings of directories, page by page.
//!
//! The kernel names the entry behind which it goes on by a number that this mount has given it. A listing remembers the
//! names of the newest numbers, and goes on behind the name: so it misses nothing, even if names are removed during
//! the listing. Each page is read when the kernel asks for it, so that the attributes that come with the names are
//! those of that moment.

use gabion_meta::{DirectoryEntry, DirectoryId};
use std::collections::VecDeque;

/// The number behind `.` and `..`.
pub(crate) const BEHIND_DOTS: u64 = 2;
/// Names whose numbers are remembered.
const REMEMBERED_COUNT: usize = 1_024;
/// Numbers between names that are remembered for good.
const CHECKPOINT_EVERY: u64 = 1_024;
/// Entries of the first page, and the limits of later ones.
const FIRST_PAGE_COUNT: u64 = 128;
const PAGE_COUNT_MIN: u64 = 16;
const PAGE_COUNT_MAX: u64 = 512;

/// A listing as one `opendir` has begun it.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) directory: DirectoryId,
    /// The newest numbers and their names, in order.
    names: VecDeque<(u64, DirectoryEntry)>,
    /// Numbers and names at distances, in order.
    checkpoints: Vec<(u64, DirectoryEntry)>,
    /// Entries of the next page.
    pub(crate) page_count: u64,
}

impl Listing {
    /// One that begins at the first entry.
    pub(crate) const fn new(directory: DirectoryId) -> Self {
        Self {
            directory,
            names: VecDeque::new(),
            checkpoints: Vec::new(),
            page_count: FIRST_PAGE_COUNT,
        }
    }

    /// The number and the name from which the entries behind a number follow. If the name is forgotten, those of an
    /// earlier one: some entries come again, and none is missed.
    pub(crate) fn start(&mut self, offset: u64) -> (u64, Option<DirectoryEntry>) {
        if offset <= BEHIND_DOTS {
            // A new state of the directory has other names for the numbers.
            self.names.clear();
            self.checkpoints.clear();
            return (BEHIND_DOTS, None);
        }
        let exact = self
            .names
            .binary_search_by_key(&offset, |(number, _)| *number);
        if let Ok(index) = exact {
            return (offset, Some(self.names[index].1.clone()));
        }
        let before = self
            .checkpoints
            .partition_point(|(number, _)| *number <= offset);
        self.checkpoints.truncate(before);
        self.names.clear();
        match self.checkpoints.last() {
            Some((number, name)) => (*number, Some(name.clone())),
            None => (BEHIND_DOTS, None),
        }
    }

    /// Gives the entry behind a number the next one.
    pub(crate) fn number(&mut self, behind: u64, entry: &DirectoryEntry) -> u64 {
        let offset = behind + 1;
        while self.names.back().is_some_and(|(last, _)| *last >= offset) {
            self.names.pop_back();
        }
        if self.names.len() == REMEMBERED_COUNT {
            self.names.pop_front();
        }
        self.names.push_back((offset, entry.clone()));
        let last = self
            .checkpoints
            .last()
            .map_or(BEHIND_DOTS, |(last, _)| *last);
        if offset >= last + CHECKPOINT_EVERY {
            self.checkpoints.push((offset, entry.clone()));
        }
        offset
    }

    /// Notes how many entries the kernel's buffer had room for.
    pub(crate) fn note_room(&mut self, count: u64) {
        self.page_count = (count + count / 4 + 1).clamp(PAGE_COUNT_MIN, PAGE_COUNT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_meta::{Attributes, Inode, InodeStatus, Kind, NewAttributes, PutId, WallTime};

    fn entry(name: &str) -> DirectoryEntry {
        let status = InodeStatus {
            inode: Inode::File(PutId(1)),
            kind: Kind::File,
            attributes: Attributes::new(NewAttributes::FILE, WallTime::default()),
            size_bytes: 0,
            link_count: 1,
            generation: 0,
            stripe_count: 0,
            inline_bytes: 0,
            pool: None,
            is_read_only: false,
        };
        DirectoryEntry {
            name: name.to_owned(),
            status,
        }
    }

    /// Lists by pages of this many names from a directory, of which each page that was listed is removed.
    fn list_and_remove(total: usize, page: usize) -> usize {
        let mut there: Vec<String> = (0..total).map(|number| format!("{number:08}")).collect();
        let mut listing = Listing::new(DirectoryId(1));
        let (mut offset, mut seen) = (BEHIND_DOTS, 0);
        loop {
            let (mut behind, after) = listing.start(offset);
            assert_eq!(behind, offset);
            let after = after.map(|after| after.name);
            let follows = |name: &&String| after.as_ref().is_none_or(|after| *name > after);
            let names: Vec<String> = there.iter().filter(follows).take(page).cloned().collect();
            if names.is_empty() {
                return seen;
            }
            for name in &names {
                behind = listing.number(behind, &entry(name));
            }
            there.retain(|name| !names.contains(name));
            seen += names.len();
            offset = behind;
        }
    }

    #[test]
    fn a_listing_misses_nothing_while_its_entries_are_removed() {
        assert_eq!(list_and_remove(10_000, 97), 10_000);
    }

    #[test]
    fn a_forgotten_number_goes_back_to_an_earlier_name() {
        let mut listing = Listing::new(DirectoryId(1));
        let mut behind = BEHIND_DOTS;
        for number in 0..100_000 {
            behind = listing.number(behind, &entry(&format!("{number:08}")));
        }
        assert!(listing.names.len() <= REMEMBERED_COUNT && listing.checkpoints.len() <= 100);
        let (number, name) = listing.start(5_000);
        assert!(
            (5_000 - CHECKPOINT_EVERY..=5_000).contains(&number),
            "{number}"
        );
        let expected = format!("{:08}", number - BEHIND_DOTS - 1);
        assert_eq!(name.map(|name| name.name), Some(expected));
        assert_eq!(listing.start(0), (BEHIND_DOTS, None));
    }
}
