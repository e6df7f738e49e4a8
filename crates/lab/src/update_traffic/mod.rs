//! The experiment of CAU (section 5.1) and `RackCU` (section IV-A): how many chunks each update
//! scheme moves across racks when a trace's writes are applied to stripes.
//!
//! Writes count, reads do not. A write touches chunks `offset / C` to `(offset + size - 1) / C`, and
//! each of them is updated as a whole; chunk `c` is data chunk `c mod k` of stripe `c / k`. The
//! traffic comes from planning these updates and costing the plans, never from a formula.

mod baseline;
mod batches;
mod bounds;
mod cau;
mod chunk_set;
mod costs;
mod in_bytes;
mod layout;
mod one_stripe;
mod parix;
mod scheme;

pub use chunk_set::ChunkSet;
pub use in_bytes::{ByteReport, ByteTraffic, Pace, StoredFile, Volume, Waits, count_bytes};
pub use layout::{Layout, Stripes};
pub use one_stripe::{StripeBound, bound};
pub use scheme::{SchemeEntry, TrafficCounter, registry, scheme, scheme_names};

use crate::error::LabError;
use crate::trace::{Request, RequestKind};
use bounds::Bounds;
use costs::Place;
use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry, GroupingRule};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Chunk sizes that are counted. A request touches a bounded number of chunks of the least size, and
/// the cost of one update of the most stays far below 2^64 bytes.
const CHUNK_BYTES: RangeInclusive<u64> = 512..=1 << 30;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// What the result calls the trace.
    pub trace: String,
    /// The code.
    pub code: Code,
    /// Racks of the topology; for layouts with racks of their own, none or as many as they have.
    pub racks: Option<u32>,
    /// How stripes are laid out.
    pub layout: Layout,
    /// Bytes of a chunk, from 512 to 2^30.
    pub chunk_bytes: u64,
    /// Names of the update schemes to count; see [`registry`].
    pub schemes: Vec<String>,
    /// What the schemes leave open.
    pub options: Options,
}

/// Settings of the schemes that let parity wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Stripes that may have appended updates before a commit, `u_s`.
    pub stripes_max: u64,
    /// Interim replicas of each appended chunk.
    pub replicas: usize,
    /// When data grouping moves chunks after a commit; never if none.
    pub grouping: Option<GroupingRule>,
}

impl Default for Options {
    /// The defaults of CAU's section 5.1, but without data grouping.
    fn default() -> Self {
        Self {
            stripes_max: 100,
            replicas: 1,
            grouping: None,
        }
    }
}

/// One data chunk that a write touches, and with it updates as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChunkUpdate {
    /// Number of the stripe, counted from the volume's first byte.
    pub stripe: u64,
    /// The data chunk.
    pub data: ChunkIndex,
}

/// Bytes that one scheme moved from one rack to another, by what for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// By updates that bring parity up to date at once, or log what it needs.
    pub update: u128,
    /// By interim replicas; none for schemes that have none.
    pub replica: Option<u128>,
    /// By commits; none for schemes without.
    pub commit: Option<u128>,
    /// By data grouping; none for schemes without.
    pub grouping: Option<u128>,
    /// The least that a scheme with the same commits must move, its replicas included; none for
    /// schemes that are measured against updates at once.
    pub bound: Option<Least>,
}

impl Moved {
    /// What a scheme moved that does everything at once.
    pub const fn at_once(update: u128) -> Self {
        Self {
            update,
            replica: None,
            commit: None,
            grouping: None,
            bound: None,
        }
    }

    /// Adds bytes to one of the purposes.
    fn add(purpose: &mut Option<u128>, bytes: u64) {
        *purpose = Some(purpose.unwrap_or(0) + u128::from(bytes));
    }
}

/// The least bytes that must cross racks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Least {
    /// The bytes.
    pub bytes: u128,
    /// Whether some of it is by cuts alone, so that perhaps no plan does with so little.
    pub is_loose: bool,
}

impl Least {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.is_loose |= other.is_loose;
    }
}

/// What one scheme moved, in chunk transfers from one rack to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SchemeTraffic {
    /// All of them.
    pub cross_rack_chunks: u64,
    /// Interim replicas, of schemes that have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<u64>,
    /// Commits, of schemes that have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    /// Data grouping, of schemes that have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grouping: Option<u64>,
}

/// The least that can cross racks, for one scheme's way of taking updates together.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct BoundTraffic {
    /// Chunk transfers that no plan of the rack-coordinated form can do without.
    pub cross_rack_chunks: u64,
    /// Whether plans of that form exist that need no more.
    pub is_exact: bool,
    /// What the scheme moved over this; 1 is the least there is, and none where nothing must move.
    pub ratio: Option<f64>,
}

/// The answer. Its JSON form has the fields in this order.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The trace's name, as asked.
    pub trace: String,
    /// Chunks updated; a chunk counts once for each write that touches it.
    pub chunk_updates: u64,
    /// Traffic by scheme.
    pub schemes: BTreeMap<&'static str, SchemeTraffic>,
    /// The code.
    pub code: String,
    /// Racks of the topology.
    pub racks: u32,
    /// The layout.
    pub layout: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Write requests in the trace.
    pub writes: u64,
    /// Bounds by scheme.
    pub bounds: BTreeMap<&'static str, BoundTraffic>,
}

/// Applies a trace's writes to stripes under each scheme and counts what crosses racks.
///
/// # Errors
/// The trace's first error; [`LabError::UnknownScheme`], [`LabError::NoScheme`] or [`LabError::NoWrites`]; when code, racks,
/// layout and chunk size do not fit each other, the error that says which do not.
pub fn count(
    question: &Question,
    requests: impl IntoIterator<Item = Result<Request, LabError>>,
) -> Result<Report, LabError> {
    let code = &question.code;
    if !CHUNK_BYTES.contains(&question.chunk_bytes) {
        return Err(LabError::ChunkBytes {
            chunk_bytes: question.chunk_bytes,
            least_bytes: *CHUNK_BYTES.start(),
            most_bytes: *CHUNK_BYTES.end(),
        });
    }
    let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), question.chunk_bytes)?;
    let stripes = Stripes::new(code.clone(), geometry, question.layout, question.racks)?;
    let entries = scheme::chosen(&question.schemes)?;
    let open = |entry: &SchemeEntry| entry.open(question.options);
    let mut schemes: Vec<Box<dyn TrafficCounter>> = entries.iter().map(open).collect();
    let (mut least, mut least_at_once) = (Bounds::default(), Least::default());
    let (mut writes, mut chunk_updates) = (0, 0);
    let mut touched = Vec::new();
    for request in requests {
        let request = request?;
        if request.kind == RequestKind::Read {
            continue;
        }
        writes += 1;
        touched.clear();
        touched.extend(chunks_touched(&request, geometry));
        chunk_updates += touched.len() as u64;
        for scheme in &mut schemes {
            scheme.write(&stripes, &touched)?;
        }
        for (stripe, set) in batches(&touched) {
            let place = Place {
                stripe,
                moved: None,
            };
            least_at_once.add(least.least(&stripes, place, set)?);
        }
    }
    if writes == 0 {
        return Err(LabError::NoWrites);
    }
    let (mut traffic, mut bounds) = (BTreeMap::new(), BTreeMap::new());
    for (entry, scheme) in entries.iter().zip(schemes) {
        let moved = scheme.finish(&stripes)?;
        let scheme = traffic_of(moved, geometry);
        traffic.insert(entry.name, scheme);
        let least = moved.bound.unwrap_or(least_at_once);
        let bound = in_chunks(least.bytes, geometry);
        let ratio = scheme.cross_rack_chunks as f64 / bound as f64;
        let bound = BoundTraffic {
            cross_rack_chunks: bound,
            is_exact: !least.is_loose,
            ratio: (bound > 0).then_some(ratio),
        };
        bounds.insert(entry.name, bound);
    }
    Ok(Report {
        trace: question.trace.clone(),
        chunk_updates,
        schemes: traffic,
        code: code.to_string(),
        racks: stripes.rack_count(),
        layout: question.layout.to_string(),
        chunk_bytes: question.chunk_bytes,
        writes,
        bounds,
    })
}

/// One write's updates, stripe by stripe.
fn batches(touched: &[ChunkUpdate]) -> impl Iterator<Item = (u64, ChunkSet)> {
    let stripes = touched.chunk_by(|a, b| a.stripe == b.stripe);
    stripes.map(|updates| {
        let mut set = ChunkSet::default();
        for update in updates {
            set.insert(update.data);
        }
        (updates[0].stripe, set)
    })
}

/// The data chunks that a request touches, in order.
fn chunks_touched(request: &Request, geometry: Geometry) -> impl Iterator<Item = ChunkUpdate> {
    let (first, last) = (request.offset_bytes, request.end_bytes() - 1);
    let k = geometry.k() as u64;
    (first / geometry.chunk_bytes()..=last / geometry.chunk_bytes()).map(move |chunk| ChunkUpdate {
        stripe: chunk / k,
        data: ChunkIndex::new((chunk % k) as usize),
    })
}

fn traffic_of(moved: Moved, geometry: Geometry) -> SchemeTraffic {
    let chunks = |bytes: Option<u128>| bytes.map(|bytes| in_chunks(bytes, geometry));
    let purposes = [moved.replica, moved.commit, moved.grouping];
    let deferred: u128 = purposes.into_iter().flatten().sum();
    SchemeTraffic {
        cross_rack_chunks: in_chunks(moved.update + deferred, geometry),
        replica: chunks(moved.replica),
        commit: chunks(moved.commit),
        grouping: chunks(moved.grouping),
    }
}

/// Array codes may move some of a chunk's rows alone; a part of a chunk in total counts as one.
fn in_chunks(crossing_bytes: u128, geometry: Geometry) -> u64 {
    crossing_bytes.div_ceil(u128::from(geometry.chunk_bytes())) as u64
}
