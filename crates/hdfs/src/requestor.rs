//! Rebuilding lost blocks of a group: the agent plans, starts the helpers' parts, runs its own, and passes the bytes to
//! the plugin. When a helper fails, a new plan without it brings what is missing.

use crate::block::Checksum;
use crate::diagnosis::{RunFailed, diagnose, reports};
use crate::error::HdfsError;
use crate::flows::Flows;
use crate::frame::{Kind, Reading, Writing, connect};
use crate::message::{
    End, Help, Source, Tally, Task, Trouble, body_of, checksum_body, end_body, message_of,
    prepare_timeout,
};
use crate::plans::{empty_chunks, plan, requestor};
use crate::rows::{RowIo, Rows};
use crate::runs::Runs;
use futures::future::join_all;
use gabion_layout::{ChunkIndex, NodeId, RunId};
use gabion_plan::{Part, Plan, Step};
use tokio::time::timeout;

/// A helper whose block is open, and its connection.
type Helper = (Checksum, Reading, Writing);

/// Rebuilds what a task asks for, and tells the plugin how it has ended. A plugin that closes its connection cancels
/// the task.
///
/// # Errors
/// [`HdfsError::Peer`] when the plugin's connection has ended.
pub(crate) async fn rebuild(
    runs: &Runs,
    task: &Task,
    mut reading: Reading,
    plugin: Writing,
) -> Result<(), HdfsError> {
    let mut tally = Tally::default();
    let Some(_place) = runs.rebuild_place() else {
        let body = end_body(&tally, "the agent has too many rebuilds").into();
        return plugin.send(Kind::Failed, vec![body]).await;
    };
    let work = timeout(task.deadline, rebuild_all(runs, task, &plugin, &mut tally));
    let rebuilt = tokio::select! {
        rebuilt = work => rebuilt,
        // The plugin sends nothing after its request, so this is the end of its connection.
        ended = reading.frame() => {
            let reason = ended.err().map_or_else(|| "it has sent a second request".to_owned(), |e| e.to_string());
            return Err(reading.error(format!("it has cancelled a rebuild: {reason}")));
        }
    };
    let late = || HdfsError::Policy(format!("it took longer than {:?}", task.deadline));
    match rebuilt.unwrap_or_else(|_| Err(late())) {
        Ok(()) => {
            let body = end_body(&tally, "").into();
            plugin.send(Kind::Rebuilt, vec![body]).await
        }
        Err(error) => {
            let body = end_body(&tally, &error.to_string()).into();
            plugin.send(Kind::Failed, vec![body]).await
        }
    }
}

async fn rebuild_all(
    runs: &Runs,
    task: &Task,
    plugin: &Writing,
    tally: &mut Tally,
) -> Result<(), HdfsError> {
    let group_bytes = task.group.length;
    let wanted = |&chunk: &ChunkIndex| {
        let length = task.policy.block_bytes(chunk, group_bytes);
        (chunk, length.min(task.range.end()))
    };
    let targets = task.targets.iter().map(wanted).collect();
    let mut rows = Rows::new(targets, task.range.offset, task.slice_bytes);
    let mut checksum = None;
    let mut excluded = Vec::new();
    let mut last_failure = None;
    loop {
        let missing = rows.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let plan = plan(task, &missing, &excluded).map_err(|error| match &last_failure {
            Some(reason) => HdfsError::Policy(format!("{error}; the last run: {reason}")),
            None => error,
        })?;
        tally.run_count += 1;
        let empty = empty_chunks(task);
        let attempt = Attempt {
            task,
            plan: &plan,
            run: runs.new_run(),
            plugin,
        };
        let run = async |io| attempt.run(&io, &mut checksum, tally).await;
        let Err(failed) = rows.during(plugin, empty, run).await? else {
            return Ok(());
        };
        tracing::info!("a run of {} has failed: {}", task.group.id, failed.reason);
        tally.corrupt.extend(failed.corrupt);
        if failed.suspects.is_empty() {
            return Err(HdfsError::Policy(failed.reason));
        }
        excluded.extend(failed.suspects);
        last_failure = Some(failed.reason);
    }
}

/// Helpers to connect to, with their addresses, and those that connect.
type Neighbours = (Vec<(NodeId, String)>, Vec<NodeId>);

/// One run of one plan.
struct Attempt<'a> {
    task: &'a Task,
    plan: &'a Plan,
    run: RunId,
    plugin: &'a Writing,
}

impl Attempt<'_> {
    /// Prepares the helpers, and runs the plan. The first run tells the plugin about the blocks' checksums.
    async fn run(
        &self,
        io: &RowIo,
        checksum: &mut Option<Checksum>,
        tally: &mut Tally,
    ) -> Result<(), RunFailed> {
        let own = requestor(self.task);
        let participants = self.plan.participants().into_iter();
        let helpers: Vec<NodeId> = participants.filter(|&node| node != own).collect();
        let prepared = join_all(helpers.iter().map(|&node| self.prepare(node, &helpers))).await;
        let mut ready = Vec::new();
        let mut failed = RunFailed::because("");
        for (&node, prepared) in helpers.iter().zip(prepared) {
            match prepared {
                Ok(helper) => ready.push((node, helper)),
                Err(trouble) => failed.blame(node, &trouble),
            }
        }
        if !failed.suspects.is_empty() {
            return Err(failed);
        }
        self.announce(&ready, checksum).await?;
        let mut flows = Flows::of(self.run);
        for (node, (_, reading, writing)) in ready {
            // A helper that has gone is noticed by its connection's end.
            let _ = writing.send(Kind::Go, Vec::new()).await;
            flows.add(node, reading, writing);
        }
        let part = self.plan.part(own);
        let Task {
            deadline, stall, ..
        } = *self.task;
        let ran = flows.run(&part, io, deadline, stall).await;
        tally.received_bytes += flows.received_bytes();
        match ran {
            Ok(()) => Ok(()),
            Err(refusal) => {
                let reports = reports(&mut flows, helpers.len()).await;
                Err(diagnose(&reports, &helpers, refusal))
            }
        }
    }

    /// Gives a helper its part, and waits until its block is open.
    async fn prepare(&self, node: NodeId, helpers: &[NodeId]) -> Result<Helper, Trouble> {
        let unable = |error: HdfsError| Trouble::Unable(error.to_string());
        let source = self.source(node)?;
        let part = self.plan.part(node);
        let (connect_to, expect) = self.neighbours(node, &part, helpers)?;
        let help = Help {
            run: self.run,
            part,
            chunk: source.chunk,
            block: self.task.block(source.chunk),
            token: source.token.clone(),
            requestor: requestor(self.task),
            connect: connect_to,
            expect,
            deadline_ms: self.task.deadline.as_millis() as u64,
            stall_ms: self.task.stall.as_millis() as u64,
        };
        let (mut reading, writing) = connect(&source.agent).await.map_err(unable)?;
        let asked = writing.send(Kind::Help, vec![body_of(&help)]).await;
        asked.map_err(unable)?;
        let answer = reading.frame_within(prepare_timeout(self.task.stall)).await;
        let answer = answer.map_err(unable)?;
        match (answer.kind, &answer.body[..]) {
            (Kind::Ready, &[kind, b0, b1, b2, b3]) => {
                let bytes_per_checksum = u32::from_be_bytes([b0, b1, b2, b3]);
                let checksum = Checksum {
                    kind,
                    bytes_per_checksum,
                };
                Ok((checksum, reading, writing))
            }
            (Kind::End, body) => match message_of::<End>(body).map_err(unable)? {
                Err(trouble) => Err(trouble),
                Ok(()) => Err(Trouble::Unable("it ended before it began".to_owned())),
            },
            _ => Err(unable(reading.error("its answer does not fit"))),
        }
    }

    fn source(&self, node: NodeId) -> Result<&Source, Trouble> {
        let source = self.task.sources.iter();
        let mut source = source.filter(|source| u32::from(source.chunk.0) == node.0);
        let unknown = || Trouble::Unable(format!("{node} has no block"));
        source.next().ok_or_else(unknown)
    }

    /// The helpers with which a part exchanges slices: those that it connects to, and those that connect to it. Of two
    /// helpers the one with the lower number connects.
    fn neighbours(
        &self,
        node: NodeId,
        part: &Part,
        helpers: &[NodeId],
    ) -> Result<Neighbours, Trouble> {
        let mut others: Vec<NodeId> = part
            .steps
            .iter()
            .filter_map(|step| match step.step {
                Step::Send { from, to, .. } if from == node => Some(to),
                Step::Send { from, .. } => Some(from),
                _ => None,
            })
            .filter(|other| helpers.contains(other))
            .collect();
        others.sort_unstable();
        others.dedup();
        let (expect, higher): (Vec<NodeId>, Vec<NodeId>) =
            others.into_iter().partition(|&other| other < node);
        let mut connect_to = Vec::with_capacity(higher.len());
        for other in higher {
            connect_to.push((other, self.source(other)?.agent.clone()));
        }
        Ok((connect_to, expect))
    }

    /// Tells the plugin how the blocks are checksummed, once. All blocks of a group are checksummed alike.
    async fn announce(
        &self,
        ready: &[(NodeId, Helper)],
        known: &mut Option<Checksum>,
    ) -> Result<(), RunFailed> {
        let first = ready.iter().map(|(_, (checksum, ..))| *checksum).next();
        let Some(expected) = known.or(first) else {
            return Err(RunFailed::because("a group needs at least one block"));
        };
        let is_alike = ready
            .iter()
            .all(|(_, (checksum, ..))| *checksum == expected);
        let unit = u64::from(expected.bytes_per_checksum);
        if !is_alike || !self.task.slice_bytes.is_multiple_of(unit) {
            let reason = "the blocks' checksums differ, or cover more than a slice";
            return Err(RunFailed::because(reason));
        }
        if known.replace(expected).is_none() {
            let body = checksum_body(expected).into();
            let told = self.plugin.send(Kind::Checksum, vec![body]).await;
            told.map_err(|error| RunFailed::because(error.to_string()))?;
        }
        Ok(())
    }
}
