//! A helper's part of a run: it opens its block by permission of its `DataNode`, and sends what the plan makes of it.

use crate::block::BlockFile;
use crate::error::HdfsError;
use crate::flows::{Ended, Flows};
use crate::frame::{CONNECT_TIMEOUT, Kind, Reading, Writing, connect};
use crate::message::{
    DEADLINE_MAX, End, Help, Join, Opened, SLICE_BYTES_MAX, STALL_MAX, Trouble, body_of,
    checksum_body, open_body, prepare_timeout,
};
use crate::runs::{Joined, Runs};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use gabion_exec::{RING_SLICES, Sink, Source};
use gabion_layout::{ByteRange, ChunkIndex, NodeId};
use gabion_plan::PartStep;
use gabion_protocol::message::Refusal;
use gabion_protocol::run::LocalIo;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, timeout, timeout_at};

/// Time limit of the plugin's answer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Beyond the time that the requestor gives the other helpers to prepare themselves.
const GO_GRACE: Duration = Duration::from_secs(5);
/// Most steps of a helper's part.
const STEP_COUNT_MAX: usize = 4096;
/// Most bytes of the slices that a part's steps hold at a time.
const HELD_BYTES_MAX: u64 = 256 << 20;
/// Time limit for the requestor to end its connection after the run.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Takes part in a run, from the request to the end of the requestor's connection.
///
/// # Errors
/// [`HdfsError::Peer`] when the requestor's connection breaks.
pub(crate) async fn help(
    runs: &Arc<Runs>,
    help: Help,
    mut reading: Reading,
    writing: Writing,
) -> Result<(), HdfsError> {
    let refuse = async |trouble: Trouble| {
        let end: End = Err(trouble);
        writing.send(Kind::End, vec![body_of(&end)]).await
    };
    let Some(mut place) = runs.place(help.run) else {
        return refuse(Trouble::Unable("the agent has too many runs".to_owned())).await;
    };
    if let Err(trouble) = vet(&help.part.steps) {
        return refuse(trouble).await;
    }
    let block = match open(runs, &help).await {
        Ok(block) => Arc::new(block),
        Err(trouble) => return refuse(trouble).await,
    };
    let deadline = Duration::from_millis(help.deadline_ms).min(DEADLINE_MAX);
    let stall = Duration::from_millis(help.stall_ms).min(STALL_MAX);
    let others = CONNECT_TIMEOUT + prepare_timeout(stall) + GO_GRACE;
    let sums = checksum_body(block.checksum()).into();
    writing.send(Kind::Ready, vec![sums]).await?;
    let go = reading.frame_within(others).await?;
    if go.kind != Kind::Go {
        return Err(reading.error("it must say that all helpers are ready"));
    }
    let mut flows = Flows::of(help.run);
    if let Err(node) = join(&mut flows, &help, &mut place.joins, others).await {
        return refuse(Trouble::Lost(node)).await;
    }
    flows.add(help.requestor, reading, writing.clone());
    let io = BlockIo {
        block,
        chunk: help.chunk,
        trouble: Arc::default(),
    };
    let ran = flows.run(&help.part, &io, deadline, stall).await;
    let end: End = match ran {
        Ok(()) => Ok(()),
        Err(refusal) => Err(cause(&io, &mut flows, help.requestor, refusal)),
    };
    writing.send(Kind::End, vec![body_of(&end)]).await?;
    // To close a connection on which a peer still sends credit could lose slices that are on their way.
    let _ = timeout(LEAVE_TIMEOUT, flows.until_gone(help.requestor)).await;
    Ok(())
}

/// Refuses what no planner asks for.
fn vet(steps: &[PartStep]) -> Result<(), Trouble> {
    let is_small =
        |slices: &gabion_layout::Slices| slices.slice_bytes <= u64::from(SLICE_BYTES_MAX);
    let is_few = steps.len() <= STEP_COUNT_MAX && steps.iter().all(|step| is_small(&step.slices));
    let held = |step: &PartStep| step.slices.slice_bytes * step.slices.count.min(RING_SLICES);
    if !is_few || steps.iter().map(held).sum::<u64>() > HELD_BYTES_MAX {
        let reason = "the part has more steps or longer slices than an agent takes";
        return Err(Trouble::Unable(reason.to_owned()));
    }
    Ok(())
}

/// Opens the block that the part reads, if its `DataNode` permits it.
async fn open(runs: &Runs, help: &Help) -> Result<BlockFile, Trouble> {
    let unable = |error: HdfsError| Trouble::Unable(error.to_string());
    let opened = ask_plugin(runs.plugin(), help).await.map_err(unable)?;
    let length = help.block.length;
    let open = move || {
        BlockFile::open(
            Path::new(&opened.path),
            Path::new(&opened.sums_path),
            length,
        )
    };
    let block = tokio::task::spawn_blocking(open).await;
    let block = block.map_err(|error| Trouble::Unable(error.to_string()))?;
    block.map_err(trouble_of)
}

fn trouble_of(error: HdfsError) -> Trouble {
    match error {
        HdfsError::Corrupt { .. } => Trouble::Corrupt(error.to_string()),
        other => Trouble::Unable(other.to_string()),
    }
}

async fn ask_plugin(plugin: &str, help: &Help) -> Result<Opened, HdfsError> {
    let (mut reading, writing) = connect(plugin).await?;
    let body = open_body(&help.block, &help.token).into();
    writing.send(Kind::Open, vec![body]).await?;
    let answer = reading.frame_within(OPEN_TIMEOUT).await?;
    match answer.kind {
        Kind::Opened => Opened::read(answer.body),
        Kind::Refused => Err(reading.error(String::from_utf8_lossy(&answer.body))),
        _ => Err(reading.error("its answer does not fit the question")),
    }
}

/// Connects to the other helpers with which slices are exchanged.
///
/// # Errors
/// The node to which there is no connection.
async fn join(
    flows: &mut Flows,
    help: &Help,
    joins: &mut Receiver<Joined>,
    limit: Duration,
) -> Result<(), NodeId> {
    let end = Instant::now() + limit;
    for (node, address) in &help.connect {
        let lost = |_| *node;
        let (reading, writing) = connect(address).await.map_err(lost)?;
        let own = Join {
            run: help.run,
            from: help.part.node,
        };
        let sent = writing.send(Kind::Join, vec![body_of(&own)]).await;
        sent.map_err(lost)?;
        flows.add(*node, reading, writing);
    }
    let mut expected = help.expect.clone();
    while let Some(&first) = expected.first() {
        let joined = timeout_at(end, joins.recv()).await;
        let (node, reading, writing) = joined.ok().flatten().ok_or(first)?;
        let place = expected.iter().position(|&missing| missing == node);
        expected.swap_remove(place.ok_or(node)?);
        flows.add(node, reading, writing);
    }
    Ok(())
}

/// Errors of a part.
fn cause(io: &BlockIo, flows: &mut Flows, requestor: NodeId, refusal: Refusal) -> Trouble {
    let own = io.trouble.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(trouble) = own.clone() {
        return trouble;
    }
    while let Some((node, ended)) = flows.try_ended() {
        if node != requestor && matches!(ended, Ended::Broken) {
            return Trouble::Lost(node);
        }
    }
    match refusal {
        Refusal::Stalled(awaited) => Trouble::Stalled(awaited),
        other => Trouble::Unable(other.to_string()),
    }
}

/// The block that the part reads.
struct BlockIo {
    block: Arc<BlockFile>,
    chunk: ChunkIndex,
    /// Errors of a read.
    trouble: Arc<Mutex<Option<Trouble>>>,
}

impl LocalIo for BlockIo {
    fn fetch(
        &self,
        source: Source,
        range: ByteRange,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        if source != Source::Chunk(self.chunk) {
            let reason = "a helper reads its own block only".to_owned();
            return ready(Err(Refusal::Invalid(reason))).boxed();
        }
        let block = Arc::clone(&self.block);
        let trouble = Arc::clone(&self.trouble);
        async move {
            let read = tokio::task::spawn_blocking(move || block.read(range)).await;
            let read = read.map_err(|error| Refusal::Failed(error.to_string()))?;
            read.map_err(|error| {
                let refusal = Refusal::Failed(error.to_string());
                let mut trouble = trouble.lock().unwrap_or_else(PoisonError::into_inner);
                trouble.get_or_insert(trouble_of(error));
                refusal
            })
        }
        .boxed()
    }

    fn store(&self, _: Sink, _: ByteRange, _: Bytes) -> BoxFuture<'static, Result<(), Refusal>> {
        let reason = "a helper stores nothing".to_owned();
        ready(Err(Refusal::Invalid(reason))).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::Slices;
    use gabion_plan::{Step, ValueId};

    #[test]
    fn a_part_may_not_hold_too_much() {
        let steps = |count: usize, slice_bytes: u64| {
            let slices = Slices::contiguous(ByteRange::new(0, 1 << 30), slice_bytes);
            let step = PartStep {
                id: ValueId(0),
                slices,
                step: Step::Read {
                    node: NodeId(0),
                    chunk: ChunkIndex(0),
                    slices,
                },
            };
            vet(&vec![step; count])
        };
        // 8 slices of each step.
        steps(8, 4 << 20).unwrap();
        steps(9, 4 << 20).unwrap_err();
        steps(1, (4 << 20) + 1).unwrap_err();
        steps(4096, 4096).unwrap();
        steps(4097, 4096).unwrap_err();
    }
}
