//! The bytes of files: reads, writes, sizes, holes.

use crate::errno::Errno;
use crate::gateway::Gateway;
use crate::handles::Handle;
use crate::open_files::WriteBegin;
use crate::signals::Waiter;
use crate::times::now;
use crate::unstored::RunWriter;
use bytes::Bytes;
use fuser::FileHandle;
use gabion_client::{ClientError, File};
use gabion_layout::ByteRange;
use gabion_meta::{Inode, WallTime};
use std::pin::Pin;
use std::time::Instant;

/// Attempts to read a file that is truncated during the read.
const READ_COUNT: usize = 4;

/// Linux's numbers of the modes of `fallocate`.
pub(crate) mod allocate_modes {
    pub(crate) const KEEP_SIZE: i32 = 0x01;
    pub(crate) const PUNCH_HOLE: i32 = 0x02;
    pub(crate) const ZERO_RANGE: i32 = 0x10;
}

/// Where the bytes of a write belong, and when its caller expects them to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// The end of the file, wherever that is; durable when the write returns.
    End,
    /// An offset; durable when the write returns.
    Through(u64),
    /// An offset; durable when the file is synced or closed, if the mount has a cache for that.
    At(u64),
}

/// The target of `lseek`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sought {
    /// Bytes that are stored.
    Data,
    /// Bytes that are not, or the end of the file.
    Hole,
}

impl Sought {
    /// By Linux's numbers.
    pub(crate) const fn from_number(number: i32) -> Result<Self, Errno> {
        match number {
            3 => Ok(Self::Data),
            4 => Ok(Self::Hole),
            _ => Err(Errno::Invalid),
        }
    }
}

impl Gateway {
    /// Reads bytes: fewer at the end of the file.
    pub(crate) async fn read(
        &self,
        handle: FileHandle,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, Errno> {
        let handle = self.handles.get(handle)?;
        self.store_all(&handle.shared).await;
        let end = offset.saturating_add(u64::from(length));
        let mut is_checked = false;
        for _ in 0..READ_COUNT {
            let size_bytes = self.size_at_least(&handle, end, is_checked).await?;
            let end = end.min(size_bytes);
            if offset >= end {
                return Ok(Vec::new());
            }
            let read = handle.file.read(ByteRange::new(offset, end - offset)).await;
            match read {
                // Another client truncates it.
                Err(ClientError::Shrunk { .. } | ClientError::Usage(_)) => is_checked = true,
                read => {
                    let bytes = read?;
                    // They were read under the locks if it still has them.
                    handle.locks.check().await?;
                    return Ok(bytes);
                }
            }
        }
        Err(Errno::Io)
    }

    /// The size of an open file. It is looked up if bytes up to `end` are wanted, the known size has fewer, and it was
    /// not looked up just now.
    async fn size_at_least(
        &self,
        handle: &Handle,
        end: u64,
        must_check: bool,
    ) -> Result<u64, Errno> {
        let known = handle.file.size_bytes();
        let suffices = known >= end || handle.shared.is_fresh(self.kept, known);
        if suffices && !must_check {
            return Ok(known);
        }
        let at = Instant::now();
        let size_bytes = handle.file.refresh_size().await?;
        handle.shared.note_checked(at, size_bytes);
        Ok(size_bytes)
    }

    /// Writes bytes.
    pub(crate) async fn write(
        &self,
        handle: FileHandle,
        bytes: Bytes,
        destination: Destination,
    ) -> Result<u32, Errno> {
        self.check_writable()?;
        let handle = self.handles.get(handle)?;
        let length = u32::try_from(bytes.len()).map_err(|_| Errno::Invalid)?;
        match (destination, &self.cache) {
            (Destination::At(offset), Some(cache)) => {
                self.write_later(cache, &handle, (offset, bytes)).await?;
            }
            (Destination::At(offset) | Destination::Through(offset), _) => {
                self.store_all(&handle.shared).await;
                let begin = handle.shared.begin_write();
                store(&handle, (offset, bytes), (begin, None)).await?;
            }
            (Destination::End, _) => {
                self.store_all(&handle.shared).await;
                // It grows before it gets the bytes, so the cluster's time is that of the growth.
                let appended = handle.file.append(bytes).await;
                handle.shared.note_written(now());
                appended?;
            }
        }
        Ok(length)
    }

    /// Gives a file another size.
    pub(crate) async fn resize(
        &self,
        (inode, handle): (Inode, Option<FileHandle>),
        size_bytes: u64,
    ) -> Result<(), Errno> {
        let Inode::File(put) = inode else {
            return Err(Errno::IsADirectory);
        };
        let by_handle = handle.and_then(|handle| self.handles.get(handle).ok());
        let open = self.open_files.find(put);
        if let Some(open) = &open {
            self.store_all(open).await;
        }
        let known = match (by_handle, &open) {
            (Some(handle), _) => Some(handle.file.clone()),
            (None, Some(shared)) => shared.state.lock().await.file.clone(),
            (None, None) => None,
        };
        let file = match known {
            Some(file) => file,
            None => self.client.open_inode(put).await?,
        };
        let open = open.map(|shared| (shared.begin_write(), shared));
        file.truncate(size_bytes).await?;
        if let Some((begin, shared)) = open {
            shared.note_checked(Instant::now(), file.size_bytes());
            shared.note_recorded(begin);
        }
        Ok(())
    }

    /// Allocates space for bytes, or makes them zero and frees the space of whole segments.
    pub(crate) async fn allocate(
        &self,
        handle: FileHandle,
        range: ByteRange,
        (mode, waiter): (i32, Waiter),
    ) -> Result<(), Errno> {
        use allocate_modes::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
        const PUNCH: i32 = PUNCH_HOLE | KEEP_SIZE;
        const ZERO_WITHIN: i32 = ZERO_RANGE | KEEP_SIZE;
        self.check_writable()?;
        let handle = self.handles.get(handle)?;
        handle.locks.check().await?;
        self.store_all(&handle.shared).await;
        let end = range.offset.checked_add(range.length);
        let end = end.ok_or(Errno::TooLarge)?;
        match mode {
            0 | KEEP_SIZE => return allocate(&handle, range, (mode == 0, waiter)).await,
            PUNCH | ZERO_WITHIN => handle.file.punch(range).await?,
            ZERO_RANGE => {
                handle.file.punch(range).await?;
                self.grow(&handle.file, end).await?;
            }
            _ => return Err(Errno::NotSupported),
        }
        handle.shared.note_written(now());
        Ok(())
    }

    async fn grow(&self, file: &File, size_bytes: u64) -> Result<(), Errno> {
        if file.refresh_size().await? < size_bytes {
            file.grow(size_bytes).await?;
        }
        Ok(())
    }

    /// The offset of the next stored byte, or of the next byte that is not, from an offset on.
    pub(crate) async fn seek(
        &self,
        handle: FileHandle,
        offset: i64,
        sought: Sought,
    ) -> Result<i64, Errno> {
        let handle = self.handles.get(handle)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::NoSuchOffset)?;
        self.store_all(&handle.shared).await;
        let size_bytes = handle.file.refresh_size().await?;
        if offset >= size_bytes {
            return Err(Errno::NoSuchOffset);
        }
        let found = match sought {
            Sought::Data => next_data(&handle.file, offset, size_bytes).await?,
            Sought::Hole => Some(next_hole(&handle.file, offset, size_bytes).await?),
        };
        let found = found.ok_or(Errno::NoSuchOffset)?;
        i64::try_from(found).map_err(|_| Errno::TooLarge)
    }
}

impl RunWriter for Handle {
    fn store(
        &self,
        offset: u64,
        bytes: Bytes,
        (begin, written): (WriteBegin, WallTime),
    ) -> Pin<Box<dyn Future<Output = Result<(), Errno>> + Send + '_>> {
        Box::pin(store(self, (offset, bytes), (begin, Some(written))))
    }
}

/// Stores bytes at an offset. `written` is when a program wrote them; now, if it waits for this.
async fn store(
    handle: &Handle,
    (offset, bytes): (u64, Bytes),
    (begin, written): (WriteBegin, Option<WallTime>),
) -> Result<(), Errno> {
    let file = &handle.file;
    let end = offset.saturating_add(bytes.len() as u64);
    let stored = if file.size_bytes() < end && is_behind_all(file, offset) {
        // One change of the metadata stores the bytes and lets the file grow, unless others have stored some there:
        // then it is a write in place.
        file.write_timed(offset, bytes).await
    } else {
        file.write_pieces(offset, bytes).await.map(|()| false)
    };
    match stored {
        Ok(true) => handle.shared.note_recorded(begin),
        // After an error, some of it may have been written.
        Ok(false) | Err(_) => handle.shared.note_written(written.unwrap_or_else(now)),
    }
    stored?;
    Ok(())
}

/// Allocates space for a range, step by step, until the waiting process has a signal to handle.
async fn allocate(
    handle: &Handle,
    range: ByteRange,
    (grows, waiter): (bool, Waiter),
) -> Result<(), Errno> {
    let file = &handle.file;
    let size_bytes = file.refresh_size().await?;
    let segment_bytes = file.pool().spec.segment_bytes().max(1);
    let last_end = size_bytes
        .div_ceil(segment_bytes)
        .saturating_mul(segment_bytes);
    if !grows && last_end < range.end() {
        // A file has no stripes behind its end.
        return Err(Errno::NotSupported);
    }
    let begin = handle.shared.begin_write();
    let (done, allocated) = file.allocate(range, grows, || waiter.has_signal()).await;
    if done > range.offset {
        handle.shared.note_recorded(begin);
    }
    allocated?;
    if done < range.end() {
        return Err(Errno::Interrupted);
    }
    Ok(())
}

/// Whether no segment with bytes of the file, as far as its size is known, reaches behind an offset.
fn is_behind_all(file: &File, offset: u64) -> bool {
    let segment_bytes = file.pool().spec.segment_bytes().max(1);
    let last_end = file.size_bytes().div_ceil(segment_bytes);
    last_end.saturating_mul(segment_bytes) <= offset
}

async fn next_data(file: &File, offset: u64, size_bytes: u64) -> Result<Option<u64>, ClientError> {
    let mut at = offset;
    while at < size_bytes {
        let window = file.stored_window(at).await?;
        let stored = window.ranges.iter().find(|range| range.end() > at);
        if let Some(range) = stored {
            let found = range.offset.max(at);
            return Ok((found < size_bytes).then_some(found));
        }
        at = window.end;
    }
    Ok(None)
}

async fn next_hole(file: &File, offset: u64, size_bytes: u64) -> Result<u64, ClientError> {
    let mut at = offset;
    while at < size_bytes {
        let window = file.stored_window(at).await?;
        for range in &window.ranges {
            if range.end() <= at {
                continue;
            }
            if range.offset > at {
                return Ok(at);
            }
            at = range.end();
        }
        if at >= size_bytes {
            break;
        }
        if at < window.end {
            return Ok(at);
        }
    }
    // The end of a file counts as a hole.
    Ok(size_bytes)
}
