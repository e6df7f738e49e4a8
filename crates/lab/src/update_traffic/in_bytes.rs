//! Bytes that a cluster's nodes send across racks for a trace, exactly: each write is cut at the borders of stripes,
//! planned as its stripe's primary plans it, and appended and committed by the rules that primaries follow. The papers'
//! counts, of whole chunks, are [`super::count`]'s.
//!
//! Data grouping exchanges chunks at once after each commit, also after the last one, since a cluster does not know
//! that the trace has ended. A cluster's coordinator makes the exchanges in the background, so updates that come in
//! between still find the old places.
//!
//! A write that is too large for a journal record is counted as an update here; the client replaces its stripe.

use super::costs::make_room;
use super::layout::Stripes;
use super::moved::Moved;
use super::pool_stripes::PoolStripes;
use super::scheme::{SchemeEntry, chosen};
use crate::error::LabError;
use crate::trace::{Request, RequestKind};
use gabion_codec::Code;
use gabion_layout::{AppendSpec, ByteRange, Geometry, NodeId, PoolId, StripeId, Topology};
use gabion_plan::{Cost, Plan};
use gabion_planner::Stripe;
use gabion_planner::update::cau::{self, Phases};
use gabion_planner::update::{Appending, Descriptor, Waiting};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Phases are kept by pool, and here is one.
const POOL: PoolId = PoolId(0);

/// Units of 100 ns in a millisecond.
const TICKS_PER_MS: u64 = 10_000;

/// The places of the stripes of a volume.
#[derive(Clone, Debug)]
pub enum Volume {
    /// By a layout, without an end.
    Laid(Stripes),
    /// As a pool places them, without an end.
    Pool(PoolStripes),
    /// As a cluster stores a file.
    Stored(StoredFile),
}

/// A file of a cluster, whose stripes have all of their chunks.
#[derive(Clone, Debug)]
pub struct StoredFile {
    code: Code,
    topology: Topology,
    stripes: Vec<(Geometry, Vec<NodeId>)>,
    /// The range of each stripe in the file.
    spans: Vec<ByteRange>,
}

impl StoredFile {
    /// A file of a pool with `code` on the nodes of `topology`: by stripe in order, its offset in the file, its
    /// geometry and the nodes of its chunks.
    pub fn new(code: Code, topology: Topology, stripes: Vec<(u64, Geometry, Vec<NodeId>)>) -> Self {
        let span = |(offset, geometry, _): &(u64, Geometry, _)| {
            ByteRange::new(*offset, geometry.stripe_bytes())
        };
        let spans = stripes.iter().map(span).collect();
        let stripes = stripes
            .into_iter()
            .map(|(_, geometry, nodes)| (geometry, nodes));
        Self {
            code,
            topology,
            stripes: stripes.collect(),
            spans,
        }
    }
}

/// A piece of a write within one stripe.
struct Piece {
    stripe: u64,
    range: ByteRange,
}

impl Volume {
    pub(crate) fn code(&self) -> &Code {
        match self {
            Self::Laid(stripes) => stripes.code(),
            Self::Pool(stripes) => stripes.code(),
            Self::Stored(file) => &file.code,
        }
    }

    pub(crate) fn topology(&self) -> &Topology {
        match self {
            Self::Laid(stripes) => stripes.topology(),
            Self::Pool(stripes) => stripes.topology(),
            Self::Stored(file) => &file.topology,
        }
    }

    /// A number that two stripes share only if they have the same placement and geometry.
    fn class(&self, stripe: u64) -> u64 {
        match self {
            Self::Laid(stripes) => stripes.class(stripe),
            Self::Pool(_) | Self::Stored(_) => stripe,
        }
    }

    pub(crate) fn stripe(&self, number: u64) -> Result<(Geometry, Cow<'_, [NodeId]>), LabError> {
        match self {
            Self::Laid(stripes) => {
                let placement = stripes.placement(number)?;
                Ok((stripes.geometry(), placement.into()))
            }
            Self::Pool(stripes) => {
                let placement = stripes.placement(number)?;
                Ok((stripes.geometry(), placement.into()))
            }
            Self::Stored(file) => {
                let (geometry, placement) = &file.stripes[number as usize];
                Ok((*geometry, placement.into()))
            }
        }
    }

    /// A stripe as planners see it.
    fn view<'a>(&'a self, number: u64, geometry: Geometry, placement: &'a [NodeId]) -> Stripe<'a> {
        Stripe {
            id: StripeId(number),
            code: self.code(),
            geometry,
            placement,
            lost: &[],
        }
    }

    /// Cuts a range at the borders of stripes; what lies in holes of a stored file or behind its end is left out.
    fn pieces(&self, range: ByteRange) -> Vec<Piece> {
        let piece = |stripe: u64, start: u64, bytes: u64| {
            let found = ByteRange::new(start, bytes).intersect(range)?;
            let range = ByteRange::new(found.offset - start, found.length);
            Some(Piece { stripe, range })
        };
        let endless = |geometry: Geometry| {
            let bytes = geometry.stripe_bytes();
            let last = range.end().saturating_sub(1) / bytes;
            let numbers = range.offset / bytes..=last;
            numbers
                .filter_map(|number| piece(number, number * bytes, bytes))
                .collect()
        };
        match self {
            Self::Laid(stripes) => endless(stripes.geometry()),
            Self::Pool(stripes) => endless(stripes.geometry()),
            Self::Stored(file) => {
                let first = file
                    .spans
                    .partition_point(|span| span.end() <= range.offset);
                let behind = (0..).zip(&file.spans).skip(first);
                behind
                    .map_while(|(number, span)| piece(number, span.offset, span.length))
                    .collect()
            }
        }
    }
}

/// The times that stripes wait for their parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Milliseconds of all stripes, from the first appended update to the commit.
    pub total_ms: u128,
    /// The longest of these times.
    pub longest_ms: u64,
}

impl Waits {
    /// A stripe is committed after this wait.
    pub(crate) fn add(&mut self, wait_ms: u64) {
        self.total_ms += u128::from(wait_ms);
        self.longest_ms = self.longest_ms.max(wait_ms);
    }
}

/// When writes come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pace {
    /// At the trace's times, so that stripes are committed by age too.
    #[default]
    Trace,
    /// One after another, so fast that none is committed by age.
    Fast,
}

/// Bytes that one scheme sends across racks.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ByteTraffic {
    /// All of them.
    pub cross_rack_bytes: u128,
    /// Updates that bring parity up to date at once.
    pub update_bytes: u128,
    /// Copies of appended bytes, of schemes that append.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_bytes: Option<u128>,
    /// Commits, of schemes that append.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_bytes: Option<u128>,
    /// Exchanges of data grouping, of schemes that may have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grouping_bytes: Option<u128>,
    /// The times that stripes wait for their parity.
    #[serde(skip)]
    pub waits: Waits,
}

/// The traffic of each scheme for a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ByteReport {
    /// Writes of the trace.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u128,
    /// By scheme.
    pub schemes: BTreeMap<&'static str, ByteTraffic>,
}

/// Counts the bytes that each of the schemes sends across racks for the writes of a trace, which errors call `trace`,
/// to a volume. `append` counts for schemes with append phases. At the end what waits is committed.
///
/// # Errors
/// The trace's first error; [`LabError::UnknownScheme`], [`LabError::NoScheme`], or [`LabError::ChunksOnly`] for a
/// variant that no pool has; [`LabError::NoWrites`]; the planner's error when a scheme has no plan for the volume.
pub fn count_bytes(
    trace: &str,
    volume: &Volume,
    schemes: &[String],
    append: AppendSpec,
    pace: Pace,
    requests: impl IntoIterator<Item = Result<Request, LabError>>,
) -> Result<ByteReport, LabError> {
    let entries = chosen(schemes)?;
    let open = |entry: &SchemeEntry| {
        let scheme = entry.of_pools()?;
        Ok((entry.name, PoolTraffic::new(volume, scheme, append)))
    };
    let mut open: Vec<_> = entries.iter().map(open).collect::<Result<_, LabError>>()?;
    let (mut now_ms, mut reads, mut writes, mut written_bytes) = (0, 0, 0, 0);
    for request in requests {
        let request = request?;
        if request.kind == RequestKind::Read {
            reads += 1;
            continue;
        }
        if pace == Pace::Trace {
            now_ms = now_ms.max(request.at_ticks / TICKS_PER_MS);
        }
        writes += 1;
        written_bytes += u128::from(request.length_bytes);
        for (_, traffic) in &mut open {
            traffic.write(&request, now_ms)?;
        }
    }
    if writes == 0 {
        return Err(LabError::NoWrites {
            trace: trace.to_owned(),
            requests: reads,
        });
    }
    let mut schemes = BTreeMap::new();
    for (name, traffic) in open {
        let (moved, waits) = traffic.finish(now_ms)?;
        let purposes = [moved.replica, moved.commit, moved.grouping];
        let deferred: u128 = purposes.into_iter().flatten().sum();
        let traffic = ByteTraffic {
            cross_rack_bytes: moved.update + deferred,
            update_bytes: moved.update,
            replica_bytes: moved.replica,
            commit_bytes: moved.commit,
            grouping_bytes: moved.grouping,
            waits,
        };
        schemes.insert(name, traffic);
    }
    Ok(ByteReport {
        writes,
        written_bytes,
        schemes,
    })
}

/// The traffic of one update scheme on one volume.
#[derive(Debug)]
struct PoolTraffic<'a> {
    volume: &'a Volume,
    scheme: &'static Descriptor,
    append: AppendSpec,
    /// The append phases of each node as the primary of stripes. It is the node of a stripe's first chunk, which
    /// clients ask first.
    primaries: BTreeMap<NodeId, Phases>,
    /// Stripes with appended updates, and when the first of them came.
    waiting: HashMap<u64, (Waiting, u64)>,
    /// Bytes across racks of updates at once, by class of placement, and offset and length in the stripe.
    known: HashMap<(u64, u64, u64), u64>,
    /// The places of chunks of stripes that data grouping has changed.
    regrouped: HashMap<u64, Vec<NodeId>>,
    moved: Moved,
    waits: Waits,
}

impl<'a> PoolTraffic<'a> {
    /// The traffic before the first write. `append` counts for schemes with append phases.
    fn new(volume: &'a Volume, scheme: &'static Descriptor, append: AppendSpec) -> Self {
        let deferred = scheme.appends().then_some(0);
        Self {
            volume,
            scheme,
            append,
            primaries: BTreeMap::new(),
            waiting: HashMap::new(),
            known: HashMap::new(),
            regrouped: HashMap::new(),
            moved: Moved {
                replica: deferred,
                commit: deferred,
                grouping: scheme.appends_by_rack().then_some(0),
                ..Moved::default()
            },
            waits: Waits::default(),
        }
    }

    /// Counts one write that comes at `now_ms`. Times do not go back.
    fn write(&mut self, request: &Request, now_ms: u64) -> Result<(), LabError> {
        let range = ByteRange::new(request.offset_bytes, request.length_bytes);
        for piece in self.volume.pieces(range) {
            let Some(appending) = self.scheme.planner.appending() else {
                self.update(&piece)?;
                continue;
            };
            self.commit_due(appending, now_ms)?;
            self.append(&piece, appending, now_ms)?;
        }
        Ok(())
    }

    /// Commits what waits.
    fn finish(mut self, now_ms: u64) -> Result<(Moved, Waits), LabError> {
        if let Some(appending) = self.scheme.planner.appending() {
            self.commit_due(appending, now_ms)?;
            let mut left: Vec<u64> = self.waiting.keys().copied().collect();
            left.sort_unstable();
            for stripe in left {
                self.commit(stripe, appending, now_ms)?;
            }
        }
        Ok((self.moved, self.waits))
    }

    /// A stripe's shape, and the nodes of its chunks after all exchanges so far.
    fn stripe(&self, number: u64) -> Result<(Geometry, Cow<'a, [NodeId]>), LabError> {
        let (geometry, placement) = self.volume.stripe(number)?;
        let regrouped = self.regrouped.get(&number);
        let placement = regrouped.map_or(placement, |nodes| Cow::Owned(nodes.clone()));
        Ok((geometry, placement))
    }

    fn update(&mut self, piece: &Piece) -> Result<(), LabError> {
        let class = self.volume.class(piece.stripe);
        let key = (class, piece.range.offset, piece.range.length);
        let is_regrouped = self.regrouped.contains_key(&piece.stripe);
        if let Some(&bytes) = self.known.get(&key).filter(|_| !is_regrouped) {
            self.moved.update += u128::from(bytes);
            return Ok(());
        }
        let (geometry, placement) = self.stripe(piece.stripe)?;
        let stripe = self.volume.view(piece.stripe, geometry, &placement);
        let (ranges, topology) = (geometry.split(piece.range)?, self.volume.topology());
        let slice_bytes = geometry.chunk_bytes();
        let planner = self.scheme.planner;
        let plan = planner.plan(&stripe, topology, &ranges, slice_bytes)?;
        let bytes = crossing(&plan, topology);
        if !is_regrouped {
            make_room(&mut self.known);
            self.known.insert(key, bytes);
        }
        self.moved.update += u128::from(bytes);
        Ok(())
    }

    /// Commits the stripes of primaries whose oldest update has waited long enough, as of when it had.
    fn commit_due(&mut self, appending: &dyn Appending, now_ms: u64) -> Result<(), LabError> {
        let all = self.primaries.values();
        let due: Vec<Vec<StripeId>> = all.map(|phases| phases.due(now_ms)).collect();
        for stripes in due {
            let waiting = stripes.iter().filter_map(|id| self.waiting.get(&id.0));
            let Some(oldest_ms) = waiting.map(|&(_, since_ms)| since_ms).min() else {
                continue;
            };
            let due_ms = oldest_ms.saturating_add(self.append.age_max_s.saturating_mul(1000));
            for stripe in stripes {
                self.commit(stripe.0, appending, due_ms)?;
            }
        }
        Ok(())
    }

    fn append(
        &mut self,
        piece: &Piece,
        appending: &dyn Appending,
        now_ms: u64,
    ) -> Result<(), LabError> {
        let id = StripeId(piece.stripe);
        let (_, before) = self.stripe(piece.stripe)?;
        let phases = self.primaries.entry(before[0]).or_default();
        for due in phases.due_before((POOL, id), piece.range.length, now_ms) {
            self.commit(due.0, appending, now_ms)?;
        }
        // A commit may have exchanged chunks of this stripe too.
        let (geometry, placement) = self.stripe(piece.stripe)?;
        let ranges = geometry.split(piece.range)?;
        let waiting = self.waiting.get(&piece.stripe);
        let fits = waiting.map_or_else(
            || Waiting::default().fits(&ranges, geometry),
            |(waiting, _)| waiting.fits(&ranges, geometry),
        );
        if !fits {
            // As a primary does: the update is made at once, after what waits.
            self.commit(piece.stripe, appending, now_ms)?;
            return self.update(piece);
        }
        let topology = self.volume.topology();
        let (waiting, _) = self
            .waiting
            .entry(piece.stripe)
            .or_insert_with(|| (Waiting::default(), now_ms));
        let stripe = self.volume.view(piece.stripe, geometry, &placement);
        let phase = (&*waiting, &self.append);
        let slice_bytes = geometry.chunk_bytes();
        let plan = appending.append(&stripe, topology, &ranges, phase, slice_bytes)?;
        waiting.note_plan(&plan);
        Moved::add(&mut self.moved.replica, crossing(&plan, topology));
        let phases = self.primaries.entry(placement[0]).or_default();
        phases.note((POOL, &self.append), id, piece.range.length, now_ms);
        Ok(())
    }

    fn commit(
        &mut self,
        number: u64,
        appending: &dyn Appending,
        now_ms: u64,
    ) -> Result<(), LabError> {
        let Some((waiting, since_ms)) = self.waiting.remove(&number) else {
            return Ok(());
        };
        let (geometry, placement) = self.stripe(number)?;
        let stripe = self.volume.view(number, geometry, &placement);
        let topology = self.volume.topology();
        let plan = appending.commit(&stripe, topology, &waiting, geometry.chunk_bytes())?;
        Moved::add(&mut self.moved.commit, crossing(&plan, topology));
        let phases = self.primaries.entry(placement[0]).or_default();
        phases.end(StripeId(number));
        self.waits.add(now_ms.saturating_sub(since_ms));
        self.group(&stripe, &waiting)
    }

    /// Exchanges chunks of a stripe after the commit of what waited, if the pool's rule says so.
    fn group(&mut self, stripe: &Stripe<'_>, committed: &Waiting) -> Result<(), LabError> {
        let is_possible = self.scheme.appends_by_rack();
        let Some(rule) = self.append.grouping.filter(|_| is_possible) else {
            return Ok(());
        };
        let topology = self.volume.topology();
        let ranges = committed.ranges();
        let mut updated: Vec<_> = ranges.iter().map(|part| part.chunk).collect();
        updated.dedup();
        if let Some(grouping) = cau::group(stripe, topology, &updated, rule) {
            let plan = cau::relocate(stripe, &grouping, stripe.geometry.chunk_bytes())?;
            Moved::add(&mut self.moved.grouping, crossing(&plan, topology));
            self.regrouped.insert(stripe.id.0, grouping.placement);
        }
        Ok(())
    }
}

fn crossing(plan: &Plan, topology: &Topology) -> u64 {
    Cost::of(plan, topology).cross_rack_bytes
}
