//! The health of a cluster, and the age of that knowledge. It is green only when all known facts
//! are good and no required one is missing.

use super::{counted, repair};
use gabion_layout::NodeId;
use gabion_meta::Departure;
use gabion_planner::placement::Space;
use gabion_protocol::message::{ArrayStatus, ClusterStatus, JoinProgress, Liveness, NodeStatus};

/// Green when nothing is the matter, red when some stripe survives no further failure, yellow in between.
pub fn light(status: &ClusterStatus) -> &'static str {
    match repair::light(status) {
        "red" => "red",
        _ if troubles(status).is_empty() => "green",
        _ => "yellow",
    }
}

/// The problems, a sentence each.
pub fn troubles(status: &ClusterStatus) -> Vec<String> {
    let of = |is_lost: bool| {
        let some = status
            .at_risk
            .iter()
            .filter(move |(left, _)| (**left < 0) == is_lost);
        some.map(|(_, stripes)| stripes).sum::<u64>()
    };
    let (lost, degraded) = (of(true), of(false));
    let mut troubles = Vec::new();
    if lost > 0 {
        troubles.push(counted(
            lost,
            "stripe has lost data",
            "stripes have lost data",
        ));
    }
    let nodes = status.nodes.iter().filter(|node| is_needed(node));
    let of_nodes = nodes.filter_map(|node| {
        let silence_ms = status.silence_ms.get(&node.node);
        if let Some(join) = status.joining.get(&node.node) {
            return Some(join_trouble(node.node, join));
        }
        match node.liveness {
            Liveness::Suspect => Some(format!("{} does not answer", node.node)),
            Liveness::Failed => Some(format!("{} has failed", node.node)),
            Liveness::Up if silence_ms.is_none() => Some(format!(
                "{} has sent no heartbeat since the coordinator started",
                node.node
            )),
            Liveness::Up => disk_trouble(status, node.node),
        }
    });
    troubles.extend(of_nodes);
    let repair = &status.repair;
    let counts = [
        (status.lost_chunk_count, "chunk is lost", "chunks are lost"),
        (
            status.unreachable_chunk_count,
            "chunk cannot be reached now",
            "chunks cannot be reached now",
        ),
        (
            degraded,
            "stripe survives fewer failures than promised",
            "stripes survive fewer failures than promised",
        ),
        (
            repair.queued_chunk_count,
            "chunk is to be repaired",
            "chunks are to be repaired",
        ),
        (
            repair.moving_chunk_count,
            "chunk is to be moved",
            "chunks are to be moved",
        ),
    ];
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    troubles.extend(counts.map(|(count, one, many)| counted(count, one, many)));
    let refused = status.audit_failure.as_ref();
    troubles.extend(refused.map(|why| format!("deletions and settings are refused: {why}")));
    troubles.extend(space_trouble("the coordinator", status.coordinator_space));
    troubles
}

/// Whether a node should answer: a drained one need not.
pub fn is_needed(node: &NodeStatus) -> bool {
    node.departure != Departure::Drained
}

/// The progress of a joining node, and the reason if it waits.
pub fn join_trouble(node: NodeId, join: &JoinProgress) -> String {
    let (told, all) = (join.told_chunk_count, join.chunk_count);
    match join.waits_with_unknown {
        None => format!("{node} is joining; it has reported {told} of its {all} chunks"),
        Some(unknown) => format!(
            "{node} waits to join, because {unknown} of its {all} chunks are unknown; to let it set these aside, run \
            'gabion node accept {}'",
            node.0
        ),
    }
}

/// The problem of a node's disk, if the node has been heard.
fn disk_trouble(status: &ClusterStatus, node: NodeId) -> Option<String> {
    let array = status.arrays.get(&node);
    if array.is_some_and(ArrayStatus::is_degraded) {
        return Some(format!("the array of {node} lacks a device"));
    }
    space_trouble(&node.to_string(), status.spaces.get(&node).copied())
}

/// The problem of a disk, by its reported space.
fn space_trouble(of: &str, space: Option<Space>) -> Option<String> {
    match space {
        None => Some(format!("the disk of {of} does not report its free space")),
        Some(space) if space.is_full() => {
            let percent = space.used_percent();
            Some(format!(
                "the disk of {of} is full: {percent} % of it is used or reserved"
            ))
        }
        Some(_) => None,
    }
}

/// Signs of a decaying disk or a broken link, a sentence each, even if all of it is repaired.
pub fn signs(status: &ClusterStatus) -> Vec<String> {
    let damaged = status.damaged_chunk_counts.iter().map(|(node, count)| {
        format!(
            "{node} has found {count} damaged chunks since the coordinator started; check its disk"
        )
    });
    let evicted = status.eviction_counts.iter().map(|(node, count)| {
        format!("{node} was evicted {count} times since the coordinator started; check its links")
    });
    damaged.chain(evicted).collect()
}

/// Time since the last message of the node, among those that are up, that was silent longest, in
/// milliseconds.
pub fn age_ms(status: &ClusterStatus) -> Option<u64> {
    silences(status).max()
}

/// The number of nodes that are up and have reported, and of those that should.
pub fn heard_count(status: &ClusterStatus) -> (usize, usize) {
    let needed = status.nodes.iter().filter(|node| is_needed(node));
    (silences(status).count(), needed.count())
}

/// Which nodes have reported, and how long ago.
pub fn age_sentence(status: &ClusterStatus) -> String {
    let Some(ms) = age_ms(status) else {
        return "no node reports".to_owned();
    };
    let subject = match heard_count(status) {
        (heard, needed) if heard == needed => "every node".to_owned(),
        (heard, needed) => format!("{heard} of {needed} nodes"),
    };
    format!(
        "{subject} reported within the last {:.1} s",
        ms as f64 / 1e3
    )
}

/// The nodes in this state that should answer.
pub fn with(status: &ClusterStatus, liveness: Liveness) -> impl Iterator<Item = NodeId> {
    let nodes = status.nodes.iter().filter(|node| is_needed(node));
    let nodes = nodes.filter(move |node| node.liveness == liveness);
    nodes.map(|node| node.node)
}

/// The times since the last messages of the nodes that are up.
fn silences(status: &ClusterStatus) -> impl Iterator<Item = u64> {
    let up = with(status, Liveness::Up);
    up.filter_map(|node| status.silence_ms.get(&node).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::RackId;

    fn well() -> ClusterStatus {
        let node = |node| NodeStatus {
            node: NodeId(node),
            rack: RackId(0),
            address: "10.0.0.1:1".to_owned(),
            liveness: Liveness::Up,
            departure: Departure::None,
        };
        let space = Space {
            capacity_bytes: 100,
            free_bytes: 50,
        };
        let ids = || (0..3).map(NodeId);
        ClusterStatus {
            nodes: (0..3).map(node).collect(),
            spaces: ids().map(|node| (node, space)).collect(),
            silence_ms: ids().map(|node| (node, 100 * u64::from(node.0))).collect(),
            coordinator_space: Some(space),
            ..ClusterStatus::default()
        }
    }

    #[test]
    fn the_age_of_the_reports_counts_the_nodes_that_report() {
        let mut status = well();
        status.silence_ms = (0..3).map(|node| (NodeId(node), 300)).collect();
        assert_eq!(
            age_sentence(&status),
            "every node reported within the last 0.3 s"
        );
        status.nodes[1].liveness = Liveness::Failed;
        assert_eq!(
            age_sentence(&status),
            "2 of 3 nodes reported within the last 0.3 s"
        );
        status.nodes[1].departure = Departure::Drained;
        assert_eq!(
            age_sentence(&status),
            "every node reported within the last 0.3 s"
        );
        status.silence_ms.clear();
        assert_eq!(age_sentence(&status), "no node reports");
    }

    #[test]
    fn signs_of_decay_stay_when_all_is_repaired() {
        let mut status = well();
        assert_eq!(signs(&status), [""; 0]);
        status.damaged_chunk_counts.insert(NodeId(2), 7);
        status.eviction_counts.insert(NodeId(1), 2);
        assert_eq!(light(&status), "green");
        let sentences = [
            "node 2 has found 7 damaged chunks since the coordinator started; check its disk",
            "node 1 was evicted 2 times since the coordinator started; check its links",
        ];
        assert_eq!(signs(&status), sentences);
    }

    fn check(change: impl Fn(&mut ClusterStatus), wanted_light: &str, wanted: &str) {
        let mut status = well();
        change(&mut status);
        assert_eq!(light(&status), wanted_light, "{wanted}");
        assert_eq!(troubles(&status).join("; "), wanted);
    }

    #[test]
    fn green_means_no_problem() {
        check(|_| {}, "green", "");
        assert_eq!(age_ms(&well()), Some(200), "of the oldest message");
        let suspect = |status: &mut ClusterStatus| status.nodes[1].liveness = Liveness::Suspect;
        check(suspect, "yellow", "node 1 does not answer");
        let failed = |status: &mut ClusterStatus| status.nodes[1].liveness = Liveness::Failed;
        check(failed, "yellow", "node 1 has failed");
        let gone = |status: &mut ClusterStatus| {
            failed(status);
            status.nodes[1].departure = Departure::Drained;
        };
        check(gone, "green", "");
        let unheard = |status: &mut ClusterStatus| status.silence_ms.retain(|node, _| node.0 != 2);
        check(
            unheard,
            "yellow",
            "node 2 has sent no heartbeat since the coordinator started",
        );
        let full = |status: &mut ClusterStatus| {
            status.spaces.get_mut(&NodeId(0)).unwrap().free_bytes = 3;
        };
        check(
            full,
            "yellow",
            "the disk of node 0 is full: 97 % of it is used or reserved",
        );
        let failing = |status: &mut ClusterStatus| status.spaces.retain(|node, _| node.0 != 0);
        check(
            failing,
            "yellow",
            "the disk of node 0 does not report its free space",
        );
        let no_room = |status: &mut ClusterStatus| {
            let space = status.coordinator_space.as_mut();
            space.unwrap().free_bytes = 2;
        };
        check(
            no_room,
            "yellow",
            "the disk of the coordinator is full: 98 % of it is used or reserved",
        );
        let untold = |status: &mut ClusterStatus| status.coordinator_space = None;
        check(
            untold,
            "yellow",
            "the disk of the coordinator does not report its free space",
        );
        let unreachable = |status: &mut ClusterStatus| status.unreachable_chunk_count = 4;
        check(unreachable, "yellow", "4 chunks cannot be reached now");
        let due = |status: &mut ClusterStatus| status.repair.queued_chunk_count = 2;
        check(due, "yellow", "2 chunks are to be repaired");
        let lost = |left| {
            move |status: &mut ClusterStatus| {
                status.lost_chunk_count = 1;
                status.at_risk.insert(left, 1);
            }
        };
        let words = "1 chunk is lost; 1 stripe survives fewer failures than promised";
        check(lost(1), "yellow", words);
        check(lost(0), "red", words);
        let words = "1 stripe has lost data; 1 chunk is lost";
        check(lost(-1), "red", words);
    }
}
