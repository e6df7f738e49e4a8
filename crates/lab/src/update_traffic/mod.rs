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
mod counter;
mod grouping;
mod hashing;
mod in_bytes;
mod layout;
mod moved;
mod one_stripe;
mod parix;
mod patterns;
mod pool_stripes;
mod rack_table;
mod scheme;
mod touched;

pub use chunk_set::ChunkSet;
pub use counter::{Options, TrafficCounter};
pub use gabion_planner::placement::Layout;
pub use in_bytes::{ByteReport, ByteTraffic, Pace, StoredFile, Volume, Waits, count_bytes};
pub use layout::Stripes;
pub use moved::{Least, Moved};
pub use one_stripe::{StripeBound, bound};
pub use pool_stripes::PoolStripes;
pub use scheme::{SchemeEntry, registry, scheme, scheme_names};
pub use touched::Batch;

use crate::error::LabError;
use crate::trace::{Request, RequestKind};
use bounds::Bounds;
use gabion_codec::Code;
use gabion_layout::Geometry;
use moved::in_chunks;
use rack_table::RackTable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use touched::stripes_touched;

/// Chunk sizes that are counted. A request touches a bounded number of chunks of the least size, and
/// the cost of one update of the most stays far below 2^64 bytes.
const CHUNK_BYTES: RangeInclusive<u64> = 512..=1 << 30;

/// The parameters of a count.
#[derive(Clone, Debug)]
pub struct Question {
    /// The trace's name in the result.
    pub trace: String,
    /// The code.
    pub code: Code,
    /// Racks of the topology; for layouts with racks of their own, none or as many as they have.
    pub racks: Option<u32>,
    /// The layout of stripes.
    pub layout: Layout,
    /// Bytes of a chunk, from 512 to 2^30.
    pub chunk_bytes: u64,
    /// Names of the update schemes to count; see [`registry`].
    pub schemes: Vec<String>,
    /// The settings that the schemes leave open.
    pub options: Options,
}

/// The traffic of one scheme, in chunk transfers from one rack to another.
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
    /// The scheme's traffic over this; 1 is the least there is, and none if nothing must move.
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
/// The trace's first error; [`LabError::UnknownScheme`], [`LabError::NoScheme`] or [`LabError::NoWrites`]; when code,
/// racks, layout and chunk size do not fit each other, the error that says which do not.
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
    let mut table = RackTable::new(&stripes)?;
    let (mut reads, mut writes, mut chunk_updates) = (0, 0, 0);
    for request in requests {
        let request = request?;
        if request.kind == RequestKind::Read {
            reads += 1;
            continue;
        }
        writes += 1;
        for (stripe, set) in stripes_touched(&request, geometry) {
            chunk_updates += set.count() as u64;
            let racks = table.racks(&stripes, stripe)?;
            let batch = Batch { stripe, set, racks };
            for scheme in &mut schemes {
                scheme.write(&stripes, &batch)?;
            }
            least_at_once.add(least.least(&stripes, racks, set));
        }
    }
    if writes == 0 {
        return Err(LabError::NoWrites {
            trace: question.trace.clone(),
            requests: reads,
        });
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
