//! An image of a cluster as a device.
//!
//! A write through [`File`] survives every failure that the pool survives when it returns, and every later read of any
//! client sees it. So this device keeps nothing in memory, and flushes are free.
//!
//! Two things make writes of many requests at a time cheap and safe. A write into a hole stores its whole segment, so
//! the first one locks the segment and the others wait until they can update it in place. And writes that overlap go
//! one after another. While the cluster does not answer, an operation is tried again until a limit: a guest sees
//! a slow disk rather than a broken one.

use crate::device::{Device, DeviceError, ExportShape};
use crate::message::{Context, Descriptor, Errno, Part};
use crate::range_lock::{Locked, RangeLock};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_client::{Cause, ClientError, File, FileStat, ReadPart, TakeOver};
use gabion_layout::ByteRange;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Most zeros in memory for one request.
const ZEROS_BYTES: u64 = 4 << 20;
/// Most segments of one step of a punch; the client drops as many in one change.
const PUNCHED_COUNT: u64 = 256;

/// Most windows of an image's layout that are looked up for one status. The answer may describe a part of the range.
const WINDOWS_PER_STATUS: usize = 16;

/// Pause before an operation is tried again. The client has paused and tried for its own time limit before.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Time for which a request waits for an earlier one beyond the time for which that one is retried: its last attempt
/// takes as long at most, as the client's own time limit has it.
const OPERATION_LIMIT: Duration = Duration::from_secs(30);

/// A hole, in the context `base:allocation`: no space, and zeros.
const HOLE_AND_ZERO: u32 = 0b11;
/// Bit of a stripe that has lost data, in the context `gabion:failures-left`.
const LOST: u32 = 1 << 31;
/// Bit of a hole there: it has no bytes to lose.
const NO_BYTES: u32 = 1 << 30;

/// An open image.
#[derive(Debug)]
pub struct Image {
    file: File,
    is_read_only: bool,
    /// Bytes of a segment, which a write into a hole stores and a punch frees.
    segment_bytes: u64,
    retry_limit: Duration,
    writes: RangeLock,
}

impl Image {
    /// Opens a file for a server that is its only writer.
    ///
    /// This server is the only writer from then on, until the image is dropped or another server takes it over:
    /// then no write of this one takes effect any more.
    ///
    /// # Errors
    /// Those of [`File::reopen_exclusive`].
    pub async fn open_for_writing(
        file: &File,
        (retry_limit, take_over): (Duration, TakeOver),
    ) -> Result<Self, ClientError> {
        let file = file.reopen_exclusive(take_over).await?;
        Ok(Self {
            is_read_only: false,
            ..Self::of_file(file, retry_limit)
        })
    }

    /// An open file as an image that is only read.
    pub fn of_file(file: File, retry_limit: Duration) -> Self {
        Self {
            segment_bytes: file.pool().spec.segment_bytes(),
            file,
            is_read_only: true,
            retry_limit,
            writes: RangeLock::default(),
        }
    }

    /// Its file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Runs an operation again while the cluster does not answer, or its outcome is unknown. The only writer of an
    /// image may repeat a write of unknown outcome: later writes of the same bytes wait for it.
    async fn retry<T, F>(&self, operation: impl Fn() -> F) -> Result<T, DeviceError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let begun = Instant::now();
        loop {
            match operation().await {
                Ok(value) => return Ok(value),
                Err(error) if may_pass(&error) && begun.elapsed() < self.retry_limit => {
                    tracing::warn!(image = self.file.name(), %error, "a request waits for the cluster");
                    sleep(RETRY_PAUSE).await;
                }
                Err(error) => {
                    // A guest may write on and on to full disks.
                    if !is_full(error.cause()) {
                        tracing::warn!(image = self.file.name(), %error, "a request fails");
                    }
                    return Err(device_error(&error));
                }
            }
        }
    }

    /// The whole segments that a range touches.
    fn widened(&self, range: ByteRange) -> ByteRange {
        let start = range.offset - range.offset % self.segment_bytes;
        let end = range.end().div_ceil(self.segment_bytes);
        let end = end.saturating_mul(self.segment_bytes);
        ByteRange::new(start, end - start)
    }

    /// The whole segments within a range. The last one of the image may be shorter.
    fn narrowed(&self, range: ByteRange) -> ByteRange {
        let start = range.offset.div_ceil(self.segment_bytes);
        let start = start.saturating_mul(self.segment_bytes);
        let end = if range.end() >= self.file.size_bytes() {
            range.end()
        } else {
            range.end() - range.end() % self.segment_bytes
        };
        ByteRange::new(start, end.saturating_sub(start))
    }

    /// Locks a range, after all earlier requests that touch it. Fails if these take too long.
    async fn lock(&self, range: ByteRange) -> Result<Locked<'_>, DeviceError> {
        let limit = self.retry_limit + OPERATION_LIMIT;
        let locked = self.writes.lock_within(range, limit).await;
        locked.ok_or_else(|| {
            let name = self.file.name();
            tracing::warn!(
                image = name,
                "a request fails, since an earlier one has not ended"
            );
            DeviceError {
                errno: Errno::Io,
                sentence: format!(
                    "An earlier request to the same bytes of {name} has not ended for {} s.",
                    limit.as_secs()
                ),
            }
        })
    }

    /// The same for a write. A write into a hole locks whole segments.
    async fn lock_for_write(&self, range: ByteRange) -> Result<Locked<'_>, DeviceError> {
        if self.file.is_stored(range) {
            return self.lock(range).await;
        }
        let locked = self.lock(self.widened(range)).await?;
        if self.file.is_stored(range) {
            // An earlier write has filled the hole.
            locked.narrow(range);
        }
        Ok(locked)
    }

    async fn write_bytes(&self, offset: u64, bytes: Bytes) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset, bytes.len() as u64);
        let locked = self.lock_for_write(range).await?;
        let written = self.store(offset, bytes).await;
        drop(locked);
        written
    }

    /// Writes zeros over a range.
    async fn write_zeros(&self, range: ByteRange) -> Result<(), DeviceError> {
        let locked = self.lock_for_write(range).await?;
        let written = self.store_zeros(range, &locked).await;
        drop(locked);
        written
    }

    /// Makes a range a hole as far as whole segments go, and the rest zero.
    async fn punch(&self, range: ByteRange) -> Result<(), DeviceError> {
        let locked = self.lock(self.widened(range)).await?;
        let punched = self.punch_locked(range, &locked).await;
        drop(locked);
        punched
    }

    async fn store(&self, offset: u64, bytes: Bytes) -> Result<(), DeviceError> {
        let write = || self.file.write_pieces(offset, bytes.clone());
        self.retry(write).await
    }

    /// Stores zeros segment by segment, a few megabytes at a time, and unlocks each piece that is stored.
    async fn store_zeros(&self, range: ByteRange, locked: &Locked<'_>) -> Result<(), DeviceError> {
        let zeros = Bytes::from(vec![0; range.length.min(ZEROS_BYTES) as usize]);
        let mut at = range.offset;
        while at < range.end() {
            let border = self.widened(ByteRange::new(at, 1)).end();
            let length = (border.min(range.end()) - at).min(ZEROS_BYTES);
            self.store(at, zeros.slice(..length as usize)).await?;
            at += length;
            locked.advance(at);
        }
        Ok(())
    }

    async fn punch_locked(&self, range: ByteRange, locked: &Locked<'_>) -> Result<(), DeviceError> {
        if self.narrowed(range).is_empty() && self.file.is_stored(range) {
            return self.store_zeros(range, locked).await;
        }
        let (mut rest, mut is_hole) = (range, true);
        // By windows: a long range may have very many parts.
        while !rest.is_empty() {
            let window = self.retry(|| self.file.stored_window(rest.offset)).await?;
            for stored in window.ranges.iter().filter_map(|part| part.intersect(rest)) {
                is_hole = false;
                self.punch_stored(stored, locked).await?;
            }
            let at = window.end.clamp(rest.offset, rest.end());
            locked.advance(at);
            rest = ByteRange::new(at, rest.end() - at);
        }
        if is_hole {
            // Another server may have punched it, and not have ended.
            self.retry(|| self.file.await_withdrawal()).await?;
        }
        Ok(())
    }

    /// Punches bytes that are stored, a few segments at a time.
    async fn punch_stored(
        &self,
        stored: ByteRange,
        locked: &Locked<'_>,
    ) -> Result<(), DeviceError> {
        let mut at = stored.offset;
        while at < stored.end() {
            let first = self.widened(ByteRange::new(at, 1)).offset;
            let end = first.saturating_add(PUNCHED_COUNT.saturating_mul(self.segment_bytes));
            let step = ByteRange::new(at, end.min(stored.end()) - at);
            self.retry(|| self.file.punch(step)).await?;
            at = step.end();
            locked.advance(at);
        }
        Ok(())
    }
}

impl Device for Image {
    fn shape(&self) -> ExportShape {
        ExportShape {
            size_bytes: self.file.size_bytes(),
            is_read_only: self.is_read_only,
        }
    }

    fn read(&self, range: ByteRange) -> BoxFuture<'_, Result<Vec<Part>, DeviceError>> {
        let read = async move {
            let parts = self.retry(|| self.file.read_parts(range));
            let parts = parts.await?.into_iter().map(|part| match part {
                ReadPart::Bytes(bytes) => Part::Bytes(Bytes::from(bytes)),
                ReadPart::Hole(length) => Part::Hole(length),
            });
            Ok(parts.collect())
        };
        read.boxed()
    }

    fn write(&self, offset: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), DeviceError>> {
        self.write_bytes(offset, bytes).boxed()
    }

    fn zero(&self, range: ByteRange, keeps_space: bool) -> BoxFuture<'_, Result<(), DeviceError>> {
        if keeps_space {
            self.write_zeros(range).boxed()
        } else {
            self.punch(range).boxed()
        }
    }

    fn zeroes_fast(&self, range: ByteRange) -> bool {
        self.narrowed(range) == range
    }

    fn trim(&self, range: ByteRange) -> BoxFuture<'_, Result<(), DeviceError>> {
        let whole = self.narrowed(range);
        let trim = async move {
            if whole.is_empty() {
                return Ok(());
            }
            self.punch(whole).await
        };
        trim.boxed()
    }

    fn status(
        &self,
        context: Context,
        range: ByteRange,
        count_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Descriptor>, DeviceError>> {
        let status = async move {
            let (mut parts, mut at) = (Vec::new(), range.offset);
            for _ in 0..WINDOWS_PER_STATUS {
                if at >= range.end() {
                    break;
                }
                let end = match context {
                    Context::Allocation => {
                        let stored = self.retry(|| self.file.stored_window(at)).await?;
                        parts.extend(stored.ranges.into_iter().map(|part| (part, 0)));
                        stored.end
                    }
                    Context::FailuresLeft => {
                        let (stat, end) = self.retry(|| self.file.stat_window(at)).await?;
                        parts.extend(failures_left(&stat));
                        end
                    }
                };
                at = end;
            }
            let described = ByteRange::new(range.offset, at.min(range.end()) - range.offset);
            let of_holes = match context {
                Context::Allocation => HOLE_AND_ZERO,
                Context::FailuresLeft => NO_BYTES,
            };
            Ok(descriptors(
                described,
                parts.into_iter(),
                of_holes,
                count_max,
            ))
        };
        status.boxed()
    }
}

/// The range of each stripe, and its state in the context `gabion:failures-left`.
fn failures_left(stat: &FileStat) -> impl Iterator<Item = (ByteRange, u32)> {
    let layout = &stat.layout;
    let stripes = layout.stripes.iter().zip(&layout.offsets);
    let stripes = stripes.zip(&stat.failures_left);
    stripes.map(|((stripe, &offset), &left)| {
        let data_bytes = layout.pool_of(stripe).spec.data_bytes(stripe.chunk_bytes);
        let status = u32::try_from(left).unwrap_or(LOST);
        (ByteRange::new(offset, data_bytes), status)
    })
}

/// Describes a range: the states of the stored parts, which are in order, and `of_holes` between them. Neighbours
/// of the same state are one.
fn descriptors(
    range: ByteRange,
    stored: impl Iterator<Item = (ByteRange, u32)>,
    of_holes: u32,
    count_max: usize,
) -> Vec<Descriptor> {
    let mut all: Vec<Descriptor> = Vec::new();
    let mut add = |length: u64, status| match all.last_mut() {
        _ if length == 0 => {}
        Some(last) if last.status == status => last.length += length,
        _ => all.push(Descriptor { length, status }),
    };
    let mut at = range.offset;
    for (part, status) in stored {
        if let Some(part) = part.intersect(range) {
            add(part.offset - at, of_holes);
            add(part.length, status);
            at = part.end();
        }
    }
    add(range.end() - at, of_holes);
    all.truncate(count_max);
    all
}

/// Refuses files whose stripes change their borders.
///
/// # Errors
/// [`ClientError::Usage`].
pub(crate) fn check_pool(file: &File) -> Result<(), ClientError> {
    if !file.changes_form() {
        return Ok(());
    }
    Err(ClientError::Usage(format!(
        "{} is in pool {}, which replicates blocks first; images need a pool without --write",
        file.name(),
        file.pool().spec.name
    )))
}

/// Whether the same operation may succeed later.
fn may_pass(error: &ClientError) -> bool {
    let is_temporary = matches!(
        error,
        ClientError::Late { .. }
            | ClientError::NoCoordinator(_)
            | ClientError::Recovering(_)
            | ClientError::Undecided { .. }
            | ClientError::Forgotten(_)
    );
    is_temporary && !is_full(error.cause())
}

/// Whether there is no room: disks are full, or the quota of the pool is used up.
fn is_full(cause: Cause) -> bool {
    matches!(cause, Cause::NoSpace | Cause::Quota)
}

fn device_error(error: &ClientError) -> DeviceError {
    DeviceError {
        errno: match error.cause() {
            cause if is_full(cause) => Errno::NoSpace,
            _ => Errno::Io,
        },
        sentence: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_client::Denial;

    fn told(parts: &[(u64, u64, u32)], count_max: usize) -> Vec<(u64, u32)> {
        let parts = parts.iter();
        let parts = parts.map(|&(at, length, status)| (ByteRange::new(at, length), status));
        let all = descriptors(ByteRange::new(100, 100), parts, 3, count_max);
        all.iter().map(|one| (one.length, one.status)).collect()
    }

    #[test]
    fn holes_and_stored_parts_cover_the_range() {
        assert_eq!(told(&[], 9), [(100, 3)]);
        assert_eq!(told(&[(0, 500, 0)], 9), [(100, 0)]);
        assert_eq!(
            told(&[(0, 110, 0), (190, 50, 0)], 9),
            [(10, 0), (80, 3), (10, 0)]
        );
        assert_eq!(
            told(&[(100, 20, 2), (120, 20, 2), (140, 60, 1)], 9),
            [(40, 2), (60, 1)]
        );
        assert_eq!(told(&[(0, 110, 0), (190, 50, 0)], 1), [(10, 0)]);
    }

    #[test]
    fn only_full_disks_are_no_space_and_only_silence_passes() {
        let late = |missing: Denial| ClientError::Late {
            what: "writing vm/d at byte 0".to_owned(),
            limit_s: 30,
            missing,
        };
        let full = late(Denial::new(Cause::NoSpace, "the disk is full of node 3"));
        assert!(!may_pass(&full));
        assert_eq!(device_error(&full).errno, Errno::NoSpace);
        let quota = ClientError::Refused(Denial::new(Cause::Quota, "pool vm has no room"));
        assert!(!may_pass(&quota));
        assert_eq!(device_error(&quota).errno, Errno::NoSpace);
        let silent = late("node 3 does not answer".into());
        assert!(may_pass(&silent));
        assert_eq!(device_error(&silent).errno, Errno::Io);
        let unknown = ClientError::Undecided {
            source: Box::new(silent),
        };
        assert!(may_pass(&unknown));
        let gone = ClientError::FileGone("vm/d".to_owned());
        assert!(!may_pass(&gone));
        assert_eq!(device_error(&gone).errno, Errno::Io);
    }
}
