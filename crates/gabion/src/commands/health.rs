//! `gabion health`: the light and the problems of a cluster.

use super::connect;
use crate::arguments::Place;
use crate::failure::Failure;
use crate::output::{Format, print_json, say};
pub(crate) use gabion_console::view::health::{
    age_ms, age_sentence, heard_count, is_needed, join_trouble, light, signs, troubles, with,
};
use gabion_console::view::nodes::SpaceView;
use gabion_layout::NodeId;
use gabion_protocol::message::ClusterStatus;
use serde_json::{Value, json};

/// `gabion health`: prints the light and the problems. The exit code shows the light too.
pub(crate) async fn run(place: &Place, format: Format) -> Result<(), Failure> {
    let status = connect(place).await?.status().await?;
    if format == Format::Json {
        let (heard, needed) = heard_count(&status);
        print_json(&json!({
            "light": light(&status),
            "troubles": troubles(&status),
            "signs": signs(&status),
            "heard_at_most_ms_ago": age_ms(&status),
            "heard_nodes": heard,
            "needed_nodes": needed,
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
        "green" if status.nodes.is_empty() => {
            say("green: no node has joined yet, so nothing is stored and nothing is lost");
        }
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

/// A node's disk space and the time of its report, as JSON; null without a report.
pub(crate) fn node_json(status: &ClusterStatus, node: NodeId) -> (Value, Value) {
    let space = status.spaces.get(&node).map(SpaceView::of);
    (json!(space), json!(status.silence_ms.get(&node)))
}
