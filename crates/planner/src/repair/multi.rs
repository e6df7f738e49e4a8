//! Repair of several lost chunks of one stripe at once. Conventional: one dedicated requestor gets
//! what is needed for all of them and passes the others' on (`ECPipe` section 2.2). Pipelined: one
//! chain carries a partial sum for each lost chunk, so that each helper reads its chunk once and
//! not once for each (`ECPipe` section 4.4). By racks: see [`super::aggregate`].
//!
//! Dealt is ours. A chain's links all carry as many chunks as are lost. When each helper does for its
//! share of the slices what a dedicated requestor does for all, none sends more than its own chunk and a
//! share of the lost ones, and no requestor receives more than its chunk: `1 + (f - 1) / k` times the
//! passage of a chunk for `f` lost ones and `k` helpers, where the chain takes `f` times.

use super::cyclic::deal;
use super::{Scheme, aggregate, repair};
use crate::port::by_port;
use crate::{PlanError, Stripe};
use gabion_codec::Equations;
use gabion_layout::{ByteRange, ChunkIndex, NodeId, Slices, Topology};
use gabion_plan::{Cost, Goal, Plan, PlanBuilder, Step, ValueId};

/// How the bytes of several lost chunks are brought together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MultiScheme<'a> {
    /// All helpers send to the first requestor, which sends the others' chunks on.
    Dedicated,
    /// One chain through all helpers, the last of which sends to all requestors.
    Pipeline,
    /// Each rack sums up before anything leaves it. The first requestor is dedicated.
    Racks(&'a Topology),
    /// The slices are dealt out to the helpers. Each gets those dealt to it from all others, and sends
    /// what it makes of them to all requestors.
    Dealt,
}

/// Plans the repair of `lost` chunks, each onto its requestor, in slices of at most `slice_bytes`.
/// `helpers` lists the chunks that may help, the preferred ones first; a pipeline runs through them
/// in that order.
///
/// # Errors
/// [`PlanError::NotEnoughHelpers`] when the chunks named do not determine the lost ones.
///
/// # Panics
/// When no chunk is named.
pub fn repair_all(
    stripe: &Stripe<'_>,
    lost: &[(ChunkIndex, NodeId)],
    helpers: &[ChunkIndex],
    scheme: MultiScheme<'_>,
    slice_bytes: u64,
) -> Result<Plan, PlanError> {
    assert!(!lost.is_empty(), "a repair repairs at least one chunk");
    let is_named = |chunk| lost.iter().any(|&(named, _)| named == chunk);
    let may_help = |c: &&ChunkIndex| !stripe.lost.contains(c) && !is_named(**c);
    let helpers: Vec<usize> = helpers.iter().filter(may_help).map(|c| c.at()).collect();
    let wanted: Vec<usize> = lost.iter().map(|(chunk, _)| chunk.at()).collect();
    let equations = stripe.code.decode(&helpers, &wanted)?;
    let row_bytes = stripe.geometry.sub_chunk_bytes();
    let all = Slices::contiguous(ByteRange::new(0, row_bytes), slice_bytes);
    let (streams, at) = match scheme {
        MultiScheme::Dealt => {
            let helpers = equations.helpers.iter();
            let nodes: Vec<NodeId> = helpers.map(|&at| stripe.placement[at]).collect();
            (deal(all, nodes.len() as u64), nodes)
        }
        _ => (vec![all], vec![lost[0].1]),
    };
    let mut b = stripe.builder();
    for (slices, at) in streams.into_iter().zip(at) {
        let shares = Shares::read(&mut b, stripe, &equations, slices);
        let outputs = match scheme {
            MultiScheme::Dedicated | MultiScheme::Dealt => shares.star(&mut b, at),
            MultiScheme::Pipeline => shares.chain(&mut b),
            MultiScheme::Racks(topology) => aggregate::by_racks(&mut b, &shares, topology, at),
        };
        let rows = stripe.geometry.sub_chunks();
        for (at, value) in outputs.into_iter().enumerate() {
            let (chunk, requestor) = lost[at / rows];
            let value = b.send(value, requestor);
            let offset = slices.offset + (at % rows) as u64 * row_bytes;
            b.write(chunk, slices.at(offset), value);
        }
    }
    let chunks = lost.to_vec();
    Ok(b.finish(Goal::Repair { chunks }))
}

/// The plan of [`repair_all`] that is best for several chunks under a scheme for one, where nodes send no
/// more by it than if the chunks were repaired one after another: each helper reads its chunk once then.
/// None where they would, as with local groups of LRC, or where the scheme has no such version.
///
/// Pipelining goes by a chain in the helpers' order, or, where a `topology` says that all nodes are
/// equal and so are all racks, by what keeps the busiest port of a node or rack busy the shortest.
///
/// # Errors
/// [`PlanError::NotEnoughHelpers`] when the chunks named do not determine the lost ones.
///
/// # Panics
/// When no chunk is named.
pub fn repair_together(
    stripe: &Stripe<'_>,
    lost: &[(ChunkIndex, NodeId)],
    helpers: &[ChunkIndex],
    scheme: Scheme,
    topology: Option<&Topology>,
    slice_bytes: u64,
) -> Result<Option<Plan>, PlanError> {
    let all = |scheme| repair_all(stripe, lost, helpers, scheme, slice_bytes);
    let plan = match scheme {
        Scheme::Conventional => all(MultiScheme::Dedicated)?,
        Scheme::Pipeline => {
            let chain = all(MultiScheme::Pipeline)?;
            match topology {
                None => chain,
                Some(topology) => {
                    let dealt = all(MultiScheme::Dealt)?;
                    let busiest = |plan: &Plan| busiest_port_bytes(plan, topology);
                    if busiest(&dealt) < busiest(&chain) {
                        dealt
                    } else {
                        chain
                    }
                }
            }
        }
        Scheme::Ppr | Scheme::Cyclic => return Ok(None),
    };
    let mut apart_bytes = 0;
    for &(chunk, requestor) in lost {
        let one = repair(stripe, chunk, requestor, helpers, scheme, slice_bytes)?;
        apart_bytes += sent_bytes(&one);
    }
    Ok((sent_bytes(&plan) <= apart_bytes).then_some(plan))
}

/// What the busiest port of a node or rack carries in one direction.
fn busiest_port_bytes(plan: &Plan, topology: &Topology) -> u64 {
    let ports = by_port(&Cost::of(plan, topology).links, topology);
    ports.into_values().max().unwrap_or(0)
}

/// What all nodes of a plan send to others.
fn sent_bytes(plan: &Plan) -> u64 {
    let streams = plan.streams();
    let sent = |step: &Step| match step {
        Step::Send { value, .. } => streams[value.at()].bytes(),
        _ => 0,
    };
    plan.steps.iter().map(sent).sum()
}

/// What one helper has read and adds to each row of each lost chunk.
pub(super) struct Share {
    pub(super) node: NodeId,
    /// Rows that it reads, by the order of their numbers.
    pub(super) reads: Vec<ValueId>,
    /// For each output row, a coefficient for each of `reads`.
    pub(super) coefficients: Vec<Vec<u8>>,
}

impl Share {
    /// What it adds to an output row: nothing, where that takes no read.
    fn terms(&self, output: usize) -> Vec<(u8, ValueId)> {
        let coefficients = self.coefficients[output].iter().copied();
        let terms = coefficients.zip(self.reads.iter().copied());
        terms.filter(|&(coefficient, _)| coefficient != 0).collect()
    }

    /// Sends its reads to `at` as they are, and notes what they add to each output there.
    pub(super) fn send_reads(
        &self,
        b: &mut PlanBuilder,
        at: NodeId,
        outputs: &mut [Vec<(u8, ValueId)>],
    ) {
        let sent: Vec<ValueId> = self.reads.iter().map(|&read| b.send(read, at)).collect();
        for (terms, coefficients) in outputs.iter_mut().zip(&self.coefficients) {
            let here = coefficients.iter().copied().zip(sent.iter().copied());
            terms.extend(here.filter(|&(coefficient, _)| coefficient != 0));
        }
    }
}

/// What all helpers add, in their order. Each row of a chunk is read once, however many outputs it
/// is for.
pub(super) struct Shares {
    pub(super) of: Vec<Share>,
    /// Lost chunks times rows of a chunk.
    pub(super) output_count: usize,
}

impl Shares {
    fn read(b: &mut PlanBuilder, stripe: &Stripe<'_>, e: &Equations, slices: Slices) -> Self {
        let rows = stripe.geometry.sub_chunks();
        let row_bytes = stripe.geometry.sub_chunk_bytes();
        let output_count = e.outputs.len() * rows;
        let mut of = Vec::with_capacity(e.helpers.len());
        for (at, &helper) in e.helpers.iter().enumerate() {
            let chunk = ChunkIndex::new(helper);
            let from = e.reads(at);
            let coefficients = |output| {
                let one = |&row: &usize| e.coefficient(output / rows, output % rows, at, row);
                from.iter().map(one).collect()
            };
            of.push(Share {
                node: stripe.node_of(chunk),
                coefficients: (0..output_count).map(coefficients).collect(),
                reads: from
                    .iter()
                    .map(|&row| {
                        let offset = slices.offset + row as u64 * row_bytes;
                        b.read(chunk, slices.at(offset))
                    })
                    .collect(),
            });
        }
        Self { of, output_count }
    }

    /// All reads at one node, which makes all outputs.
    fn star(&self, b: &mut PlanBuilder, at: NodeId) -> Vec<ValueId> {
        let mut terms = vec![Vec::new(); self.output_count];
        for share in &self.of {
            share.send_reads(b, at, &mut terms);
        }
        terms.iter().map(|terms| b.combine(at, terms)).collect()
    }

    /// Partial sums of all outputs from helper to helper.
    fn chain(&self, b: &mut PlanBuilder) -> Vec<ValueId> {
        let all: Vec<&Share> = self.of.iter().collect();
        let sums = partial_sums(b, &all, self.output_count).into_iter();
        let made = |sum: Option<ValueId>| sum.expect("a lost chunk needs at least one helper");
        sums.map(made).collect()
    }
}

/// For each output, the sum of what `shares` add, passed from one helper to the next and left at the
/// last that adds to it; none where no helper adds.
pub(super) fn partial_sums(
    b: &mut PlanBuilder,
    shares: &[&Share],
    output_count: usize,
) -> Vec<Option<ValueId>> {
    let mut sums: Vec<Option<ValueId>> = vec![None; output_count];
    for share in shares {
        for (output, sum) in sums.iter_mut().enumerate() {
            let mut terms = share.terms(output);
            if terms.is_empty() {
                continue;
            }
            if let Some(before) = *sum {
                terms.push((1, b.send(before, share.node)));
            }
            *sum = Some(b.combine(share.node, &terms));
        }
    }
    sums
}
