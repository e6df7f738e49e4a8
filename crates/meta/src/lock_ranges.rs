//! Advisory locks of one file as values: which conflict, and what an owner holds after a change. POSIX, `fcntl`:
//! ranges of one owner are split where a change cuts them and merged where they meet.

use serde::{Deserialize, Serialize};

/// The two kinds of advisory locks. Locks of different kinds do not conflict, as in Linux's own file systems.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// A range of bytes, by `fcntl`.
    Range,
    /// A whole file, by `flock`.
    Whole,
}

/// Whether a lock has one owner or several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LockMode {
    /// Others may hold shared locks too.
    Shared,
    /// No other owner may hold a lock there.
    Exclusive,
}

/// An owner of locks within one session, as a mount's kernel numbers it: the table of open files of a process, or
/// one open file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
pub struct LockOwner {
    /// The kind of its locks.
    pub kind: LockKind,
    /// The kernel's number.
    pub number: u64,
}

/// The locked bytes: from the first to the last, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockRange {
    /// The first byte.
    pub first: u64,
    /// The last byte. It may lie behind the end of the file.
    pub last: u64,
}

impl LockRange {
    /// All bytes of any file.
    pub const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    /// Whether it has a byte.
    pub const fn is_valid(self) -> bool {
        self.first <= self.last
    }

    /// Whether the ranges share a byte.
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether the ranges overlap, or one begins where the other ends.
    const fn meets(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    const fn joined(self, other: Self) -> Self {
        Self {
            first: if self.first < other.first {
                self.first
            } else {
                other.first
            },
            last: if self.last > other.last {
                self.last
            } else {
                other.last
            },
        }
    }

    /// The parts before and behind another range.
    fn without(self, cut: Self) -> impl Iterator<Item = Self> {
        let before = cut.first.checked_sub(1).map(|last| Self {
            first: self.first,
            last: last.min(self.last),
        });
        let behind = cut.last.checked_add(1).map(|first| Self {
            first: first.max(self.first),
            last: self.last,
        });
        let parts = [before, behind].into_iter().flatten();
        parts.filter(|part| part.first <= part.last)
    }
}

/// A lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldLock {
    /// Its owner.
    pub owner: LockOwner,
    /// Its mode.
    pub mode: LockMode,
    /// Its bytes.
    pub range: LockRange,
    /// The process that made it, by the number of its own machine. Nothing depends on it.
    pub process: u32,
}

impl HeldLock {
    /// Whether another owner's lock may not stand beside this one.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let is_shared = self.mode == LockMode::Shared && other.mode == LockMode::Shared;
        self.owner.kind == other.owner.kind && !is_shared && self.range.overlaps(other.range)
    }
}

/// A change of what one owner holds in a range of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockChange {
    /// The owner.
    pub owner: LockOwner,
    /// The mode that the range has afterwards; none to unlock it.
    pub mode: Option<LockMode>,
    /// The range.
    pub range: LockRange,
    /// The process that asks.
    pub process: u32,
}

impl LockChange {
    /// Unlocks everything that an owner holds.
    pub const fn unlock(owner: LockOwner) -> Self {
        Self {
            owner,
            mode: None,
            range: LockRange::ALL,
            process: 0,
        }
    }

    /// The lock that the change asks for; none to unlock.
    pub fn wanted(&self) -> Option<HeldLock> {
        self.mode.map(|mode| HeldLock {
            owner: self.owner,
            mode,
            range: self.range,
            process: self.process,
        })
    }

    /// The locks of a session in a file after the change.
    pub(crate) fn applied_to(&self, held: &[HeldLock]) -> Vec<HeldLock> {
        let mut after = Vec::with_capacity(held.len() + 2);
        let mut new = self.wanted();
        for lock in held {
            if lock.owner != self.owner {
                after.push(*lock);
                continue;
            }
            match &mut new {
                Some(new) if new.mode == lock.mode && self.range.meets(lock.range) => {
                    new.range = new.range.joined(lock.range);
                }
                _ => after.extend(
                    lock.range
                        .without(self.range)
                        .map(|range| HeldLock { range, ..*lock }),
                ),
            }
        }
        after.extend(new);
        after.sort_by_key(|lock| (lock.owner, lock.range.first));
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The bytes of the model, and those at the end of all numbers, which it maps to its last ones.
    const BYTES: u64 = 24;

    fn byte(number: u64) -> u64 {
        if number < BYTES / 2 {
            number
        } else {
            u64::MAX - (BYTES - 1 - number)
        }
    }

    fn owner(number: u64) -> LockOwner {
        let kind = LockKind::Range;
        LockOwner { kind, number }
    }

    fn change() -> impl Strategy<Value = LockChange> {
        let mode = prop_oneof![
            Just(None),
            Just(Some(LockMode::Shared)),
            Just(Some(LockMode::Exclusive))
        ];
        (0..3_u64, mode, 0..BYTES, 0..BYTES).prop_map(|(number, mode, one, other)| LockChange {
            owner: owner(number),
            mode,
            range: LockRange {
                first: byte(one.min(other)),
                last: byte(one.max(other)),
            },
            process: 1,
        })
    }

    proptest! {
        #[test]
        fn ranges_of_an_owner_are_those_of_a_model_of_single_bytes(
            changes in proptest::collection::vec(change(), 1..40)
        ) {
            let mut held: Vec<HeldLock> = Vec::new();
            let mut model = BTreeMap::new();
            for change in changes {
                held = change.applied_to(&held);
                for number in 0..BYTES {
                    let at = byte(number);
                    if change.range.first <= at && at <= change.range.last {
                        match change.mode {
                            Some(mode) => model.insert((change.owner, at), mode),
                            None => model.remove(&(change.owner, at)),
                        };
                    }
                }
                for number in 0..BYTES {
                    let at = byte(number);
                    for holder in [owner(0), owner(1), owner(2)] {
                        let of = |lock: &&HeldLock| {
                            lock.owner == holder && lock.range.first <= at && at <= lock.range.last
                        };
                        let modes: Vec<LockMode> = held.iter().filter(of).map(|lock| lock.mode).collect();
                        let expected: Vec<LockMode> = model.get(&(holder, at)).copied().into_iter().collect();
                        prop_assert_eq!(modes, expected);
                    }
                }
                // As few locks as possible: neighbours of one owner differ in mode or leave a gap.
                for pair in held.windows(2) {
                    let apart = pair[0].owner != pair[1].owner
                        || pair[0].mode != pair[1].mode
                        || !pair[0].range.meets(pair[1].range);
                    prop_assert!(apart, "{:?}", pair);
                }
            }
        }
    }

    #[test]
    fn locks_conflict_by_kind_mode_and_bytes() {
        use LockKind::{Range, Whole};
        use LockMode::{Exclusive, Shared};
        let lock = |kind, mode, first, last| HeldLock {
            owner: LockOwner { kind, number: 1 },
            mode,
            range: LockRange { first, last },
            process: 1,
        };
        let held = lock(Range, Shared, 10, 19);
        for (other, conflicts) in [
            (lock(Range, Exclusive, 19, 30), true),
            (lock(Range, Exclusive, 20, 30), false),
            (lock(Range, Exclusive, 0, 9), false),
            (lock(Range, Exclusive, 0, 10), true),
            (lock(Range, Shared, 10, 19), false),
            (lock(Whole, Exclusive, 0, u64::MAX), false),
        ] {
            assert_eq!(held.conflicts_with(&other), conflicts, "{other:?}");
            assert_eq!(other.conflicts_with(&held), conflicts, "{other:?}");
        }
    }
}
