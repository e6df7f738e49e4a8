//! The readiness of a started process: it reports it by a line on its stdout. A node that waits for
//! the operator does not report it; the coordinator knows of it. A coordinator reports before that it listens or
//! stands by, because nodes that are started later must reach it.

use gabion_client::ClientOptions;
use gabion_layout::NodeId;
use gabion_protocol::message::{Departure, JoinProgress, Liveness, NodeStatus};
use gabion_wire::trust::Security;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;

/// The word with which a process reports that it is ready; its address follows, and that of its metrics.
pub const READY: &str = "ready";
/// The same of a coordinator that listens. It is ready when most nodes have contacted it and its metadata are known to
/// be the newest.
pub const LISTENING: &str = "listening";
/// The same of a coordinator that stands by, and will listen when it leads.
pub const STANDBY: &str = "standby";
/// Time limit of a process from its start until it is ready: a node recovers its store first.
pub(super) const START_DEADLINE: Duration = Duration::from_mins(1);

/// The state of a started node's process.
#[derive(Clone, Debug)]
pub enum Started {
    /// It serves, as far as it knows.
    Serves,
    /// It joins, or waits for the operator before it does.
    Waits(JoinProgress),
    /// It ran already, and the coordinator counts the node as failed: it may not join yet.
    IsNoMember,
    /// It was not started: the node is drained and has left the cluster.
    HasLeft,
}

/// Reasons why a process is not ready.
pub(super) enum NotReady {
    /// It may become ready: a node waits for the coordinator, or for the operator.
    Late,
    /// It will not become ready.
    Gone(&'static str),
}

/// A process's report that it is ready.
pub(super) struct Ready {
    /// The coordinator's address, or the node's id.
    pub(super) at: String,
    /// The address of its metrics.
    pub(super) metrics: Option<String>,
}

/// Waits for the line with which a process reports that it is ready, or as a coordinator that it can become so.
pub(super) async fn wait_until_ready(stdout: ChildStdout) -> Result<Ready, NotReady> {
    let mut lines = BufReader::new(stdout).lines();
    let line = tokio::time::timeout(START_DEADLINE, lines.next_line()).await;
    let line = line.map_err(|_| NotReady::Late)?.ok().flatten();
    let line = line.ok_or(NotReady::Gone("it ended without a ready line"))?;
    let no_word = NotReady::Gone("its first line is not the ready line");
    let mut states = [READY, LISTENING, STANDBY].into_iter();
    let told = states.find_map(|state| line.strip_prefix(state));
    let told = told.ok_or(no_word)?.trim();
    let (at, metrics) = match told.rsplit_once(' ') {
        Some((at, url)) if url.starts_with("http://") => (at, Some(url.to_owned())),
        _ => (told, None),
    };
    Ok(Ready {
        at: at.to_owned(),
        metrics,
    })
}

/// A coordinator's address, and how to prove oneself to it.
type Place<'a> = (&'a str, Security);

/// Interval of asking the coordinator about a node that is not ready; most are ready before the
/// first time.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Returns when the coordinator reports that the node waits for the operator.
pub(super) async fn until_it_waits(coordinator: Place<'_>, node: NodeId) -> JoinProgress {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        if let Some(Started::Waits(join)) = state_of(coordinator.clone(), node).await
            && join.waits_with_unknown.is_some()
        {
            return join;
        }
    }
}

/// Returns the coordinator's view of a node whose process runs; none if it does not answer.
pub(super) async fn state_of((coordinator, security): Place<'_>, node: NodeId) -> Option<Started> {
    let client = gabion_wire::connect(coordinator, security, ClientOptions::default()).await;
    let mut status = client.ok()?.status().await.ok()?;
    if let Some(join) = status.joining.remove(&node) {
        return Some(Started::Waits(join));
    }
    let known = status.nodes.iter().find(|status| status.node == node);
    Some(match known {
        Some(known) if known.departure == Departure::Drained => Started::HasLeft,
        Some(known) if known.liveness == Liveness::Failed => Started::IsNoMember,
        _ => Started::Serves,
    })
}

/// Time limit of the coordinator's answer before a node is started. Without an answer it starts.
const RECORD_DEADLINE: Duration = Duration::from_secs(1);

/// Returns the coordinator's record of a node that is about to be started; none if it does not answer in time.
pub(super) async fn record_of(
    (coordinator, security): Place<'_>,
    node: NodeId,
) -> Option<NodeStatus> {
    let ask = async {
        let client = gabion_wire::connect(coordinator, security, ClientOptions::default()).await;
        let status = client.ok()?.status().await.ok()?;
        status.nodes.into_iter().find(|status| status.node == node)
    };
    tokio::time::timeout(RECORD_DEADLINE, ask).await.ok()?
}

/// The last sentence of a log. Indented lines continue the one before.
pub(super) fn last_line(log_path: &Path) -> Option<String> {
    let log = fs::read_to_string(log_path).ok()?;
    let lines: Vec<&str> = log.lines().collect();
    let first = lines.iter().rposition(|line| !line.starts_with(' '))?;
    let words = lines[first..].iter().map(|line| line.trim());
    Some(words.collect::<Vec<_>>().join(" "))
}
