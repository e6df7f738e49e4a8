//! The map of each file's pages to their places: four bytes a page, in leaves of 256 pages.

use std::collections::BTreeMap;

/// Pages of a leaf.
const LEAF_PAGES: u32 = 256;
/// No place: a hole of the file.
const NOWHERE: u32 = u32::MAX;

/// A slot of a stripe, as one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place(pub(crate) u32);

/// The map of all files' pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageMap {
    leaves: BTreeMap<(u32, u32), Box<[u32]>>,
    page_count: u64,
}

impl PageMap {
    /// Pages that have a place.
    pub(crate) fn page_count(&self) -> u64 {
        self.page_count
    }

    pub(crate) fn get(&self, file: u32, page: u32) -> Option<Place> {
        let leaf = self.leaves.get(&(file, page / LEAF_PAGES))?;
        let place = leaf[(page % LEAF_PAGES) as usize];
        (place != NOWHERE).then_some(Place(place))
    }

    /// Returns the page's previous place.
    pub(crate) fn set(&mut self, file: u32, page: u32, place: Place) -> Option<Place> {
        let leaf = self
            .leaves
            .entry((file, page / LEAF_PAGES))
            .or_insert_with(|| vec![NOWHERE; LEAF_PAGES as usize].into_boxed_slice());
        let before = std::mem::replace(&mut leaf[(page % LEAF_PAGES) as usize], place.0);
        self.page_count += u64::from(before == NOWHERE);
        (before != NOWHERE).then_some(Place(before))
    }

    /// Number of pages of a file from `first` to below `end` that have a place.
    pub(crate) fn count(&self, file: u32, first: u32, end: u32) -> u64 {
        let leaves = (file, first / LEAF_PAGES)..=(file, end / LEAF_PAGES);
        let mut count = 0;
        for (&(_, number), leaf) in self.leaves.range(leaves) {
            let start = number * LEAF_PAGES;
            let from = first.saturating_sub(start).min(LEAF_PAGES);
            let to = end.saturating_sub(start).min(LEAF_PAGES);
            let within = &leaf[from as usize..to as usize];
            count += within.iter().filter(|place| **place != NOWHERE).count() as u64;
        }
        count
    }

    /// Removes the pages of a file from `first` to below `end`, or to the file's end for
    /// `u32::MAX`, from the map, and returns their places.
    pub(crate) fn take(&mut self, file: u32, first: u32, end: u32) -> Vec<Place> {
        let mut taken = Vec::new();
        let mut emptied = Vec::new();
        let leaves = (file, first / LEAF_PAGES)..=(file, end / LEAF_PAGES);
        for (key, leaf) in self.leaves.range_mut(leaves) {
            let start = key.1 * LEAF_PAGES;
            for (page, place) in (u64::from(start)..).zip(leaf.iter_mut()) {
                let is_within = page >= u64::from(first) && page < u64::from(end);
                if is_within && *place != NOWHERE {
                    taken.push(Place(*place));
                    *place = NOWHERE;
                }
            }
            if leaf.iter().all(|place| *place == NOWHERE) {
                emptied.push(*key);
            }
        }
        for key in emptied {
            self.leaves.remove(&key);
        }
        self.page_count -= taken.len() as u64;
        taken
    }

    /// Every page that has a place.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u32, u32, Place)> {
        self.leaves.iter().flat_map(|(&(file, number), leaf)| {
            let pages = (number * LEAF_PAGES..).zip(leaf.iter());
            pages
                .filter(|(_, place)| **place != NOWHERE)
                .map(move |(page, place)| (file, page, Place(*place)))
        })
    }

    /// The pages of one file that have a place.
    pub(crate) fn pages_of(&self, file: u32) -> impl Iterator<Item = u32> {
        self.leaves
            .range((file, 0)..=(file, u32::MAX))
            .flat_map(|(&(_, number), leaf)| {
                let pages = (number * LEAF_PAGES..).zip(leaf.iter());
                pages
                    .filter(|(_, place)| **place != NOWHERE)
                    .map(|(page, _)| page)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go() {
        let mut map = PageMap::default();
        for page in [0, 255, 256, 70_000] {
            assert_eq!(map.set(3, page, Place(page + 1)), None);
        }
        map.set(4, 0, Place(9));
        assert_eq!(map.set(3, 256, Place(7)), Some(Place(257)));
        assert_eq!(map.get(3, 256), Some(Place(7)));
        assert_eq!(map.get(3, 1), None);
        assert_eq!(map.page_count(), 5);
        assert_eq!((map.count(3, 0, 256), map.count(3, 1, 70_001)), (2, 3));
        assert_eq!(map.take(3, 255, 70_000), [Place(256), Place(7)]);
        assert_eq!(map.take(3, 0, u32::MAX), [Place(1), Place(70_001)]);
        assert_eq!(map.pages().collect::<Vec<_>>(), [(4, 0, Place(9))]);
        assert_eq!(map.pages_of(4).collect::<Vec<_>>(), [0]);
        assert_eq!(map.page_count(), 1);
    }
}
