//! The bytes of an open file that the cluster does not have yet.
//!
//! Bytes that follow each other are gathered into one **run**. Runs of one file are stored side by side unless they
//! overlap. What was not stored is known until each handle has reported it.

use crate::errno::Errno;
use crate::open_files::{WriteBegin, lock};
use bytes::{Bytes, BytesMut};
use gabion_layout::ByteRange;
use gabion_meta::WallTime;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// Length at which a run is stored.
pub(crate) const RUN_BYTES: usize = 4 << 20;
/// Runs of one file that are stored at the same time.
const STORING_COUNT: usize = 16;
/// Least memory that an option may give: a few runs.
pub(crate) const CACHE_BYTES_MIN: u64 = 16 << 20;
/// Most memory that an option may give.
pub(crate) const CACHE_BYTES_MAX: u64 = 1 << 30;

/// The memory of all bytes of a mount that are not stored yet.
#[derive(Clone, Debug)]
pub(crate) struct CacheMemory(Arc<Semaphore>);

impl CacheMemory {
    /// Memory of this many bytes, from [`CACHE_BYTES_MIN`] to [`CACHE_BYTES_MAX`].
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self(Arc::new(Semaphore::new(limit_bytes as usize)))
    }

    pub(crate) fn try_take(&self, length: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_many_owned(length).ok()
    }

    pub(crate) async fn take(&self, length: u32) -> OwnedSemaphorePermit {
        let taken = Arc::clone(&self.0).acquire_many_owned(length).await;
        taken.expect("it is never closed")
    }
}

/// The bytes of an open file that are not stored yet.
#[derive(Debug, Default)]
pub(crate) struct Unstored {
    pub(crate) work: AsyncMutex<Work>,
    view: Mutex<View>,
}

#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) run: Option<Run>,
    storing: Vec<Storing>,
}

/// Bytes that follow each other.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) offset: u64,
    pub(crate) bytes: BytesMut,
}

/// Gathered bytes with what it takes to store them.
#[derive(Debug)]
pub(crate) struct Run {
    /// Stores them: the handle that wrote them, whose locks count.
    pub(crate) writer: Arc<dyn RunWriter>,
    pub(crate) gathered: Gathered,
    /// Before the first of its writes.
    pub(crate) begin: WriteBegin,
    /// When the last of its writes was made.
    pub(crate) written: WallTime,
    pub(crate) since: Instant,
    pub(crate) memory: OwnedSemaphorePermit,
}

/// Stores a run.
pub(crate) trait RunWriter: Debug + Send + Sync {
    /// Stores bytes at an offset that a program wrote between these times, and notes when the file was written.
    fn store(
        &self,
        offset: u64,
        bytes: Bytes,
        times: (WriteBegin, WallTime),
    ) -> Pin<Box<dyn Future<Output = Result<(), Errno>> + Send + '_>>;
}

/// A run on its way to the cluster.
#[derive(Debug)]
struct Storing {
    range: ByteRange,
    task: JoinHandle<Result<(), Errno>>,
}

/// Writes that are not stored.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The end of the last byte.
    end: u64,
    /// Bytes of all writes together.
    length: u64,
    /// When a program wrote last.
    written: WallTime,
}

/// The part of a file's attributes that comes from bytes that are not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Shown {
    /// The file's size is at least this.
    pub(crate) end: u64,
    /// Bytes that take space as soon as they are stored, at most. A file that has some must not look like one hole:
    /// programs that copy files would not read it.
    pub(crate) length: u64,
    /// When a program wrote them.
    pub(crate) written: Option<WallTime>,
}

/// The state of the unstored bytes that requests of attributes read without waiting.
#[derive(Debug, Default)]
struct View {
    /// Writes since all bytes were stored; none if all are stored.
    pending: Option<Pending>,
    /// When the last bytes were stored, the end of the last one, and their length.
    stored: Option<(Instant, u64, u64)>,
    /// Number of failures, and the last one.
    failed: (u64, Option<Errno>),
    /// Whether one was noted since the kernel was last made to forget pages of the file.
    has_failed: bool,
}

impl Gathered {
    pub(crate) fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.bytes.len() as u64)
    }

    /// Whether a write from this offset on leaves no gap.
    pub(crate) fn can_take(&self, offset: u64) -> bool {
        (self.offset..=self.range().end()).contains(&offset)
    }

    /// Takes a write that leaves no gap.
    pub(crate) fn take(&mut self, offset: u64, bytes: &[u8]) {
        let at = (offset - self.offset) as usize;
        let within = bytes.len().min(self.bytes.len() - at);
        self.bytes[at..at + within].copy_from_slice(&bytes[..within]);
        self.bytes.extend_from_slice(&bytes[within..]);
    }

    /// Takes all bytes up to the end of the last whole segment out. None if that leaves nothing, here or there.
    fn split_whole(&mut self, segment_bytes: u64) -> Option<Self> {
        let end = self.range().end();
        let whole_end = end - end % segment_bytes.max(1);
        if whole_end <= self.offset || whole_end == end {
            return None;
        }
        let bytes = self.bytes.split_to((whole_end - self.offset) as usize);
        let offset = std::mem::replace(&mut self.offset, whole_end);
        Some(Self { offset, bytes })
    }
}

impl Run {
    /// Divides a long run behind its last whole segment. None if it has no such place.
    pub(crate) fn split_whole(&mut self, segment_bytes: u64) -> Option<Self> {
        let gathered = self.gathered.split_whole(segment_bytes)?;
        let length = gathered.bytes.len();
        Some(Self {
            writer: Arc::clone(&self.writer),
            gathered,
            begin: self.begin,
            written: self.written,
            since: self.since,
            memory: self
                .memory
                .split(length)
                .expect("the run holds memory for its bytes"),
        })
    }
}

impl Unstored {
    /// The part of attributes that come from unstored bytes, for a status that was requested at this time.
    pub(crate) fn shown(&self, asked: Instant) -> Shown {
        let view = lock(&self.view);
        let pending = view.pending.map(|pending| (pending.end, pending.length));
        // The status may be from before they were stored.
        let stored = view.stored.filter(|(at, ..)| asked <= *at);
        let stored = stored.map(|(_, end, length)| (end, length));
        let ((end, length), (stored_end, stored_length)) =
            (pending.unwrap_or_default(), stored.unwrap_or_default());
        Shown {
            end: end.max(stored_end),
            length: length.max(stored_length),
            written: view.pending.map(|pending| pending.written),
        }
    }

    /// The number of failures so far. A handle reports those behind the number that it has seen.
    pub(crate) fn failure_count(&self) -> u64 {
        lock(&self.view).failed.0
    }

    /// The last failure, if there are more than a handle has seen.
    pub(crate) fn failure_behind(&self, seen_count: u64) -> Result<(), Errno> {
        match lock(&self.view).failed {
            (count, Some(errno)) if count > seen_count => Err(errno),
            _ => Ok(()),
        }
    }

    fn note_failed(&self, errno: Errno) {
        let view = &mut *lock(&self.view);
        view.failed = (view.failed.0 + 1, Some(errno));
        view.has_failed = true;
    }

    /// Notes a write of a range.
    pub(crate) fn note_gathered(&self, range: ByteRange, written: WallTime) {
        let pending = &mut lock(&self.view).pending;
        let before = pending.map_or((0, 0), |before| (before.end, before.length));
        *pending = Some(Pending {
            end: before.0.max(range.end()),
            length: before.1.saturating_add(range.length),
            written,
        });
    }

    /// Shows that all bytes are stored, if they are. Returns whether storing some has failed since the last call.
    pub(crate) fn note_stored(&self, work: &Work) -> bool {
        let view = &mut *lock(&self.view);
        let has_failed = std::mem::take(&mut view.has_failed);
        if work.run.is_none()
            && work.storing.is_empty()
            && let Some(pending) = view.pending.take()
            && !has_failed
        {
            view.stored = Some((Instant::now(), pending.end, pending.length));
        }
        has_failed
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.view).pending.is_none()
    }
}

impl Work {
    /// Whether a write overlaps bytes that are on their way.
    fn is_storing(&self, range: ByteRange) -> bool {
        let overlaps = |other: ByteRange| other.offset < range.end() && range.offset < other.end();
        self.storing.iter().any(|storing| overlaps(storing.range))
    }

    /// Whether the run, if there is one, can be sent without waiting for others.
    pub(crate) fn can_send(&self) -> bool {
        let is_free = |run: &Run| !self.is_storing(run.gathered.range());
        self.storing.len() < STORING_COUNT && self.run.as_ref().is_none_or(is_free)
    }

    /// Starts to store the run. Waits while a run that overlaps it, or too many, are on their way.
    pub(crate) async fn send(&mut self, unstored: &Unstored) {
        if let Some(run) = self.run.take() {
            self.send_run(run, unstored).await;
        }
    }

    pub(crate) async fn send_run(&mut self, run: Run, unstored: &Unstored) {
        let range = run.gathered.range();
        if self.is_storing(range) || self.storing.len() >= STORING_COUNT {
            self.reap(unstored, self.is_storing(range)).await;
        }
        let task = tokio::spawn(async move {
            let Run {
                writer,
                gathered: Gathered { offset, bytes },
                begin,
                written,
                memory,
                ..
            } = run;
            let times = (begin, written);
            let stored = writer.store(offset, bytes.freeze(), times).await;
            drop(memory);
            stored
        });
        self.storing.push(Storing { range, task });
    }

    /// Waits for the first of the runs on their way, or for all.
    pub(crate) async fn reap(&mut self, unstored: &Unstored, all: bool) {
        let count = if all { self.storing.len() } else { 1 };
        for Storing { task, .. } in self.storing.drain(..count.min(self.storing.len())) {
            if let Err(errno) = task.await.unwrap_or(Err(Errno::Io)) {
                unstored.note_failed(errno);
            }
        }
    }

    /// Waits for nothing: takes the results of the first runs that are stored by now.
    pub(crate) async fn reap_finished(&mut self, unstored: &Unstored) {
        while self
            .storing
            .first()
            .is_some_and(|storing| storing.task.is_finished())
        {
            self.reap(unstored, false).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::now;
    use std::time::Duration;

    fn gathered(offset: u64, bytes: &[u8]) -> Gathered {
        Gathered {
            offset,
            bytes: BytesMut::from(bytes),
        }
    }

    #[test]
    fn a_run_takes_what_follows_or_overlaps_it() {
        let mut run = gathered(100, b"abcdef");
        assert!(!run.can_take(99) && run.can_take(100) && run.can_take(106) && !run.can_take(107));
        run.take(106, b"gh");
        run.take(102, b"CD");
        run.take(107, b"HIJ");
        assert_eq!((run.offset, &run.bytes[..]), (100, &b"abCDefgHIJ"[..]));
    }

    #[test]
    fn a_run_is_divided_behind_its_last_whole_segment() {
        let mut run = gathered(6, b"6789abcdefghi");
        let whole = run
            .split_whole(8)
            .expect("the segment from 8 to 15 is in it");
        // Bytes before the first whole segment go with it.
        assert_eq!((whole.offset, &whole.bytes[..]), (6, &b"6789abcdef"[..]));
        assert_eq!((run.offset, &run.bytes[..]), (16, &b"ghi"[..]));
        assert!(
            gathered(6, b"67").split_whole(8).is_none(),
            "nothing would be left"
        );
        assert!(
            gathered(1, b"123456").split_whole(8).is_none(),
            "no segment ends in it"
        );
    }

    #[test]
    fn a_size_is_shown_until_a_status_is_asked_for_that_knows_the_bytes() {
        let unstored = Unstored::default();
        let before = Instant::now();
        assert_eq!(unstored.shown(before), Shown::default());
        let written = now();
        unstored.note_gathered(ByteRange::new(40, 10), written);
        let mut shown = Shown {
            end: 50,
            length: 10,
            written: Some(written),
        };
        assert_eq!(unstored.shown(before), shown);
        assert!(!unstored.note_stored(&Work::default()));
        shown.written = None;
        assert_eq!(unstored.shown(before), shown, "the status may be older");
        let after = Instant::now() + Duration::from_millis(1);
        assert_eq!(
            unstored.shown(after),
            Shown::default(),
            "another client may have cut the file"
        );
    }
}
