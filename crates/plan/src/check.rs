//! The symbolic checker: runs a plan on symbols instead of bytes and proves that its result is the
//! one that the code requires for its goal.
//!
//! Every plan of every planner passes it, in tests for all codes and layouts, and in the servers
//! before a plan runs. It trusts nothing: a plan from a peer is checked like our own. For any
//! numbers in a plan, the check ends soon (see [`WORK_MAX`]) and never panics.

use crate::demand::demands;
use crate::effect::{Claim, Kind, Target, compare};
use crate::expression::{Expression, Symbol};
use crate::step::{Goal, Log, Logged, Plan, Step, Term, ValueId};
use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, Slices};
use std::rc::Rc;
use thiserror::Error;

/// Limit of the work to check a plan, in symbols handled. Repairs of the widest array codes and 64
/// MiB chunks in interleaved slices of 1 KiB need a tenth of it. It prevents a hostile plan, which
/// can name `2^60` slices in a few bytes, from blocking a server.
const WORK_MAX: u64 = 1 << 24;

/// Causes of a refused plan. Every variant means a bug in a planner or a hostile peer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CheckError {
    /// Plan and code have different geometries.
    #[error("the plan's geometry does not match {code}")]
    Geometry {
        /// The given code.
        code: String,
    },
    /// A step's streams, chunks or nodes are invalid.
    #[error("step {step} {reason}")]
    Malformed {
        /// Number of the step.
        step: usize,
        /// The reason.
        reason: &'static str,
    },
    /// The goal itself is invalid.
    #[error("the goal {reason}")]
    Goal {
        /// The reason.
        reason: &'static str,
    },
    /// Bytes are written twice.
    #[error("{chunk} bytes {}..{} are written twice", range.offset, range.end())]
    WrittenTwice {
        /// The chunk.
        chunk: ChunkIndex,
        /// Bytes of the chunk.
        range: ByteRange,
    },
    /// The plan changes bytes outside its goal.
    #[error("{chunk} bytes {}..{} are changed, but the goal does not name them", range.offset, range.end())]
    NotAsked {
        /// The chunk.
        chunk: ChunkIndex,
        /// Bytes of the chunk.
        range: ByteRange,
    },
    /// The plan omits bytes of its goal.
    #[error("{chunk} bytes {}..{} are required but never made", range.offset, range.end())]
    Missing {
        /// The chunk.
        chunk: ChunkIndex,
        /// Bytes of the chunk.
        range: ByteRange,
    },
    /// The bytes are not those that the code requires.
    #[error("{chunk} bytes {}..{} get {found}, but {demanded} is required", range.offset, range.end())]
    Wrong {
        /// The chunk.
        chunk: ChunkIndex,
        /// Bytes of the chunk.
        range: ByteRange,
        /// The plan's result, over data rows as `old(chunk,row)` and `new(chunk,row)`.
        found: String,
        /// The result that the code requires.
        demanded: String,
    },
}

/// Proves that a plan achieves its goal under `code`.
///
/// # Errors
/// The first flaw found; see [`CheckError`].
pub fn check(plan: &Plan, code: &Code) -> Result<(), CheckError> {
    check_shape(plan, code)?;
    let mut is_lost = [false; 256];
    for chunk in &plan.lost {
        is_lost[chunk.at()] = true;
    }
    let mut run = Run {
        plan,
        code,
        is_lost,
        values: Vec::with_capacity(plan.steps.len()),
        effects: vec![],
        logged: vec![],
        budget: Budget { left: WORK_MAX },
    };
    for (at, step) in plan.steps.iter().enumerate() {
        let value = run
            .step(step)
            .map_err(|reason| CheckError::Malformed { step: at, reason })?;
        run.values.push(value);
    }
    let mut demands = demands(plan, code, &mut run.budget)?;
    sum_demands(&run.effects, &mut demands);
    compare(run.effects, demands)
}

/// A parity chunk that gets one delta for all data chunks is compared with the sum of the demands
/// for each of them.
fn sum_demands(effects: &[Claim], demands: &mut [Claim]) {
    let mut is_summed = [false; 256];
    for effect in effects {
        if effect.target.kind == Kind::ParitySum {
            is_summed[effect.target.chunk.at()] = true;
        }
    }
    for demand in demands {
        let target = &mut demand.target;
        if matches!(target.kind, Kind::ParityLog { .. }) && is_summed[target.chunk.at()] {
            target.kind = Kind::ParitySum;
        }
    }
}

/// Checks that plan and code have the same geometry, and that it is a valid one: a geometry from
/// the wire was never validated.
fn check_shape(plan: &Plan, code: &Code) -> Result<(), CheckError> {
    let g = plan.geometry;
    let expected = Geometry::new(code.k(), code.m(), code.sub_chunks(), g.chunk_bytes());
    if expected == Ok(g) && plan.placement.len() == code.n() {
        Ok(())
    } else {
        Err(CheckError::Geometry {
            code: code.to_string(),
        })
    }
}

/// The remainder of [`WORK_MAX`].
pub(crate) struct Budget {
    left: u64,
}

/// The plan exceeds [`WORK_MAX`].
pub(crate) struct OverBudget;

impl Budget {
    /// Counts work before it is done.
    pub(crate) fn spend(&mut self, work: u64) -> Result<(), OverBudget> {
        self.left = self.left.checked_sub(work).ok_or(OverBudget)?;
        Ok(())
    }
}

impl From<OverBudget> for &'static str {
    fn from(_: OverBudget) -> Self {
        "makes the plan too large to check"
    }
}

/// A value in the check: its node, its bytes of a row, and their meaning.
struct Value {
    node: NodeId,
    /// Positions within the row, so that rows of different chunks can be compared.
    in_row: Slices,
    expression: Rc<Expression>,
}

struct Run<'a> {
    plan: &'a Plan,
    code: &'a Code,
    /// By chunk index.
    is_lost: [bool; 256],
    /// By step; none for steps that make no value.
    values: Vec<Option<Value>>,
    effects: Vec<Claim>,
    /// The goal's contents of logs, sorted, once a step recalls any.
    logged: Vec<Logged>,
    budget: Budget,
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<Option<Value>, &'static str> {
        self.budget.spend(1)?;
        match step {
            Step::Input {
                node,
                chunk,
                slices,
            } => self.input(*node, *chunk, *slices).map(Some),
            Step::Read {
                node,
                chunk,
                slices,
            } => self.read(*node, *chunk, *slices).map(Some),
            Step::Recall {
                node,
                log,
                chunk,
                slices,
            } => self.recall(*node, *log, *chunk, *slices).map(Some),
            Step::Combine { node, terms } => self.combine(*node, terms).map(Some),
            Step::Send { from, to, value } => {
                let sent = self.value(*value, *from)?;
                if from == to {
                    return Err("sends a value to the node that has it");
                }
                let (in_row, expression) = (sent.in_row, Rc::clone(&sent.expression));
                Ok(Some(Value {
                    node: *to,
                    in_row,
                    expression,
                }))
            }
            Step::Write {
                node,
                chunk,
                slices,
                value,
            } => self.effect(Kind::Write, *node, *chunk, *slices, *value),
            Step::Append {
                node,
                log,
                chunk,
                slices,
                value,
            } => {
                let (kind, is_copy) = match log {
                    Log::Journal => (Kind::Journal, false),
                    Log::Parity { data } => (Kind::ParityLog { data: *data }, false),
                    Log::ParitySum => (Kind::ParitySum, false),
                    Log::Replica => (Kind::Replica, true),
                    Log::Original => (Kind::Original, true),
                };
                let is_holder = self.plan.placement.get(chunk.at()) == Some(node);
                if is_holder == is_copy {
                    return Err("logs for a chunk that the node does not hold, or copies its own");
                }
                if !is_copy && self.is_lost[chunk.at()] {
                    return Err("logs for a chunk that is lost");
                }
                self.effect(kind, *node, *chunk, *slices, *value)
            }
            Step::Deliver {
                node,
                chunk,
                slices,
                value,
            } => self.effect(Kind::Deliver, *node, *chunk, *slices, *value),
        }
    }

    fn input(
        &self,
        node: NodeId,
        chunk: ChunkIndex,
        slices: Slices,
    ) -> Result<Value, &'static str> {
        let (row, in_row) = self.row_of(chunk, slices)?;
        if !self.plan.geometry.is_data(chunk) {
            return Err("takes new bytes for a parity chunk");
        }
        let expression = Rc::new(Expression::of(Symbol::new(chunk.at(), row)));
        Ok(Value {
            node,
            in_row,
            expression,
        })
    }

    fn read(
        &mut self,
        node: NodeId,
        chunk: ChunkIndex,
        slices: Slices,
    ) -> Result<Value, &'static str> {
        let (row, in_row) = self.row_of(chunk, slices)?;
        if !self.is_held(node, chunk)? {
            return Err("reads a chunk from a node that does not hold it");
        }
        if self.is_lost[chunk.at()] {
            return Err("reads a lost chunk");
        }
        match &self.plan.goal {
            Goal::Encode => return Err("reads a stripe that does not exist yet"),
            Goal::Commit { ranges, logged } => {
                self.budget.spend((ranges.len() + logged.len()) as u64)?;
                if !is_as_committed(ranges, logged, chunk, slices.span()) {
                    return Err("reads bytes that were overwritten since the last commit");
                }
            }
            _ => {}
        }
        let expression = Rc::new(Expression::stored(self.code, chunk, row));
        self.budget.spend(expression.len() as u64)?;
        Ok(Value {
            node,
            in_row,
            expression,
        })
    }

    /// Whether the node has the chunk before the plan runs: its own, or a replica in the goal.
    fn is_held(&mut self, node: NodeId, chunk: ChunkIndex) -> Result<bool, &'static str> {
        match &self.plan.goal {
            Goal::EncodeReplicas { replicas } | Goal::Convert { sources: replicas } => {
                self.budget.spend(replicas.len() as u64)?;
                Ok(replicas.contains(&(chunk, node)))
            }
            _ => Ok(self.plan.placement[chunk.at()] == node),
        }
    }

    fn recall(
        &mut self,
        node: NodeId,
        log: Log,
        chunk: ChunkIndex,
        slices: Slices,
    ) -> Result<Value, &'static str> {
        let (row, in_row) = self.row_of(chunk, slices)?;
        let (Goal::Commit { logged, .. } | Goal::ReadAppended { logged, .. }) = &self.plan.goal
        else {
            return Err(
                "recalls logged bytes, but the plan is neither a commit nor a read of them",
            );
        };
        let holds = self.plan.holds(node);
        if holds.is_some_and(|held| self.is_lost[held.at()]) {
            return Err("recalls from the node of a lost chunk");
        }
        if self.logged.is_empty() {
            self.budget.spend(logged.len() as u64)?;
            self.logged.clone_from(logged);
            self.logged.sort_unstable();
        }
        // Logs that keep the same bytes twice are refused in the end, so the last one that begins early enough decides.
        let key = |kept: &Logged| (kept.node, kept.log, kept.part.chunk, kept.part.range.offset);
        let wanted = (node, log, chunk, slices.offset);
        let next = self.logged.partition_point(|kept| key(kept) <= wanted);
        let kept = next.checked_sub(1).map(|last| self.logged[last]);
        let keeps = |kept: &Logged| {
            kept.node == node && kept.log == log && covers(kept.part, chunk, slices.span())
        };
        if !kept.is_some_and(|kept| keeps(&kept)) {
            return Err("recalls bytes that no log has");
        }
        let symbol = match log {
            Log::Journal | Log::Replica => Symbol::new(chunk.at(), row),
            Log::Original => Symbol::old(chunk.at(), row),
            Log::Parity { .. } | Log::ParitySum => {
                return Err("recalls deltas, which can only be merged");
            }
        };
        Ok(Value {
            node,
            in_row,
            expression: Rc::new(Expression::of(symbol)),
        })
    }

    fn combine(&mut self, node: NodeId, terms: &[Term]) -> Result<Value, &'static str> {
        let first = terms.first().ok_or("combines nothing")?;
        let in_row = self.value(first.value, node)?.in_row;
        let mut work = 0;
        for term in terms {
            let value = self.value(term.value, node)?;
            if value.in_row != in_row {
                return Err("combines bytes of different offsets");
            }
            work += 1 + value.expression.len() as u64;
        }
        self.budget.spend(work)?;
        let summands = terms.iter().filter_map(|term| {
            let value = self.values[term.value.at()].as_ref()?;
            Some((term.coefficient, &*value.expression))
        });
        let expression = Rc::new(Expression::sum(summands));
        Ok(Value {
            node,
            in_row,
            expression,
        })
    }

    fn effect(
        &mut self,
        kind: Kind,
        node: NodeId,
        chunk: ChunkIndex,
        slices: Slices,
        value: ValueId,
    ) -> Result<Option<Value>, &'static str> {
        let (_, in_row) = self.row_of(chunk, slices)?;
        let value = self.value(value, node)?;
        if value.in_row != in_row {
            return Err("puts bytes at a wrong offset");
        }
        let expression = Rc::clone(&value.expression);
        let node = (kind != Kind::Deliver).then_some(node);
        let target = Target { kind, chunk, node };
        let claim_work = 1 + expression.len() as u64;
        let work = Claim::count_of_stream(&slices).saturating_mul(claim_work);
        self.budget.spend(work)?;
        let claims = Claim::of_stream(target, slices, &expression);
        self.effects.extend(claims);
        Ok(None)
    }

    /// The value, if an earlier step made it and it is at `node`.
    fn value(&self, value: ValueId, node: NodeId) -> Result<&Value, &'static str> {
        let made = self.values.get(value.at()).and_then(Option::as_ref);
        let made = made.ok_or("uses a value that no earlier step makes")?;
        if made.node == node {
            Ok(made)
        } else {
            Err("uses a value that is at another node")
        }
    }

    /// The row that a stream lies in, and its positions within that row.
    fn row_of(&self, chunk: ChunkIndex, slices: Slices) -> Result<(usize, Slices), &'static str> {
        let geometry = self.plan.geometry;
        if chunk.at() >= geometry.n() {
            return Err("names a chunk that the stripe does not have");
        }
        if !slices.is_valid() {
            return Err("has an invalid stream of slices");
        }
        let span = slices.span();
        if span.end() > geometry.chunk_bytes() {
            return Err("exceeds the chunk");
        }
        let row_bytes = geometry.sub_chunk_bytes();
        let row = span.offset / row_bytes;
        if (span.end() - 1) / row_bytes != row {
            return Err("straddles two sub-chunks");
        }
        Ok((row as usize, slices.at(span.offset - row * row_bytes)))
    }
}

fn covers(part: ChunkRange, chunk: ChunkIndex, span: ByteRange) -> bool {
    part.chunk == chunk && part.range.offset <= span.offset && span.end() <= part.range.end()
}

/// Whether a chunk has its bytes as of the last commit: it was not changed there, or its journal
/// keeps the new bytes.
fn is_as_committed(
    ranges: &[ChunkRange],
    logged: &[Logged],
    chunk: ChunkIndex,
    span: ByteRange,
) -> bool {
    let changed = ranges.iter().filter(|part| part.chunk == chunk);
    let mut changed = changed.filter_map(|part| part.range.intersect(span));
    changed.all(|changed| {
        let journals = logged.iter().filter(|kept| kept.log == Log::Journal);
        let journals = journals.filter(|kept| kept.part.chunk == chunk);
        let journaled = journals.filter_map(|kept| kept.part.range.intersect(changed));
        ByteRange::union(journaled.collect()) == [changed]
    })
}
