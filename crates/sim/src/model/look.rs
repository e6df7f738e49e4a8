//! Comparisons of quotas, advisory locks and sessions with the model, and of the pool with limited bytes.

use super::answer::{FileNumber, Outcome};
use super::difference::first_difference;
use super::entry::{Entry, QuotaModel};
use super::expected::{Expected, directories_above};
use super::files::Sizes;
use super::holders::{Holder, LASTING};
use super::locks::{ALL, Wanted, range_of, single};
use super::operation::Operation;
use super::perform::stored;
use super::perform_quotas::{byte_limit, path_within};
use super::runner::Runner;
use super::within::NAMES;
use gabion_client::{Cause, LockHandle};
use gabion_meta::{LockChange, LockKind, LockMode, PutId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The number of an owner that has no locks.
const PROBE: u64 = 99;
/// Interval of looks at the use of the pool with limited bytes, and their number: a put that failed takes room for a
/// while.
const PAUSE_US: u64 = 200_000;
const LOOK_COUNT_MAX: u32 = 300;

impl Runner {
    /// Compares everything.
    pub(crate) async fn compare_all(&mut self) -> Result<(), String> {
        self.count(|counts| counts.comparison_count += 1);
        let found = self.look_at_all().await?;
        self.look_at_quotas().await?;
        for file in self.expected.locks.files() {
            self.look_at_locks(file, found[&file]).await?;
        }
        self.look_at_sessions(&found)?;
        self.look_within().await?;
        self.puts.extend(found);
        Ok(())
    }

    async fn look_at_quotas(&self) -> Result<(), String> {
        let (expected, client) = (&self.expected, &self.client.client);
        let in_pool = self.cluster.observer.quota(self.pools[0]);
        let (quota, used) = in_pool.map_err(|error| error.to_string())?;
        let counted = (expected.files_limit, expected.files.len() as u64);
        if (quota.files, used.files) != counted {
            return Err(format!(
                "the limit of files and their number: expected {counted:?}, and it was {:?}",
                (quota.files, used.files)
            ));
        }
        for (path, entry) in &expected.entries {
            if matches!(entry, Entry::File(_)) {
                continue;
            }
            let absolute = expected.absolute(path);
            let status = client.inode(&*absolute).await;
            let inode = status.map_err(|error| error.to_string())?.inode;
            let found = client.directory_quota(inode).await;
            let found = found.map_err(|error| error.to_string())?;
            let found = found.map(|found| (found.path, found.quota, found.used));
            let counts = expected.counted_by(path).map(|(of, quota)| {
                let used = expected.use_of(of);
                (expected.absolute(of), quota.limits, used)
            });
            if found != counts {
                return Err(format!(
                    "the quota of {absolute}: expected {counts:?}, and it was {found:?}"
                ));
            }
        }
        Ok(())
    }

    /// Looks for the locks of a file, by the eyes of an owner without any.
    async fn look_at_locks(&self, file: FileNumber, put: PutId) -> Result<(), String> {
        let handle = self.client.client.locks(put);
        let each = ALL.map(single);
        for cells in each.chain([ALL]) {
            self.look_at_lock(&handle, file, (LockKind::Range, cells))
                .await?;
        }
        self.look_at_lock(&handle, file, (LockKind::Whole, ALL))
            .await
    }

    async fn look_at_lock(
        &self,
        handle: &LockHandle,
        file: FileNumber,
        (kind, cells): (LockKind, Range<usize>),
    ) -> Result<(), String> {
        let holder = Holder {
            client: LASTING[0],
            kind,
            number: PROBE,
        };
        let (mode, range) = (LockMode::Exclusive, range_of(&cells));
        let wanted = Wanted {
            holder,
            mode,
            cells,
        };
        let change = LockChange {
            mode: Some(mode),
            range,
            ..LockChange::unlock(holder.owner())
        };
        let found = handle.find(change).await;
        let found = found.map_err(|error| error.to_string())?;
        let locks = &self.expected.locks;
        let is_right = if let Some((found, is_own)) = &found {
            locks.is_obstacle(file, &wanted, (&found.lock, Some(*is_own)))
        } else {
            // Those of a client that is gone may be free by now.
            let mut certain = locks.clone();
            if let Some(dead) = self.expected.dead {
                certain.forget_client(dead.client);
            }
            !certain.is_taken(file, &wanted)
        };
        if is_right {
            return Ok(());
        }
        let paths = self.expected.paths_of(file);
        Err(format!(
            "the locks of {paths:?} in {wanted:?}: expected {locks:?}, and found {found:?}"
        ))
    }

    /// The session of a living client stays.
    fn look_at_sessions(&self, found: &BTreeMap<FileNumber, PutId>) -> Result<(), String> {
        for (file, sole) in &self.expected.sole {
            let present = self.cluster.observer.exclusive(found[file]);
            let present = present.map_err(|error| error.to_string())?;
            if sole.left.is_none() && present.session.is_none() {
                let paths = self.expected.paths_of(*file);
                return Err(format!("{paths:?} has no session, and {sole:?} has begun"));
            }
        }
        Ok(())
    }

    /// Compares the files of the pool with limited bytes.
    async fn look_within(&self) -> Result<(), String> {
        let (expected, client) = (&self.expected.within, &self.client.client);
        let sizes = Sizes {
            inline_bytes: 0,
            ..self.expected.sizes
        };
        for name in NAMES {
            let path = path_within(name);
            let opened = client.open(&path).await;
            let (file, known) = match (opened, expected.files.get(name)) {
                (Ok(file), Some(known)) => (file, known),
                (Err(error), None) if error.cause() == Cause::NotFound => continue,
                (Ok(_), None) => return Err(format!("{path} is there")),
                (Err(error), _) => return Err(format!("{path}: {error}")),
            };
            let read = self.read_all(&file).await?;
            let ranges = stored(&file).await.map_err(|error| error.to_string())?;
            let stored_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let known_bytes = known.stored.len() as u64 * sizes.stripe_bytes;
            let wrong = first_difference(&known.bytes, &read)
                .or_else(|| known.check_stored(&ranges, sizes));
            if let Some(wrong) = wrong {
                return Err(format!("{path}: {wrong}"));
            }
            if stored_bytes != known_bytes {
                return Err(format!(
                    "{path}: expected {known_bytes} stored bytes, and there were {stored_bytes}"
                ));
            }
        }
        let quota = self.cluster.observer.quota(self.pools[1]);
        let (quota, used) = quota.map_err(|error| error.to_string())?;
        let limit = byte_limit(expected.limit, sizes);
        let least_bytes = expected.stripe_count() * sizes.stripe_bytes;
        if quota.bytes != limit || used.bytes < least_bytes {
            return Err(format!(
                "the limited pool: expected {limit:?} and at least {least_bytes} bytes, and it was {:?} and {}",
                quota.bytes, used.bytes
            ));
        }
        Ok(())
    }

    /// Waits until nothing but files takes room in the pool with limited bytes.
    pub(crate) async fn await_room(&self) -> Result<(), String> {
        let expected = &self.expected;
        let file_bytes = expected.within.stripe_count() * expected.sizes.stripe_bytes;
        let mut used_bytes = 0;
        for _ in 0..LOOK_COUNT_MAX {
            let quota = self.cluster.observer.quota(self.pools[1]);
            used_bytes = quota.map_err(|error| error.to_string())?.1.bytes;
            if used_bytes == file_bytes {
                return Ok(());
            }
            self.cluster.world.sleep(PAUSE_US).await;
        }
        Err(format!(
            "the limited pool uses {used_bytes} bytes, and its files have {file_bytes}"
        ))
    }

    /// Notes that a file has grown by a write in pieces that was refused afterwards, because another client has the
    /// file: a client that does not know that yet lets the file grow first, as any client may.
    pub(crate) async fn note_growth(
        &mut self,
        (operation, before): (&Operation, &Expected),
        outcome: &Outcome,
    ) -> Result<(), String> {
        let refused = matches!(outcome, Err(Cause::InUse | Cause::Stale));
        // Who has just opened the file knows it.
        let is_known = matches!(operation, Operation::File { is_old: false, .. });
        let accessed = before.accessed(operation);
        let Some((file, access)) = accessed.filter(|_| refused && !is_known) else {
            return Ok(());
        };
        let size = before.files[&file].bytes.len() as u64;
        let Some(end) = access.end_of_pieces().filter(|end| *end > size) else {
            return Ok(());
        };
        self.end_trouble().await?;
        let path = before.absolute(before.paths_of(file)[0]);
        let status = self.client.client.inode(path).await;
        let status = status.map_err(|error| error.to_string())?;
        if status.size_bytes == end
            && let Some(file) = self.expected.files.get_mut(&file)
        {
            Arc::make_mut(file).bytes.resize(end as usize, 0);
        }
        Ok(())
    }
}

impl Expected {
    /// The directory whose quota counts what lies in a directory, and the quota.
    fn counted_by<'p>(&self, path: &'p str) -> Option<(&'p str, QuotaModel)> {
        let mut each = std::iter::once(path).chain(directories_above(path));
        each.find_map(|of| Some((of, self.own_quota(of)?)))
    }
}
