//! What a plan leaves behind, range by range, and whether it is what the goal demands.
//!
//! A chunk's bytes are cut at every border that an effect or a demand has; on each piece between
//! two borders all of them are constant, so comparing piece by piece compares every byte.

use crate::CheckError;
use crate::expression::Expression;
use gabion_layout::{ByteRange, ChunkIndex, Geometry, NodeId, Slices};

/// How an effect changes what is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// A write in place or of a new chunk.
    Write,
    /// New bytes in a journal.
    Journal,
    /// A delta in a parity log: several add up.
    ParityLog,
    /// Bytes handed to the asker.
    Deliver,
}

/// Where effects land that are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) chunk: ChunkIndex,
    /// None for bytes handed to the asker, who is wherever the plan says.
    pub(crate) node: Option<NodeId>,
}

/// One effect or demand on a range of a target, all of it in one row of the chunk.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) target: Target,
    pub(crate) range: ByteRange,
    pub(crate) expression: Expression,
}

impl Claim {
    /// The claims of a stream: one if its slices touch, one a slice otherwise.
    pub(crate) fn of_stream(target: Target, slices: Slices, expression: &Expression) -> Vec<Self> {
        let claim = |range| Self {
            target,
            range,
            expression: expression.clone(),
        };
        if slices.is_contiguous() {
            vec![claim(slices.span())]
        } else {
            (0..slices.count).map(|t| claim(slices.slice(t))).collect()
        }
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
            expression: row_expression(row),
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

/// Both lists are sorted by offset. Sweeps over the borders with the claims that are open.
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
        let (effect_count, effect) = effect_sweep.at(piece.offset);
        let (demand_count, demand) = demand_sweep.at(piece.offset);
        let chunk = target.chunk;
        if effect_count > 1 && target.kind != Kind::ParityLog {
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
        if effect != demand {
            return Err(CheckError::Wrong {
                chunk,
                range: piece,
                found: effect.describe(),
                demanded: demand.describe(),
            });
        }
    }
    Ok(())
}

/// Walks up a sorted list of claims and sums those that cover the current position.
struct Sweep<'a> {
    waiting: &'a [Claim],
    open: Vec<&'a Claim>,
}

impl<'a> Sweep<'a> {
    fn new(waiting: &'a [Claim]) -> Self {
        Self {
            waiting,
            open: Vec::new(),
        }
    }

    fn at(&mut self, position: u64) -> (usize, Expression) {
        self.open.retain(|claim| claim.range.end() > position);
        while let [first, rest @ ..] = self.waiting
            && first.range.offset <= position
        {
            self.open.push(first);
            self.waiting = rest;
        }
        let mut sum = Expression::default();
        for claim in &self.open {
            sum.add(1, &claim.expression);
        }
        (self.open.len(), sum)
    }
}
