//! An open file: its layout, kept until a reply shows that it is stale.

use crate::client::{Client, code_of, topology};
use crate::error::ClientError;
use crate::extent::{Extent, Piece, extents, geometry, pieces, spans, within_file};
use crate::losses::PrimaryGuess;
use crate::session::Session;
use futures::{FutureExt, select_biased};
use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex, Geometry, PoolId, StripeId, StripeRecord, Topology};
use gabion_meta::{Existing, PoolRecord, PoolSpec, PutId};
use gabion_planner::Stripe;
use gabion_protocol::message::{FileLayout, NodeStatus, ask};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long a read waits for a new layout before it goes on with the known one, in milliseconds.
const REFRESH_PATIENCE_MS: u64 = 500;

/// An open file. Clones share its layout.
///
/// It stays the opened file when it is renamed, or when another one takes its name. When it is removed,
/// operations fail with [`ClientError::FileGone`] as soon as they need a new layout.
#[derive(Clone)]
pub struct File {
    pub(crate) client: Client,
    opened: Arc<Opened>,
}

/// State shared by a file's handles.
pub(crate) struct Opened {
    name: String,
    /// The codes of its own pool's stripes, and of the encoded ones if its blocks are replicated at
    /// first. A file's pools never change.
    code: Code,
    encoded: Option<(PoolId, Code)>,
    layout: Mutex<Arc<Layout>>,
    primaries: Mutex<BTreeMap<StripeId, PrimaryGuess>>,
    /// This client's session, if it has opened the file exclusively.
    session: Option<Session>,
}

/// A layout and values derived from it.
pub(crate) struct Layout {
    pub(crate) file: FileLayout,
    pub(crate) topology: Topology,
    /// The range of each stripe in the file.
    spans: Vec<ByteRange>,
}

/// The nodes for a plan.
#[derive(Clone, Copy)]
pub(crate) struct Fleet<'a> {
    pub(crate) nodes: &'a [NodeStatus],
    pub(crate) topology: &'a Topology,
}

impl Layout {
    fn new(file: FileLayout) -> Result<Self, ClientError> {
        let spans = spans(&file)?;
        let topology = topology(&file.nodes)?;
        Ok(Self {
            file,
            topology,
            spans,
        })
    }

    /// The stripe of an extent that may have been split by another layout of the file; none if the
    /// stripes now have other borders, or the file now ends before the extent does. Bytes of a stripe behind
    /// the end of the file must stay zero.
    pub(crate) fn find(&self, extent: &Extent) -> Option<&StripeRecord> {
        let (span, stripe) = self.stripe_from(extent.start)?;
        let is_in_file = extent.start + extent.range.end() <= self.file.file.size_bytes;
        (is_in_file && extent.range.end() <= span.length).then_some(stripe)
    }

    /// The stripe of several extents of one; none if that is the result for any of them.
    pub(crate) fn find_all(&self, extents: &[Extent]) -> Option<&StripeRecord> {
        let found = extents.iter().map(|extent| self.find(extent));
        found.reduce(Option::and).flatten()
    }

    /// The stripe that begins at this byte of the file, and its range.
    pub(crate) fn stripe_from(&self, start: u64) -> Option<(ByteRange, &StripeRecord)> {
        let at = self.spans.binary_search_by_key(&start, |span| span.offset);
        let at = at.ok()?;
        Some((self.spans[at], &self.file.stripes[at]))
    }

    /// The ranges of the stripes in the file.
    pub(crate) fn spans(&self) -> &[ByteRange] {
        &self.spans
    }

    /// Bytes of the largest stripe.
    pub(crate) fn stripe_bytes_max(&self) -> u64 {
        self.spans.iter().map(|span| span.length).max().unwrap_or(0)
    }

    /// The pieces of a range of the file.
    pub(crate) fn pieces(&self, range: ByteRange) -> Vec<Piece> {
        pieces(&self.spans, range)
    }

    /// Whether the range is within the file and has no hole.
    pub(crate) fn stores(&self, range: ByteRange) -> bool {
        let is_stored = |piece: &Piece| matches!(piece, Piece::Stored(_));
        range.end() <= self.file.file.size_bytes && self.pieces(range).iter().all(is_stored)
    }

    /// The parameters of a stripe's pool.
    pub(crate) fn spec(&self, stripe: &StripeRecord) -> &PoolSpec {
        &self.file.pool_of(stripe).spec
    }

    /// The nodes of the layout.
    pub(crate) fn fleet(&self) -> Fleet<'_> {
        Fleet {
            nodes: &self.file.nodes,
            topology: &self.topology,
        }
    }

    pub(crate) fn geometry(&self, stripe: &StripeRecord) -> Result<Geometry, ClientError> {
        geometry(self.spec(stripe), stripe.chunk_bytes)
    }
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
        File::with_layout(self, name, layout, None)
    }
}

impl File {
    /// The open file with this layout.
    pub(crate) fn with_layout(
        client: &Client,
        name: &str,
        layout: FileLayout,
        session: Option<Session>,
    ) -> Result<Self, ClientError> {
        let layout = Layout::new(layout)?;
        let code = code_of(&layout.file.pool)?;
        let encoded = layout.file.encoded.as_ref();
        let encoded = encoded.map(|pool| code_of(pool).map(|code| (pool.id, code)));
        let opened = Opened {
            name: name.to_owned(),
            code,
            encoded: encoded.transpose()?,
            layout: Mutex::new(Arc::new(layout)),
            primaries: Mutex::default(),
            session,
        };
        Ok(Self {
            client: client.clone(),
            opened: Arc::new(opened),
        })
    }

    /// The file with this shared state.
    pub(crate) fn of(client: &Client, opened: &Arc<Opened>) -> Self {
        Self {
            client: client.clone(),
            opened: Arc::clone(opened),
        }
    }

    /// The state shared with its clones.
    pub(crate) const fn opened(&self) -> &Arc<Opened> {
        &self.opened
    }

    /// Its name as last looked up: another client may have renamed it since it was opened.
    pub fn present_name(&self) -> String {
        self.layout().file.file.name.clone()
    }

    /// This client's session.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.opened.session.as_ref()
    }

    /// The name by which it was opened.
    pub fn name(&self) -> &str {
        &self.opened.name
    }

    /// The put that made it: it distinguishes the file from earlier and later ones of the same
    /// name.
    pub fn put_id(&self) -> PutId {
        self.layout().file.file.put
    }

    /// Gives the file another name, if it has not been renamed since this handle last looked it up.
    ///
    /// # Errors
    /// Those of [`Client::rename`]; [`ClientError::Refused`] also if the file was removed or renamed since.
    pub async fn rename(&self, to: &str, existing: Existing) -> Result<(), ClientError> {
        // The order may be repeated, and must not affect a file that has the name by then, or this one
        // after another rename.
        let request = {
            let layout = self.layout();
            let file = &layout.file.file;
            ask::Rename {
                file: file.put,
                generation: file.generation,
                to: to.to_owned(),
                existing,
            }
        };
        self.client.ask(request).await
    }

    /// The file's size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.layout().file.file.size_bytes
    }

    /// Its pool.
    pub fn pool(&self) -> PoolRecord {
        self.layout().file.pool.clone()
    }

    /// Whether a stripe holds each byte of the range, by the layout as last looked up.
    pub fn is_stored(&self, range: ByteRange) -> bool {
        self.layout().stores(range)
    }

    /// Looks the file's size up again, and returns it.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub async fn refresh_size(&self) -> Result<u64, ClientError> {
        self.refresh().await?;
        Ok(self.size_bytes())
    }

    /// The code of one of its stripes.
    pub(crate) fn code(&self, stripe: &StripeRecord) -> &Code {
        match &self.opened.encoded {
            Some((pool, code)) if *pool == stripe.pool => code,
            _ => &self.opened.code,
        }
    }

    /// Whether its blocks are replicated at first, so that the borders of its stripes may change. Such a file
    /// keeps its size and has no holes.
    pub fn changes_form(&self) -> bool {
        self.opened.encoded.is_some()
    }

    /// The layout as last looked up.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&lock(&self.opened.layout))
    }

    /// Looks the layout up again.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub(crate) async fn refresh(&self) -> Result<(), ClientError> {
        let found = self.client.lookup_file(self.put_id()).await?;
        let found = found.ok_or_else(|| ClientError::FileGone(self.opened.name.clone()))?;
        let layout = Layout::new(found)?;
        *lock(&self.opened.layout) = Arc::new(layout);
        Ok(())
    }

    /// Looks the layout up again if the coordinator answers soon. Otherwise a read goes on with the
    /// known layout: nodes refuse a stale one.
    ///
    /// # Errors
    /// As [`File::refresh`], but never for want of the coordinator.
    pub(crate) async fn refresh_if_possible(&self) -> Result<(), ClientError> {
        let patience = self.client.ports().sleep_ms(REFRESH_PATIENCE_MS);
        select_biased! {
            refreshed = pin!(self.refresh().fuse()) => match refreshed {
                Err(ClientError::NoCoordinator(_)) => Ok(()),
                refreshed => refreshed,
            },
            () = patience.fuse() => Ok(()),
        }
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

    /// Splits a range of the file at the borders of its stripes, without its holes.
    pub(crate) fn extents(&self, range: ByteRange) -> Vec<Extent> {
        extents(self.layout().spans(), range)
    }

    /// The pieces of a range that is within the file. Holes are as of a moment since this was called, like the
    /// size if the range reaches past the known one.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a range outside of the file; those of [`File::refresh`].
    pub(crate) async fn present_pieces(&self, range: ByteRange) -> Result<Vec<Piece>, ClientError> {
        let layout = self.layout();
        if layout.stores(range) {
            return Ok(layout.pieces(range));
        }
        self.refresh().await?;
        let layout = self.layout();
        within_file(self.name(), layout.file.file.size_bytes, range)?;
        Ok(layout.pieces(range))
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
        work(lock(&self.opened.primaries).entry(stripe).or_default())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Layouts are replaced as a whole, and a guess may be wrong.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
