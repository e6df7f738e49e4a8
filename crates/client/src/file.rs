//! An open file: its layout, window by window, kept until a reply shows that it is stale.

use crate::client::{Client, code_of};
use crate::error::ClientError;
use crate::extent::{Extent, Piece, within_file};
use crate::inline_facts::has_valid_inline;
use crate::layout::Layout;
use crate::locks::LockHandle;
use crate::losses::{PrimaryGuess, PrimaryGuesses};
use crate::rewrite::split_stored;
use crate::session::Session;
use crate::sessions::open_table::Held;
use crate::windows::{Windows, join};
use futures::{FutureExt, select_biased};
use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex, Geometry, StripeId, StripeRecord};
use gabion_meta::{
    Exclusive, Existing, FILE_BYTES_MAX, FileRecord, InodeStatus, MetaError, PoolRecord, PutId,
    Symlink,
};
use gabion_planner::Stripe;
use gabion_protocol::locks::lock;
use gabion_protocol::message::{FileLayout, Growth, ask};
use std::pin::pin;
use std::sync::{Arc, Mutex};

/// Time for which a read waits for a new layout before it continues with the known one, in milliseconds.
const REFRESH_PATIENCE_MS: u64 = 500;

/// An open file. Clones share its layout.
///
/// It stays the opened file when it is renamed, or when another one takes its name. When it is removed,
/// operations fail with [`ClientError::FileGone`] as soon as they need a new layout, unless it was opened with
/// [`Client::open_held`].
#[derive(Clone)]
pub struct File {
    pub(crate) client: Client,
    opened: Arc<Opened>,
    /// The client's locks in the file, if the handle heeds them.
    pub(crate) locks: Option<Arc<LockHandle>>,
}

/// State shared by a file's handles.
pub(crate) struct Opened {
    name: String,
    put: PutId,
    pool: PoolRecord,
    /// Bytes of a full stripe; of the larger ones, if its blocks are replicated at first.
    segment_bytes: u64,
    /// The codes of its own pool's stripes, and of the encoded ones if its blocks are replicated at
    /// first. A file's pools never change.
    code: Code,
    encoded: Option<(PoolRecord, Code)>,
    windows: Mutex<Windows>,
    primaries: Mutex<PrimaryGuesses>,
    holding: Holding,
}

/// A client's hold on a file that it has open.
pub(crate) enum Holding {
    /// Nothing: others may remove the file.
    Nothing,
    /// A session in which it alone may write the file.
    Exclusive(Session),
    /// The file, which stays while it is open.
    Open(#[expect(dead_code, reason = "its end closes the file")] Held),
}

impl Opened {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("name", &self.opened.name)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when no file has this name; [`ClientError::NoCoordinator`].
    pub async fn open(&self, name: &str) -> Result<File, ClientError> {
        let layout = self.lookup(name).await?;
        File::with_layout(self, name, layout, Holding::Nothing)
    }

    /// Opens the file that a put made, whatever its names.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::Refused`] for a symbolic link; [`ClientError::NoCoordinator`].
    pub async fn open_inode(&self, file: PutId) -> Result<File, ClientError> {
        let layout = self.lookup_file(file, 0).await?;
        let layout = layout.ok_or_else(|| ClientError::FileGone(file.to_string()))?;
        File::of_layout(self, layout, Holding::Nothing)
    }
}

impl File {
    /// The open file with this layout, by its name in it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for a symbolic link; [`ClientError::Broken`].
    pub(crate) fn of_layout(
        client: &Client,
        layout: FileLayout,
        holding: Holding,
    ) -> Result<Self, ClientError> {
        let name = layout.file.name.clone();
        if let Some(Symlink { target }) = &layout.file.symlink {
            let target = target.clone();
            return Err(ClientError::Refused(
                MetaError::IsASymlink { name, target }.into(),
            ));
        }
        Self::with_layout(client, &name, layout, holding)
    }

    /// The open file that was just made without bytes, inline.
    pub(crate) fn new_inline(
        client: &Client,
        (file, pool): (FileRecord, PoolRecord),
        holding: Holding,
    ) -> Result<Self, ClientError> {
        let name = file.name.clone();
        let window = ByteRange::new(0, pool.spec.segment_bytes());
        let layout = FileLayout::without_extents(file, pool, window);
        Self::with_layout(client, &name, layout, holding)
    }

    /// The file as it was last looked up.
    pub fn known_status(&self) -> InodeStatus {
        InodeStatus::of_file(&self.record())
    }

    /// The open file with this layout.
    pub(crate) fn with_layout(
        client: &Client,
        name: &str,
        layout: FileLayout,
        holding: Holding,
    ) -> Result<Self, ClientError> {
        let code = code_of(&layout.pool)?;
        let encoded = layout.encoded.as_ref();
        let encoded = encoded.map(|pool| code_of(pool).map(|code| (pool.clone(), code)));
        let pools = [Some(&layout.pool), layout.encoded.as_ref()];
        let segment_bytes = pools.into_iter().flatten();
        let segment_bytes = segment_bytes.map(|pool| pool.spec.segment_bytes()).max();
        let opened = Opened {
            name: name.to_owned(),
            segment_bytes: segment_bytes.unwrap_or_default(),
            put: layout.file.put,
            pool: layout.pool.clone(),
            code,
            encoded: encoded.transpose()?,
            windows: Mutex::new(Windows::new(Arc::new(Layout::new(layout)?))),
            primaries: Mutex::default(),
            holding,
        };
        Ok(Self {
            client: client.clone(),
            opened: Arc::new(opened),
            locks: None,
        })
    }

    /// The file with this shared state.
    pub(crate) fn of(client: &Client, opened: &Arc<Opened>) -> Self {
        Self {
            client: client.clone(),
            opened: Arc::clone(opened),
            locks: None,
        }
    }

    /// The state shared with its clones.
    pub(crate) const fn opened(&self) -> &Arc<Opened> {
        &self.opened
    }

    /// Whether it is a clone of the other one, and so knows what that one knows.
    pub fn shares_state_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.opened, &other.opened)
    }

    /// This client's session in which it alone may write the file.
    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.opened.holding {
            Holding::Exclusive(session) => Some(session),
            Holding::Nothing | Holding::Open(_) => None,
        }
    }

    /// The same file, whose writes fail once locks were lost that this client had in it when the handle was opened.
    #[must_use]
    pub fn with_locks(&self, locks: &LockHandle) -> Self {
        Self {
            locks: Some(Arc::new(locks.clone())),
            ..self.clone()
        }
    }

    /// Waits until this handle may write as far as locks are concerned.
    ///
    /// # Errors
    /// Those of [`LockHandle::check`].
    pub(crate) async fn check_locks(&self) -> Result<(), ClientError> {
        match &self.locks {
            Some(locks) => locks.check().await,
            None => Ok(()),
        }
    }

    /// The name by which it was opened.
    pub fn name(&self) -> &str {
        &self.opened.name
    }

    /// The put that made it: it distinguishes the file from earlier and later ones of the same
    /// name.
    pub fn put_id(&self) -> PutId {
        self.opened.put
    }

    /// Gives the file another name instead of the one by which it was opened, if its names have not changed since this
    /// handle last looked it up.
    ///
    /// # Errors
    /// Those of [`Client::rename`]; [`ClientError::Refused`] also if the file was removed or renamed since.
    pub async fn rename(&self, to: &str, existing: Existing) -> Result<(), ClientError> {
        // The order may be repeated, and must not affect a file that has the name by then, or this one
        // after another rename.
        let request = ask::Rename {
            file: self.put_id(),
            from: self.name().into(),
            generation: self.record().generation,
            number: self.client.draw_change(),
            to: to.into(),
            existing,
        };
        self.client.ask(request).await
    }

    /// Whether it is a snapshot, which never changes.
    pub fn is_read_only(&self) -> bool {
        lock(&self.opened.windows).file.is_read_only
    }

    /// The file's size in bytes.
    pub fn size_bytes(&self) -> u64 {
        lock(&self.opened.windows).file.size_bytes
    }

    /// Its pool.
    pub fn pool(&self) -> PoolRecord {
        self.opened.pool.clone()
    }

    /// Whether a stripe holds each byte of the range, as far as is known: by the layout as last looked up, and not if
    /// that of a part of the range was not looked up.
    pub fn is_stored(&self, range: ByteRange) -> bool {
        let known = self.known_layout(range);
        known.is_some_and(|layout| layout.stores(range))
    }

    /// The stripes that hold the range as last looked up, in the order of their places; none if the layout of a part of
    /// the range was not looked up.
    pub fn known_stripes(&self, range: ByteRange) -> Vec<StripeId> {
        let Some(layout) = self.known_layout(range) else {
            return Vec::new();
        };
        let pieces = layout.pieces(range);
        let extents = pieces.iter().filter_map(Piece::extent);
        let stripes = extents.filter_map(|extent| layout.find(&extent));
        stripes.map(|stripe| stripe.id).collect()
    }

    /// Bytes of a full stripe.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.opened.segment_bytes
    }

    /// Looks the file's size up again, and returns it.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub async fn refresh_size(&self) -> Result<u64, ClientError> {
        self.refresh_record().await?;
        Ok(self.size_bytes())
    }

    /// The code of one of its stripes.
    pub(crate) fn code(&self, stripe: &StripeRecord) -> &Code {
        match &self.opened.encoded {
            Some((pool, code)) if pool.id == stripe.pool => code,
            _ => &self.opened.code,
        }
    }

    /// Whether its blocks are replicated at first, so that the borders of its stripes may change. Such a file
    /// keeps its size and has no holes.
    pub fn changes_form(&self) -> bool {
        self.opened.encoded.is_some()
    }

    /// The newest known facts about the file.
    pub(crate) fn record(&self) -> FileRecord {
        lock(&self.opened.windows).file.clone()
    }

    /// The clients that may write it, as of the last look-up.
    pub(crate) fn exclusive(&self) -> Exclusive {
        lock(&self.opened.windows).exclusive
    }

    /// Notes facts about the file; those of another one are ignored.
    pub(crate) fn note_record(&self, file: &FileRecord) {
        if file.put == self.opened.put && has_valid_inline(file) {
            lock(&self.opened.windows).note_record(file);
        }
    }

    /// Notes the size of the file that a growth has told.
    pub(crate) fn note_growth(&self, growth: &Growth) {
        let size = (growth.truncation_count, growth.size_bytes);
        lock(&self.opened.windows).note_size(size, growth.inline);
    }

    /// The layout of the windows of a range as last looked up; none if one of them was not looked up yet.
    pub(crate) fn known_layout(&self, range: ByteRange) -> Option<Arc<Layout>> {
        let known = lock(&self.opened.windows).over(range);
        join(known?).ok()
    }

    /// The layout of the windows of a range, as last looked up or now.
    ///
    /// # Errors
    /// Those of [`File::refresh`], if one of them was not looked up yet.
    pub(crate) async fn layout_of(&self, range: ByteRange) -> Result<Arc<Layout>, ClientError> {
        match self.known_layout(range) {
            Some(layout) => Ok(layout),
            None => self.refresh(range).await,
        }
    }

    /// Looks the layout of the windows of a range up again: of each as of a moment since this was called.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub(crate) async fn refresh(&self, range: ByteRange) -> Result<Arc<Layout>, ClientError> {
        let mut layouts = vec![self.look_up(range.offset).await?];
        while let Some(end) = layouts.last().map(|last| last.window().end())
            && end < range.end()
        {
            layouts.push(self.look_up(end).await?);
        }
        join(layouts)
    }

    /// Looks the window with the byte at an offset up.
    ///
    /// # Errors
    /// Those of [`File::refresh`].
    pub(crate) async fn look_up(&self, offset: u64) -> Result<Arc<Layout>, ClientError> {
        let layout = self.fetch(offset).await?;
        lock(&self.opened.windows).note(Arc::clone(&layout));
        Ok(layout)
    }

    /// The same for one that is not read or written now, and need not be remembered.
    ///
    /// # Errors
    /// Those of [`File::refresh`].
    pub(crate) async fn look_past(&self, offset: u64) -> Result<Arc<Layout>, ClientError> {
        let layout = self.fetch(offset).await?;
        lock(&self.opened.windows).note_facts(&layout);
        Ok(layout)
    }

    async fn fetch(&self, offset: u64) -> Result<Arc<Layout>, ClientError> {
        let found = self.client.lookup_file(self.put_id(), offset).await?;
        let found = found.ok_or_else(|| ClientError::FileGone(self.opened.name.clone()))?;
        let encoded = self.opened.encoded.as_ref().map(|(pool, _)| pool);
        let (window, offset) = (found.window, offset.min(FILE_BYTES_MAX));
        let is_same = found.file.put == self.opened.put
            && (&found.pool, found.encoded.as_ref()) == (&self.opened.pool, encoded);
        if !is_same || offset < window.offset || window.end() <= offset {
            let name = &self.opened.name;
            let sentence = format!("the layout of {name} is that of other bytes or another file");
            return Err(ClientError::Broken(sentence));
        }
        Ok(Arc::new(Layout::new(found)?))
    }

    /// Looks the facts about the file up again, and no stripes.
    ///
    /// # Errors
    /// Those of [`File::refresh`].
    pub(crate) async fn refresh_record(&self) -> Result<(), ClientError> {
        // Nothing is stored there.
        self.look_past(FILE_BYTES_MAX).await.map(drop)
    }

    /// Looks the layout of a range up again if the coordinator answers soon. Otherwise a read goes on with the
    /// known layout: nodes refuse a stale one.
    ///
    /// # Errors
    /// As [`File::refresh`], but never for want of the coordinator.
    pub(crate) async fn refresh_if_possible(&self, range: ByteRange) -> Result<(), ClientError> {
        let patience = self.client.ports().sleep_ms(REFRESH_PATIENCE_MS);
        select_biased! {
            refreshed = pin!(self.refresh(range).fuse()) => match refreshed {
                Err(ClientError::NoCoordinator(_) | ClientError::Recovering(_)) => Ok(()),
                refreshed => refreshed.map(drop),
            },
            () = patience.fuse() => Ok(()),
        }
    }

    /// The layout of a range that is looked up again if the known one has a hole there, or the range reaches past
    /// the known end of the file.
    ///
    /// # Errors
    /// Those of [`File::refresh`].
    pub(crate) async fn present_layout(
        &self,
        range: ByteRange,
    ) -> Result<Arc<Layout>, ClientError> {
        match self.known_layout(range) {
            Some(layout) if layout.stores(range) => Ok(layout),
            _ => self.refresh(range).await,
        }
    }

    /// The layout of a range that reaches behind the end of the file: the known one if the range lies in stripes that
    /// are there, and the file was not truncated since.
    ///
    /// # Errors
    /// Those of [`File::refresh`].
    pub(crate) async fn layout_to_grow(
        &self,
        range: ByteRange,
    ) -> Result<Arc<Layout>, ClientError> {
        let truncation_count = self.record().truncation_count;
        match self.known_layout(range) {
            Some(layout)
                if layout.file.file.truncation_count == truncation_count
                    && split_stored(&layout, range).1.is_empty() =>
            {
                Ok(layout)
            }
            _ => self.refresh(range).await,
        }
    }

    /// Checks that a range is within the file, which may have grown since its size was looked up.
    ///
    /// # Errors
    /// [`ClientError::Usage`]; those of [`File::refresh`].
    pub(crate) async fn check_range(&self, range: ByteRange) -> Result<(), ClientError> {
        if self.size_bytes() < range.end() {
            self.refresh_record().await?;
            within_file(self.name(), self.size_bytes(), range)?;
        }
        Ok(())
    }

    /// The pieces of a range that is within the file. Holes are as of a moment since this was called, like the
    /// size if the range reaches past the known one.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a range outside of the file; those of [`File::refresh`].
    pub(crate) async fn present_pieces(&self, range: ByteRange) -> Result<Vec<Piece>, ClientError> {
        self.check_range(range).await?;
        let layout = self.present_layout(range).await?;
        within_file(self.name(), layout.file.file.size_bytes, range)?;
        Ok(layout.pieces(range))
    }

    /// Pieces of the stripe that begins at `start`.
    pub(crate) fn pieces(start: u64, ranges: &[ByteRange]) -> Vec<Extent> {
        let pieces = ranges.iter().map(|&range| Extent {
            start,
            range,
            file_offset: start + range.offset,
        });
        pieces.collect()
    }

    /// A stripe for planners.
    pub(crate) fn stripe<'a>(
        &'a self,
        record: &'a StripeRecord,
        geometry: Geometry,
        lost: &'a [ChunkIndex],
    ) -> Stripe<'a> {
        Stripe {
            id: record.id,
            code: self.code(record),
            geometry,
            placement: &record.nodes,
            lost,
        }
    }

    /// Updates the guess of a stripe's primary.
    pub(crate) fn with_primary<R>(
        &self,
        stripe: StripeId,
        work: impl FnOnce(&mut PrimaryGuess) -> R,
    ) -> R {
        work(lock(&self.opened.primaries).of(stripe))
    }
}
