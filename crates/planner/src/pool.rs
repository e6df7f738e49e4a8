//! The consequences of a pool's promise for its stripes: the rack limit, and a default code.

use crate::PlanError;
use gabion_codec::Code;
use gabion_layout::{Survive, Topology};
use std::collections::BTreeSet;

/// The widest stripe that is chosen unasked: wider ones save little space and cost much in repair.
const MAX_DATA_CHUNKS: usize = 12;
/// The most chunks that a stripe of any code has.
const MAX_CHUNKS: usize = 255;
/// Parity chunks that are chosen unasked where racks allow it, so that a stripe that has lost a
/// node while a rack is in repair still has something left.
const USUAL_PARITY_CHUNKS: usize = 3;

/// The most chunks of one stripe that a rack may hold so that `survive` is kept.
///
/// # Errors
/// [`PlanError::WeakCode`] when no limit keeps it.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_planner::pool::chunks_per_rack;
///
/// let code: Code = "rs(6,3)".parse().unwrap();
/// assert_eq!(chunks_per_rack(&code, "1-rack".parse().unwrap()), Ok(3));
/// assert_eq!(chunks_per_rack(&code, "2-racks".parse().unwrap()), Ok(1));
/// assert_eq!(chunks_per_rack(&code, "3-nodes".parse().unwrap()), Ok(9));
/// assert!(chunks_per_rack(&code, "4-nodes".parse().unwrap()).is_err());
/// ```
pub fn chunks_per_rack(code: &Code, survive: Survive) -> Result<usize, PlanError> {
    let survived = code.failures_survived();
    let limit = match survive {
        Survive::Nodes(nodes) if survived >= nodes as usize => code.n(),
        Survive::Nodes(_) => 0,
        // A pool that promises to survive no rack may put all chunks into one.
        Survive::Racks(racks) => survived.checked_div(racks as usize).unwrap_or(code.n()),
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
///
/// ```
/// use gabion_layout::Topology;
/// use gabion_planner::pool::{choose_code, fit};
///
/// let (survive, topology) = ("1-rack".parse().unwrap(), Topology::uniform(3, 4));
/// let code = choose_code(survive, &topology).unwrap();
/// assert_eq!(code.to_string(), "rs(6,3)");
/// assert_eq!(fit(&code, survive, &topology), Ok(3), "three chunks a rack, a node to spare");
/// ```
pub fn choose_code(survive: Survive, topology: &Topology) -> Result<Code, PlanError> {
    let impossible = |advice| PlanError::Impossible {
        survive,
        racks: topology.nodes_by_rack().len(),
        nodes: topology.nodes().len(),
        advice,
    };
    let (k, m) = match survive {
        Survive::Nodes(0) | Survive::Racks(0) => {
            return Err(impossible("promise to survive at least one failure"));
        }
        Survive::Nodes(failures) => shape_for_nodes(failures as usize, topology)
            .ok_or_else(|| impossible("use more nodes than may fail"))?,
        Survive::Racks(failures) => shape_for_racks(failures as usize, topology)
            .ok_or_else(|| impossible("use more racks than may fail"))?,
    };
    Code::reed_solomon(k, m).map_err(PlanError::from)
}

/// Data and parity chunks for `failures` nodes that fail, with a node to spare where there is one.
fn shape_for_nodes(failures: usize, topology: &Topology) -> Option<(usize, usize)> {
    let widest = MAX_DATA_CHUNKS.min(MAX_CHUNKS.checked_sub(failures)?);
    let others = topology.nodes().len().checked_sub(failures)?;
    let k = match others {
        0 | 1 => others,
        _ => others - 1,
    };
    (k.min(widest) >= 1).then_some((k.min(widest), failures))
}

/// Data and parity chunks for `failures` racks that fail. A node to spare in each rack is worth
/// more than parity chunks beyond the promise, and both are reduced before the share of data is.
fn shape_for_racks(failures: usize, topology: &Topology) -> Option<(usize, usize)> {
    let data_racks = topology.nodes_by_rack().len().checked_sub(failures)?;
    let most = USUAL_PARITY_CHUNKS.div_ceil(failures);
    let candidates = [1, 0]
        .into_iter()
        .flat_map(|spare| (1..=most).rev().map(move |per_rack| (spare, per_rack)));
    let mut shapes = candidates.filter_map(|(spare, per_rack)| {
        let m = failures * per_rack;
        let widest = MAX_DATA_CHUNKS.min(MAX_CHUNKS.checked_sub(m)?);
        let k = room(topology, per_rack, spare).checked_sub(m)?.min(widest);
        // A rack that cannot take its share would make the stripe narrower than racks allow.
        let wide_enough = (data_racks * per_rack).min(widest);
        (k >= 1 && k >= wide_enough).then_some((k, m))
    });
    shapes.next()
}

/// Chunks that fit when a rack holds at most `per_rack` and keeps `spare` nodes free.
fn room(topology: &Topology, per_rack: usize, spare: usize) -> usize {
    let racks = topology.nodes_by_rack();
    racks
        .values()
        .map(|nodes| nodes.len().saturating_sub(spare).min(per_rack))
        .sum()
}

/// The cost of a pool, for the choice of one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PoolCost {
    /// Data bytes of each stored byte: `k / n` without reserves.
    pub usable_share: f64,
    /// Stored bytes over the stored bytes of three replicas.
    pub share_of_three_replicas: f64,
    /// Chunks that a small update of one chunk writes: the data chunk and its parity chunks.
    pub chunk_writes_per_update: usize,
}

impl PoolCost {
    /// The cost of a code; of its data chunks, the one with the dearest updates counts.
    ///
    /// ```
    /// use gabion_planner::pool::PoolCost;
    ///
    /// let cost = PoolCost::of(&"rs(6,3)".parse().unwrap());
    /// assert_eq!((cost.share_of_three_replicas, cost.chunk_writes_per_update), (0.5, 4));
    /// ```
    pub fn of(code: &Code) -> Self {
        let touched = |data: usize| {
            let targets = (0..code.sub_chunks()).map(|row| {
                let parities = code.delta_rows(data, row).into_iter();
                parities.map(|target| target.chunk).collect::<BTreeSet<_>>()
            });
            targets.map(|parities| parities.len()).max().unwrap_or(0)
        };
        let (k, n) = (code.k() as f64, code.n() as f64);
        Self {
            usable_share: k / n,
            share_of_three_replicas: n / k / 3.0,
            chunk_writes_per_update: 1 + (0..code.k()).map(touched).max().unwrap_or(0),
        }
    }

    /// The cost once parity chunks have reserves of `reserved_share` bytes for each byte of data.
    ///
    /// ```
    /// use gabion_planner::pool::PoolCost;
    ///
    /// let cost = PoolCost::of(&"rs(4,2)".parse().unwrap()).with_reserves(0.5);
    /// assert_eq!((cost.usable_share, cost.share_of_three_replicas), (0.5, 2.0 / 3.0));
    /// ```
    #[must_use]
    pub fn with_reserves(self, reserved_share: f64) -> Self {
        let stored = 1.0 / self.usable_share + reserved_share;
        Self {
            usable_share: 1.0 / stored,
            share_of_three_replicas: stored / 3.0,
            ..self
        }
    }
}
