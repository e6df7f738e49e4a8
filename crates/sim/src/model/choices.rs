//! The outcomes that are right for an operation. Mostly there is one. There are more where time decides, such as the
//! end of a lease, and the cluster promises only the times between which it does.

use super::answer::{Answer, FileNumber, Outcome};
use super::entry::Entry;
use super::expected::Expected;
use super::holders::{KEPT_UNTIL_MS, LOST_AFTER_MS};
use super::operation::{Access, AloneOperation, Operation, WithinOperation};
use super::options::Reached;
use gabion_client::Cause;
use gabion_meta::Limit;

/// An outcome that is right, and the state behind it.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) outcome: Outcome,
    pub(crate) after: Expected,
    /// It is wrong if the operation has ended before this time.
    pub(crate) earliest_us: u64,
    /// Another outcome that it shows.
    pub(crate) reached: Option<Reached>,
}

impl Choice {
    fn of(mut after: Expected, operation: &Operation) -> Self {
        let outcome = after.apply(operation);
        Self {
            outcome,
            after,
            earliest_us: 0,
            reached: None,
        }
    }
}

impl Expected {
    /// The right outcomes, the usual one first. `may_stay` says whether a file without a name may not be gone yet.
    pub(crate) fn choices(&self, operation: &Operation, may_stay: bool) -> Vec<Choice> {
        let mut choices = vec![Choice::of(self.clone(), operation)];
        choices.extend(self.when_locks_are_free(operation));
        // First, since a hole that changes nothing does not show that the session is over.
        choices.extend(self.when_nothing_changes(operation, &choices[0].outcome));
        choices.extend(self.when_session_is_free(operation));
        match operation {
            Operation::CutOff { ms } => self.add_lease(&mut choices, *ms),
            // A coordinator that has started does not know yet which files clients have open.
            Operation::UseRemoved(_) if may_stay => choices.push(Choice {
                outcome: Ok(Answer::Done),
                ..choices[0].clone()
            }),
            _ => {}
        }
        choices
    }

    /// The outcome if the locks of a client that is gone are free.
    fn when_locks_are_free(&self, operation: &Operation) -> Option<Choice> {
        let dead = self
            .dead
            .filter(|_| matches!(operation, Operation::Lock(_)))?;
        let mut before = self.clone();
        before.dead = None;
        before.locks.forget_client(dead.client);
        Some(Choice {
            earliest_us: dead.left.earliest_us,
            reached: Some(Reached::LocksFreed),
            ..Choice::of(before, operation)
        })
    }

    /// The outcome if the session of a client that is gone or was cut off is over, which has the file that the operation
    /// concerns.
    fn when_session_is_free(&self, operation: &Operation) -> Option<Choice> {
        let file = self.file_in_the_way(operation)?;
        let left = self.sole.get(&file)?.left?;
        let mut before = self.clone();
        before.sole.remove(&file);
        Some(Choice {
            earliest_us: left.earliest_us,
            reached: Some(Reached::SessionFreed),
            ..Choice::of(before, operation)
        })
    }

    /// The file whose session may refuse an operation, or be over for its own client.
    fn file_in_the_way(&self, operation: &Operation) -> Option<FileNumber> {
        if let Operation::Alone(AloneOperation::Use(handle, _)) = operation {
            let file = self.handles.get(handle)?.file;
            let has_it = self.sole.get(&file)?.handle == *handle;
            return has_it.then_some(file);
        }
        let (Operation::File { path, .. }
        | Operation::Remove(path)
        | Operation::Put { path, .. }
        | Operation::Rename { to: path, .. }
        | Operation::Alone(AloneOperation::Open {
            path,
            takes_over: false,
            ..
        })) = operation
        else {
            return None;
        };
        match self.entries.get(path)? {
            Entry::File(file) => Some(*file),
            Entry::Directory(_) => None,
        }
    }

    /// The outcome of a hole that changes no byte. The client need not ask whether it may write.
    fn when_nothing_changes(&self, operation: &Operation, usual: &Outcome) -> Option<Choice> {
        let (file, access) = self.accessed(operation)?;
        let Access::Punch(range) = access else {
            return None;
        };
        let is_refused = matches!(usual, Err(Cause::InUse | Cause::Stale));
        if !is_refused || !self.files[&file].is_zero(range) {
            return None;
        }
        let mut after = self.clone();
        let outcome = after.access_anyway(file, access);
        Some(Choice {
            outcome,
            after,
            earliest_us: 0,
            reached: None,
        })
    }

    /// The file that an operation reads or changes, and how.
    pub(crate) fn accessed<'o>(
        &self,
        operation: &'o Operation,
    ) -> Option<(FileNumber, &'o Access)> {
        match operation {
            Operation::File { path, access, .. } => Some((self.file_at(path)?, access)),
            Operation::Alone(AloneOperation::Use(handle, access)) => {
                Some((self.handles.get(handle)?.file, access))
            }
            _ => None,
        }
    }

    /// The outcomes of a time in which a client was cut off.
    fn add_lease(&self, choices: &mut Vec<Choice>, ms: u64) {
        if !self.locks.has_any(self.mortal) {
            return;
        }
        let (is_kept_for_certain, is_lost_for_certain) = (ms <= KEPT_UNTIL_MS, ms >= LOST_AFTER_MS);
        let mut after = choices[0].after.clone();
        after.lose_locks();
        let lost = Choice {
            outcome: Ok(Answer::Leased(false)),
            after,
            earliest_us: 0,
            reached: Some(Reached::LocksLost),
        };
        choices[0].reached = Some(Reached::LocksKept);
        if is_lost_for_certain {
            choices.clear();
        }
        if !is_kept_for_certain {
            choices.push(lost);
        }
    }

    /// The rule that an outcome shows at work.
    pub(crate) fn reached(&self, operation: &Operation, outcome: &Outcome) -> Option<Reached> {
        match (operation, outcome) {
            (_, Ok(Answer::Locked(false) | Answer::Found(true))) => Some(Reached::LockConflict),
            (Operation::Within(_), Err(Cause::Quota)) => Some(Reached::PoolBytes),
            (Operation::Within(within), Ok(_)) if self.within.is_full() => {
                gives_back(within).then_some(Reached::RoomGivenBack)
            }
            (_, Err(Cause::Quota)) => Some(self.full_quota(operation)),
            (Operation::Alone(AloneOperation::Use(..)), Err(Cause::Stale)) => {
                Some(Reached::SupersededWrite)
            }
            (Operation::File { .. }, Ok(_)) => {
                let (file, access) = self.accessed(operation)?;
                let is_write = self.clones.contains(&file) && self.files[&file].is_write(access);
                is_write.then_some(Reached::CloneWrite)
            }
            (Operation::Remove(path) | Operation::RemoveDirectory(path), Ok(_)) => {
                let is_in_snapshot = self.check_place(path).is_err();
                is_in_snapshot.then_some(Reached::SnapshotRemoval)
            }
            _ => None,
        }
    }

    /// The limit that refuses an operation which nothing else refuses.
    fn full_quota(&self, operation: &Operation) -> Reached {
        let mut unlimited = self.clone();
        unlimited.files_limit = Limit::Unlimited;
        match unlimited.apply(operation) {
            Err(Cause::Quota) => Reached::DirectoryQuota,
            _ => Reached::PoolFiles,
        }
    }
}

/// Whether an operation makes room in its pool.
const fn gives_back(within: &WithinOperation) -> bool {
    match within {
        WithinOperation::Remove(_) => true,
        WithinOperation::File { access, .. } => {
            matches!(access, Access::Punch(_) | Access::Truncate(_))
        }
        WithinOperation::Limit(_) | WithinOperation::Put { .. } => false,
    }
}
