//! Whether a process that was started serves: it says so by a line on its stdout.

use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;

/// The word with which a process says that it is ready; what follows is its address.
pub(crate) const READY: &str = "ready";
/// How long a process may take from its start until it is ready: a node recovers its store first.
pub(super) const START_DEADLINE: Duration = Duration::from_mins(1);

/// Why a process is not ready.
pub(super) enum NotReady {
    /// It may be one day: a node waits for the coordinator, or for the operator's word.
    Late,
    /// It will not be.
    Gone(&'static str),
}

/// Waits for the line with which a process says that it is ready; gives what follows the word.
pub(super) async fn wait_until_ready(stdout: ChildStdout) -> Result<String, NotReady> {
    let mut lines = BufReader::new(stdout).lines();
    let line = tokio::time::timeout(START_DEADLINE, lines.next_line()).await;
    let line = line.map_err(|_| NotReady::Late)?.ok().flatten();
    let line = line.ok_or(NotReady::Gone("it ended without a word"))?;
    let no_word = NotReady::Gone("it said something else than that it is ready");
    let address = line.strip_prefix(READY).ok_or(no_word)?;
    Ok(address.trim().to_owned())
}

/// The last line of a log.
pub(super) fn last_line(log_path: &Path) -> Option<String> {
    let log = fs::read_to_string(log_path).ok()?;
    log.lines().last().map(str::to_owned)
}
