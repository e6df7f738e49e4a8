//! The layout of a part of a file, and the nodes for plans.

use crate::client::{Client, topology};
use crate::error::ClientError;
use crate::extent::{Extent, Piece, geometry, pieces, spans};
use bytes::Bytes;
use gabion_layout::{ByteRange, Geometry, StripeId, StripeRecord, Topology};
use gabion_meta::{FileRecord, PoolSpec, PutId};
use gabion_protocol::message::{FileLayout, InlineBytes, NodeStatus, Ticket};
use gabion_protocol::ticket::Operations;

/// A layout and values derived from it. It describes its window of the file, and nothing outside of it.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) file: FileLayout,
    pub(crate) topology: Topology,
    /// The range of each stripe in the file.
    spans: Vec<ByteRange>,
}

/// The nodes and tickets for a plan.
#[derive(Clone, Copy)]
pub(crate) struct Fleet<'a> {
    pub(crate) nodes: &'a [NodeStatus],
    pub(crate) topology: &'a Topology,
    /// The tickets to read the stripes.
    pub(crate) tickets: &'a [Ticket],
}

impl Layout {
    /// # Errors
    /// [`ClientError::Broken`] when the layout contradicts itself.
    pub(crate) fn new(file: FileLayout) -> Result<Self, ClientError> {
        let spans = spans(&file)?;
        let topology = topology(&file.nodes)?;
        Ok(Self {
            file,
            topology,
            spans,
        })
    }

    /// The part of the file that it describes.
    pub(crate) fn window(&self) -> ByteRange {
        self.file.window
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

    /// The pieces of a range within the window.
    pub(crate) fn pieces(&self, range: ByteRange) -> Vec<Piece> {
        let mut all = Vec::new();
        for piece in pieces(&self.spans, range) {
            match piece {
                Piece::Hole(hole) => all.extend(self.inline_pieces(hole)),
                other => all.push(other),
            }
        }
        all
    }

    /// The pieces of a range without a stripe: the inline bytes in it, and the hole behind them.
    fn inline_pieces(&self, range: ByteRange) -> impl Iterator<Item = Piece> {
        let bytes = self.inline_bytes();
        let part = ByteRange::new(0, bytes.len() as u64).intersect(range);
        let start = part.map_or(range.offset, ByteRange::end);
        let hole = ByteRange::new(start, range.end() - start);
        let inline = part.map(|part| bytes.slice(part.offset as usize..part.end() as usize));
        let hole = (!hole.is_empty()).then_some(Piece::Hole(hole));
        inline.map(Piece::Inline).into_iter().chain(hole)
    }

    /// All inline bytes of the file, if some of them are in the window.
    pub(crate) fn inline_bytes(&self) -> Bytes {
        let inline = self.file.inline.as_ref();
        inline.map_or_else(Bytes::new, |inline| inline.bytes.clone())
    }

    /// Whether the file has inline bytes of which none are in the window.
    pub(crate) fn lacks_inline_bytes(&self) -> bool {
        let present = self.file.file.inline;
        self.file.inline.is_none() && present.is_some_and(|inline| inline.length_bytes > 0)
    }

    /// Whether the range is within the file and has no hole.
    pub(crate) fn stores(&self, range: ByteRange) -> bool {
        let is_stored = |piece: &Piece| matches!(piece, Piece::Stored(_));
        range.end() <= self.file.file.size_bytes && self.pieces(range).iter().all(is_stored)
    }

    /// Whether a stripe is not updated in place, because other files may have it too.
    pub(crate) fn is_shared(&self, stripe: StripeId) -> bool {
        self.file.shared.contains(&stripe)
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
            tickets: &self.file.tickets,
        }
    }

    /// The ticket to read and write a stripe.
    pub(crate) fn ticket(&self, stripe: StripeId) -> Option<Ticket> {
        Ticket::find(&self.file.tickets, stripe)
    }

    /// Whether the coordinator permits no update of a stripe. One that recovers a restored backup permits none, and
    /// every other one permits them all.
    pub(crate) fn forbids_updates(&self, stripe: StripeId) -> bool {
        let ticket = self.ticket(stripe);
        ticket.is_some_and(|ticket| !ticket.grant.operations.include(Operations::UPDATE))
    }

    pub(crate) fn geometry(&self, stripe: &StripeRecord) -> Result<Geometry, ClientError> {
        geometry(self.spec(stripe), stripe)
    }
}

impl Client {
    /// All stripes of a file, with their pool and all nodes. Of a large file, the stripes are as of several moments.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is no such file; [`ClientError::FileGone`] when it was removed in between;
    /// [`ClientError::NoCoordinator`].
    pub async fn layout(&self, name: &str) -> Result<FileLayout, ClientError> {
        self.complete(self.lookup(name).await?).await
    }

    /// The same for the file that this put made; none if it was removed.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`].
    pub async fn layout_of(&self, file: PutId) -> Result<Option<FileLayout>, ClientError> {
        let Some(first) = self.lookup_file(file, 0).await? else {
            return Ok(None);
        };
        match self.complete(first).await {
            Err(ClientError::FileGone(_)) => Ok(None),
            layout => layout.map(Some),
        }
    }

    /// The layout of a whole file, from that of its first window.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub(crate) async fn complete(&self, mut layout: FileLayout) -> Result<FileLayout, ClientError> {
        while let Some(offset) = layout.behind {
            let next = self.lookup_file(layout.file.put, offset).await?;
            let next = next.ok_or_else(|| ClientError::FileGone(layout.file.name.clone()))?;
            if next.window.offset < layout.window.end() || next.window.end() <= offset {
                let sentence = format!("the layout of {} is inconsistent", layout.file.name);
                return Err(ClientError::Broken(sentence));
            }
            layout = joined(layout, next);
        }
        Ok(layout)
    }
}

/// A value that grows with each change of a file's size or inline bytes, and with each rename of the file itself: of
/// two records, the one with the lower value is from before the other.
pub(crate) fn age(file: &FileRecord) -> (u64, u64, u64, u64) {
    // A file that is inline no more is never inline again.
    let version = file.inline.map_or(u64::MAX, |inline| inline.version);
    (
        file.truncation_count,
        file.size_bytes,
        file.generation,
        version,
    )
}

/// One layout of two windows, of which the second is behind the first one and between which no stripe begins. Its parts
/// may be of different moments; of the file's own facts it has the newer ones.
pub(crate) fn joined(mut first: FileLayout, second: FileLayout) -> FileLayout {
    let start = first.window.offset;
    let window = ByteRange::new(start, second.window.end() - start);
    let is_newer = age(&first.file) > age(&second.file);
    first.stripes.extend(second.stripes);
    first.offsets.extend(second.offsets);
    first.appending.extend(second.appending);
    first.shared.extend(second.shared);
    first.tickets.extend(second.tickets);
    FileLayout {
        file: if is_newer { first.file } else { second.file },
        window,
        before: first.before,
        stripes: first.stripes,
        offsets: first.offsets,
        appending: first.appending,
        shared: first.shared,
        inline: newer(first.inline, second.inline),
        tickets: first.tickets,
        ..second
    }
}

/// The newer of the inline bytes that two look-ups have returned.
fn newer(first: Option<InlineBytes>, second: Option<InlineBytes>) -> Option<InlineBytes> {
    let found = [first, second].into_iter().flatten();
    found.max_by_key(|inline| inline.version)
}

/// A layout for tests.
#[cfg(test)]
pub(crate) mod sample {
    use super::*;
    use gabion_layout::{NodeId, PoolId, RackId, Survive, UpdateScheme};
    use gabion_meta::{
        Attributes, Departure, DirectoryId, MapId, NewAttributes, PoolRecord, PutId, WallTime,
    };
    use gabion_protocol::message::Liveness;

    /// Nodes that are up, each in a rack of its own.
    pub(crate) fn nodes(count: u32) -> Vec<NodeStatus> {
        let status = |node| NodeStatus {
            node: NodeId(node),
            rack: RackId(node),
            address: format!("10.0.0.1:{node}"),
            liveness: Liveness::Up,
            departure: Departure::None,
        };
        (0..count).map(status).collect()
    }

    /// That of an empty file `f` in a pool of `rs(2,1)`, without nodes.
    pub(crate) fn layout() -> FileLayout {
        let spec = PoolSpec {
            name: "p".to_owned(),
            code: "rs(2,1)".to_owned(),
            k: 2,
            m: 1,
            sub_chunks: 1,
            chunk_bytes: 4096,
            survive: Survive::Nodes(1),
            chunks_per_rack: 1,
            update: UpdateScheme::default(),
            reserve: None,
            append: None,
            inline_bytes: 0,
        };
        let (id, lifecycle) = (PoolId(0), None);
        let file = FileRecord {
            name: "f".to_owned(),
            directory: DirectoryId::ROOT,
            pool: id,
            size_bytes: 0,
            stripe_count: 0,
            put: PutId(1),
            created_ms: 0,
            generation: 0,
            truncation_count: 0,
            link_count: 1,
            symlink: None,
            map: MapId(1),
            shared_stripe_count: 0,
            shared_below: StripeId(0),
            is_read_only: false,
            inline: None,
            quota: None,
            attributes: Attributes::new(NewAttributes::FILE, WallTime::default()),
        };
        let pool = PoolRecord {
            id,
            spec,
            lifecycle,
        };
        FileLayout::without_extents(file, pool, ByteRange::new(0, u64::MAX))
    }
}
