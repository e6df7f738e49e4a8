//! What a pool's promise means for its stripes: the rack limit, and a code when none is given.

use crate::PlanError;
use gabion_codec::Code;
use gabion_layout::{Survive, Topology};

/// The widest stripe that is chosen unasked: wider ones save little space and cost much in repair.
const MAX_DATA_CHUNKS: usize = 12;
/// Parity chunks that are chosen unasked where racks allow it, so that a stripe that has lost a
/// node while a rack is in repair still has something left.
const USUAL_PARITY_CHUNKS: usize = 3;

/// The most chunks of one stripe that a rack may hold so that `survive` is kept.
///
/// # Errors
/// [`PlanError::WeakCode`] when no limit keeps it.
pub fn chunks_per_rack(code: &Code, survive: Survive) -> Result<usize, PlanError> {
    let survived = code.failures_survived();
    let limit = match survive {
        Survive::Nodes(nodes) if survived >= nodes as usize => code.n(),
        Survive::Nodes(_) => 0,
        Survive::Racks(racks) => survived / racks as usize,
    };
    if limit == 0 {
        return Err(PlanError::WeakCode {
            code: code.to_string(),
            survived,
            survive,
        });
    }
    Ok(limit)
}

/// Checks that a stripe of `code` fits the topology under `survive`, and gives the rack limit.
///
/// # Errors
/// [`PlanError::WeakCode`] or [`PlanError::NoRoom`].
pub fn fit(code: &Code, survive: Survive, topology: &Topology) -> Result<usize, PlanError> {
    let per_rack = chunks_per_rack(code, survive)?;
    let room = room(topology, per_rack, 0);
    if room < code.n() {
        return Err(PlanError::NoRoom {
            chunks: code.n(),
            per_rack,
            room,
        });
    }
    Ok(per_rack)
}

/// Chooses a Reed-Solomon code for a promise: the widest data share that the racks allow, three
/// parity chunks where that costs no share, and a spare node a rack for repair where there is one.
///
/// # Errors
/// [`PlanError::Impossible`] when the topology is too small for any code.
pub fn choose_code(survive: Survive, topology: &Topology) -> Result<Code, PlanError> {
    let racks = topology.nodes_by_rack().len();
    let nodes = topology.nodes().len();
    let impossible = |advice| PlanError::Impossible {
        survive,
        racks,
        nodes,
        advice,
    };
    let shape = match survive {
        Survive::Nodes(failures) => {
            let m = failures as usize;
            let k = [1, 0]
                .map(|spare| nodes.saturating_sub(m + spare))
                .into_iter()
                .find(|&k| k >= 1);
            k.map(|k| (k.min(MAX_DATA_CHUNKS), m))
                .ok_or_else(|| impossible("use more nodes than may fail"))?
        }
        Survive::Racks(failures) => {
            let failures = failures as usize;
            if racks <= failures {
                return Err(impossible("use more racks than may fail"));
            }
            let candidates = [1, 0].into_iter().flat_map(|spare| {
                let most = USUAL_PARITY_CHUNKS.div_ceil(failures).max(1);
                (1..=most).rev().map(move |per_rack| (spare, per_rack))
            });
            let mut shapes = candidates.filter_map(|(spare, per_rack)| {
                let m = failures * per_rack;
                let k = room(topology, per_rack, spare).checked_sub(m)?;
                let full = k.min(MAX_DATA_CHUNKS);
                // A rack that cannot take its share would make the stripe narrower than racks allow.
                let wide_enough = full >= (racks - failures).min(MAX_DATA_CHUNKS) * per_rack
                    || full == MAX_DATA_CHUNKS;
                (full >= 1 && wide_enough).then_some((full, m))
            });
            shapes
                .next()
                .ok_or_else(|| impossible("use racks of equal size or more of them"))?
        }
    };
    Code::reed_solomon(shape.0, shape.1).map_err(PlanError::from)
}

/// Chunks that fit when a rack holds at most `per_rack` and keeps `spare` nodes free.
fn room(topology: &Topology, per_rack: usize, spare: usize) -> usize {
    let racks = topology.nodes_by_rack();
    racks
        .values()
        .map(|nodes| nodes.len().saturating_sub(spare).min(per_rack))
        .sum()
}

/// What a pool costs, for people who choose one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PoolCost {
    /// Data bytes of each stored byte, `k / n`.
    pub usable_share: f64,
    /// Stored bytes over the stored bytes of three replicas.
    pub share_of_three_replicas: f64,
    /// Chunks that a small update of one chunk writes: the data chunk and its parity chunks.
    pub chunk_writes_per_update: usize,
}

impl PoolCost {
    /// The cost of a code; of its data chunks, the one with the dearest updates counts.
    pub fn of(code: &Code) -> Self {
        let touched = |data: usize| {
            let mut parities: Vec<usize> = code
                .delta_rows(data, 0)
                .iter()
                .map(|target| target.chunk)
                .collect();
            parities.dedup();
            parities.len()
        };
        let (k, n) = (code.k() as f64, code.n() as f64);
        Self {
            usable_share: k / n,
            share_of_three_replicas: n / k / 3.0,
            chunk_writes_per_update: 1 + (0..code.k()).map(touched).max().unwrap_or(0),
        }
    }
}
