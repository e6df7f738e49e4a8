//! The advisory locks of the model: for each holder and file the mode of each byte. The numbers of all bytes are
//! divided into few cells: single bytes at both ends, and one cell for all others. So the model joins and splits no
//! ranges.

use super::answer::FileNumber;
use super::holders::{ClientNumber, Holder};
use gabion_meta::{HeldLock, LockMode, LockRange};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Single bytes at each end.
const END_COUNT: usize = 8;
/// All cells.
pub(crate) const CELL_COUNT: usize = 2 * END_COUNT + 1;
/// All bytes.
pub(crate) const ALL: Range<usize> = 0..CELL_COUNT;

/// One cell.
pub(crate) const fn single(cell: usize) -> Range<usize> {
    let end = cell + 1;
    cell..end
}

/// The mode of each cell, if it is locked.
type Modes = [Option<LockMode>; CELL_COUNT];

/// The bytes of these cells, of which there is at least one.
pub(crate) fn range_of(cells: &Range<usize>) -> LockRange {
    LockRange {
        first: first_of(cells.start),
        last: match cells.end {
            CELL_COUNT => u64::MAX,
            end => first_of(end) - 1,
        },
    }
}

/// The first byte of a cell.
const fn first_of(cell: usize) -> u64 {
    if cell <= END_COUNT {
        cell as u64
    } else {
        u64::MAX - (CELL_COUNT - 1 - cell) as u64
    }
}

/// The lock that a holder asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) holder: Holder,
    pub(crate) mode: LockMode,
    pub(crate) cells: Range<usize>,
}

/// The locks of all files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LockTable(BTreeMap<(FileNumber, Holder), Modes>);

impl LockTable {
    /// Whether a lock of another holder is in the way.
    pub(crate) fn is_taken(&self, file: FileNumber, wanted: &Wanted) -> bool {
        !self.obstacles(file, wanted).is_empty()
    }

    /// The locks of other holders that are in the way, with their clients.
    fn obstacles(
        &self,
        file: FileNumber,
        wanted: &Wanted,
    ) -> Vec<(Holder, LockMode, Range<usize>)> {
        let mut found = Vec::new();
        for (&(of, holder), modes) in &self.0 {
            if of != file || holder == wanted.holder || holder.kind != wanted.holder.kind {
                continue;
            }
            for (mode, run) in runs(modes) {
                let is_shared = mode == LockMode::Shared && wanted.mode == LockMode::Shared;
                let overlaps = run.start < wanted.cells.end && wanted.cells.start < run.end;
                if overlaps && !is_shared {
                    found.push((holder, mode, run));
                }
            }
        }
        found
    }

    /// Whether this lock is one that is in the way. `is_own` says whether it is one of the holder's client, if that is
    /// known.
    pub(crate) fn is_obstacle(
        &self,
        file: FileNumber,
        wanted: &Wanted,
        (lock, is_own): (&HeldLock, Option<bool>),
    ) -> bool {
        let mut obstacles = self.obstacles(file, wanted).into_iter();
        obstacles.any(|(holder, mode, cells)| {
            let is_of_client = holder.client == wanted.holder.client;
            holder.owner() == lock.owner
                && (mode, range_of(&cells)) == (lock.mode, lock.range)
                && is_own.is_none_or(|is_own| is_own == is_of_client)
        })
    }

    /// Gives cells of a file a mode, or unlocks them.
    pub(crate) fn set(
        &mut self,
        (file, holder): (FileNumber, Holder),
        mode: Option<LockMode>,
        cells: &Range<usize>,
    ) {
        let modes = self.0.entry((file, holder)).or_default();
        modes[cells.clone()].fill(mode);
        if modes.iter().all(Option::is_none) {
            self.0.remove(&(file, holder));
        }
    }

    /// Whether a holder has a lock of another mode.
    pub(crate) fn has_other(&self, of: (FileNumber, Holder), mode: LockMode) -> bool {
        let modes = self.0.get(&of).into_iter().flatten();
        modes.flatten().any(|held| *held != mode)
    }

    /// Unlocks all that a holder has in a file.
    pub(crate) fn release(&mut self, of: (FileNumber, Holder)) {
        self.0.remove(&of);
    }

    /// A file is gone.
    pub(crate) fn forget_file(&mut self, file: FileNumber) {
        self.0.retain(|(of, _), _| *of != file);
    }

    /// The locks of a client are free.
    pub(crate) fn forget_client(&mut self, client: ClientNumber) {
        self.0.retain(|(_, holder), _| holder.client != client);
    }

    /// Whether a client has locks in a file.
    pub(crate) fn has(&self, client: ClientNumber, file: FileNumber) -> bool {
        let mut all = self.0.keys();
        all.any(|(of, holder)| (*of, holder.client) == (file, client))
    }

    /// Whether a client has locks.
    pub(crate) fn has_any(&self, client: ClientNumber) -> bool {
        self.0.keys().any(|(_, holder)| holder.client == client)
    }

    /// All holders of locks, with their files.
    pub(crate) fn holders(&self) -> Vec<(FileNumber, Holder)> {
        self.0.keys().copied().collect()
    }

    /// The files with locks.
    pub(crate) fn files(&self) -> BTreeSet<FileNumber> {
        self.0.keys().map(|(file, _)| *file).collect()
    }
}

/// The longest runs of cells with one mode: the locks.
fn runs(modes: &Modes) -> Vec<(LockMode, Range<usize>)> {
    let mut runs: Vec<(LockMode, Range<usize>)> = Vec::new();
    for (cell, mode) in modes.iter().enumerate() {
        let Some(mode) = *mode else { continue };
        match runs.last_mut() {
            Some((last, run)) if *last == mode && run.end == cell => run.end += 1,
            _ => runs.push((mode, single(cell))),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_meta::LockKind;

    const fn holder(client: ClientNumber, number: u64) -> Holder {
        Holder {
            client,
            kind: LockKind::Range,
            number,
        }
    }

    #[test]
    fn cells_cover_all_bytes_once() {
        assert_eq!(range_of(&ALL), LockRange::ALL);
        let mut next = 0;
        for cell in ALL {
            let range = range_of(&single(cell));
            assert_eq!(range.first, next, "cell {cell}");
            assert!(range.is_valid(), "cell {cell}");
            next = range.last.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last byte is the last of all");
    }

    #[test]
    fn locks_are_found_as_joined_and_split_ranges() {
        let (mut table, one) = (LockTable::default(), holder(0, 1));
        table.set((7, one), Some(LockMode::Shared), &(0..3));
        table.set((7, one), Some(LockMode::Shared), &(3..6));
        table.set((7, one), None, &single(1));
        let wanted = |other, mode| Wanted {
            holder: other,
            mode,
            cells: ALL,
        };
        let found = |first, last| HeldLock {
            owner: one.owner(),
            mode: LockMode::Shared,
            range: LockRange { first, last },
            process: 9,
        };
        let other = wanted(holder(0, 2), LockMode::Exclusive);
        let is_found = |lock: &HeldLock, is_own| table.is_obstacle(7, &other, (lock, is_own));
        assert!(is_found(&found(2, 5), Some(true)) && is_found(&found(0, 0), None));
        assert!(!is_found(&found(2, 5), Some(false)), "of this client");
        assert!(!is_found(&found(3, 5), None), "joined");
        assert!(!is_found(&found(0, 5), None), "split");
        assert!(table.is_taken(7, &other) && !table.is_taken(8, &other));
        assert!(!table.is_taken(7, &wanted(holder(1, 1), LockMode::Shared)));
        assert!(table.is_taken(7, &wanted(holder(1, 1), LockMode::Exclusive)));
        assert!(
            !table.is_taken(7, &wanted(one, LockMode::Exclusive)),
            "its own"
        );
    }
}
