//! Starts a plan at all its participants and waits until every part is done. Primaries, the
//! coordinator and clients all start plans this way; the participants move the bytes.

use crate::inquiry::{Answer, Inquiry};
use crate::message::{Effect, Flow, Progress, Purpose, ReadCut, Refusal, RunId, RunPart, Ticket};
use crate::ports::{Address, Ask as _, NodeError, Ports, until_hung};
use crate::progress::Heard;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::select_biased;
use futures::stream::{FuturesUnordered, StreamExt};
use gabion_layout::{ChunkIndex, Epoch, Generation, NodeId, Sequence};
use gabion_plan::{Part, Plan};
use gabion_planner::update::{RECORD_BYTES_MAX, RECORD_PIECE_COUNT_MAX};
use std::collections::BTreeMap;
use std::pin::pin;
use thiserror::Error;

/// The least time that the parts of an update or a commit may take.
const PATIENCE_MS: u64 = 10_000;
/// The assumed slowest rate of their bytes beside other traffic, in bytes a millisecond.
const PATIENCE_BYTES_PER_MS: u64 = 64;

/// Time limit of the parts of an update or a commit. It grows with their bytes, because links between racks
/// may be slow and are shared.
pub(crate) fn patience_ms(plan: &Plan) -> u64 {
    let appended_bytes = |step: &gabion_plan::Step| match step {
        gabion_plan::Step::Append { slices, .. } => slices.bytes(),
        _ => 0,
    };
    let bytes: u64 = plan.steps.iter().map(appended_bytes).sum();
    PATIENCE_MS + bytes / PATIENCE_BYTES_PER_MS
}

/// The conditions of a plan's run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunTerms {
    /// The run; drawn at random, or the one under which bytes were staged.
    pub run: RunId,
    /// Further runs whose staged bytes are inputs of an update.
    pub joined: Vec<RunId>,
    /// The lease term of the initiator; 0 for a client.
    pub epoch: Epoch,
    /// The stripe's generation for which the plan was made.
    pub generation: Generation,
    /// The update as of which the plan reads.
    pub cut: ReadCut,
    /// The effect of the plan's writes.
    pub effect: Effect,
    /// The purpose of the transfer.
    pub purpose: Purpose,
    /// Spread the reads evenly over this time.
    pub spread_ms: u64,
    /// Time limit of the run.
    pub deadline_ms: u64,
    /// Abort when a participant makes no progress for this time, and find the cause.
    pub stall_ms: Option<u64>,
    /// A client's ticket for the stripe; members need none.
    pub ticket: Option<Ticket>,
}

/// A participant has failed to do its part.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{node}: {refusal}")]
pub struct PartFailed {
    /// The participant.
    pub node: NodeId,
    /// The reason.
    pub refusal: Refusal,
    /// The suspected nodes, where the terms ask for that: nodes that did not answer, or else those that
    /// others waited for. Ascending.
    pub suspects: Vec<NodeId>,
    /// The participants whose parts had ended well by then. Ascending.
    pub done: Vec<NodeId>,
}

/// The initiator's own part, already running.
pub type OwnPart = BoxFuture<'static, Result<(), Refusal>>;

/// Starts `plan` and waits for all parts. The initiator's own part, if it is a participant under the name
/// [`NodeId::CLIENT`], is run by `own`. Returns the update as of which each node read.
///
/// # Errors
/// The first part that failed; all other participants are told to abort. Their state is then unknown.
pub async fn run_plan(
    ports: &dyn Ports,
    plan: &Plan,
    terms: &RunTerms,
    own: impl FnOnce(Part) -> OwnPart,
) -> Result<BTreeMap<NodeId, Sequence>, PartFailed> {
    let ran = run_heard(ports, plan, terms, own, &Heard::default()).await;
    ran.map(|ran| ran.as_of)
}

/// As [`run_plan`], for a plan that moves bytes between nodes alone.
///
/// # Errors
/// Those of [`run_plan`].
///
/// # Panics
/// If the initiator has a part in the plan.
pub async fn run_between_nodes(
    ports: &dyn Ports,
    plan: &Plan,
    terms: &RunTerms,
) -> Result<(), PartFailed> {
    let ran = run_plan(ports, plan, terms, no_own_part).await;
    ran.map(|_| ())
}

/// The own part of an initiator that has none.
pub(crate) fn no_own_part(_: Part) -> OwnPart {
    unreachable!("the plan moves bytes between nodes alone")
}

/// A plan that has run to its end.
pub(crate) struct Ran {
    /// The update as of which each node read.
    pub(crate) as_of: BTreeMap<NodeId, Sequence>,
    /// The node that was the last to answer.
    pub(crate) last: Option<NodeId>,
}

/// As [`run_plan`]; also notes participants' journal positions.
pub(crate) async fn run_heard(
    ports: &dyn Ports,
    plan: &Plan,
    terms: &RunTerms,
    own: impl FnOnce(Part) -> OwnPart,
    heard: &Heard,
) -> Result<Ran, PartFailed> {
    let participants = plan.participants();
    let mut running = FuturesUnordered::new();
    if participants.contains(&NodeId::CLIENT) {
        let own = own(plan.part(NodeId::CLIENT));
        running.push(
            own.map(|done| {
                let done = done.map(|()| Sequence(0)).map_err(NodeError::Refused);
                (NodeId::CLIENT, done)
            })
            .boxed(),
        );
    }
    for &node in participants.iter().filter(|&&node| node != NodeId::CLIENT) {
        let part = Box::new(terms.part(plan.part(node)));
        // The reply may take as long as the part itself. One second more lets the part's own deadline pass
        // first, because its error is more precise.
        let done = ports.ask_node(node, part, terms.deadline_ms + 1000);
        let noted = done.map(move |done| (node, note(node, done, heard)));
        running.push(noted.boxed());
    }
    let nodes = participants.iter().copied();
    let nodes: Vec<NodeId> = nodes.filter(|&node| node != NodeId::CLIENT).collect();
    let mut hung = pin!(until_hung(ports, &nodes).fuse());
    let (mut as_of, mut last) = (BTreeMap::new(), None);
    loop {
        let (node, done) = select_biased! {
            done = running.next() => match done {
                Some(done) => done,
                None => return Ok(Ran { as_of, last }),
            },
            (node, error) = hung => (node, Err(NodeError::Silent(error))),
        };
        let failed = match done {
            Ok(sequence) => {
                as_of.insert(node, sequence);
                last = Some(node);
                continue;
            }
            Err(failed) => failed,
        };
        let unfinished = participants.iter().copied();
        let unfinished: Vec<NodeId> = unfinished.filter(|p| !as_of.contains_key(p)).collect();
        abort(ports, terms.run, unfinished.iter().copied());
        let mut suspects = Vec::new();
        if terms.stall_ms.is_some() {
            let mut inquiry = Inquiry::new(unfinished);
            inquiry.hear(node, answer(failed.clone()));
            let mut rest =
                running.map(|(node, done)| (node, done.map_or_else(answer, |_| Some(Ok(())))));
            inquiry.ask(ports, &mut rest).await;
            suspects = inquiry.suspects();
        }
        let refusal = failed.into();
        return Err(PartFailed {
            node,
            refusal,
            suspects,
            done: as_of.into_keys().collect(),
        });
    }
}

/// Notes a participant's journal position; returns the update as of which it read.
fn note(
    node: NodeId,
    done: Result<(Sequence, Option<Progress>), NodeError>,
    heard: &Heard,
) -> Result<Sequence, NodeError> {
    let (as_of, progress) = done?;
    if let Some(progress) = progress {
        heard.note(node, progress);
    }
    Ok(as_of)
}

/// The error of a participant that failed, if it has answered at all.
fn answer(failed: NodeError) -> Answer {
    match failed {
        NodeError::Silent(_) => None,
        failed => Some(Err(failed.into())),
    }
}

impl RunTerms {
    /// The terms of a run by itself. Nothing slows it down or aborts it when it stalls, and its initiator needs no
    /// ticket.
    pub fn new(
        run: RunId,
        (epoch, generation): (Epoch, Generation),
        cut: ReadCut,
        effect: Effect,
        purpose: Purpose,
        deadline_ms: u64,
    ) -> Self {
        Self {
            run,
            joined: Vec::new(),
            epoch,
            generation,
            cut,
            effect,
            purpose,
            spread_ms: 0,
            deadline_ms,
            stall_ms: None,
            ticket: None,
        }
    }

    fn part(&self, part: Part) -> RunPart {
        RunPart {
            run: self.run,
            joined: self.joined.clone(),
            part,
            epoch: self.epoch,
            generation: self.generation,
            cut: self.cut,
            effect: self.effect.clone(),
            purpose: self.purpose,
            spread_ms: self.spread_ms,
            deadline_ms: self.deadline_ms,
            stall_ms: self.stall_ms,
            ticket: self.ticket,
        }
    }
}

fn abort(ports: &dyn Ports, run: RunId, nodes: impl Iterator<Item = NodeId>) {
    for node in nodes.filter(|&node| node != NodeId::CLIENT) {
        let (sender, abort) = futures::channel::mpsc::unbounded();
        let _ = sender.unbounded_send(Flow::Abort { run });
        let sent = ports.send_flows(Address::Node(node), abort);
        ports.spawn(sent.map(|_| ()).boxed());
    }
}

/// The nodes where the new bytes of an update's lost chunks are to be staged, by chunk: those where the
/// plan takes them as input, if that is not their own node.
pub fn substitutes(plan: &Plan) -> Vec<(ChunkIndex, NodeId)> {
    let mut substitutes: Vec<(ChunkIndex, NodeId)> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            gabion_plan::Step::Input { node, chunk, .. } => Some((*chunk, *node)),
            _ => None,
        })
        .filter(|&(chunk, node)| plan.placement[chunk.at()] != node)
        .collect();
    substitutes.sort_unstable();
    substitutes.dedup();
    substitutes
}

/// Whether every node takes its record of the update of `plan`: it is no larger than the smallest
/// journal's quarter segment, and has no more pieces than a record can.
pub fn fits_records(plan: &Plan) -> bool {
    let mut records: BTreeMap<ChunkIndex, (u64, u64)> = BTreeMap::new();
    for step in &plan.steps {
        if let gabion_plan::Step::Append { slices, .. } = step
            && let Some(chunk) = recorded_for(plan, step)
        {
            let (bytes, piece_count) = records.entry(chunk).or_default();
            *bytes += slices.bytes();
            *piece_count += slices.count;
        }
    }
    let mut records = records.values();
    records.all(|&(bytes, count)| bytes <= RECORD_BYTES_MAX && count <= RECORD_PIECE_COUNT_MAX)
}

/// The chunks whose nodes must hold a record for the update of `plan` to stand: all chunks with appends.
pub fn record_holders(plan: &Plan) -> Vec<ChunkIndex> {
    let mut chunks: Vec<ChunkIndex> = plan
        .steps
        .iter()
        .filter_map(|step| recorded_for(plan, step))
        .collect();
    chunks.sort_unstable();
    chunks.dedup();
    chunks
}

/// The chunk whose node records a step's append: a copy of another chunk is recorded for the chunk of the
/// node that keeps it.
fn recorded_for(plan: &Plan, step: &gabion_plan::Step) -> Option<ChunkIndex> {
    match step {
        gabion_plan::Step::Append { node, .. } => plan.holds(*node),
        _ => None,
    }
}
