//! The experiment of CAU (section 5.1) and `RackCU` (section IV-A): how many chunks each update
//! scheme moves across racks when a trace's writes are applied to stripes.
//!
//! Writes count, reads do not. A write touches chunks `offset / C` to `(offset + size - 1) / C`, and
//! each of them is updated as a whole; chunk `c` is data chunk `c mod k` of stripe `c / k`. The
//! traffic comes from planning these updates and costing the plans, never from a formula.

mod baseline;
mod layout;
mod scheme;

pub use layout::{Layout, Stripes};
pub use scheme::{Scheme, SchemeEntry, registry, scheme};

use crate::error::LabError;
use crate::trace::{Request, RequestKind};
use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry};
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
}

/// One data chunk that a write touches, and with it updates as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChunkUpdate {
    /// Number of the stripe, counted from the volume's first byte.
    pub stripe: u64,
    /// The data chunk.
    pub data: ChunkIndex,
}

/// What one scheme moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SchemeTraffic {
    /// Chunk transfers from one rack to another.
    pub cross_rack_chunks: u64,
}

/// The answer. Its JSON form has the fields in this order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
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
}

/// Applies a trace's writes to stripes under each scheme and counts what crosses racks.
///
/// # Errors
/// The trace's first error; [`LabError::UnknownScheme`] or [`LabError::NoScheme`]; when code, racks,
/// layout and chunk size do not fit each other, the error that says which do not.
///
/// # Panics
/// When a scheme's plans move a fraction of a chunk in total, which would be a bug of its planner.
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
    let mut schemes: Vec<Box<dyn Scheme>> = entries.iter().map(|entry| (entry.open)()).collect();
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
    }
    let mut traffic = BTreeMap::new();
    for (entry, scheme) in entries.iter().zip(schemes) {
        traffic.insert(entry.name, in_chunks(scheme.finish(&stripes)?, geometry));
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

fn in_chunks(cross_rack_bytes: u128, geometry: Geometry) -> SchemeTraffic {
    let chunk_bytes = u128::from(geometry.chunk_bytes());
    assert!(
        cross_rack_bytes.is_multiple_of(chunk_bytes),
        "updates of whole chunks move whole chunks"
    );
    SchemeTraffic {
        cross_rack_chunks: (cross_rack_bytes / chunk_bytes) as u64,
    }
}
