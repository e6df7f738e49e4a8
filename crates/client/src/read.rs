//! Reads: each stripe's piece by one plan, from the chunks themselves if they are readable and
//! otherwise through the code.
//!
//! A plain read of one chunk needs no cut: its node serves committed bytes. If several nodes
//! contribute, their bytes must be of one moment. The nodes of a plain read report the update as of
//! which they read. If they differ, and in every degraded read, the stripe's primary gives its
//! committed mark and all nodes read exactly as of that. So one more round is enough however many
//! updates go on, unless a node has merged later ones into its chunk; then a newer mark is taken.
//!
//! Pieces of several stripes are read at the same time, each into its part of the result.

use crate::attempts::Attempts;
use crate::client::{Client, check};
use crate::error::ClientError;
use crate::extent::{Extent, Piece};
use crate::file::File;
use crate::layout::{Fleet, Layout};
use crate::memory::ReadBuffer;
use crate::moment::{Moment, Version};
use crate::place::{Place, Wanted};
use crate::progress::Progress;
use crate::reading::{Reading, Trouble};
use crate::retry::{ReadRetry, read_retry};
use crate::task::Task;
use bytes::{Bytes, BytesMut};
use futures::io::{AsyncWrite, AsyncWriteExt};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use gabion_layout::{ByteRange, ChunkRange, Epoch, Geometry, NodeId, Sequence, StripeRecord};
use gabion_plan::Plan;
use gabion_planner::update::{Reader, overlay_read};
use gabion_planner::{PlanError, repair};
use gabion_protocol::initiate::{PartFailed, RunTerms};
use gabion_protocol::message::{Effect, Purpose, ReadCut, Ticket};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

/// Slice size of reads, in bytes.
const READ_SLICE_BYTES: u64 = 256 << 10;

/// Most zeros of a hole that are in memory at a time.
const HOLE_BYTES: u64 = 1 << 20;

/// Most pieces that one operation reads at a time.
const AT_ONCE_COUNT: u64 = 8;

/// Most bytes of them; of large stripes, a few have more.
const AT_ONCE_BYTES: u64 = 64 << 20;

/// A part of a range that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadPart {
    /// Bytes of a stripe, or inline ones.
    Bytes(Vec<u8>),
    /// The length of a hole in bytes; they are all zero.
    Hole(u64),
}

/// A read ready to run.
struct ReadPlan {
    plan: Plan,
    ranges: Vec<ChunkRange>,
    is_degraded: bool,
}

impl Client {
    /// Reads a range of a file. See [`File::read`].
    ///
    /// # Errors
    /// Those of [`Client::open`] and [`File::read`].
    pub async fn read(&self, name: &str, range: ByteRange) -> Result<Vec<u8>, ClientError> {
        self.open(name).await?.read(range).await
    }

    /// Number of pieces, of `longest` bytes at most and `all_bytes` together, that one operation reads at a time, and
    /// the most bytes of them.
    fn reads_at_once(&self, longest: u64, all_bytes: u64) -> (usize, u64) {
        let small_bytes = self.shared.options.in_flight_bytes.min(AT_ONCE_BYTES);
        let small_count = (small_bytes / longest.max(1)).min(AT_ONCE_COUNT) as usize;
        let count = self.in_flight_count(longest).max(small_count);
        (count, all_bytes.min(longest.saturating_mul(count as u64)))
    }

    /// Writes a whole file to `sink`, in order, and flushes it. Returns the file's size.
    ///
    /// # Errors
    /// Those of [`Client::open`] and [`File::read`]; [`ClientError::Io`] of the sink, which then
    /// has the beginning of the file.
    pub async fn get(
        &self,
        name: &str,
        sink: impl AsyncWrite + Unpin,
        progress: &dyn Progress,
    ) -> Result<u64, ClientError> {
        let file = self.open(name).await?;
        let all = ByteRange::new(0, file.size_bytes());
        file.copy(all, sink, progress).await
    }
}

impl File {
    /// Writes a range, which must lie within the file, into `sink`, stripe by stripe and in order. Bytes of
    /// one stripe are as of one moment. Returns the number of bytes.
    ///
    /// # Errors
    /// Those of [`File::read`]; [`ClientError::Io`] of the sink.
    pub async fn copy(
        &self,
        range: ByteRange,
        mut sink: impl AsyncWrite + Unpin,
        progress: &dyn Progress,
    ) -> Result<u64, ClientError> {
        self.check_range(range).await?;
        let size_bytes = range.length;
        let longest = self.segment_bytes().min(size_bytes);
        let (ahead_count, at_once_bytes) = self.client.reads_at_once(longest, size_bytes);
        let read = |piece| {
            let (file, ports) = (self.clone(), self.client.ports());
            Task::spawn(
                ports,
                async move { file.read_piece(piece, at_once_bytes).await },
            )
        };
        let pieces = self.pieces_in_order(range);
        let mut pieces = pin!(pieces.map_ok(read).try_buffered(ahead_count));
        let failed = |source| ClientError::Io {
            operation: "write what was read",
            source,
        };
        let mut done_bytes = 0;
        progress.advanced(0, size_bytes);
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            sink.write_all(&piece).await.map_err(failed)?;
            done_bytes += piece.len() as u64;
            progress.advanced(done_bytes, size_bytes);
        }
        sink.flush().await.map_err(failed)?;
        Ok(size_bytes)
    }

    /// The pieces of a range that is within the file, window by window, and each hole in short ones.
    fn pieces_in_order(&self, range: ByteRange) -> impl Stream<Item = Result<Piece, ClientError>> {
        let from = move |at| self.pieces_from(at, range.end());
        stream::try_unfold(range.offset, from).try_flatten()
    }

    /// Those from `at` on in its window, and the end of them; none at `end`.
    async fn pieces_from(
        &self,
        at: u64,
        end: u64,
    ) -> Result<Option<(impl Stream<Item = Result<Piece, ClientError>>, u64)>, ClientError> {
        if at >= end {
            return Ok(None);
        }
        let layout = self.layout_of(ByteRange::new(at, 1)).await?;
        let next = layout.window().end().min(end);
        let range = ByteRange::new(at, next - at);
        let layout = self.present_layout(range).await?;
        self.check_not_shrunk(&layout, range)?;
        let pieces = layout.pieces(range).into_iter();
        let pieces = pieces.flat_map(short_pieces).map(Ok);
        Ok(Some((stream::iter(pieces), next)))
    }

    /// Reads a range, which must lie within the file. Bytes of one stripe are as of one moment. Bytes of holes
    /// are zero. Several stripes are read at the same time, up to eight and within
    /// [`ClientOptions::in_flight_bytes`].
    ///
    /// [`ClientOptions::in_flight_bytes`]: crate::ClientOptions::in_flight_bytes
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a range outside of the file; [`ClientError::Shrunk`] when it was truncated
    /// during the read; [`ClientError::Late`] when too few
    /// chunks could be read in time, with the last problem; [`ClientError::Node`] when a node
    /// refused permanently; [`ClientError::FileGone`]; [`ClientError::NoCoordinator`] and
    /// [`ClientError::Refused`] when a new layout was needed. The first error of a stripe ends the reads of the others.
    pub async fn read(&self, range: ByteRange) -> Result<Vec<u8>, ClientError> {
        let pieces = self.present_pieces(range).await?;
        let buffer = BytesMut::zeroed(range.length as usize);
        let places = Place::divide(buffer, pieces.iter().map(Piece::length));
        let targets: Vec<(Piece, Arc<Place>)> = pieces.into_iter().zip(places).collect();
        for (piece, place) in &targets {
            // Holes are zero in the buffer.
            if let Piece::Inline(bytes) = piece {
                place.write(0, bytes);
            }
        }
        self.read_stored(&targets).await?;
        Ok(Place::unite(targets.iter().map(|(_, place)| place)).into())
    }

    /// Reads a range as [`File::read`] does, but returns its parts in order, and holes as such. A hole that a
    /// change of the file makes during the read may come as zeros.
    ///
    /// # Errors
    /// Those of [`File::read`].
    pub async fn read_parts(&self, range: ByteRange) -> Result<Vec<ReadPart>, ClientError> {
        let pieces = self.present_pieces(range).await?;
        let with_place = |piece: Piece| {
            let stored_bytes = piece.extent().map_or(0, |extent| extent.range.length);
            (piece, Place::new(stored_bytes))
        };
        let targets: Vec<(Piece, Arc<Place>)> = pieces.into_iter().map(with_place).collect();
        self.read_stored(&targets).await?;
        let part = |(piece, place): (Piece, Arc<Place>)| match piece {
            Piece::Inline(bytes) => ReadPart::Bytes(bytes.into()),
            Piece::Hole(range) => ReadPart::Hole(range.length),
            Piece::Stored(_) => ReadPart::Bytes(place.take().into()),
        };
        Ok(targets.into_iter().map(part).collect())
    }

    /// Reads the pieces that stripes hold, each into its place, several at a time.
    async fn read_stored(&self, targets: &[(Piece, Arc<Place>)]) -> Result<(), ClientError> {
        let stored = targets
            .iter()
            .filter_map(|(piece, place)| Some((piece.extent()?, place)));
        let stored: Vec<(Extent, &Arc<Place>)> = stored.collect();
        let lengths = || stored.iter().map(|(extent, _)| extent.range.length);
        let longest = lengths().max().unwrap_or(0);
        let (count, at_once_bytes) = self.client.reads_at_once(longest, lengths().sum());
        let wanted = stored.iter().map(|&(extent, place)| Wanted {
            extent,
            place: Arc::clone(place),
            at_once_bytes,
        });
        let wanted: Vec<Wanted> = wanted.collect();
        let read = |wanted: Wanted| async move { self.read_into(&wanted).await.map(drop) };
        stream::iter(wanted)
            .map(Ok)
            .try_for_each_concurrent(count, read)
            .await
    }

    async fn read_piece(&self, piece: Piece, at_once_bytes: u64) -> Result<Bytes, ClientError> {
        match piece {
            Piece::Inline(bytes) => Ok(bytes),
            Piece::Hole(range) => Ok(vec![0; range.length as usize].into()),
            Piece::Stored(extent) => {
                let wanted = Wanted {
                    at_once_bytes,
                    ..Wanted::alone(extent)
                };
                self.read_into(&wanted).await?;
                Ok(wanted.place.take().freeze())
            }
        }
    }

    /// Reads a piece of one stripe, and returns as of which of the stripe's updates. If other
    /// stripes replace it in between, the piece covers all of these, and the update is of the
    /// first.
    ///
    /// # Errors
    /// Those of [`File::read`].
    pub(crate) async fn read_extent(&self, extent: Extent) -> Result<Moment, ClientError> {
        let wanted = Wanted::alone(extent);
        let version = self.read_into(&wanted).await?;
        Ok(Moment::of(&wanted.place, version))
    }

    /// Reads a piece as [`File::read_extent`] does, into its place.
    ///
    /// # Errors
    /// Those of [`File::read`]; the place may have lost its bytes then.
    async fn read_into(&self, wanted: &Wanted) -> Result<Version, ClientError> {
        // Boxed: a read that may be hedged is large, and every caller would hold it.
        if let Some(version) = Box::pin(self.read_within(wanted)).await? {
            return Ok(version);
        }
        // Another layout was looked up since the range was split. Holes and the end must be as of this read.
        let range = wanted.extent.in_file();
        let layout = self.present_layout(range).await?;
        self.check_not_shrunk(&layout, range)?;
        let pieces = layout.pieces(range);
        let places = Place::divide(wanted.place.take(), pieces.iter().map(Piece::length));
        let mut first = None;
        for (piece, place) in pieces.into_iter().zip(&places) {
            let version = match piece {
                Piece::Stored(extent) => {
                    let part = Wanted {
                        extent,
                        place: Arc::clone(place),
                        at_once_bytes: wanted.at_once_bytes,
                    };
                    Box::pin(self.read_into(&part)).await?
                }
                Piece::Inline(bytes) => {
                    place.write(0, &bytes);
                    Version::NONE
                }
                Piece::Hole(_) => {
                    // An earlier attempt may have left bytes there.
                    place.clear();
                    Version::NONE
                }
            };
            first.get_or_insert(version);
        }
        wanted.place.put(Place::unite(&places));
        first.ok_or_else(|| ClientError::unexpected("the coordinator"))
    }

    /// Refuses a range that was within the file before.
    fn check_not_shrunk(&self, layout: &Layout, range: ByteRange) -> Result<(), ClientError> {
        let size_bytes = layout.file.file.size_bytes;
        if range.end() <= size_bytes {
            return Ok(());
        }
        let name = self.name().to_owned();
        Err(ClientError::Shrunk { name, size_bytes })
    }

    /// Reads a piece of one stripe into its place; none if the file's stripes now have other borders.
    pub(crate) async fn read_with(
        &self,
        wanted: &Wanted,
        reading: &mut Reading,
    ) -> Result<Option<Version>, ClientError> {
        let (extent, place) = (wanted.extent, &wanted.place);
        let what = format!("reading {} at byte {}", self.name(), extent.file_offset);
        let mut attempts = self.client.attempts(what, wanted.at_once_bytes);
        let mut last_id = None;
        loop {
            let layout = self.layout_of(extent.in_file()).await?;
            let Some(stripe) = layout.find(&extent) else {
                return Ok(None);
            };
            if last_id.replace(stripe.id).is_some_and(|id| id != stripe.id) {
                *reading = reading.anew();
            }
            let (fleet, range) = (layout.fleet(), (extent.range, place));
            let geometry = layout.geometry(stripe)?;
            let tried = self
                .try_read(fleet, stripe, geometry, range, reading, &attempts)
                .await;
            match tried? {
                Ok(version) => return Ok(Some(version)),
                Err(Trouble::NeedsCut { settle, missing }) => {
                    // A first cut is a part of the read and no failure, so there is no pause before
                    // it.
                    if reading.cut.is_some() {
                        attempts.pause(missing).await?;
                    }
                    self.take_cut(extent, settle, reading, &mut attempts)
                        .await?;
                }
                Err(Trouble::NeedsQuorum { missing }) => {
                    if !self.agree(&layout, stripe, reading).await {
                        attempts.pause(missing).await?;
                        self.refresh_if_possible(extent.in_file()).await?;
                    }
                }
                Err(Trouble::Again {
                    is_refresh,
                    missing,
                }) => {
                    attempts.pause(missing).await?;
                    if is_refresh {
                        self.refresh_if_possible(extent.in_file()).await?;
                    }
                }
            }
        }
    }

    /// One attempt to read a range of a stripe into a place of its length. The outer error ends the read.
    pub(crate) async fn try_read(
        &self,
        fleet: Fleet<'_>,
        stripe: &StripeRecord,
        geometry: Geometry,
        (range, place): (ByteRange, &Arc<Place>),
        reading: &mut Reading,
        attempts: &Attempts,
    ) -> Result<Result<Version, Trouble>, ClientError> {
        let planned = match self.plan_read(fleet, stripe, geometry, range, reading)? {
            Ok(planned) => planned,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let (plan, is_degraded) = (planned.plan, planned.is_degraded);
        reading.goes_through_code(is_degraded);
        if is_degraded && reading.cut.is_none() {
            let missing = format!("{} was not settled", stripe.id);
            return Ok(Err(Trouble::NeedsCut {
                settle: false,
                missing,
            }));
        }
        let unvouched = (Epoch(0), ReadCut::Committed(Epoch(0), Sequence(0)));
        let (epoch, cut) = reading.cut.map_or(unvouched, |cut| cut.terms(is_degraded));
        let terms = RunTerms {
            run: self.client.draw_run(),
            joined: Vec::new(),
            epoch,
            generation: stripe.generation,
            cut,
            effect: Effect::None,
            purpose: Purpose::Client,
            spread_ms: 0,
            deadline_ms: attempts.attempt_ms(),
            stall_ms: None,
            ticket: Ticket::find(fleet.tickets, stripe.id),
        };
        let buffer = Arc::new(ReadBuffer::new(planned.ranges, place));
        let io = Arc::<ReadBuffer>::clone(&buffer);
        let kind = (is_degraded, reading.is_direct);
        reading.delivered.begin(&buffer, kind);
        match self.client.run(&plan, fleet.topology, &terms, io).await {
            Ok(as_of) if reading.cut.is_none() && !is_one_moment(&as_of) => {
                let missing = format!("the nodes of {} were not at one update", stripe.id);
                Ok(Err(Trouble::NeedsCut {
                    settle: false,
                    missing,
                }))
            }
            Ok(as_of) => Ok(Ok(Version {
                stripe: stripe.id,
                sequence: of_nodes(&as_of).min().unwrap_or_default(),
            })),
            Err(failed) => self
                .blame(&failed, (stripe, &plan), reading, attempts)
                .map(Err),
        }
    }

    /// Takes the immediate measure for an attempt's failed part.
    fn blame(
        &self,
        failed: &PartFailed,
        (stripe, plan): (&StripeRecord, &Plan),
        reading: &mut Reading,
        attempts: &Attempts,
    ) -> Result<Trouble, ClientError> {
        let participants = plan.participants();
        let retry = read_retry(failed.node, &failed.refusal, &participants, reading.cut);
        match retry {
            ReadRetry::AvoidNode(node) => self.client.suspect(node),
            // One of the nodes may be unreachable for another.
            ReadRetry::Refresh => reading.is_direct = true,
            _ => {}
        }
        let trouble = reading.apply(retry, stripe, failed.to_string());
        trouble.ok_or_else(|| ClientError::Node {
            what: format!("{} from {}", attempts.what(), failed.node),
            refusal: failed.refusal.clone().into(),
        })
    }

    /// Plans a read without the chunks to avoid; if that is impossible, without the lost ones only.
    fn plan_read(
        &self,
        fleet: Fleet<'_>,
        record: &StripeRecord,
        geometry: Geometry,
        range: ByteRange,
        reading: &mut Reading,
    ) -> Result<Result<ReadPlan, Trouble>, ClientError> {
        let broken = |error: &dyn std::error::Error| ClientError::Broken(error.to_string());
        let ranges = geometry.split(range).map_err(|error| broken(&error))?;
        let choices = reading.left_out(record, fleet.nodes, &self.client.ailing());
        let mut missing = String::new();
        let mut lacks_copy = false;
        for (at, lost) in choices.iter().enumerate() {
            let stripe = self.stripe(record, geometry, lost);
            let asker = NodeId::CLIENT;
            let helpers = repair::helpers_by_distance(&stripe, asker, fleet.topology);
            let scheme = if reading.is_direct {
                repair::Scheme::Conventional
            } else {
                self.client.shared.options.read_scheme
            };
            let reader = Reader {
                asker,
                helpers: &helpers,
                scheme,
                slice_bytes: READ_SLICE_BYTES,
            };
            let is_degraded = ranges.iter().any(|part| lost.contains(&part.chunk));
            let read = if is_degraded && !reading.appended.is_empty() {
                overlay_read(&stripe, &ranges, &reading.appended, reader)
            } else {
                repair::read(&stripe, &ranges, asker, &helpers, scheme, READ_SLICE_BYTES)
            };
            match read {
                Ok(plan) => {
                    check(&plan, self.code(record))?;
                    return Ok(Ok(ReadPlan {
                        plan,
                        ranges,
                        is_degraded,
                    }));
                }
                Err(PlanError::NotEnoughHelpers(error)) => {
                    missing = format!("{} has too few chunks left: {error}", record.id);
                }
                Err(error @ PlanError::NoCopy(_)) => {
                    missing = format!("{} cannot be read: {error}", record.id);
                    lacks_copy = true;
                }
                Err(error @ PlanError::MovedLog(_)) => {
                    return Ok(Err(reading.doubt_logs(error.to_string())));
                }
                Err(error) => return Err(broken(&error)),
            }
            if at == 1 {
                // Avoided chunks get another chance, since there is no way around them.
                reading.avoided.clear();
            }
        }
        if lacks_copy {
            return Ok(Err(reading.doubt_logs(missing)));
        }
        Ok(Err(reading.lack_chunks(missing)))
    }
}

/// Splits a hole, so that its zeros take little memory.
fn short_pieces(piece: Piece) -> impl Iterator<Item = Piece> {
    let (stored, hole) = match piece {
        Piece::Stored(_) | Piece::Inline(_) => (Some(piece), ByteRange::new(0, 0)),
        Piece::Hole(range) => (None, range),
    };
    let count = hole.length.div_ceil(HOLE_BYTES);
    let holes = (0..count).map(move |at| {
        let offset = hole.offset + at * HOLE_BYTES;
        let length = HOLE_BYTES.min(hole.end() - offset);
        Piece::Hole(ByteRange::new(offset, length))
    });
    stored.into_iter().chain(holes)
}

/// Whether all nodes read as of the same update.
fn is_one_moment(as_of: &BTreeMap<NodeId, Sequence>) -> bool {
    let mut marks = of_nodes(as_of);
    let first = marks.next();
    marks.all(|mark| Some(mark) == first)
}

/// The updates as of which the nodes read. The client's own part has none.
fn of_nodes(as_of: &BTreeMap<NodeId, Sequence>) -> impl Iterator<Item = Sequence> {
    let nodes = as_of.iter().filter(|(node, _)| **node != NodeId::CLIENT);
    nodes.map(|(_, &mark)| mark)
}

#[cfg(test)]
mod tests;
