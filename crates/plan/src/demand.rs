//! The demands of a goal on a plan's effects: the bytes of chunks and logs that must be made, and
//! their meaning under the code.

use crate::check::{Budget, CheckError, OverBudget};
use crate::effect::{Claim, Kind, Target};
use crate::expression::{Expression, Symbol};
use crate::step::{Goal, Log, Logged, Plan, Step};
use gabion_codec::{Code, Family};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId};
use std::rc::Rc;

impl From<OverBudget> for CheckError {
    fn from(_: OverBudget) -> Self {
        goal_error("names too many bytes to check")
    }
}

const fn goal_error(reason: &'static str) -> CheckError {
    CheckError::Goal { reason }
}

/// All demands of the plan's goal, unordered.
pub(crate) fn demands(
    plan: &Plan,
    code: &Code,
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    match &plan.goal {
        Goal::Update { ranges } if journals_copies(plan, code) => {
            copy_demands(plan, ranges, budget)
        }
        Goal::Update { ranges } => {
            let mut claims = parity_demands(plan, code, ranges, budget)?;
            // Only the parity chunks have the new bytes of a lost chunk.
            let is_there = |part: &&ChunkRange| !plan.lost.contains(&part.chunk);
            let there: Vec<ChunkRange> = ranges.iter().filter(is_there).copied().collect();
            claims.extend(journal_demands(plan, &there, budget)?);
            Ok(claims)
        }
        Goal::Append { ranges, copies } => append_demands(plan, ranges, copies, budget),
        Goal::Commit { ranges, logged } => {
            check_logged(plan, ranges, logged, budget)?;
            let mut claims = parity_demands(plan, code, ranges, budget)?;
            // The commit merges a data node's journaled bytes into its chunk.
            let journaled = logged.iter().filter(|kept| kept.log == Log::Journal);
            let journaled: Vec<ChunkRange> = journaled.map(|kept| kept.part).collect();
            claims.extend(journal_demands(plan, &journaled, budget)?);
            Ok(claims)
        }
        Goal::Encode => encode_demands(plan, code),
        Goal::EncodeReplicas { replicas } => encode_replicas_demands(plan, code, replicas, budget),
        Goal::Convert { sources } => {
            check_replicas(plan, sources, budget)?;
            Ok(whole_chunks(plan, plan.geometry.chunks(), |chunk, row| {
                Expression::stored(code, chunk, row)
            }))
        }
        Goal::Repair { chunks } | Goal::Move { chunks } => repair_demands(plan, code, chunks),
        Goal::CatchUp { node, ranges } => catch_up_demands(plan, code, *node, ranges, budget),
        Goal::Read { ranges } => read_demands(plan, code, ranges, budget),
        Goal::ReadAppended { ranges, logged } => {
            appended_demands(plan, code, ranges, logged, budget)
        }
    }
}

/// Each chunk that is not lost must be written whole at its node. These must determine the stripe.
fn encode_demands(plan: &Plan, code: &Code) -> Result<Vec<Claim>, CheckError> {
    let stored = plan.geometry.chunks();
    let stored: Vec<ChunkIndex> = stored.filter(|c| !plan.lost.contains(c)).collect();
    let numbers: Vec<usize> = stored.iter().map(|chunk| chunk.at()).collect();
    if !code.is_sufficient(&numbers) {
        return Err(goal_error("stores fewer chunks than the code needs"));
    }
    Ok(whole_chunks(plan, stored.into_iter(), |chunk, row| {
        Expression::encoded(code, chunk, row)
    }))
}

/// Each of the given chunks must be written whole at its node, with these rows.
fn whole_chunks(
    plan: &Plan,
    chunks: impl Iterator<Item = ChunkIndex>,
    row_of: impl Fn(ChunkIndex, usize) -> Expression,
) -> Vec<Claim> {
    let (g, row_of) = (plan.geometry, &row_of);
    let claims = chunks.flat_map(|chunk| {
        let target = stored_at(Kind::Write, chunk, plan.placement[chunk.at()]);
        Claim::of_chunk(target, g, move |row| row_of(chunk, row))
    });
    claims.collect()
}

/// Checks that replicas are of data chunks and named once each; returns them sorted.
fn check_replicas(
    plan: &Plan,
    replicas: &[(ChunkIndex, NodeId)],
    budget: &mut Budget,
) -> Result<Vec<(ChunkIndex, NodeId)>, CheckError> {
    budget.spend(replicas.len() as u64)?;
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    let g = plan.geometry;
    if sorted.iter().any(|(chunk, _)| !g.is_data(*chunk)) {
        return Err(goal_error(
            "names replicas of a chunk that is not a data chunk",
        ));
    }
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(goal_error("names one replica twice"));
    }
    Ok(sorted)
}

/// Each chunk must be written whole at its node, except data chunks with a replica there.
fn encode_replicas_demands(
    plan: &Plan,
    code: &Code,
    replicas: &[(ChunkIndex, NodeId)],
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    let sorted = check_replicas(plan, replicas, budget)?;
    let mut claims = Vec::new();
    for chunk in g.chunks() {
        let node = plan.placement[chunk.at()];
        if sorted.binary_search(&(chunk, node)).is_err() {
            let target = stored_at(Kind::Write, chunk, node);
            claims.extend(Claim::of_chunk(target, g, |row| {
                Expression::stored(code, chunk, row)
            }));
        }
    }
    Ok(claims)
}

/// Each named chunk must be written whole at the named node.
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
    let target = |chunk| Target {
        kind: Kind::Deliver,
        chunk,
        node: None,
    };
    stored_demands(plan, code, ranges, target, budget)
}

/// Each range must be delivered: as it is stored, except for new bytes where any log has some.
fn appended_demands(
    plan: &Plan,
    code: &Code,
    ranges: &[ChunkRange],
    logged: &[Logged],
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    check_ranges(plan, ranges, g.n())?;
    check_logged(plan, ranges, logged, budget)?;
    if logged.iter().any(|kept| !g.is_data(kept.part.chunk)) {
        return Err(goal_error("has appended bytes of a parity chunk"));
    }
    let target = |chunk| Target {
        kind: Kind::Deliver,
        chunk,
        node: None,
    };
    let (mut stored, mut claims) = (Vec::new(), Vec::new());
    for part in ranges {
        budget.spend(logged.len() as u64)?;
        let is_new = |kept: &&Logged| kept.log != Log::Original && kept.part.chunk == part.chunk;
        let new = logged.iter().filter(is_new);
        let new = new.filter_map(|kept| kept.part.range.intersect(part.range));
        let mut at = part.range.offset;
        for range in ByteRange::union(new.collect()) {
            let chunk = part.chunk;
            if at < range.offset {
                let range = ByteRange::new(at, range.offset - at);
                stored.push(ChunkRange { chunk, range });
            }
            at = range.end();
            let new = ChunkRange { chunk, range };
            claim_rows(plan, new, target(chunk), Symbol::new, budget, &mut claims)?;
        }
        if at < part.range.end() {
            let range = ByteRange::new(at, part.range.end() - at);
            let chunk = part.chunk;
            stored.push(ChunkRange { chunk, range });
        }
    }
    claims.extend(stored_demands(plan, code, &stored, target, budget)?);
    Ok(claims)
}

/// Each range, all of one chunk, must be written at the node as it should be stored.
fn catch_up_demands(
    plan: &Plan,
    code: &Code,
    node: NodeId,
    ranges: &[ChunkRange],
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    if ranges.iter().any(|part| part.chunk != ranges[0].chunk) {
        return Err(goal_error("brings several chunks up to date at one node"));
    }
    let target = |chunk| stored_at(Kind::Write, chunk, node);
    stored_demands(plan, code, ranges, target, budget)
}

/// The stored bytes of each range must reach their target.
fn stored_demands(
    plan: &Plan,
    code: &Code,
    ranges: &[ChunkRange],
    target: impl Fn(ChunkIndex) -> Target,
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    check_ranges(plan, ranges, g.n())?;
    let mut claims = Vec::new();
    for part in ranges {
        let target = target(part.chunk);
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

/// Each range must be journaled at its chunk's node.
fn journal_demands(
    plan: &Plan,
    ranges: &[ChunkRange],
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    check_ranges(plan, ranges, plan.geometry.k())?;
    let mut claims = Vec::new();
    for &part in ranges {
        let target = stored_at(Kind::Journal, part.chunk, plan.placement[part.chunk.at()]);
        claim_rows(plan, part, target, Symbol::new, budget, &mut claims)?;
    }
    Ok(claims)
}

/// Whether a plan changes copies by their new bytes, and not by deltas.
fn journals_copies(plan: &Plan, code: &Code) -> bool {
    let is_copy = |step: &Step| match step {
        Step::Append {
            log: Log::Journal,
            chunk,
            ..
        } => !plan.geometry.is_data(*chunk),
        _ => false,
    };
    matches!(code.family(), Family::Replication { .. }) && plan.steps.iter().any(is_copy)
}

/// Each range must be journaled for every chunk that is left: all chunks of a replicated stripe are copies.
fn copy_demands(
    plan: &Plan,
    ranges: &[ChunkRange],
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    check_ranges(plan, ranges, g.k())?;
    let left = g.chunks().filter(|chunk| !plan.lost.contains(chunk));
    let left: Vec<ChunkIndex> = left.collect();
    if left.is_empty() {
        return Err(goal_error("changes a stripe whose data is lost"));
    }
    let mut claims = Vec::new();
    for &part in ranges {
        for &copy in &left {
            let target = stored_at(Kind::Journal, copy, plan.placement[copy.at()]);
            claim_rows(plan, part, target, Symbol::new, budget, &mut claims)?;
        }
    }
    Ok(claims)
}

/// Each range must be journaled, and each copy kept at the goal's node.
fn append_demands(
    plan: &Plan,
    ranges: &[ChunkRange],
    copies: &[Logged],
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    let mut claims = journal_demands(plan, ranges, budget)?;
    check_logged(plan, ranges, copies, budget)?;
    for copy in copies {
        let (kind, symbol): (Kind, fn(usize, usize) -> Symbol) = match copy.log {
            Log::Replica => (Kind::Replica, Symbol::new),
            Log::Original => (Kind::Original, Symbol::old),
            _ => {
                return Err(goal_error(
                    "names a copy in a log that does not hold copies",
                ));
            }
        };
        let target = stored_at(kind, copy.part.chunk, copy.node);
        claim_rows(plan, copy.part, target, symbol, budget, &mut claims)?;
    }
    Ok(claims)
}

/// Demands that a target gets each row of a part unchanged, in the version of `symbol`.
fn claim_rows(
    plan: &Plan,
    part: ChunkRange,
    target: Target,
    symbol: fn(usize, usize) -> Symbol,
    budget: &mut Budget,
    claims: &mut Vec<Claim>,
) -> Result<(), CheckError> {
    let g = plan.geometry;
    for range in g.split_rows(part.range) {
        budget.spend(2)?;
        let row = (range.offset / g.sub_chunk_bytes()) as usize;
        let expression = Rc::new(Expression::of(symbol(part.chunk.at(), row)));
        claims.push(Claim {
            target,
            range,
            expression,
        });
    }
    Ok(())
}

/// Logged bytes must be of changed ranges, in logs and at nodes that can keep them, and named once.
fn check_logged(
    plan: &Plan,
    ranges: &[ChunkRange],
    logged: &[Logged],
    budget: &mut Budget,
) -> Result<(), CheckError> {
    budget.spend((ranges.len() as u64).saturating_mul(logged.len() as u64))?;
    for kept in logged {
        let is_holder = plan.placement.get(kept.part.chunk.at()) == Some(&kept.node);
        match kept.log {
            Log::Journal if is_holder => {}
            Log::Replica | Log::Original if !is_holder => {}
            _ => return Err(goal_error("names a log that cannot keep the bytes")),
        }
        let (range, changed) = (kept.part.range, |part: &ChunkRange| {
            part.chunk == kept.part.chunk
                && part.range.offset <= kept.part.range.offset
                && kept.part.range.end() <= part.range.end()
        });
        if range.is_empty() || !ranges.iter().any(changed) {
            return Err(goal_error("keeps bytes that do not change"));
        }
    }
    let mut sorted = logged.to_vec();
    sorted.sort_unstable();
    let overlaps = |pair: &[Logged]| {
        (pair[0].node, pair[0].log, pair[0].part.chunk)
            == (pair[1].node, pair[1].log, pair[1].part.chunk)
            && pair[0].part.range.end() > pair[1].part.range.offset
    };
    if sorted.windows(2).any(overlaps) {
        return Err(goal_error("keeps the same bytes twice in one log"));
    }
    Ok(())
}

/// Each parity row must get the sum of the changes of all data rows that it depends on, for any
/// range of the row. Lost parity chunks have no demands, and nothing may be logged for them; but
/// the remaining chunks must suffice to recover all new bytes.
fn parity_demands(
    plan: &Plan,
    code: &Code,
    ranges: &[ChunkRange],
    budget: &mut Budget,
) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    check_ranges(plan, ranges, g.k())?;
    let mut is_there = [true; 256];
    for chunk in &plan.lost {
        is_there[chunk.at()] = false;
    }
    if !plan.lost.is_empty() {
        let left: Vec<usize> = (0..g.n()).filter(|&chunk| is_there[chunk]).collect();
        if !code.is_sufficient(&left) {
            return Err(goal_error("changes a stripe whose data is lost"));
        }
    }
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
                if !is_there[parity.at()] {
                    continue;
                }
                let node = plan.placement[parity.at()];
                let terms = [(change.coefficient, &new), (change.coefficient, &old)];
                let offset = change.row as u64 * row_bytes + offset_in_row;
                claims.push(Claim {
                    target: stored_at(Kind::ParityLog { data }, parity, node),
                    range: ByteRange::new(offset, range.length),
                    expression: Rc::new(Expression::sum(terms.into_iter())),
                });
            }
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
