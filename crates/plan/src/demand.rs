//! What a goal demands of a plan's effects: which bytes of which chunks and logs must be made, and
//! what they must mean under the code.

use crate::check::{Budget, OverBudget};
use crate::effect::{Claim, Kind, Target};
use crate::expression::{Expression, Symbol};
use crate::{CheckError, Goal, Plan};
use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId};
use std::rc::Rc;

impl From<OverBudget> for CheckError {
    fn from(_: OverBudget) -> Self {
        goal_error("names more than any plan does that makes sense")
    }
}

const fn goal_error(reason: &'static str) -> CheckError {
    CheckError::Goal { reason }
}

/// All demands of the plan's goal, in no order.
pub(crate) fn demands(
    plan: &Plan,
    code: &Code,
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    match &plan.goal {
        Goal::Update { ranges } => update_demands(plan, code, ranges, budget),
        Goal::Encode => Ok(encode_demands(plan, code)),
        Goal::Repair { chunks } => repair_demands(plan, code, chunks),
        Goal::Read { ranges } => read_demands(plan, code, ranges, budget),
    }
}

/// Each chunk must be written whole where it belongs.
fn encode_demands(plan: &Plan, code: &Code) -> Vec<Claim> {
    let g = plan.geometry;
    let claims = g.chunks().flat_map(|chunk| {
        let target = stored_at(Kind::Write, chunk, plan.placement[chunk.at()]);
        Claim::of_chunk(target, g, move |row| Expression::encoded(code, chunk, row))
    });
    claims.collect()
}

/// Each chunk named must be written whole at the node named.
fn repair_demands(
    plan: &Plan,
    code: &Code,
    chunks: &[(ChunkIndex, NodeId)],
) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    let mut is_named = [false; 256];
    let mut claims = Vec::new();
    for &(chunk, node) in chunks {
        if chunk.at() >= g.n() {
            return Err(goal_error("repairs a chunk that does not exist"));
        }
        if std::mem::replace(&mut is_named[chunk.at()], true) {
            return Err(goal_error("repairs one chunk twice"));
        }
        let target = stored_at(Kind::Write, chunk, node);
        claims.extend(Claim::of_chunk(target, g, |row| {
            Expression::stored(code, chunk, row)
        }));
    }
    Ok(claims)
}

/// Each range must be delivered as it is stored.
fn read_demands(
    plan: &Plan,
    code: &Code,
    ranges: &[ChunkRange],
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    check_ranges(plan, ranges, g.n())?;
    let mut claims = Vec::new();
    for part in ranges {
        let target = Target {
            kind: Kind::Deliver,
            chunk: part.chunk,
            node: None,
        };
        for range in g.split_rows(part.range) {
            let row = (range.offset / g.sub_chunk_bytes()) as usize;
            let expression = Rc::new(Expression::stored(code, part.chunk, row));
            budget.spend(1 + expression.len() as u64)?;
            claims.push(Claim {
                target,
                range,
                expression,
            });
        }
    }
    Ok(claims)
}

/// Each range must be journaled where its chunk is, and each parity row must get the sum of the
/// changes of all data rows that it depends on, wherever those changes lie in the row.
fn update_demands(
    plan: &Plan,
    code: &Code,
    ranges: &[ChunkRange],
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    check_ranges(plan, ranges, g.k())?;
    let row_bytes = g.sub_chunk_bytes();
    let mut claims = Vec::new();
    for part in ranges {
        let data = part.chunk;
        for range in g.split_rows(part.range) {
            budget.spend((1 + g.m() * g.sub_chunks()) as u64)?;
            let row = (range.offset / row_bytes) as usize;
            let offset_in_row = range.offset % row_bytes;
            let old = Expression::of(Symbol::old(data.at(), row));
            let new = Expression::of(Symbol::new(data.at(), row));
            for change in code.delta_rows(data.at(), row) {
                let parity = ChunkIndex::new(change.chunk);
                let node = plan.placement[parity.at()];
                let terms = [(change.coefficient, &new), (change.coefficient, &old)];
                let offset = change.row as u64 * row_bytes + offset_in_row;
                claims.push(Claim {
                    target: stored_at(Kind::ParityLog { data }, parity, node),
                    range: ByteRange::new(offset, range.length),
                    expression: Rc::new(Expression::sum(terms.into_iter())),
                });
            }
            claims.push(Claim {
                target: stored_at(Kind::Journal, data, plan.placement[data.at()]),
                range,
                expression: Rc::new(new),
            });
        }
    }
    Ok(claims)
}

const fn stored_at(kind: Kind, chunk: ChunkIndex, node: NodeId) -> Target {
    Target {
        kind,
        chunk,
        node: Some(node),
    }
}

/// The ranges must be of the first `chunk_count` chunks, lie in them and not overlap.
fn check_ranges(plan: &Plan, ranges: &[ChunkRange], chunk_count: usize) -> Result<(), CheckError> {
    let chunk_bytes = plan.geometry.chunk_bytes();
    for part in ranges {
        if part.chunk.at() >= chunk_count {
            return Err(goal_error("names a chunk that it cannot have"));
        }
        if part.range.is_empty() || part.range.end() > chunk_bytes {
            return Err(goal_error("names bytes outside the chunk"));
        }
    }
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let overlaps = |pair: &[ChunkRange]| {
        pair[0].chunk == pair[1].chunk && pair[0].range.end() > pair[1].range.offset
    };
    if sorted.windows(2).any(overlaps) {
        return Err(goal_error("names the same bytes twice"));
    }
    Ok(())
}
