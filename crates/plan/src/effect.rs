//! The effects of a plan, range by range, compared with the goal's demands.
//!
//! A chunk's bytes are cut at every border of an effect or a demand; on each piece between two
//! borders all of them are constant, so comparing the pieces compares every byte.

use crate::check::CheckError;
use crate::expression::Expression;
use gabion_layout::{ByteRange, ChunkIndex, Geometry, NodeId, Slices};
use std::rc::Rc;

/// The kind of an effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// A write in place or of a new chunk.
    Write,
    /// New bytes in a journal.
    Journal,
    /// A delta of one data chunk in a parity log. Several add up, but those of each data chunk are
    /// compared with the demand separately, because a parity node recognises resent deltas by their
    /// data chunk.
    ParityLog {
        /// The data chunk of the log entry.
        data: ChunkIndex,
    },
    /// One delta in a parity log for all data chunks that the plan changes.
    ParitySum,
    /// New bytes of a data chunk on another node.
    Replica,
    /// Bytes of a data chunk as of the last commit on another node.
    Original,
    /// Bytes delivered to the initiator.
    Deliver,
}

/// The target of effects that are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) chunk: ChunkIndex,
    /// None for bytes delivered to the initiator, at whichever node.
    pub(crate) node: Option<NodeId>,
}

/// One effect or demand on a range of a target, all of it in one row of the chunk.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) target: Target,
    pub(crate) range: ByteRange,
    /// Shared by the slices of a stream and the values that were sent on unchanged.
    pub(crate) expression: Rc<Expression>,
}

impl Claim {
    /// Number of claims of a stream: one if its slices touch, one a slice otherwise.
    pub(crate) const fn count_of_stream(slices: &Slices) -> u64 {
        if slices.is_contiguous() {
            1
        } else {
            slices.count
        }
    }

    /// The claims of a stream. The caller has checked [`Claim::count_of_stream`] against the
    /// budget.
    pub(crate) fn of_stream(
        target: Target,
        slices: Slices,
        expression: &Rc<Expression>,
    ) -> impl Iterator<Item = Self> {
        let count = Self::count_of_stream(&slices);
        (0..count).map(move |t| Self {
            target,
            range: if count == 1 {
                slices.span()
            } else {
                slices.slice(t)
            },
            expression: Rc::clone(expression),
        })
    }

    /// One claim for each row of a whole chunk.
    pub(crate) fn of_chunk(
        target: Target,
        geometry: Geometry,
        row_expression: impl Fn(usize) -> Expression,
    ) -> impl Iterator<Item = Self> {
        let row_bytes = geometry.sub_chunk_bytes();
        (0..geometry.sub_chunks()).map(move |row| Self {
            target,
            range: ByteRange::new(row as u64 * row_bytes, row_bytes),
            expression: Rc::new(row_expression(row)),
        })
    }
}

/// Compares all effects with all demands.
pub(crate) fn compare(mut effects: Vec<Claim>, mut demands: Vec<Claim>) -> Result<(), CheckError> {
    let key = |claim: &Claim| (claim.target, claim.range.offset);
    effects.sort_by_key(key);
    demands.sort_by_key(key);
    let (mut effects, mut demands) = (effects.as_slice(), demands.as_slice());
    while let Some(target) = first_target(effects, demands) {
        let effect_count = effects.partition_point(|c| c.target <= target);
        let demand_count = demands.partition_point(|c| c.target <= target);
        compare_target(target, &effects[..effect_count], &demands[..demand_count])?;
        effects = &effects[effect_count..];
        demands = &demands[demand_count..];
    }
    Ok(())
}

fn first_target(effects: &[Claim], demands: &[Claim]) -> Option<Target> {
    let effect = effects.first().map(|c| c.target);
    let demand = demands.first().map(|c| c.target);
    match (effect, demand) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Both lists are sorted by offset. Sweeps over the borders with the open claims.
fn compare_target(target: Target, effects: &[Claim], demands: &[Claim]) -> Result<(), CheckError> {
    let mut borders: Vec<u64> = effects
        .iter()
        .chain(demands)
        .flat_map(|claim| [claim.range.offset, claim.range.end()])
        .collect();
    borders.sort_unstable();
    borders.dedup();
    let mut effect_sweep = Sweep::new(effects);
    let mut demand_sweep = Sweep::new(demands);
    for pair in borders.windows(2) {
        let piece = ByteRange::new(pair[0], pair[1] - pair[0]);
        effect_sweep.advance(piece.offset);
        demand_sweep.advance(piece.offset);
        let (effect_count, demand_count) = (effect_sweep.open_count, demand_sweep.open_count);
        let chunk = target.chunk;
        if effect_count > 1 && !matches!(target.kind, Kind::ParityLog { .. }) {
            return Err(CheckError::WrittenTwice {
                chunk,
                range: piece,
            });
        }
        if demand_count == 0 && effect_count > 0 {
            return Err(CheckError::NotAsked {
                chunk,
                range: piece,
            });
        }
        if effect_count == 0 && demand_count > 0 {
            return Err(CheckError::Missing {
                chunk,
                range: piece,
            });
        }
        if effect_sweep.sum != demand_sweep.sum {
            return Err(CheckError::Wrong {
                chunk,
                range: piece,
                found: effect_sweep.sum.describe(),
                demanded: demand_sweep.sum.describe(),
            });
        }
    }
    Ok(())
}

/// Walks along the claims of a target and keeps the sum of those that cover the current position.
/// Each claim is added once where it starts and removed once where it ends, so many claims on the
/// same bytes cost no more than many claims side by side.
struct Sweep<'a> {
    /// Claims that start further up, by offset.
    starting: &'a [Claim],
    /// Claims that end further up, by their end.
    ending: Vec<&'a Claim>,
    open_count: usize,
    sum: Expression,
}

impl<'a> Sweep<'a> {
    /// `claims` are sorted by offset.
    fn new(claims: &'a [Claim]) -> Self {
        let mut ending: Vec<&Claim> = claims.iter().collect();
        ending.sort_by_key(|claim| std::cmp::Reverse(claim.range.end()));
        Self {
            starting: claims,
            ending,
            open_count: 0,
            sum: Expression::default(),
        }
    }

    /// Moves to `position`; claims that end there are removed, those that start there are added.
    fn advance(&mut self, position: u64) {
        while let Some(claim) = self.ending.pop_if(|claim| claim.range.end() <= position) {
            self.open_count -= 1;
            self.sum.add(&claim.expression);
        }
        while let [claim, rest @ ..] = self.starting
            && claim.range.offset <= position
        {
            self.open_count += 1;
            self.sum.add(&claim.expression);
            self.starting = rest;
        }
    }
}
