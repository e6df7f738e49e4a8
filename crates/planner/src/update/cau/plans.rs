//! The plans of CAU's appends and commits, with the choice of deltas that cross racks: sections 3.1, 3.2 and 3.4.

use crate::update::delta::change_all;
use crate::update::flow::{Flow, NewBytes, at_once, update};
use crate::update::piece::{check_ranges, check_shape};
use crate::update::waiting::Waiting;
use crate::{PlanError, Stripe};
use gabion_layout::{ChunkIndex, ChunkRange, NodeId, Slices, Topology};
use gabion_plan::{Goal, Log, Logged, Plan, PlanBuilder};
use std::fmt;
use std::str::FromStr;

/// The deltas that cross from one rack to another (CAU section 3.2; the last two are the variants of
/// its figure 9).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Selection {
    /// Data deltas if they are no more than the parity deltas, else parity deltas.
    #[default]
    Selective,
    /// Data deltas, always.
    DataDelta,
    /// Parity deltas, always.
    ParityDelta,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Selective => "selective",
            Self::DataDelta => "data-delta",
            Self::ParityDelta => "parity-delta",
        })
    }
}

impl FromStr for Selection {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let all = [Self::Selective, Self::DataDelta, Self::ParityDelta];
        let named = all.into_iter().find(|one| one.to_string() == text);
        named.ok_or_else(|| PlanError::UnknownRule {
            text: text.to_owned(),
            known: "selective, data-delta, parity-delta",
        })
    }
}

/// The append phase's plan for one update: each data node journals the new bytes, whose inputs are
/// there, and `replicas` parity nodes keep a copy, in other racks than the data node as far as there
/// are any, and in racks of their own as far as these go (section 3.4).
///
/// # Errors
/// [`PlanError::BadRanges`] for ranges that make no update, [`PlanError::NeedsChunk`] when a chunk is
/// lost, [`PlanError::TooManyReplicas`] when there are fewer parity nodes.
///
/// ```
/// use gabion_codec::Code;
/// use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, StripeId, Topology};
/// use gabion_plan::{Cost, check};
/// use gabion_planner::{Stripe, placement, update::cau};
///
/// let code: Code = "rs(6,3)".parse().unwrap();
/// let topology = Topology::uniform(3, 3);
/// let placement = placement::rotate(&topology, 0, code.n(), 3).unwrap();
/// let geometry = Geometry::new(6, 3, 1, 1 << 20).unwrap();
/// let stripe = Stripe { id: StripeId(1), code: &code, geometry, placement: &placement, lost: &[] };
/// let whole = |j| ChunkRange { chunk: ChunkIndex(j), range: ByteRange::new(0, 1 << 20) };
///
/// let (ranges, slice) = ([whole(0), whole(1)], 32 << 10);
/// let append = cau::append(&stripe, &topology, &ranges, 1, slice).unwrap();
/// check(&append, &code).unwrap();
/// assert_eq!(Cost::of(&append, &topology).cross_rack_bytes, 2 << 20, "one replica a chunk");
///
/// // Both chunks are in one rack and three parity chunks in another: data deltas are fewer.
/// let commit = cau::commit(&stripe, &topology, &ranges, cau::Selection::Selective, slice).unwrap();
/// check(&commit, &code).unwrap();
/// assert_eq!(Cost::of(&commit, &topology).cross_rack_bytes, 2 << 20);
/// ```
pub fn append(
    stripe: &Stripe<'_>,
    topology: &Topology,
    ranges: &[ChunkRange],
    replicas: usize,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    check_ranges(stripe, ranges)?;
    let mut b = stripe.builder();
    let mut copies = Vec::with_capacity(ranges.len() * replicas);
    for part in ranges {
        let keepers = keepers(stripe, topology, part.chunk, replicas)?;
        for range in stripe.geometry.split_rows(part.range) {
            let slices = Slices::contiguous(range, slice_bytes);
            let new = b.input(stripe.node_of(part.chunk), part.chunk, slices);
            b.append(Log::Journal, part.chunk, slices, new);
            for &keeper in &keepers {
                let copy = b.send(new, keeper);
                b.append(Log::Replica, part.chunk, slices, copy);
            }
        }
        copies.extend(keepers.iter().map(|&node| Logged {
            node,
            log: Log::Replica,
            part: *part,
        }));
    }
    Ok(b.finish(Goal::Append {
        ranges: ranges.to_vec(),
        copies,
    }))
}

/// The parity nodes that keep interim replicas of a data chunk, best first: any rack but the data
/// node's before its own, racks without a replica before others. Different data chunks begin with
/// different parity chunks, so that a stripe's replicas are spread.
///
/// # Errors
/// [`PlanError::TooManyReplicas`] when there are fewer parity nodes.
///
/// # Panics
/// When the stripe has no such chunk.
pub fn keepers(
    stripe: &Stripe<'_>,
    topology: &Topology,
    data: ChunkIndex,
    replicas: usize,
) -> Result<Vec<NodeId>, PlanError> {
    let m = stripe.geometry.m();
    if replicas > m {
        return Err(PlanError::TooManyReplicas {
            asked: replicas,
            parity_nodes: m,
        });
    }
    let home = topology.rack_of(stripe.node_of(data));
    let parity = |at: usize| stripe.placement[stripe.geometry.k() + (data.at() + at) % m];
    let mut left: Vec<NodeId> = (0..m).map(parity).collect();
    let mut keepers: Vec<NodeId> = Vec::with_capacity(replicas);
    while keepers.len() < replicas {
        let dislike = |node: &NodeId| {
            let rack = topology.rack_of(*node);
            let taken = keepers.iter().filter(|&&k| topology.rack_of(k) == rack);
            (rack == home, taken.count())
        };
        let best = (0..left.len()).min_by_key(|&at| dislike(&left[at]));
        keepers.extend(best.map(|at| left.remove(at)));
    }
    Ok(keepers)
}

/// Returns the number of nodes, whichever they are, that may fail without losing anything while a stripe of `code` has
/// appended updates with this many interim replicas: any `replicas` failures leave a copy of the new bytes, and as long
/// as the code survives them, the bytes that did not change.
#[must_use]
pub fn append_phase_survives(code: &gabion_codec::Code, replicas: usize) -> usize {
    code.failures_survived().min(replicas)
}

/// The commit's plan: parity follows what the data nodes' journals have kept of `ranges` since the
/// last commit (section 3.2).
///
/// # Errors
/// As [`append`], but for replicas.
pub fn commit(
    stripe: &Stripe<'_>,
    topology: &Topology,
    ranges: &[ChunkRange],
    selection: Selection,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let steps = (NewBytes::Logged, slice_bytes);
    let send = |flow: &mut Flow<'_>| send_directly(flow, selection);
    let journaled = |&part: &ChunkRange| Logged {
        node: stripe.node_of(part.chunk),
        log: Log::Journal,
        part,
    };
    update(stripe, topology, ranges, steps, send, |ranges| {
        Goal::Commit {
            ranges: ranges.to_vec(),
            logged: ranges.iter().map(journaled).collect(),
        }
    })
}

/// The commit's plan when chunks of the stripe are lost: parity follows by deltas, straight to each
/// parity chunk that is left. The new bytes of a lost data chunk come from an interim replica, and its
/// old ones are rebuilt as for an update without it; there is no other way left to them. The caller
/// decides how few chunks may be left for a commit.
///
/// # Errors
/// [`PlanError::NeedsChunk`] for a lost chunk whose appended bytes no replica has all of;
/// [`PlanError::TooFewLeft`] or [`PlanError::NotEnoughHelpers`] when old bytes cannot be rebuilt.
pub fn commit_without(
    stripe: &Stripe<'_>,
    topology: &Topology,
    waiting: &Waiting,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let (ranges, logged) = (waiting.ranges(), waiting.logged());
    check_shape(stripe, &ranges)?;
    let mut b = stripe.builder();
    let mut used: Vec<Logged> = Vec::new();
    for &part in &ranges {
        let lost = stripe.lost.contains(&part.chunk);
        let is_source = |kept: &&Logged| {
            let is_left = match kept.log {
                Log::Journal => !lost,
                Log::Replica => {
                    lost && !stripe.lost.iter().any(|&c| stripe.node_of(c) == kept.node)
                }
                _ => false,
            };
            is_left && kept.part == part
        };
        let source = logged.iter().find(is_source);
        used.push(*source.ok_or(PlanError::NeedsChunk(part.chunk))?);
    }
    let recalled = |b: &mut PlanBuilder, at: NodeId, part: ChunkRange, slices| {
        let keeps = |kept: &&Logged| {
            kept.part.chunk == part.chunk
                && kept.part.range.intersect(part.range) == Some(part.range)
        };
        let source = used.iter().find(keeps);
        let source = source.ok_or(PlanError::NeedsChunk(part.chunk))?;
        let new = b.recall(source.node, source.log, part.chunk, slices);
        Ok(if source.node == at {
            new
        } else {
            b.send(new, at)
        })
    };
    change_all(&mut b, stripe, topology, &ranges, slice_bytes, recalled)?;
    Ok(b.finish(Goal::Commit {
        ranges,
        logged: used.clone(),
    }))
}

/// An update of data and parity at once by selective parity updates: CAU without append phase and
/// replicas, whose parity follows before the acknowledgement.
///
/// # Errors
/// As [`append`], but for replicas.
pub fn selective(
    stripe: &Stripe<'_>,
    topology: &Topology,
    ranges: &[ChunkRange],
    selection: Selection,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    let steps = (NewBytes::Given, slice_bytes);
    let send = |flow: &mut Flow<'_>| send_directly(flow, selection);
    update(stripe, topology, ranges, steps, send, at_once)
}

/// Each rack updates each other rack on its own.
pub(crate) fn send_directly(flow: &mut Flow<'_>, selection: Selection) {
    for from in 0..flow.spread.rack_count {
        let holding = flow.own(from);
        let Some(meeting) = flow
            .meeting_node(from)
            .filter(|_| !holding.deltas.is_empty())
        else {
            continue;
        };
        for to in (0..flow.spread.rack_count).filter(|&to| to != from) {
            let (cells, rows) = (flow.spread.cells(from, to), flow.spread.rows(from, to));
            let sends_data = match selection {
                Selection::Selective => cells <= rows,
                Selection::DataDelta => true,
                Selection::ParityDelta => false,
            };
            if cells > 0 && sends_data {
                flow.give_data(&holding, from, to);
            } else if cells > 0 {
                flow.give_parity(&holding, meeting, to);
            }
        }
    }
}
