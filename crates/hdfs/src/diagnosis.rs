//! Why a run has failed: the helpers' reports, and the blocks without which the next run may succeed.

use crate::flows::{Ended, Flows};
use crate::message::Trouble;
use gabion_layout::{ChunkIndex, NodeId};
use gabion_protocol::message::Refusal;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Time for which reports are collected after a failed run.
const REPORT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// The reports of helpers, as far as they came.
pub(crate) type Reports = BTreeMap<NodeId, Ended>;

/// A failed run.
pub(crate) struct RunFailed {
    pub(crate) reason: String,
    /// The blocks whose helpers could not do their parts. Empty when the cause is unknown, or is not a helper.
    pub(crate) suspects: Vec<ChunkIndex>,
    /// Those of them that do not match their checksums.
    pub(crate) corrupt: Vec<ChunkIndex>,
}

impl RunFailed {
    /// A failure for which no helper is blamed yet.
    pub(crate) fn because(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            suspects: Vec::new(),
            corrupt: Vec::new(),
        }
    }

    /// Blames a helper.
    pub(crate) fn blame(&mut self, node: NodeId, trouble: &Trouble) {
        let chunk = ChunkIndex::new(node.0 as usize);
        self.suspects.push(chunk);
        if matches!(trouble, Trouble::Corrupt(_)) {
            self.corrupt.push(chunk);
        }
        self.reason = match trouble {
            Trouble::Corrupt(reason) | Trouble::Unable(reason) => format!("{node}: {reason}"),
            Trouble::Lost(other) => format!("{node} lost the connection to {other}"),
            Trouble::Stalled(_) => format!("{node} has stalled"),
        };
    }
}

/// Collects the reports of `helper_count` helpers, until one of them explains the failure.
pub(crate) async fn reports(flows: &mut Flows, helper_count: usize) -> Reports {
    let mut reports = Reports::new();
    let end = Instant::now() + REPORT_TIMEOUT;
    while reports.len() < helper_count {
        let Ok(Some((node, ended))) = timeout_at(end, flows.ended()).await else {
            break;
        };
        let is_clear = own_trouble(&ended).is_some();
        reports.insert(node, ended);
        if is_clear {
            break;
        }
    }
    reports
}

/// The trouble that a helper has by itself, whatever the others do.
fn own_trouble(ended: &Ended) -> Option<Trouble> {
    match ended {
        Ended::Reported(Err(trouble @ (Trouble::Corrupt(_) | Trouble::Unable(_)))) => {
            Some(trouble.clone())
        }
        Ended::Broken => Some(Trouble::Unable("it has gone".to_owned())),
        Ended::Reported(_) => None,
    }
}

/// Finds the helpers without which the next run may succeed.
pub(crate) fn diagnose(reports: &Reports, helpers: &[NodeId], refusal: Refusal) -> RunFailed {
    let mut failed = RunFailed::because(refusal.to_string());
    for (&node, ended) in reports {
        if let Some(trouble) = own_trouble(ended) {
            failed.blame(node, &trouble);
        }
    }
    if failed.suspects.is_empty() {
        for node in silent_or_awaited(reports, helpers, refusal) {
            let reason = failed.reason.clone();
            failed.blame(node, &Trouble::Unable(reason));
        }
    }
    failed
}

/// The helpers to blame where none has reported trouble of its own: those that others have lost, or else those that
/// report nothing because they hang, or else those that wait for no other because their disks hang, or else those for
/// which the others wait.
fn silent_or_awaited(reports: &Reports, helpers: &[NodeId], refusal: Refusal) -> Vec<NodeId> {
    let mut lost: Vec<NodeId> = Vec::new();
    let mut slow = Vec::new();
    let mut awaited = match refusal {
        Refusal::Stalled(nodes) => nodes,
        _ => Vec::new(),
    };
    for (&node, ended) in reports {
        match ended {
            // Two that have lost each other may both be well, so one of them stays.
            Ended::Reported(Err(Trouble::Lost(other))) if !lost.contains(&node) => {
                lost.push(*other);
            }
            Ended::Reported(Err(Trouble::Stalled(nodes))) if nodes.is_empty() => slow.push(node),
            Ended::Reported(Err(Trouble::Stalled(nodes))) => awaited.extend(nodes),
            _ => {}
        }
    }
    let has_not_reported = |node: &&NodeId| !reports.contains_key(*node);
    let silent = helpers.iter().filter(has_not_reported).copied().collect();
    for mut nodes in [lost, silent, slow, awaited] {
        nodes.retain(|node| helpers.contains(node));
        nodes.sort_unstable();
        nodes.dedup();
        if !nodes.is_empty() {
            return nodes;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELPERS: [NodeId; 3] = [NodeId(0), NodeId(1), NodeId(2)];
    const REQUESTOR: NodeId = NodeId(5);

    fn failed(trouble: Trouble) -> Ended {
        Ended::Reported(Err(trouble))
    }

    #[track_caller]
    fn check(reports: Vec<(u32, Ended)>, suspects: &[u8]) {
        let reports = reports
            .into_iter()
            .map(|(node, ended)| (NodeId(node), ended));
        let refusal = Refusal::Stalled(vec![NodeId(2)]);
        let failed = diagnose(&reports.collect(), &HELPERS, refusal);
        let found: Vec<u8> = failed.suspects.iter().map(|chunk| chunk.0).collect();
        assert_eq!(found, suspects);
    }

    #[test]
    fn own_trouble_comes_before_what_others_say() {
        let lost = |node| failed(Trouble::Lost(NodeId(node)));
        let stalled = |nodes: &[u32]| {
            let nodes = nodes.iter().map(|&node| NodeId(node)).collect();
            failed(Trouble::Stalled(nodes))
        };
        check(vec![(0, lost(1)), (1, Ended::Broken)], &[1]);
        check(
            vec![(0, lost(1)), (2, failed(Trouble::Corrupt(String::new())))],
            &[2],
        );
        check(vec![(0, lost(1)), (2, lost(1))], &[1]);
        check(vec![(0, lost(1)), (1, lost(0)), (2, stalled(&[0]))], &[1]);
        check(vec![(0, stalled(&[1])), (2, stalled(&[1]))], &[1]);
        check(
            vec![(0, stalled(&[1])), (1, stalled(&[])), (2, stalled(&[1]))],
            &[1],
        );
        check(
            vec![(0, stalled(&[1])), (1, stalled(&[0])), (2, stalled(&[1]))],
            &[0, 1, 2],
        );
        // The requestor itself is slow: the plugin takes no bytes.
        let waits = stalled(&[REQUESTOR.0]);
        check(
            vec![
                (0, waits),
                (1, Ended::Reported(Ok(()))),
                (2, Ended::Reported(Ok(()))),
            ],
            &[2],
        );
    }
}
