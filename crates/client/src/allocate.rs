//! Space that is allocated for a range of a file, as POSIX's `posix_fallocate` does: later writes to the range need
//! no new stripes. Holes get stripes of zeros, by the same changes as those of writes into holes, some stripes at a
//! time. A stripe that other files share is stored anew, because the first write to it would need a new one.
//!
//! Not covered: journals and reserves of nodes, which updates in place take; and snapshots that are taken later, which
//! share the stripes again.

use crate::attempts::Attempts;
use crate::error::ClientError;
use crate::file::File;
use crate::layout::Layout;
use crate::open_runs::LastAttempt;
use crate::rewrite::{has_steps, missing_bytes, plan_allocate};
use crate::space::DataSpace;
use crate::write::check_size;
use bytes::Bytes;
use gabion_layout::ByteRange;
use gabion_meta::{FILE_STRIPES_MAX, Inode, Limit};
use gabion_protocol::message::{Cause, Denial};

impl File {
    /// Allocates space for a range: writes to it need no new stripes afterwards, until its bytes are punched or shared.
    /// Holes stay zero, and their zeros are stored, so this takes the time of storing as many bytes. If the file
    /// `grows`, it has all bytes of the range afterwards. Otherwise it keeps its size, and segments behind its end
    /// get no space.
    ///
    /// What is known to have no room is refused before anything changes. Further steps are not made when `is_over`
    /// says so. Returns the end of the part of the range that has its space, and the error that ended the call. The
    /// file may have grown to that end.
    ///
    /// # Errors
    /// Those of [`File::write`]; [`ClientError::Late`] while others keep changing the file; [`ClientError::Refused`]
    /// also for a range behind the end of a file whose blocks are replicated at first.
    pub async fn allocate(
        &self,
        range: ByteRange,
        grows: bool,
        is_over: impl Fn() -> bool,
    ) -> (u64, Result<(), ClientError>) {
        let mut at = range.offset;
        if let Err(error) = self.check_room(range, grows).await {
            return (at, Err(error));
        }
        let mut in_vain: Option<Attempts> = None;
        while at < range.end() {
            let rest = ByteRange::new(at, range.end() - at);
            match self.allocate_some(rest, grows).await {
                Ok(done) if done > at => (at, in_vain) = (done, None),
                Ok(_) => {
                    let what = || format!("allocating space for {}", self.name());
                    let attempts = in_vain.get_or_insert_with(|| self.client.attempts(what(), 0));
                    let paused = attempts.pause("others change the file at the same time");
                    if let Err(error) = paused.await {
                        return (at, Err(error));
                    }
                }
                Err(error) => return (at, Err(error)),
            }
            if is_over() {
                break;
            }
        }
        (at, Ok(()))
    }

    /// Refuses an allocation of several steps for which the disks or a quota are known to have too little room. One
    /// step is refused as a whole anyway.
    ///
    /// # Errors
    /// [`ClientError::Refused`], and those of [`File::refresh_size`].
    async fn check_room(&self, range: ByteRange, grows: bool) -> Result<(), ClientError> {
        check_size(range.offset.checked_add(range.length))?;
        let pool = self.pool();
        if !has_steps(&pool.spec, range.length) {
            return Ok(());
        }
        let missing = self.missing_within(range, grows).await?;
        let file = self.record();
        let stripe_count = file.stripe_count + missing / pool.spec.segment_bytes().max(1);
        if stripe_count > FILE_STRIPES_MAX {
            let sentence = format!(
                "a file has at most {FILE_STRIPES_MAX} stripes, but {} would have {stripe_count}; use a pool with larger \
                 chunks or several files",
                self.name()
            );
            return Err(ClientError::Refused(Denial::new(Cause::TooLarge, sentence)));
        }
        let space = self.client.data_space(&pool).await?;
        let growth = if grows {
            range.end().saturating_sub(file.size_bytes)
        } else {
            0
        };
        let of_directory = match growth {
            0 => None,
            _ => self.client.directory_quota(Inode::File(file.put)).await?,
        };
        let limits = of_directory.map(|own| (own.quota.bytes, own.used.bytes));
        match refusal(self.name(), (missing, &space), (growth, limits)) {
            Some(denial) => Err(ClientError::Refused(denial)),
            None => Ok(()),
        }
    }

    /// Data bytes that an allocation adds to the file's stripes. One look-up tells of a layout window and the hole
    /// behind it.
    async fn missing_within(&self, range: ByteRange, grows: bool) -> Result<u64, ClientError> {
        let (mut bytes, mut at) = (0_u64, range.offset);
        while at < range.end() {
            let layout = self.look_past(at).await?;
            let end = range.end().min(layout.window().end());
            let part = ByteRange::new(at, end - at);
            bytes = bytes.saturating_add(missing_bytes(&layout, part, grows));
            let next = layout.file.behind.unwrap_or(u64::MAX);
            at = next.min(range.end()).max(end);
            let hole_end = if grows {
                at
            } else {
                at.min(layout.file.file.size_bytes)
            };
            bytes = bytes.saturating_add(hole_end.saturating_sub(end));
        }
        Ok(bytes)
    }

    /// The next step of [`File::allocate`]. Returns the end of the part of the range that has its space. That is the
    /// beginning of the range if others change the file at the same time.
    ///
    /// # Errors
    /// Those of [`File::allocate`]. Then this step has allocated nothing, unless its outcome is unknown.
    async fn allocate_some(&self, range: ByteRange, grows: bool) -> Result<u64, ClientError> {
        check_size(range.offset.checked_add(range.length))?;
        if self.is_read_only() {
            return Err(ClientError::ReadOnly(self.name().to_owned()));
        }
        let layout = self.look_up(range.offset).await?;
        let end = range.end().min(layout.window().end());
        let part = ByteRange::new(range.offset, end - range.offset);
        let (mut step, mut done) = plan_allocate(&layout, part, grows);
        if step.is_some() {
            let part = ByteRange::new(range.offset, done - range.offset);
            let what = format!("allocating space for {}", self.name());
            let plan = |layout: &Layout| plan_allocate(layout, part, grows).0;
            let none = (&Bytes::new(), &LastAttempt::default());
            drop(self.rewrite(what, part, plan, none).await?);
            let present = self.layout_of(part).await?;
            (step, done) = plan_allocate(&present, part, grows);
        }
        if step.is_some() {
            return Ok(range.offset);
        }
        if grows && self.size_bytes() < done {
            self.grow(done).await?;
        }
        Ok(done)
    }
}

/// The refusal of an allocation of `missing` bytes of data, by which the file becomes larger by `growth` bytes; none if
/// there is room as far as is known. `of_directory` has the limit of its directory, and what is used of it.
fn refusal(
    name: &str,
    (missing, space): (u64, &DataSpace),
    (growth, of_directory): (u64, Option<(Limit, u64)>),
) -> Option<Denial> {
    let left = |(limit, used): (Limit, u64)| Some(limit.number()?.saturating_sub(used));
    let (of_pool, of_directory) = (
        left((space.quota.bytes, space.used.bytes)),
        of_directory.and_then(left),
    );
    let too_little = |cause, needed: u64, left: Option<u64>, whose: &str| {
        let left = left.filter(|&left| left < needed)?;
        let sentence = format!(
            "{name} needs {needed} more bytes, but {whose} {left} left; delete files, make more room or allocate less"
        );
        Some(Denial::new(cause, sentence))
    };
    too_little(Cause::Quota, missing, of_pool, "the quota of its pool has")
        .or_else(|| {
            let whose = "the quota of its directory has";
            too_little(Cause::Quota, growth, of_directory, whose)
        })
        .or_else(|| {
            let whose = "all disks together have at most";
            too_little(Cause::NoSpace, missing, space.room_bytes, whose)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_meta::{PoolUse, Quota};

    #[test]
    fn an_allocation_without_room_is_refused_by_its_cause() {
        let limited = |limit: Option<u64>, room_bytes| DataSpace {
            capacity_bytes: 1 << 40,
            free_bytes: Some(0),
            room_bytes,
            quota: Quota {
                bytes: limit.map_or(Limit::Unlimited, Limit::AtMost),
                files: Limit::Unlimited,
            },
            used: PoolUse {
                bytes: 10,
                files: 1,
            },
            file_count: 1,
        };
        let cause = |space: DataSpace, of_directory| {
            let refused = refusal("f", (100, &space), (50, of_directory));
            refused.map(|denial| denial.cause)
        };
        assert_eq!(cause(limited(Some(110), Some(100)), None), None);
        assert_eq!(cause(limited(None, None), None), None, "nothing is known");
        let (quota, full) = (Some(Cause::Quota), Some(Cause::NoSpace));
        assert_eq!(cause(limited(Some(109), Some(100)), None), quota);
        assert_eq!(cause(limited(None, Some(99)), None), full);
        let directory = |left: u64| Some((Limit::AtMost(1_000), 1_000 - left));
        assert_eq!(cause(limited(None, Some(100)), directory(50)), None);
        assert_eq!(cause(limited(None, Some(100)), directory(49)), quota);
    }
}
