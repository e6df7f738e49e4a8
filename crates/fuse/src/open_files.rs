//! Open files of a mount: what the handles of one file share.

use crate::times::now;
use crate::unstored::Unstored;
use gabion_client::File;
use gabion_meta::{PutId, WallTime};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};

/// Number of files in the table from which on it is swept.
const SWEEP_COUNT_MIN: usize = 64;

/// The files that this mount has open or is about to open.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    files: BTreeMap<PutId, Weak<OpenFile>>,
    /// Number of files at which those that nothing uses are dropped.
    sweep_count: usize,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) put: PutId,
    pub(crate) state: AsyncMutex<State>,
    times: Mutex<Times>,
    /// Held while the cluster is told a time of the file, so that no earlier one comes after a later.
    telling: AsyncMutex<()>,
    /// The largest size that the kernel has been told.
    seen_bytes: AtomicU64,
    /// When the size was looked up last.
    checked: Mutex<Option<Instant>>,
    /// Bytes that the cluster does not have yet.
    pub(crate) unstored: Unstored,
}

/// The times of an open file.
#[derive(Debug, Default)]
struct Times {
    /// When it was written in place last, which the cluster does not know yet.
    written: Option<WallTime>,
    /// The number of times at which this mount has begun or ended to tell the cluster a time: odd while it does.
    telling_count: u64,
}

/// A moment before a write, between two times that the cluster is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteBegin {
    telling_count: u64,
}

/// The turn to tell the cluster a time of a file, until it is dropped.
#[derive(Debug)]
pub(crate) struct Telling<'f> {
    file: &'f OpenFile,
    _turn: AsyncMutexGuard<'f, ()>,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        lock(&self.file.times).telling_count += 1;
    }
}

/// The state that changes when handles come and go.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) handle_count: u64,
    /// While there are handles. The cluster keeps the file as long as clones of this one are in use.
    pub(crate) file: Option<File>,
}

impl State {
    /// The file of all handles: this one, if it is the first.
    pub(crate) fn share(&mut self, file: &File) -> File {
        self.file.get_or_insert_with(|| file.clone()).clone()
    }
}

impl OpenFiles {
    /// The shared state of a file.
    pub(crate) fn entry(&self, put: PutId) -> Arc<OpenFile> {
        let mut table = lock(&self.table);
        if let Some(open) = table.files.get(&put).and_then(Weak::upgrade) {
            return open;
        }
        if table.files.len() >= table.sweep_count {
            table.files.retain(|_, open| open.strong_count() > 0);
            table.sweep_count = SWEEP_COUNT_MIN.max(2 * table.files.len());
        }
        let open = Arc::new(OpenFile {
            put,
            state: AsyncMutex::default(),
            times: Mutex::default(),
            telling: AsyncMutex::default(),
            seen_bytes: AtomicU64::default(),
            checked: Mutex::default(),
            unstored: Unstored::default(),
        });
        table.files.insert(put, Arc::downgrade(&open));
        open
    }

    /// The shared state of a file, if there is any.
    pub(crate) fn find(&self, put: PutId) -> Option<Arc<OpenFile>> {
        lock(&self.table).files.get(&put).and_then(Weak::upgrade)
    }

    /// All that are in use.
    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        let table = lock(&self.table);
        table.files.values().filter_map(Weak::upgrade).collect()
    }
}

impl OpenFile {
    /// When it was written in place last, unless the cluster knows it.
    pub(crate) fn written(&self) -> Option<WallTime> {
        lock(&self.times).written
    }

    /// The turn to tell the cluster a time of the file.
    pub(crate) async fn tell(&self) -> Telling<'_> {
        let turn = self.telling.lock().await;
        lock(&self.times).telling_count += 1;
        Telling {
            file: self,
            _turn: turn,
        }
    }

    /// The cluster knows this time of a write, or the user has chosen another one.
    pub(crate) fn note_told(&self, time: WallTime) {
        let mut times = lock(&self.times);
        if times.written == Some(time) {
            times.written = None;
        }
    }

    /// A write begins that may let the file grow.
    pub(crate) fn begin_write(&self) -> WriteBegin {
        WriteBegin {
            telling_count: lock(&self.times).telling_count,
        }
    }

    /// Notes a write in place that was made then.
    pub(crate) fn note_written(&self, at: WallTime) {
        let written = &mut lock(&self.times).written;
        // Writes that are stored side by side end in any order.
        *written = (*written).max(Some(at));
    }

    /// Notes a write that has begun then. The cluster notes by itself when the file's record changes. But it does not
    /// know that the file was written before that, and a time that it is told during the write may be an earlier one.
    pub(crate) fn note_recorded(&self, begin: WriteBegin) {
        let mut times = lock(&self.times);
        let is_last =
            begin.telling_count.is_multiple_of(2) && begin.telling_count == times.telling_count;
        if !is_last || times.written.is_some() {
            times.written = Some(now());
        }
    }

    /// Notes a size that the kernel is told.
    pub(crate) fn note_seen(&self, size_bytes: u64) {
        self.seen_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }

    /// Notes that the size was looked up at this moment and was this.
    pub(crate) fn note_checked(&self, at: Instant, size_bytes: u64) {
        self.seen_bytes.store(size_bytes, Ordering::Release);
        *lock(&self.checked) = Some(at);
    }

    /// The size is to be looked up again before bytes behind the known one count as missing.
    pub(crate) fn forget_checked(&self) {
        *lock(&self.checked) = None;
    }

    /// Whether the known size may count as the present one: it was looked up within this time, and the kernel knows no
    /// larger one.
    pub(crate) fn is_fresh(&self, within: Duration, size_bytes: u64) -> bool {
        let is_recent = lock(&self.checked).is_some_and(|at| at.elapsed() < within);
        is_recent && self.seen_bytes.load(Ordering::Acquire) <= size_bytes
    }
}

/// Locks a mutex of the tables of handles and files.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each is consistent after every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// The turn, which is free.
    fn tell(open: &OpenFile) -> Telling<'_> {
        match pin!(open.tell()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(telling) => telling,
            Poll::Pending => panic!("the turn is free"),
        }
    }

    #[test]
    fn a_file_has_one_state_while_it_is_used_and_leaves_nothing() {
        let files = OpenFiles::default();
        let first = files.entry(PutId(1));
        assert!(Arc::ptr_eq(&first, &files.entry(PutId(1))));
        drop(first);
        assert!(files.find(PutId(1)).is_none());
        for put in 0..10_000 {
            files.entry(PutId(put));
        }
        assert!(lock(&files.table).files.len() <= SWEEP_COUNT_MIN);
    }

    #[test]
    fn a_growing_write_leaves_the_time_to_the_cluster_unless_one_is_owed() {
        let open = OpenFiles::default().entry(PutId(1));
        open.note_recorded(open.begin_write());
        assert_eq!(open.written(), None);
        open.note_written(now());
        let first = open.written().expect("it was written in place");
        let second = loop {
            open.note_recorded(open.begin_write());
            match open.written() {
                Some(second) if second > first => break second,
                _ => {}
            }
        };
        open.note_told(first);
        assert_eq!(open.written(), Some(second), "a later write is owed");
        open.note_told(second);
        assert_eq!(open.written(), None);
    }

    #[test]
    fn a_growing_write_beside_an_earlier_time_that_is_told_owes_its_own() {
        let open = OpenFiles::default().entry(PutId(1));
        let before = open.begin_write();
        let telling = tell(&open);
        let during = open.begin_write();
        drop(telling);
        let after = open.begin_write();
        open.note_recorded(after);
        assert_eq!(open.written(), None, "the time was told before the write");
        for begin in [before, during] {
            open.note_recorded(begin);
            let written = open
                .written()
                .expect("the cluster was told an earlier time");
            open.note_told(written);
        }
        let telling = tell(&open);
        open.note_recorded(after);
        assert!(
            open.written().is_some(),
            "the cluster is told an earlier time"
        );
        drop(telling);
    }
}
