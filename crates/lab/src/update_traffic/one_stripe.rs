//! One update of one stripe: the least that it must send across racks, and what each scheme sends.

use super::chunk_set::ChunkSet;
use super::costs::stripe_at;
use super::counter::Options;
use super::layout::Stripes;
use super::moved::in_chunks;
use super::scheme::registry;
use super::touched::Batch;
use crate::error::LabError;
use gabion_codec::Code;
use gabion_layout::{ChunkIndex, Geometry};
use gabion_planner::Stripe;
use gabion_planner::bound::{self, Proof};
use gabion_planner::placement::Layout;
use serde::Serialize;
use std::collections::BTreeMap;

/// The least cost of one update of whole chunks of one stripe, and the cost by scheme.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StripeBound {
    /// The code.
    pub code: String,
    /// The layout.
    pub layout: String,
    /// Number of the stripe.
    pub stripe: u64,
    /// Data chunks that are updated.
    pub updated: Vec<u8>,
    /// Chunk transfers that no plan of the rack-coordinated form can do without.
    pub bound: f64,
    /// Chunk transfers that no plan of any form can do without, by cuts.
    pub cut_bound: f64,
    /// The ground on which `bound` holds: `reached` (it equals the bound by cuts), `exhausted` (all choices of
    /// collectors were tried) or `cuts` (a plan may need more).
    pub proof: &'static str,
    /// Chunk transfers by scheme.
    pub schemes: BTreeMap<&'static str, u64>,
}

/// Finds the bound of an update of the data chunks `updated` of stripe number `stripe`; of all of
/// them if none is named.
///
/// # Errors
/// When code, racks and layout do not fit each other, or a chunk is none of the stripe's data chunks.
pub fn bound(
    code: &Code,
    layout: Layout,
    racks: Option<u32>,
    stripe: u64,
    updated: &[ChunkIndex],
) -> Result<StripeBound, LabError> {
    let geometry = Geometry::new(
        code.k(),
        code.m(),
        code.sub_chunks(),
        code.sub_chunks() as u64,
    )?;
    let mut updated: Vec<ChunkIndex> = match updated {
        [] => geometry.data_chunks().collect(),
        named => named.to_vec(),
    };
    updated.sort_unstable();
    updated.dedup();
    if let Some(chunk) = updated.iter().find(|&&chunk| !geometry.is_data(chunk)) {
        return Err(LabError::NoDataChunk {
            chunk: chunk.0,
            code: code.to_string(),
            last: geometry.k() - 1,
        });
    }
    let stripes = Stripes::new(code.clone(), geometry, layout, racks)?;
    let placement = stripes.placement(stripe)?;
    let subject: Stripe<'_> = stripe_at(&stripes, stripe, &placement);
    let found = bound::least(&subject, stripes.topology(), &updated);
    let mut set = ChunkSet::default();
    for &data in &updated {
        set.insert(data);
    }
    let mut racks = vec![0; geometry.n()];
    stripes.racks(stripe, &mut racks)?;
    let batch = Batch {
        stripe,
        set,
        racks: &racks,
    };
    let mut schemes = BTreeMap::new();
    for known in registry().iter().filter(|known| known.is_at_once()) {
        let mut counted = known.open(Options::default());
        counted.write(&stripes, &batch)?;
        let moved = counted.finish(&stripes)?;
        schemes.insert(known.name, in_chunks(moved.update, geometry));
    }
    let chunks = |rows: u64| rows as f64 / code.sub_chunks() as f64;
    Ok(StripeBound {
        code: code.to_string(),
        layout: layout.to_string(),
        stripe,
        updated: updated.iter().map(|chunk| chunk.0).collect(),
        bound: chunks(found.rows),
        cut_bound: chunks(found.cut_rows),
        proof: match found.proof {
            Proof::Reached => "reached",
            Proof::Exhausted => "exhausted",
            Proof::Cuts => "cuts",
        },
        schemes,
    })
}
