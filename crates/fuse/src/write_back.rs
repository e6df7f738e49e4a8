//! Write-back: bytes that programs have written and that the cluster gets later, in long runs.
//!
//! With `cache=SIZE` a write is answered before its bytes are stored. Bytes that follow each other are gathered into
//! one **run**, which is stored when it is long, when a write elsewhere begins another run, or when it is a few
//! seconds old. Runs of one file are stored side by side unless they overlap. `fsync`, `close`, the end of a lock,
//! reads and changes of the size wait until all bytes of the file are stored. Each handle keeps a failure until its
//! `fsync` has reported it; its writes and closes fail until then.

use crate::errno::Errno;
use crate::gateway::Gateway;
use crate::handles::Handle;
use crate::open_files::OpenFile;
use crate::times::now;
use crate::unstored::{CacheMemory, Gathered, RUN_BYTES, Run, RunWriter, Work};
use bytes::{Bytes, BytesMut};
use gabion_layout::ByteRange;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Age at which a run is stored though nothing demands it, checked once a second.
const AGE_MAX: Duration = Duration::from_secs(5);
/// Interval in which a write that waits for memory stores what is gathered.
const STORE_AGAIN_EVERY: Duration = Duration::from_millis(50);

impl Gateway {
    /// Takes a write at an offset into the memory of the mount. Waits for room.
    pub(crate) async fn write_later(
        &self,
        memory: &CacheMemory,
        handle: &Arc<Handle>,
        (offset, bytes): (u64, Bytes),
    ) -> Result<(), Errno> {
        handle.locks.check().await?;
        let unstored = &handle.shared.unstored;
        unstored.failure_behind(handle.seen_failures())?;
        let length = u32::try_from(bytes.len()).map_err(|_| Errno::Invalid)?;
        let end = offset.checked_add(u64::from(length));
        end.filter(|end| i64::try_from(*end).is_ok())
            .ok_or(Errno::TooLarge)?;
        let written = now();
        let mut work = unstored.work.lock().await;
        let taken = if let Some(taken) = memory.try_take(length) {
            taken
        } else {
            // Nothing that is only gathered may hold the memory for which this waits.
            work.send(unstored).await;
            let mut taken = pin!(memory.take(length));
            loop {
                // Also what could not be stored before, because an earlier run was in its way.
                self.store_gathered(Duration::ZERO).await;
                tokio::select! {
                    taken = &mut taken => break taken,
                    () = tokio::time::sleep(STORE_AGAIN_EVERY) => {}
                }
            }
        };
        let begin = handle.shared.begin_write();
        let is_own = |run: &Run| std::ptr::addr_eq(Arc::as_ptr(&run.writer), Arc::as_ptr(handle));
        let run = work.run.as_ref();
        let follows = run.is_some_and(|run| is_own(run) && run.gathered.can_take(offset));
        if !follows {
            work.send(unstored).await;
        }
        let mut run = match work.run.take() {
            Some(mut run) => {
                run.memory.merge(taken);
                run
            }
            None => Run {
                writer: Arc::clone(handle) as Arc<dyn RunWriter>,
                gathered: Gathered {
                    offset,
                    bytes: BytesMut::new(),
                },
                begin,
                written,
                since: Instant::now(),
                memory: taken,
            },
        };
        run.gathered.take(offset, &bytes);
        run.written = written;
        // Bytes that were written again need no more memory than before.
        let surplus = run.memory.num_permits() - run.gathered.bytes.len();
        drop(run.memory.split(surplus));
        unstored.note_gathered(ByteRange::new(offset, u64::from(length)), written);
        if run.gathered.bytes.len() < RUN_BYTES {
            work.run = Some(run);
        } else if let Some(whole) = run.split_whole(handle.file.pool().spec.segment_bytes()) {
            work.run = Some(run);
            work.send_run(whole, unstored).await;
        } else {
            work.send_run(run, unstored).await;
        }
        Ok(())
    }

    /// Waits until all bytes of all files that were written before are stored, or have failed.
    pub(crate) async fn store_all_files(&self) {
        for shared in self.open_files.all() {
            self.store_all(&shared).await;
        }
    }

    /// Waits until all bytes of a file that were written before are stored, or have failed.
    pub(crate) async fn store_all(&self, shared: &OpenFile) {
        let unstored = &shared.unstored;
        if unstored.is_empty() {
            return;
        }
        let mut work = unstored.work.lock().await;
        work.send(unstored).await;
        work.reap(unstored, true).await;
        self.note_stored(shared, &work);
    }

    /// Shows that all bytes of a file are stored, if they are, and makes the kernel forget those that could not be.
    fn note_stored(&self, shared: &OpenFile, work: &Work) {
        if shared.unstored.note_stored(work) {
            // The kernel has pages with bytes that the cluster does not have.
            drop(self.forget_pages_later(shared.put));
        }
    }

    /// Waits as [`Gateway::store_all`] does, and returns the last failure that no [`Gateway::sync_bytes`] of this
    /// handle has reported. A `close` calls it, also one that a program does not know of, such as that of `exec`.
    pub(crate) async fn settle_bytes(&self, handle: &Handle) -> Result<(), Errno> {
        self.store_all(&handle.shared).await;
        let unstored = &handle.shared.unstored;
        unstored.failure_behind(handle.seen_failures())
    }

    /// Waits as [`Gateway::settle_bytes`] does, and reports what that returns for the last time.
    pub(crate) async fn sync_bytes(&self, handle: &Handle) -> Result<(), Errno> {
        self.store_all(&handle.shared).await;
        let unstored = &handle.shared.unstored;
        let (seen, count) = (handle.seen_failures(), unstored.failure_count());
        let failed = unstored.failure_behind(seen);
        handle.see_failures(count);
        failed
    }

    /// Starts to store what all files have gathered for at least this long. Passes over files that are being written,
    /// whose writers do that, and over those whose earlier runs are in the way: one that hangs must not hold up the
    /// bytes of other files.
    async fn store_gathered(&self, age: Duration) {
        for shared in self.open_files.all() {
            let unstored = &shared.unstored;
            let Ok(mut work) = unstored.work.try_lock() else {
                continue;
            };
            work.reap_finished(unstored).await;
            let is_old = |run: &Run| run.since.elapsed() >= age;
            if work.run.as_ref().is_some_and(is_old) && work.can_send() {
                work.send(unstored).await;
            }
            self.note_stored(&shared, &work);
        }
    }

    /// Stores what is old, as long as the mount lives.
    pub(crate) async fn store_old_forever(&self) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.store_gathered(AGE_MAX).await;
        }
    }
}
