//! A pool with a limit of bytes, in the model. No other operation uses it, its files have whole stripes and no
//! snapshots, so the stripes of its files are all that counts.

use super::answer::{Answer, Known, Outcome};
use super::files::{FileModel, Sizes};
use super::operation::WithinOperation;
use gabion_client::Cause;
use gabion_meta::NewAttributes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pool of all other files.
pub(crate) const POOL: &str = "pool";
/// The pool.
pub(crate) const WITHIN_POOL: &str = "within";
/// The names of its files.
pub(crate) const NAMES: [&str; 4] = ["one", "two", "three", "four"];

/// The files of the pool, and the most stripes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Within {
    pub(crate) files: BTreeMap<&'static str, Arc<FileModel>>,
    pub(crate) limit: Option<u64>,
}

impl Within {
    /// The stripes of all files.
    pub(crate) fn stripe_count(&self) -> u64 {
        let counts = self.files.values().map(|file| file.stored.len() as u64);
        counts.sum()
    }

    /// Carries out an operation. A refusal changes nothing.
    pub(crate) fn apply(&mut self, operation: &WithinOperation, sizes: Sizes) -> Outcome {
        let sizes = Sizes {
            inline_bytes: 0,
            ..sizes
        };
        match operation {
            WithinOperation::Limit(limit) => self.limit = *limit,
            WithinOperation::Put {
                name,
                content,
                replaces,
            } => {
                if self.files.contains_key(name) && !replaces {
                    return Err(Cause::Exists);
                }
                let known = Known::new(NewAttributes::FILE);
                let file = FileModel::new(content.bytes(), known, sizes);
                // Both files count until the new one is complete.
                self.check_room(file.stored.len() as u64)?;
                self.files.insert(name, Arc::new(file));
            }
            WithinOperation::File { name, access } => {
                let file = self.files.get(name).ok_or(Cause::NotFound)?;
                let mut after = FileModel::clone(file);
                let answer = after.access(access, (sizes, None))?;
                let counts = [&**file, &after].map(|file| file.stored.len() as u64);
                self.check_room(counts[1].saturating_sub(counts[0]))?;
                self.files.insert(name, Arc::new(after));
                return Ok(answer);
            }
            WithinOperation::Remove(name) => {
                let removed = self.files.remove(name);
                removed.ok_or(Cause::NotFound)?;
            }
        }
        Ok(Answer::Done)
    }

    /// Whether the limit has no room for a put whose name is taken, too: either reason is right.
    pub(crate) fn is_full_for(&self, operation: &WithinOperation, sizes: Sizes) -> bool {
        match operation {
            WithinOperation::Put { content, .. } => {
                let count = content.length.div_ceil(sizes.stripe_bytes);
                self.check_room(count).is_err()
            }
            _ => false,
        }
    }

    /// Whether it is at its limit.
    pub(crate) fn is_full(&self) -> bool {
        self.check_room(1).is_err()
    }

    fn check_room(&self, more: u64) -> Result<(), Cause> {
        match self.limit {
            Some(limit) if more > 0 && self.stripe_count() + more > limit => Err(Cause::Quota),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::operation::{Access, Content};

    #[test]
    fn stripes_count_from_their_writes_to_their_removal() {
        let sizes = Sizes {
            stripe_bytes: 100,
            inline_bytes: 0,
        };
        let mut within = Within::default();
        let put = |name, stripes: u64| WithinOperation::Put {
            name,
            content: Content::of(1, stripes * 100),
            replaces: true,
        };
        let access = |name, access| WithinOperation::File { name, access };
        let mut apply = |operation| within.apply(&operation, sizes);
        assert_eq!(apply(WithinOperation::Limit(Some(3))), Ok(Answer::Done));
        assert_eq!(apply(put("one", 2)), Ok(Answer::Done));
        assert_eq!(apply(put("one", 2)), Err(Cause::Quota), "room for both");
        let hole = access("one", Access::Truncate(900));
        assert_eq!(apply(hole), Ok(Answer::Done), "a hole takes nothing");
        let two = access("one", Access::Write(500, Content::of(2, 200)));
        assert_eq!(apply(two), Err(Cause::Quota));
        let one = access("one", Access::Write(100, Content::of(2, 200)));
        assert_eq!(apply(one), Ok(Answer::Done), "one of them was there");
        let punch = access("one", Access::Punch(0..100));
        assert_eq!(apply(punch), Ok(Answer::Done));
        assert_eq!(apply(put("two", 1)), Ok(Answer::Done));
        assert_eq!(apply(put("three", 1)), Err(Cause::Quota));
        assert_eq!(apply(WithinOperation::Remove("two")), Ok(Answer::Done));
        assert_eq!(apply(put("three", 1)), Ok(Answer::Done));
    }
}
