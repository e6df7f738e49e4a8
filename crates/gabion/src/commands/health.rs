//! `gabion health`: the light and the problems of a cluster.

use super::connect;
use crate::arguments::Place;
use crate::failure::Failure;
use crate::output::{Format, print_json, say};
pub(crate) use gabion_console::view::health::{
    age_ms, heard_count, is_needed, join_trouble, light, signs, troubles,
};
use gabion_console::view::nodes::SpaceView;
use gabion_layout::NodeId;
use gabion_protocol::message::ClusterStatus;
use serde_json::{Value, json};

/// `gabion health`: prints the light and the problems. The exit code shows the light too.
pub(crate) async fn run(place: &Place, format: Format) -> Result<(), Failure> {
    let status = connect(place).await?.status().await?;
    if format == Format::Json {
        print_json(&json!({
            "light": light(&status),
            "troubles": troubles(&status),
            "signs": signs(&status),
            "heard_at_most_ms_ago": age_ms(&status),
            "heard_nodes": heard_count(&status).0,
            "needed_nodes": heard_count(&status).1,
        }))?;
    } else {
        print(&status);
    }
    match light(&status) {
        "green" => Ok(()),
        "yellow" => Err(Failure::yellow()),
        _ => Err(Failure::red()),
    }
}

/// Prints the light, the age of the nodes' reports, and the problems.
pub(crate) fn print(status: &ClusterStatus) {
    let age = age_sentence(status);
    match light(status) {
        "green" => say(format!(
            "green: every node answers, every chunk is there, no disk is full, no store has failed, and no \
             repair is due; {age}"
        )),
        light => {
            println!("{light}; {age}");
            for trouble in troubles(status) {
                say(format!("- {trouble}"));
            }
        }
    }
    for sign in signs(status) {
        say(sign);
    }
}

/// Which nodes have reported, and how long ago.
fn age_sentence(status: &ClusterStatus) -> String {
    let (heard, needed) = heard_count(status);
    match age_ms(status) {
        Some(ms) if heard == needed => format!(
            "every node reported within the last {:.1} s",
            ms as f64 / 1e3
        ),
        Some(ms) => format!(
            "{heard} of {needed} nodes reported within the last {:.1} s",
            ms as f64 / 1e3
        ),
        None => "no node reports".to_owned(),
    }
}

/// A node's disk space and the time of its report, as JSON; null without a report.
pub(crate) fn node_json(status: &ClusterStatus, node: NodeId) -> (Value, Value) {
    let space = status.spaces.get(&node).map(SpaceView::of);
    (json!(space), json!(status.silence_ms.get(&node)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::RackId;
    use gabion_meta::Departure;
    use gabion_protocol::message::{Liveness, NodeStatus};

    #[test]
    fn the_age_of_the_reports_counts_the_nodes_that_report() {
        let node = |node| NodeStatus {
            node: NodeId(node),
            rack: RackId(0),
            address: "10.0.0.1:1".to_owned(),
            liveness: Liveness::Up,
            departure: Departure::None,
        };
        let mut status = ClusterStatus {
            nodes: (0..3).map(node).collect(),
            silence_ms: (0..3).map(|node| (NodeId(node), 300)).collect(),
            ..ClusterStatus::default()
        };
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
}
