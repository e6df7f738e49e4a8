//! Draws the operations with advisory locks, exclusive sessions, quotas and snapshots of directories. Owners and
//! ranges are few, and limits lie close to what is used, so that many operations are refused.

use super::draw::Draw;
use super::entry::Entry;
use super::holders::{ClientNumber, Holder, LASTING};
use super::locks::{ALL, CELL_COUNT};
use super::operation::{
    Access, AloneOperation, LockOperation, LockRequest, Operation, WithinOperation,
};
use super::within::NAMES;
use gabion_meta::{Limit, LockKind, LockMode, QuotaChange};
use std::ops::Range;

/// Owners of each kind of locks of a client.
const OWNER_COUNT: u64 = 2;
/// Most files that clients have exclusively.
const SOLE_COUNT: usize = 2;
/// Most handles of files that were opened exclusively.
const HANDLE_COUNT: usize = 5;
/// Most files and directories of a directory of which a snapshot is made.
const TREE_COUNT: u64 = 10;
/// From this number of names on, some are removed.
const CROWD_COUNT: usize = 40;
/// Most names at which a snapshot of a directory is made.
const NAME_COUNT: usize = 60;
/// Most directories with a quota.
const QUOTA_COUNT: usize = 3;
/// Most stripes of a file in the pool with limited bytes.
const WITHIN_STRIPES: u64 = 6;

impl Draw<'_> {
    pub(crate) fn operation_of_holders(&mut self) -> Operation {
        match self.dice.below(100) {
            0..18 => self.lock(),
            18..22 => self.lock_as(LockRequest::Unlock),
            22..28 => {
                let mode = self.mode_of_lock();
                self.lock_as(LockRequest::Find(mode))
            }
            28..31 => self.lock_as(LockRequest::Release),
            31..33 => self.cut_off(),
            33..53 => self.alone(),
            53..55 => self.kill(),
            55..57 => self.wait(),
            57..66 => self.quota(),
            66..69 => self.limit_files(),
            69..84 => self.within(),
            84..93 => self.share_tree(),
            _ => self.removal(),
        }
    }

    fn mode_of_lock(&mut self) -> LockMode {
        *self.dice.pick(&[LockMode::Shared, LockMode::Exclusive])
    }

    fn lock(&mut self) -> Operation {
        let mode = self.mode_of_lock();
        self.lock_as(LockRequest::Set(mode))
    }

    fn lock_as(&mut self, change: LockRequest) -> Operation {
        let known = self.expected.locks.holders();
        let is_of_known = change == LockRequest::Unlock || change == LockRequest::Release;
        let known = known.into_iter().filter(|(_, holder)| {
            LASTING.contains(&holder.client) || holder.client == self.expected.mortal
        });
        let known: Vec<_> = known.collect();
        let drawn = self.holder();
        // Most unlocks are of something, and most other requests are about files with locks.
        let (path, holder) = match known.as_slice() {
            [] => (self.file_path(), drawn),
            _ if self.dice.one_in(4) => (self.file_path(), drawn),
            known => {
                let (file, holder) = *self.dice.pick(known);
                let path = self.expected.paths_of(file)[0].clone();
                (path, if is_of_known { holder } else { drawn })
            }
        };
        let cells = match holder.kind {
            LockKind::Whole => ALL,
            LockKind::Range => self.cells(),
        };
        Operation::Lock(LockOperation {
            path,
            holder,
            change,
            cells,
        })
    }

    fn client(&mut self) -> ClientNumber {
        let [first, second] = LASTING;
        let mortal = self.expected.mortal;
        *self.dice.pick(&[first, second, mortal, mortal])
    }

    fn holder(&mut self) -> Holder {
        let is_whole = self.dice.one_in(4);
        Holder {
            client: self.client(),
            kind: if is_whole {
                LockKind::Whole
            } else {
                LockKind::Range
            },
            number: self.dice.between(1, OWNER_COUNT),
        }
    }

    fn cells(&mut self) -> Range<usize> {
        if self.dice.one_in(8) {
            return ALL;
        }
        let first = self.dice.below(CELL_COUNT as u64) as usize;
        let length = self.dice.between(1, 6) as usize;
        first..(first + length).min(CELL_COUNT)
    }

    /// Cuts the client off that has locks, if it has any.
    fn cut_off(&mut self) -> Operation {
        let has_locks = self.expected.locks.has_any(self.expected.mortal);
        if !has_locks || !self.is_calm || self.expected.dead.is_some() {
            return self.lock();
        }
        let ms = match self.dice.below(4) {
            0 => 3_000,
            1 => self.dice.between(5_500, 11_500),
            _ => 20_000,
        };
        Operation::CutOff { ms }
    }

    fn kill(&mut self) -> Operation {
        if self.expected.dead.is_some() {
            return self.wait();
        }
        Operation::KillClient
    }

    fn wait(&mut self) -> Operation {
        let ms = self.dice.between(500, 6_000);
        Operation::Wait { ms }
    }

    fn alone(&mut self) -> Operation {
        let handles: Vec<_> = self.expected.handles.keys().copied().collect();
        if handles.is_empty() || self.dice.one_in(4) && handles.len() < HANDLE_COUNT {
            return self.open_alone();
        }
        let handle = *self.dice.pick(&handles);
        let file = self.expected.handles[&handle].file;
        Operation::Alone(match self.dice.below(12) {
            0..2 => AloneOperation::End(handle),
            2 => AloneOperation::Drop(handle),
            _ => {
                let size = self.expected.files[&file].bytes.len() as u64;
                AloneOperation::Use(handle, self.access_of(size))
            }
        })
    }

    /// Opens a file exclusively, mostly one that another client has.
    fn open_alone(&mut self) -> Operation {
        let sole: Vec<_> = self.expected.sole.keys().copied().collect();
        let path = if !sole.is_empty() && (sole.len() >= SOLE_COUNT || self.dice.one_in(2)) {
            let file = *self.dice.pick(&sole);
            self.expected.paths_of(file)[0].clone()
        } else {
            self.file_path()
        };
        Operation::Alone(AloneOperation::Open {
            path,
            client: self.client(),
            takes_over: self.dice.one_in(2),
            handle: self.number,
        })
    }

    /// A path of a directory.
    fn directory_path(&mut self) -> String {
        let entries = self.expected.entries.iter();
        let directories = entries.filter(|(_, entry)| matches!(entry, Entry::Directory(_)));
        let directories: Vec<&String> = directories.map(|(path, _)| path).collect();
        if directories.is_empty() || self.dice.one_in(10) {
            return self.known_path();
        }
        (*self.dice.pick(&directories)).clone()
    }

    fn quota(&mut self) -> Operation {
        let entries = self.expected.entries.keys();
        let limited = entries.filter(|path| self.expected.own_quota(path).is_some());
        let limited: Vec<String> = limited.cloned().collect();
        if !limited.is_empty() && (limited.len() >= QUOTA_COUNT || self.dice.one_in(3)) {
            let path = self.dice.pick(&limited).clone();
            let change = None;
            return Operation::Quota { path, change };
        }
        let path = self.directory_path();
        let used = self.expected.use_of(&path);
        let more_bytes = self.dice.below(2 * self.expected.sizes.stripe_bytes);
        let more_entries = self.dice.below(4);
        let has_bytes = !self.dice.one_in(3);
        let has_entries = !self.dice.one_in(3);
        let bytes = has_bytes.then_some(Limit::AtMost(used.bytes + more_bytes));
        let files = has_entries.then_some(Limit::AtMost(used.entries + more_entries));
        // Without limits the quota ends.
        let lifted = (bytes.is_none() && files.is_none()).then_some(Limit::Unlimited);
        let change = QuotaChange {
            bytes: bytes.or(lifted),
            files: files.or(lifted),
        };
        let change = Some(change);
        Operation::Quota { path, change }
    }

    fn limit_files(&mut self) -> Operation {
        let count = self.expected.files.len() as u64;
        let is_limited = self.expected.files_limit != Limit::Unlimited;
        if is_limited && !self.dice.one_in(4) {
            return Operation::LimitFiles(Limit::Unlimited);
        }
        let more = self.dice.below(4);
        Operation::LimitFiles(Limit::AtMost(count + more))
    }

    fn within(&mut self) -> Operation {
        if !self.is_calm {
            return self.lock();
        }
        let stripe_bytes = self.expected.sizes.stripe_bytes;
        let name = *self.dice.pick(&NAMES);
        let within = &self.expected.within;
        let known = within.files.get(name);
        let size = known.map_or(0, |file| file.bytes.len() as u64 / stripe_bytes);
        let count = within.stripe_count();
        Operation::Within(match self.dice.below(10) {
            0..2 => {
                let limit = count + self.dice.below(4);
                let is_limited = !self.dice.one_in(6);
                WithinOperation::Limit(is_limited.then_some(limit))
            }
            2..5 => {
                let length = self.dice.between(1, 4) * stripe_bytes;
                WithinOperation::Put {
                    name,
                    content: self.content(length),
                    replaces: self.dice.one_in(2),
                }
            }
            5 => WithinOperation::Remove(name),
            _ => {
                let access = self.access_within(size);
                WithinOperation::File { name, access }
            }
        })
    }

    /// An access to whole stripes of a file that has `size` stripes.
    fn access_within(&mut self, size: u64) -> Access {
        let stripe_bytes = self.expected.sizes.stripe_bytes;
        let at = self.dice.below(size + 2).min(WITHIN_STRIPES);
        let count = self.dice.between(1, 2);
        let content = self.content(count * stripe_bytes);
        match self.dice.below(8) {
            0..3 => Access::Write(at * stripe_bytes, content),
            3..5 if size < WITHIN_STRIPES => Access::Append(content),
            5 => Access::Truncate(at * stripe_bytes),
            _ => Access::Punch(at * stripe_bytes..(at + count) * stripe_bytes),
        }
    }

    /// Makes a snapshot or a clone of a small directory.
    fn share_tree(&mut self) -> Operation {
        let path = self.directory_path();
        let used = self.expected.use_of(&path);
        if used.entries > TREE_COUNT || self.expected.entries.len() > NAME_COUNT {
            return self.removal();
        }
        Operation::ShareTree {
            path,
            to: self.new_path(),
            is_read_only: self.dice.one_in(2),
        }
    }

    /// Removes a name from a snapshot, or any name if there are many.
    fn removal(&mut self) -> Operation {
        let entries = self.expected.entries.keys();
        let leaves = entries.filter(|path| !self.expected.has_any_below(path));
        let (of_snapshots, others): (Vec<String>, Vec<String>) = leaves
            .cloned()
            .partition(|path| self.expected.check_place(path).is_err());
        let is_crowded = self.expected.entries.len() > CROWD_COUNT;
        let leaves = if of_snapshots.is_empty() {
            others
        } else {
            of_snapshots
        };
        if leaves.is_empty() || !is_crowded && self.dice.one_in(2) {
            return self.list();
        }
        let path = self.dice.pick(&leaves).clone();
        match self.expected.entries.get(&path) {
            Some(Entry::Directory(_)) => Operation::RemoveDirectory(path),
            _ => Operation::Remove(path),
        }
    }
}
