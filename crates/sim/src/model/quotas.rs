//! The quotas of the model. It counts what is below each directory with a quota anew for each operation.

use super::answer::{Answer, FileNumber, Outcome};
use super::entry::{Entry, QuotaModel};
use super::expected::{Expected, directories_above, is_below};
use super::operation::{AloneOperation, Operation};
use gabion_client::Cause;
use gabion_meta::{DirectoryUse, Limit, Quota, QuotaChange};
use std::collections::{BTreeMap, BTreeSet};

/// What is below each directory with a quota, by the number of the quota.
type Uses = BTreeMap<u64, (Quota, DirectoryUse)>;

impl Expected {
    /// The quota that counts what lies directly in the directory of a path, whether or not the path is taken.
    pub(crate) fn quota_above(&self, path: &str) -> Option<QuotaModel> {
        directories_above(path).find_map(|above| self.own_quota(above))
    }

    /// The quota of a directory.
    pub(crate) fn own_quota(&self, path: &str) -> Option<QuotaModel> {
        match self.entries.get(path)? {
            Entry::Directory(directory) => directory.quota,
            Entry::File(_) => None,
        }
    }

    /// The files and directories below a directory, and the bytes of the files. A file with several names is one.
    pub(crate) fn use_of(&self, path: &str) -> DirectoryUse {
        let (mut used, mut files) = (DirectoryUse::default(), BTreeSet::new());
        for (other, entry) in &self.entries {
            let is_new = match entry {
                _ if !is_below(other, path) => false,
                Entry::Directory(_) => true,
                Entry::File(file) => files.insert(*file),
            };
            used.entries += u64::from(is_new);
        }
        let bytes = files.iter().map(|file| self.files[file].bytes.len() as u64);
        used.bytes = bytes.sum();
        used
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for path in self.entries.keys() {
            if let Some(quota) = self.own_quota(path) {
                uses.insert(quota.number, (quota.limits, self.use_of(path)));
            }
        }
        uses
    }

    /// Refuses a state that has more than the one before it, and more than a quota allows.
    pub(crate) fn check_room(&self, before: &Self) -> Result<(), Cause> {
        let (old, new) = (before.uses(), self.uses());
        for (number, (limits, used)) in new {
            let Some((_, was)) = old.get(&number) else {
                continue;
            };
            if is_exceeded(limits.bytes, was.bytes, used.bytes)
                || is_exceeded(limits.files, was.entries, used.entries)
            {
                return Err(Cause::Quota);
            }
        }
        let counts = [before, self].map(|state| state.files.len() as u64);
        if is_exceeded(self.files_limit, counts[0], counts[1]) {
            return Err(Cause::Quota);
        }
        Ok(())
    }

    /// Changes or ends the quota of a directory.
    pub(crate) fn set_quota(&mut self, path: &str, change: Option<QuotaChange>) -> Outcome {
        if matches!(self.get(path)?, Entry::File(_)) {
            return Ok(Answer::Done);
        }
        let present = self.own_quota(path);
        if present.is_none() && self.quota_above(path).is_some() {
            return Err(Cause::Invalid);
        }
        let limits = present.map_or_else(Quota::default, |present| present.limits);
        let limits = change.map(|change| changed(limits, change));
        let quota = match (limits, present) {
            (Some(limits), Some(present)) if has_limits(limits) => {
                Some(QuotaModel { limits, ..present })
            }
            (Some(limits), None) if has_limits(limits) => {
                self.check_first_quota(path)?;
                self.quota_count += 1;
                let number = self.quota_count;
                Some(QuotaModel { number, limits })
            }
            _ => None,
        };
        if let Some(Entry::Directory(directory)) = self.entries.get_mut(path) {
            directory.quota = quota;
        }
        Ok(Answer::Done)
    }

    /// Refuses a first quota of a directory that has another one below it, or a file with names inside and outside.
    fn check_first_quota(&self, path: &str) -> Result<(), Cause> {
        let below = || {
            self.entries
                .iter()
                .filter(|(other, _)| is_below(other, path))
        };
        let is_linked_outside = |file: &FileNumber| {
            let names = self.paths_of(*file);
            names.iter().any(|name| !is_below(name, path))
        };
        for (other, entry) in below() {
            let is_refused = match entry {
                Entry::Directory(_) => self.own_quota(other).is_some(),
                Entry::File(file) => is_linked_outside(file),
            };
            if is_refused {
                return Err(Cause::Invalid);
            }
        }
        Ok(())
    }

    /// Refuses another name that another quota counts.
    pub(crate) fn check_border(&self, from: &str, to: &str) -> Result<(), Cause> {
        let numbers = [from, to].map(|path| self.quota_above(path).map(|quota| quota.number));
        if numbers[0] == numbers[1] {
            Ok(())
        } else {
            Err(Cause::CrossesQuota)
        }
    }

    /// Refuses a new name in a directory of a snapshot.
    pub(crate) fn check_place(&self, path: &str) -> Result<(), Cause> {
        match directories_above(path).find_map(|above| self.entries.get(above)) {
            Some(Entry::Directory(directory)) if directory.is_read_only => Err(Cause::ReadOnly),
            _ => Ok(()),
        }
    }

    /// Whether a refused operation may have been refused for this reason, too: if several reasons hold, any of them is
    /// right.
    pub(crate) fn is_reason(&self, operation: &Operation, cause: Cause) -> bool {
        match operation {
            // Its growth comes first, which any client may make.
            Operation::File { path, access, .. } => {
                let file = self.file_at(path);
                file.is_some_and(|file| self.is_growth_refused((file, access), cause))
            }
            Operation::Alone(AloneOperation::Use(handle, access)) => {
                let file = self.handles.get(handle).map(|handle| handle.file);
                file.is_some_and(|file| self.is_growth_refused((file, access), cause))
            }
            Operation::Put { path, content, .. } => {
                self.is_reason_at((path, None), (1, Some(content.length)), cause)
            }
            Operation::MakeDirectory(to) => self.is_reason_at((to, None), (0, None), cause),
            Operation::Symlink(to, _)
            | Operation::Share { to, .. }
            | Operation::ShareTree { to, .. } => self.is_reason_at((to, None), (1, None), cause),
            Operation::Rename { from, to, .. } | Operation::Link(from, to) => {
                self.is_reason_at((to, Some(from)), (0, None), cause)
            }
            Operation::Exchange(one, other) => {
                self.is_reason_at((one, Some(other)), (0, None), cause)
                    || self.is_reason_at((other, Some(one)), (0, None), cause)
            }
            Operation::Within(within) => {
                cause == Cause::Quota && self.within.is_full_for(within, self.sizes)
            }
            _ => false,
        }
    }

    /// Whether a new name at the path `to` can be refused with this cause. The name is moved from the path `from`, or
    /// it belongs to a new file. The operation adds `file_count` files, one of them with `bytes`.
    fn is_reason_at(
        &self,
        (to, from): (&str, Option<&str>),
        (file_count, bytes): (u64, Option<u64>),
        cause: Cause,
    ) -> bool {
        match cause {
            Cause::ReadOnly => self.check_place(to).is_err(),
            Cause::CrossesQuota => from.is_some_and(|from| self.check_border(from, to).is_err()),
            Cause::Quota => {
                let count = self.files.len() as u64;
                let missing =
                    directories_above(to).filter(|above| !self.entries.contains_key(*above));
                let more = missing.count() as u64 + u64::from(from.is_none());
                is_exceeded(self.files_limit, count, count + file_count)
                    || self.lacks_room(to, (more, bytes.unwrap_or(0)))
            }
            _ => false,
        }
    }

    /// Whether the quota above a path has no room for these entries and bytes.
    fn lacks_room(&self, to: &str, (entries, bytes): (u64, u64)) -> bool {
        let quota = self.quota_above(to);
        let counted = quota.and_then(|quota| self.uses().remove(&quota.number));
        let Some((limits, used)) = counted else {
            return false;
        };
        is_exceeded(limits.files, used.entries, used.entries + entries)
            || is_exceeded(limits.bytes, used.bytes, used.bytes + bytes)
    }
}

/// Whether a use has grown beyond a limit. One that does not grow may exceed it.
const fn is_exceeded(limit: Limit, was: u64, used: u64) -> bool {
    match limit {
        Limit::Unlimited => false,
        Limit::AtMost(limit) => used > was && used > limit,
    }
}

fn changed(present: Quota, change: QuotaChange) -> Quota {
    Quota {
        bytes: change.bytes.unwrap_or(present.bytes),
        files: change.files.unwrap_or(present.files),
    }
}

/// A quota without limits is none.
fn has_limits(quota: Quota) -> bool {
    quota != Quota::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::files::Sizes;
    use crate::model::operation::{Access, Content, PutAs};

    fn put(path: &str, length: u64) -> Operation {
        Operation::Put {
            path: path.to_owned(),
            content: Content::of(1, length),
            replaces: true,
            put_as: PutAs::Known,
        }
    }

    fn append(path: &str, length: u64) -> Operation {
        Operation::File {
            path: path.to_owned(),
            is_old: false,
            access: Access::Append(Content::of(2, length)),
        }
    }

    #[test]
    fn growth_beyond_a_quota_is_refused_and_nothing_else() {
        let sizes = Sizes {
            stripe_bytes: 100,
            inline_bytes: 0,
        };
        let mut expected = Expected::new("base", sizes, None);
        let mut apply = |operation: Operation| expected.apply(&operation);
        let limit = |bytes, files| Operation::Quota {
            path: "a".to_owned(),
            change: Some(QuotaChange {
                bytes: Some(bytes),
                files: Some(files),
            }),
        };
        assert_eq!(apply(put("a/b/one", 50)), Ok(Answer::Done));
        let set = limit(Limit::AtMost(60), Limit::AtMost(3));
        assert_eq!(apply(set), Ok(Answer::Done));
        assert_eq!(apply(append("a/b/one", 11)), Err(Cause::Quota));
        assert_eq!(apply(append("a/b/one", 10)), Ok(Answer::Offset(50)));
        assert_eq!(apply(put("a/b/one", 60)), Ok(Answer::Done), "as large");
        assert_eq!(apply(put("a/c/two", 0)), Err(Cause::Quota), "two entries");
        assert_eq!(apply(put("a/two", 0)), Ok(Answer::Done));
        assert_eq!(apply(put("a/three", 0)), Err(Cause::Quota));
        let lowered = limit(Limit::AtMost(5), Limit::AtMost(1));
        assert_eq!(apply(lowered), Ok(Answer::Done), "it takes nothing away");
        assert_eq!(apply(put("a/b/one", 59)), Ok(Answer::Done));
        let across = Operation::Rename {
            from: "a/two".to_owned(),
            to: "two".to_owned(),
            replaces: false,
        };
        assert_eq!(apply(across), Err(Cause::CrossesQuota));
        assert_eq!(
            apply(Operation::Remove("a/b/one".to_owned())),
            Ok(Answer::Done)
        );
        assert_eq!(apply(put("a/two", 6)), Err(Cause::Quota));
        assert_eq!(apply(put("a/two", 5)), Ok(Answer::Done));
    }
}
