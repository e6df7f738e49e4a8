//! Repair of several lost chunks of one stripe at once. Conventional: one dedicated requestor gets all needed bytes and
//! forwards the other chunks (`ECPipe` section 2.2). Pipelined: one chain carries a partial sum for each lost chunk, so
//! that each helper reads its chunk once and not once for each (`ECPipe` section 4.4). By racks: see
//! [`super::aggregate`].
//!
//! Dealt is ours. In a chain, every link carries as many chunks as are lost. In Dealt, each helper is the dedicated
//! requestor for its share of the slices. So no helper sends more than its own chunk and a share of the lost ones, and
//! no requestor receives more than its chunk: for `f` lost chunks and `k` helpers this takes `1 + (f - 1) / k` times
//! the transfer of a chunk, but a chain takes `f` times.

use super::aggregate;
use super::cyclic::deal;
use super::descriptor::{MultiScheme, Scheme};
use super::scheme::descriptor;
use super::shares::Shares;
use super::single::repair;
use crate::port::by_port;
use crate::{PlanError, Stripe};
use gabion_layout::{ByteRange, ChunkIndex, NodeId, Slices, Topology};
use gabion_plan::{Cost, Goal, Plan, Step};

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
    let all = |&together| repair_all(stripe, lost, helpers, together, slice_bytes);
    let mut together = descriptor(scheme).together.iter().map(all);
    let best = match topology {
        None => together.next().transpose()?,
        Some(topology) => {
            let plans: Vec<Plan> = together.collect::<Result<_, _>>()?;
            let busiest = |plan: &Plan| busiest_port_bytes(plan, topology);
            plans.into_iter().min_by_key(busiest)
        }
    };
    let Some(plan) = best else {
        return Ok(None);
    };
    let mut apart_bytes = 0;
    for &(chunk, requestor) in lost {
        let one = repair(stripe, chunk, requestor, helpers, scheme, slice_bytes)?;
        apart_bytes += sent_bytes(&one);
    }
    Ok((sent_bytes(&plan) <= apart_bytes).then_some(plan))
}

/// Returns the bytes of the busiest port of a node or rack in one direction.
fn busiest_port_bytes(plan: &Plan, topology: &Topology) -> u64 {
    let ports = by_port(&Cost::of(plan, topology).links, topology);
    ports.into_values().max().unwrap_or(0)
}

/// Returns the bytes that all nodes of a plan send to others.
fn sent_bytes(plan: &Plan) -> u64 {
    let streams = plan.streams();
    let sent = |step: &Step| match step {
        Step::Send { value, .. } => streams[value.at()].bytes(),
        _ => 0,
    };
    plan.steps.iter().map(sent).sum()
}
