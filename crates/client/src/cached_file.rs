//! Files behind the client's segment cache: fast where the same bytes are read and written often,
//! and durable when flushed.

use crate::cache::{CacheCounts, Handle};
use crate::extent::within_file;
use crate::file::Opened;
use crate::{Client, ClientError, File};
use bytes::Bytes;
use gabion_layout::ByteRange;
use gabion_meta::PutId;
use std::sync::Arc;

/// A file that was opened with [`Client::open_cached`]. Clones are the same opening of it.
///
/// # What it promises
/// **A write is not durable** when [`CachedFile::write`] returns: it is in this process's memory
/// until [`CachedFile::flush`] or [`CachedFile::close`] returns without an error, and lost with the
/// process before that. Who needs each write durable uses [`File`].
///
/// *Close-to-open*: whoever opens the file after it was closed here, with any client, reads what
/// was written here. While it is open, others may see some of the changes and not others, and what
/// they write may be seen here only after the next opening. Of two that write the same bytes, the
/// one that is flushed last wins, byte by byte; bytes that were not written here are never written
/// back.
///
/// Changes are written back by segment, all of one segment by one update up to 64 ranges and 4 MiB.
/// A range without gaps is never cut, so what one call wrote into one segment is there wholly or not
/// at all whoever crashes when. Segments have no order among each other.
///
/// Files whose blocks are replicated at first are not cached: the borders of their stripes change. Reads
/// and writes of these go through to the cluster, so each write is durable when it returns.
///
/// All files that a client opens in this way share its cache, and clones and further openings of
/// one file see each other's writes at once.
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
    /// Opens a file to read and write it through this client's cache, whose size is
    /// [`ClientOptions::cache_bytes`]. What the cache has of it already is used again only as far
    /// as nobody has changed it since; that is asked when it is used first.
    ///
    /// [`ClientOptions::cache_bytes`]: crate::ClientOptions::cache_bytes
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is none of this name; [`ClientError::NoCoordinator`].
    pub async fn open_cached(&self, name: &str) -> Result<CachedFile, ClientError> {
        let opened_at = self.shared.cache.open();
        let file = self.open(name).await?;
        let handle = Handle {
            file: Arc::clone(file.opened()),
            put: file.layout().file.file.put,
            opened_at,
        };
        Ok(CachedFile { file, handle })
    }

    /// Writes all changes of all files in the cache back, those too of files that were dropped
    /// without being closed.
    ///
    /// # Errors
    /// [`ClientError::NotWrittenBack`] with the first reason; what could be written is durable, and
    /// the rest is still in the cache.
    pub async fn flush_cache(&self) -> Result<(), ClientError> {
        self.shared.cache.flush(self, None).await
    }

    /// Gives up what was changed of files of this name in the cache and is not written back yet,
    /// for instance since the file was deleted. Returns how many bytes are given up.
    pub async fn discard_changes(&self, name: &str) -> u64 {
        let is_meant = |file: &Arc<Opened>| file.name() == name;
        self.shared.cache.discard(is_meant).await
    }

    /// What the cache has done so far, and how full it is.
    pub fn cache_counts(&self) -> CacheCounts {
        self.shared.cache.counts()
    }
}

impl CachedFile {
    /// The file's name.
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// The put that brought it. See [`File::put_id`].
    pub const fn put_id(&self) -> PutId {
        self.handle.put
    }

    /// The file's bytes.
    pub fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    /// Reads a range, which must lie within the file: what was written here last, and for the rest
    /// what the cluster had at some moment since the file was opened.
    ///
    /// # Errors
    /// Those of [`File::read`]; a range of which all is in the cache needs no cluster.
    pub async fn read(&self, range: ByteRange) -> Result<Vec<u8>, ClientError> {
        let size_bytes = self.size_bytes();
        within_file(self.name(), size_bytes, range)?;
        if self.file.changes_form() {
            return self.file.read(range).await;
        }
        let full_bytes = self.file.full_stripe_bytes()?;
        let mut bytes = Vec::with_capacity(range.length as usize);
        for extent in self.file.extents(range) {
            let before_bytes = extent.file_offset - extent.range.offset;
            let segment_bytes = full_bytes.min(size_bytes - before_bytes);
            let cache = &self.client().shared.cache;
            let piece = cache
                .read(self.client(), &self.handle, extent, segment_bytes)
                .await?;
            if bytes.is_empty() {
                bytes = piece;
            } else {
                bytes.extend_from_slice(&piece);
            }
        }
        Ok(bytes)
    }

    /// Overwrites bytes of the file from `offset` on; all of them must lie within it.
    ///
    /// They are **not durable** when this returns, but when [`CachedFile::flush`] does. The
    /// exceptions are writes of more than a quarter of the cache, and those for which there is no
    /// room since other changes cannot be written back: they go through to the cluster as
    /// [`File::write`]'s do, and fail as those do. No other error comes from here, only
    /// later from a flush.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for bytes outside of the file; of writes that go through, those of
    /// [`File::write`].
    pub async fn write(&self, offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        let range = ByteRange::new(offset, bytes.len() as u64);
        within_file(self.name(), self.size_bytes(), range)?;
        if self.file.changes_form() {
            return self.file.write(offset, bytes).await;
        }
        let extents = self.file.extents(range);
        let cache = &self.client().shared.cache;
        cache
            .write(self.client(), &self.handle, &extents, &bytes)
            .await
    }

    /// Writes back all that has been written to the file with this client by now. When this returns
    /// without an error, it survives whatever the pool survives.
    ///
    /// # Errors
    /// [`ClientError::NotWrittenBack`] with the first reason. All that could be written back is
    /// durable. The rest is still in the cache: it is read from there, and the next flush tries
    /// again.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let cache = &self.client().shared.cache;
        cache.flush(self.client(), Some(self.handle.put)).await
    }

    /// Flushes, and closes this handle.
    ///
    /// A file that is dropped without being closed leaves its changes in the cache; they are
    /// written back when room is needed, and by [`Client::flush_cache`].
    ///
    /// # Errors
    /// Those of [`CachedFile::flush`]. What could not be written back stays in the cache also then,
    /// until [`Client::flush_cache`] succeeds or [`Client::discard_changes`] gives it up.
    pub async fn close(self) -> Result<(), ClientError> {
        self.flush().await
    }

    const fn client(&self) -> &Client {
        &self.file.client
    }
}
