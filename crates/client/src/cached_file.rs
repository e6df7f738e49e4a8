//! Files behind the client's segment cache: fast for bytes that are read and written often, and
//! durable when flushed.

use crate::cache::{CacheCounts, Handle};
use crate::client::Client;
use crate::error::ClientError;
use crate::extent::{Extent, Piece, within_file};
use crate::file::{File, Opened};
use bytes::Bytes;
use gabion_layout::{ByteRange, StripeId};
use gabion_meta::PutId;
use std::sync::Arc;

/// A file that was opened with [`Client::open_cached`]. Clones are the same opening.
///
/// # What it promises
/// **A write is not durable** when [`CachedFile::write`] returns: it is in this process's memory
/// until [`CachedFile::flush`] or [`CachedFile::close`] returns without an error, and is lost if
/// the process ends before that. For durable writes use [`File`].
///
/// *Close-to-open*: an opening of the file by any client after it was closed here reads the bytes
/// written here. While it is open, others may see some of the changes and not others, and their
/// writes may be visible here only after the next opening. If two clients write the same bytes, the
/// last flush wins, byte by byte; bytes that were not written here are never written back.
///
/// Changes are written back by segment, all of one segment by one update up to 64 ranges and 4 MiB.
/// A contiguous range is never split, so the bytes of one call in one segment are atomic across any
/// crash. Segments have no order among each other.
///
/// Files whose blocks are replicated at first are not cached, because the borders of their stripes
/// change. Their reads and writes go through to the cluster, so each write is durable when it
/// returns.
///
/// All files that a client opens in this way share its cache. Clones and further openings of one
/// file see each other's writes at once.
#[derive(Clone)]
pub struct CachedFile {
    file: File,
    handle: Handle<Arc<Opened>>,
}

impl std::fmt::Debug for CachedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedFile")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a file for reading and writing through this client's cache, whose size is
    /// [`ClientOptions::cache_bytes`]. Bytes of it that are already cached are reused only if they
    /// have not changed since; this is checked at their first use.
    ///
    /// [`ClientOptions::cache_bytes`]: crate::ClientOptions::cache_bytes
    ///
    /// # Errors
    /// [`ClientError::Refused`] when no file has this name; [`ClientError::NoCoordinator`].
    pub async fn open_cached(&self, name: &str) -> Result<CachedFile, ClientError> {
        let opened_at = self.shared.cache.now();
        let file = self.open(name).await?;
        let put = file.put_id();
        let handle = Handle::new(Arc::clone(file.opened()), put, opened_at);
        Ok(CachedFile { file, handle })
    }

    /// Writes back all changes of all files in the cache, also those of files that were dropped
    /// without being closed.
    ///
    /// # Errors
    /// [`ClientError::NotWrittenBack`] with the first error; all changes that could be written are
    /// durable, and the rest is still in the cache. [`ClientError::Forgotten`], see [`CachedFile::flush`].
    pub async fn flush_cache(&self) -> Result<(), ClientError> {
        self.shared.cache.flush(self, None).await
    }

    /// Discards the changes of files with this name that are not written back yet, for instance
    /// after the file was deleted. Returns the discarded bytes.
    pub async fn discard_changes(&self, name: &str) -> u64 {
        let is_meant = |file: &Arc<Opened>| file.name() == name;
        self.shared.cache.discard(is_meant).await
    }

    /// The cache's counters, and how full it is.
    pub fn cache_counts(&self) -> CacheCounts {
        self.shared.cache.counts()
    }
}

impl CachedFile {
    /// The file's name.
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// The put that made it. See [`File::put_id`].
    pub const fn put_id(&self) -> PutId {
        self.handle.put
    }

    /// The file's size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    /// The stripes that hold a range. See [`File::known_stripes`].
    pub fn known_stripes(&self, range: ByteRange) -> Vec<StripeId> {
        self.file.known_stripes(range)
    }

    /// Reads a range, which must lie within the file: the last bytes written here, and otherwise
    /// those of the cluster at some moment since the file was opened.
    ///
    /// # Errors
    /// Those of [`File::read`]; a fully cached range needs no cluster.
    pub async fn read(&self, range: ByteRange) -> Result<Vec<u8>, ClientError> {
        let size_bytes = self.size_bytes();
        within_file(self.name(), size_bytes, range)?;
        if self.file.changes_form() {
            return self.file.read(range).await;
        }
        let cache = &self.client().shared.cache;
        // A flush may store them in a hole behind the look-up, and the cache has them no longer.
        let earlier = cache.changes(&self.handle, range);
        let mut bytes = Vec::with_capacity(range.length as usize);
        for piece in self.file.present_pieces(range).await? {
            let place = ByteRange::new(range.offset + bytes.len() as u64, piece.length());
            let piece = match piece {
                Piece::Stored(extent) => self.read_extent(extent, size_bytes).await?,
                outside => {
                    let mut bytes = match outside {
                        Piece::Inline(bytes) => bytes.into(),
                        _ => vec![0; place.length as usize],
                    };
                    let present = cache.changes(&self.handle, place);
                    for (offset, change) in earlier.iter().chain(&present) {
                        lay_over(place, &mut bytes, *offset, change);
                    }
                    bytes
                }
            };
            if bytes.is_empty() {
                bytes = piece;
            } else {
                bytes.extend_from_slice(&piece);
            }
        }
        Ok(bytes)
    }

    async fn read_extent(&self, extent: Extent, size_bytes: u64) -> Result<Vec<u8>, ClientError> {
        let layout = self.file.layout_of(extent.in_file()).await?;
        let stripe_bytes = layout
            .stripe_from(extent.start)
            .map_or(0, |(span, _)| span.length);
        let segment_bytes = stripe_bytes.min(size_bytes - extent.start);
        let cache = &self.client().shared.cache;
        cache
            .read(self.client(), &self.handle, extent, segment_bytes)
            .await
    }

    /// Overwrites bytes of the file from `offset` on, all of them within it.
    ///
    /// They are **not durable** until [`CachedFile::flush`] returns. Three kinds of writes are
    /// exceptions: those of more than a quarter of the cache, those into holes, and those without space in the
    /// cache because other changes cannot be written back. They go through to the cluster like
    /// [`File::write`]'s, and fail like those. This call returns no other error; a flush may return
    /// one later.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for bytes outside of the file; for writes that go through, the errors
    /// of [`File::write`], and those of [`CachedFile::flush`] for an earlier change of the same segment whose outcome
    /// is unknown.
    pub async fn write(&self, offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        let range = ByteRange::new(offset, bytes.len() as u64);
        within_file(self.name(), self.size_bytes(), range)?;
        if self.file.changes_form() {
            return self.file.write(offset, bytes).await;
        }
        let cache = &self.client().shared.cache;
        let pieces = self.file.present_pieces(range).await?;
        let stored: Option<Vec<Extent>> = pieces.iter().map(Piece::extent).collect();
        if let Some(extents) = stored {
            return cache
                .write(self.client(), &self.handle, &extents, &bytes)
                .await;
        }
        let (mut rest, mut at) = (bytes, offset);
        // Inline bytes and the hole behind them are written at once.
        for together in pieces.chunk_by(|a, b| a.extent().is_none() && b.extent().is_none()) {
            let length: u64 = together.iter().map(Piece::length).sum();
            let (bytes, start) = (rest.split_to(length as usize), at);
            at += length;
            match together[0].extent() {
                None => {
                    cache
                        .fill_hole(self.client(), &self.handle, start, &bytes)
                        .await?;
                }
                Some(extent) => {
                    cache
                        .write(self.client(), &self.handle, &[extent], &bytes)
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Writes back everything written to the file with this client so far. When this returns
    /// without an error, the bytes survive every failure that the pool survives.
    ///
    /// # Errors
    /// [`ClientError::NotWrittenBack`] with the first error. All changes that could be written back
    /// are durable. The rest is still in the cache: it is read from there, and the next flush
    /// retries. [`ClientError::Forgotten`] when an answer was lost and no node remembers whether the bytes were
    /// written: the cache drops them, so that reads show what the cluster has. That may concern every write of
    /// this client to the file that was called before; each opening of the file is told once.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let cache = &self.client().shared.cache;
        cache.flush(self.client(), Some(&self.handle)).await
    }

    /// Flushes, and closes this handle.
    ///
    /// A file that is dropped without being closed leaves its changes in the cache; they are
    /// written back when space is needed, and by [`Client::flush_cache`].
    ///
    /// # Errors
    /// Those of [`CachedFile::flush`]. Changes that could not be written back then stay in the
    /// cache, until [`Client::flush_cache`] succeeds or [`Client::discard_changes`] discards them.
    pub async fn close(self) -> Result<(), ClientError> {
        self.flush().await
    }

    const fn client(&self) -> &Client {
        &self.file.client
    }
}

/// Lays the part of a change that is within a range over the range's bytes.
fn lay_over(range: ByteRange, bytes: &mut [u8], offset: u64, change: &[u8]) {
    let all = ByteRange::new(offset, change.len() as u64);
    if let Some(part) = all.intersect(range) {
        let (to, from) = (
            (part.offset - range.offset) as usize,
            (part.offset - offset) as usize,
        );
        let length = part.length as usize;
        bytes[to..to + length].copy_from_slice(&change[from..from + length]);
    }
}
