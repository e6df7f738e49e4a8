//! Repair planners, and reads that need them. Each scheme says how one row of a lost chunk is
//! brought together at one node; repairs and degraded reads are the same thing with another end.

mod aggregate;
mod catch_up;
mod conventional;
mod cyclic;
mod degraded_read;
mod multi;
mod ppr;
mod rack_path;
mod recovery;
mod relocation;
pub(crate) mod rp;
mod selection;
mod weighted_path;

pub use aggregate::fewest_crossing_chunks;
pub use catch_up::{Touched, catch_up, missed};
pub use degraded_read::{helpers_by_distance, read};
pub use multi::{MultiScheme, repair_all, repair_together};
pub use rack_path::rack_aware_path;
pub use recovery::{Assignment, Bandwidths, Job, Schedule, balanced_recovery, greedy_recovery};
pub use relocation::move_chunk;
pub use selection::LeastRecentlySelected;
pub use weighted_path::{
    CANDIDATES_MAX, LinkWeights, WeightedPath, weighted_path, weighted_path_by_extension,
    weighted_path_to_all,
};

use crate::{PlanError, Stripe};
use gabion_codec::Equations;
use gabion_layout::{ByteRange, ChunkIndex, NodeId, Slices};
use gabion_plan::{Goal, Plan, PlanBuilder, ValueId};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How a lost chunk's bytes are brought together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Scheme {
    /// Every helper sends to the requestor, whose link carries the lost bytes as many times as
    /// there are helpers (`ECPipe` section 2.2).
    Conventional,
    /// The helpers form a chain and combine slice by slice as the bytes pass, so that each link
    /// carries the lost bytes once (`ECPipe` section 3.2).
    Pipeline,
    /// The helpers combine pairwise in rounds (PPR, `ECPipe` section 2.2).
    Ppr,
    /// The slices are dealt out to chains that begin at different helpers, so that the requestor
    /// reads from several nodes at once (`ECPipe` section 4.1).
    Cyclic,
}

impl Scheme {
    /// All schemes with their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("conventional", Self::Conventional),
        ("pipeline", Self::Pipeline),
        ("ppr", Self::Ppr),
        ("cyclic", Self::Cyclic),
    ];

    /// The names, for a sentence: `conventional, pipeline, ppr or cyclic`.
    pub fn names() -> String {
        let names = Self::NAMES.map(|(name, _)| name);
        let (last, others) = names.split_last().expect("there are schemes");
        format!("{} or {last}", others.join(", "))
    }
}

impl FromStr for Scheme {
    type Err = PlanError;

    fn from_str(name: &str) -> Result<Self, PlanError> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|&(_, scheme)| scheme).ok_or_else(|| {
            PlanError::Layout(format!(
                "'{name}' is not a repair scheme; use {}",
                Self::names()
            ))
        })
    }
}

/// What one helper adds to a row: values that it has read, with their coefficients.
type HelperReads = (NodeId, Vec<(u8, ValueId)>);

/// Some slices of a row of a lost chunk, brought together.
pub(crate) struct Part {
    /// Positions within the row.
    pub(crate) in_row: Slices,
    pub(crate) value: ValueId,
}

/// A row of a lost chunk, and the equation that gives it.
pub(crate) struct LostRow<'a> {
    pub(crate) equations: &'a Equations,
    /// Which of the equations' outputs, and which row of it.
    pub(crate) output: usize,
    pub(crate) row: usize,
    /// Positions within the row.
    pub(crate) in_row: Slices,
}

impl LostRow<'_> {
    /// The reads that the equation needs, helper by helper, with their coefficients. What another
    /// row has read already is not read again.
    fn reads(&self, b: &mut PlanBuilder, stripe: &Stripe<'_>) -> Vec<HelperReads> {
        let row_bytes = stripe.geometry.sub_chunk_bytes();
        let mut reads = Vec::with_capacity(self.equations.helpers.len());
        for (at, &helper) in self.equations.helpers.iter().enumerate() {
            let mut terms = Vec::new();
            for row in 0..stripe.geometry.sub_chunks() {
                let coefficient = self.equations.coefficient(self.output, self.row, at, row);
                if coefficient != 0 {
                    let slices = self.in_row.at(self.in_row.offset + row as u64 * row_bytes);
                    terms.push((coefficient, b.read_once(ChunkIndex::new(helper), slices)));
                }
            }
            if !terms.is_empty() {
                reads.push((stripe.placement[helper], terms));
            }
        }
        reads
    }

    /// How many helpers the equation reads anything of, for this row.
    fn helper_count(&self, sub_chunks: usize) -> usize {
        let adds = |&at: &usize| {
            let coefficient = |row| self.equations.coefficient(self.output, self.row, at, row);
            (0..sub_chunks).any(|row| coefficient(row) != 0)
        };
        (0..self.equations.helpers.len()).filter(adds).count()
    }
}

/// Brings a row of a lost chunk together at a node, in one part or several.
pub(crate) fn reconstruct(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    scheme: Scheme,
    row: &LostRow<'_>,
    at: NodeId,
) -> Vec<Part> {
    let value = match scheme {
        Scheme::Conventional => conventional::reconstruct(b, stripe, row, at),
        Scheme::Pipeline => rp::reconstruct(b, stripe, row, at),
        Scheme::Ppr => ppr::reconstruct(b, stripe, row, at),
        Scheme::Cyclic => return cyclic::reconstruct(b, stripe, row, at),
    };
    let in_row = row.in_row;
    vec![Part { in_row, value }]
}

/// Plans the repair of one lost chunk onto `requestor`, in slices of at most `slice_bytes`.
/// `helpers` lists the chunks that may help, the preferred ones first; the code takes as few of
/// them as it can. A pipeline runs through them in that order.
///
/// # Errors
/// [`PlanError::NotEnoughHelpers`] when the chunks named do not determine the lost one.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{ChunkIndex, Geometry, NodeId, StripeId, Topology};
/// use gabion_plan::{Cost, check};
/// use gabion_planner::repair::{Scheme, helpers_by_distance, repair};
/// use gabion_planner::Stripe;
///
/// let (code, topology) = ("rs(4,2)".parse::<Code>().unwrap(), Topology::uniform(7, 1));
/// let placement: Vec<NodeId> = (0..6).map(NodeId).collect();
/// let lost = [ChunkIndex(2)];
/// let stripe = Stripe {
///     id: StripeId(1),
///     code: &code,
///     geometry: Geometry::new(4, 2, 1, 1 << 20).unwrap(),
///     placement: &placement,
///     lost: &lost,
/// };
/// let requestor = NodeId(6);
/// let helpers = helpers_by_distance(&stripe, requestor, &topology);
/// let busiest_link_bytes = |scheme| {
///     let plan = repair(&stripe, lost[0], requestor, &helpers, scheme, 32 << 10).unwrap();
///     check(&plan, &code).unwrap();
///     Cost::of(&plan, &topology).busiest_link_bytes()
/// };
/// assert_eq!(busiest_link_bytes(Scheme::Conventional), 4 << 20);
/// assert_eq!(busiest_link_bytes(Scheme::Pipeline), 1 << 20);
/// ```
pub fn repair(
    stripe: &Stripe<'_>,
    lost: ChunkIndex,
    requestor: NodeId,
    helpers: &[ChunkIndex],
    scheme: Scheme,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let helpers: Vec<usize> = helpers
        .iter()
        .filter(|c| !stripe.lost.contains(c))
        .map(|c| c.at())
        .collect();
    let candidates = stripe.code.repair_equations(lost.at(), &helpers)?;
    let equations = &candidates[0];
    let row_bytes = stripe.geometry.sub_chunk_bytes();
    let mut b = stripe.builder();
    for row in 0..stripe.geometry.sub_chunks() {
        let in_row = Slices::contiguous(ByteRange::new(0, row_bytes), slice_bytes);
        let lost_row = LostRow {
            equations,
            output: 0,
            row,
            in_row,
        };
        for part in reconstruct(&mut b, stripe, scheme, &lost_row, requestor) {
            let offset = row as u64 * row_bytes + part.in_row.offset;
            b.write(lost, part.in_row.at(offset), part.value);
        }
    }
    Ok(b.finish(Goal::Repair {
        chunks: vec![(lost, requestor)],
    }))
}
