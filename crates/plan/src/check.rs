//! The symbolic checker: runs a plan on symbols instead of bytes and proves that what it leaves
//! behind is what the code demands for its goal.
//!
//! Every planner's every plan passes it, in tests for all codes and layouts, and in the servers
//! before a plan runs. It trusts nothing: a plan from a peer is checked like our own.

use crate::effect::{Claim, Kind, Target, compare};
use crate::expression::{Expression, Symbol};
use crate::{Goal, Log, Plan, Step, Term, ValueId};
use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, Slices};
use thiserror::Error;

/// Why a plan is refused. Every variant means a bug in a planner or a peer that lies.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CheckError {
    /// Plan and code do not belong together.
    #[error("the plan's geometry is not that of {code}")]
    Geometry {
        /// The code that was given.
        code: String,
    },
    /// A step's streams, chunks or nodes make no sense.
    #[error("step {step} {reason}")]
    Malformed {
        /// Number of the step.
        step: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The goal itself makes no sense.
    #[error("the goal {reason}")]
    Goal {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Bytes end up with two meanings.
    #[error("{chunk} bytes {}..{} are written twice", range.offset, range.end())]
    WrittenTwice {
        /// The chunk.
        chunk: ChunkIndex,
        /// Bytes of the chunk.
        range: ByteRange,
    },
    /// The plan touches what its goal does not name.
    #[error("{chunk} bytes {}..{} are changed although the goal does not ask for it", range.offset, range.end())]
    NotAsked {
        /// The chunk.
        chunk: ChunkIndex,
        /// Bytes of the chunk.
        range: ByteRange,
    },
    /// The plan leaves out what its goal names.
    #[error("{chunk} bytes {}..{} are demanded but never made", range.offset, range.end())]
    Missing {
        /// The chunk.
        chunk: ChunkIndex,
        /// Bytes of the chunk.
        range: ByteRange,
    },
    /// The bytes are not what the code demands.
    #[error("{chunk} bytes {}..{} get {found} where {demanded} is demanded", range.offset, range.end())]
    Wrong {
        /// The chunk.
        chunk: ChunkIndex,
        /// Bytes of the chunk.
        range: ByteRange,
        /// What the plan makes, over data rows as `old(chunk,row)` and `new(chunk,row)`.
        found: String,
        /// What the code demands.
        demanded: String,
    },
}

/// Proves that a plan does what its goal says under `code`.
///
/// # Errors
/// The first flaw found; see [`CheckError`].
pub fn check(plan: &Plan, code: &Code) -> Result<(), CheckError> {
    let g = plan.geometry;
    if (g.k(), g.m(), g.sub_chunks()) != (code.k(), code.m(), code.sub_chunks())
        || plan.placement.len() != g.n()
    {
        return Err(CheckError::Geometry {
            code: code.to_string(),
        });
    }
    let mut run = Run {
        plan,
        code,
        values: Vec::with_capacity(plan.steps.len()),
        effects: vec![],
    };
    for (at, step) in plan.steps.iter().enumerate() {
        let value = run
            .step(step)
            .map_err(|reason| CheckError::Malformed { step: at, reason })?;
        run.values.push(value);
    }
    let demands = demands(plan, code)?;
    compare(run.effects, demands)
}

/// What a value is: where, which bytes of a row, and what they mean.
struct Value {
    node: NodeId,
    /// Positions within the row, so that rows of different chunks can be compared.
    in_row: Slices,
    expression: Expression,
}

struct Run<'a> {
    plan: &'a Plan,
    code: &'a Code,
    /// One entry a step; none for steps that make no value.
    values: Vec<Option<Value>>,
    effects: Vec<Claim>,
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<Option<Value>, &'static str> {
        match step {
            Step::Input {
                node,
                chunk,
                slices,
            } => {
                let (row, in_row) = self.row_of(*chunk, *slices)?;
                if !self.plan.geometry.is_data(*chunk) {
                    return Err("takes new bytes for a parity chunk");
                }
                let expression = Expression::of(Symbol::new(chunk.at(), row));
                Ok(Some(Value {
                    node: *node,
                    in_row,
                    expression,
                }))
            }
            Step::Read {
                node,
                chunk,
                slices,
            } => {
                let (row, in_row) = self.row_of(*chunk, *slices)?;
                if self.plan.placement[chunk.at()] != *node {
                    return Err("reads a chunk from a node that does not hold it");
                }
                if self.plan.lost.contains(chunk) {
                    return Err("reads a lost chunk");
                }
                if self.plan.goal == Goal::Encode {
                    return Err("reads a stripe that is only being made");
                }
                let expression = Expression::stored(self.code, *chunk, row);
                Ok(Some(Value {
                    node: *node,
                    in_row,
                    expression,
                }))
            }
            Step::Combine { node, terms } => self.combine(*node, terms).map(Some),
            Step::Send { from, to, value } => {
                let sent = self.value(*value, *from)?;
                if from == to {
                    return Err("sends a value to the node that has it");
                }
                let (in_row, expression) = (sent.in_row, sent.expression.clone());
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
                if self.plan.placement.get(chunk.at()) != Some(node) {
                    return Err("logs for a chunk that the node does not hold");
                }
                let kind = match log {
                    Log::Journal => Kind::Journal,
                    Log::Parity { data } if self.plan.geometry.is_data(*data) => Kind::ParityLog,
                    Log::Parity { .. } => return Err("logs a delta of something that is no data"),
                };
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

    fn combine(&self, node: NodeId, terms: &[Term]) -> Result<Value, &'static str> {
        let first = terms.first().ok_or("combines nothing")?;
        let in_row = self.value(first.value, node)?.in_row;
        let mut expression = Expression::default();
        for term in terms {
            let value = self.value(term.value, node)?;
            if value.in_row != in_row {
                return Err("combines bytes of different places");
            }
            expression.add(term.coefficient, &value.expression);
        }
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
            return Err("puts bytes where they do not belong");
        }
        let node = (kind != Kind::Deliver).then_some(node);
        let target = Target { kind, chunk, node };
        let claims = Claim::of_stream(target, slices, &value.expression);
        self.effects.extend(claims);
        Ok(None)
    }

    /// The value, if it was made before and is at `node`.
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
            return Err("has a stream of slices that makes no sense");
        }
        let span = slices.span();
        if span.end() > geometry.chunk_bytes() {
            return Err("leaves the chunk");
        }
        let row_bytes = geometry.sub_chunk_bytes();
        let row = span.offset / row_bytes;
        if (span.end() - 1) / row_bytes != row {
            return Err("straddles two sub-chunks");
        }
        Ok((row as usize, slices.at(span.offset - row * row_bytes)))
    }
}

/// What the goal demands of the plan's effects.
fn demands(plan: &Plan, code: &Code) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    match &plan.goal {
        Goal::Update { ranges } => update_demands(plan, code, ranges),
        Goal::Encode => Ok(g
            .chunks()
            .flat_map(|chunk| {
                let node = Some(plan.placement[chunk.at()]);
                let target = Target {
                    kind: Kind::Write,
                    chunk,
                    node,
                };
                Claim::of_chunk(target, g, move |row| Expression::encoded(code, chunk, row))
            })
            .collect()),
        Goal::Repair { chunks } => {
            if chunks.iter().any(|(chunk, _)| chunk.at() >= g.n()) {
                return Err(CheckError::Goal {
                    reason: "repairs a chunk that does not exist",
                });
            }
            let claims = chunks.iter().flat_map(|&(chunk, node)| {
                let target = Target {
                    kind: Kind::Write,
                    chunk,
                    node: Some(node),
                };
                Claim::of_chunk(target, g, move |row| Expression::stored(code, chunk, row))
            });
            Ok(claims.collect())
        }
        Goal::Read { ranges } => {
            check_ranges(plan, ranges, g.n())?;
            let claims = ranges.iter().flat_map(|part| {
                let target = Target {
                    kind: Kind::Deliver,
                    chunk: part.chunk,
                    node: None,
                };
                g.split_rows(part.range).into_iter().map(move |range| {
                    let row = (range.offset / g.sub_chunk_bytes()) as usize;
                    let expression = Expression::stored(code, part.chunk, row);
                    Claim {
                        target,
                        range,
                        expression,
                    }
                })
            });
            Ok(claims.collect())
        }
    }
}

/// Each range must be journaled where its chunk is, and each parity row must get the sum of the
/// changes of all data rows that it depends on, wherever those changes lie in the row.
fn update_demands(
    plan: &Plan,
    code: &Code,
    ranges: &[ChunkRange],
) -> Result<Vec<Claim>, CheckError> {
    let g = plan.geometry;
    check_ranges(plan, ranges, g.k())?;
    let row_bytes = g.sub_chunk_bytes();
    let mut claims = Vec::new();
    for part in ranges {
        for range in g.split_rows(part.range) {
            let row = (range.offset / row_bytes) as usize;
            let offset_in_row = range.offset % row_bytes;
            let new = Expression::of(Symbol::new(part.chunk.at(), row));
            let mut delta = new.clone();
            delta.add(1, &Expression::of(Symbol::old(part.chunk.at(), row)));
            let node = Some(plan.placement[part.chunk.at()]);
            let target = Target {
                kind: Kind::Journal,
                chunk: part.chunk,
                node,
            };
            claims.push(Claim {
                target,
                range,
                expression: new,
            });
            for change in code.delta_rows(part.chunk.at(), row) {
                let chunk = ChunkIndex::new(change.chunk);
                let node = Some(plan.placement[chunk.at()]);
                let target = Target {
                    kind: Kind::ParityLog,
                    chunk,
                    node,
                };
                let offset = change.row as u64 * row_bytes + offset_in_row;
                let mut expression = Expression::default();
                expression.add(change.coefficient, &delta);
                let range = ByteRange::new(offset, range.length);
                claims.push(Claim {
                    target,
                    range,
                    expression,
                });
            }
        }
    }
    Ok(claims)
}

fn check_ranges(plan: &Plan, ranges: &[ChunkRange], chunks: usize) -> Result<(), CheckError> {
    let chunk_bytes = plan.geometry.chunk_bytes();
    for (at, part) in ranges.iter().enumerate() {
        if part.chunk.at() >= chunks {
            return Err(CheckError::Goal {
                reason: "names a chunk that it cannot have",
            });
        }
        if part.range.is_empty() || part.range.end() > chunk_bytes {
            return Err(CheckError::Goal {
                reason: "names bytes outside the chunk",
            });
        }
        let overlaps = ranges[..at]
            .iter()
            .any(|other| other.chunk == part.chunk && other.range.intersect(part.range).is_some());
        if overlaps {
            return Err(CheckError::Goal {
                reason: "names the same bytes twice",
            });
        }
    }
    Ok(())
}
