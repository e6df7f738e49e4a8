//! `gabion node`: runs a node, accepts a joining one, or removes one from the cluster.

use super::repair_status::RepairErrors;
use super::{connect, repair_status, serve};
use crate::arguments::{NodeArguments, NodeCommand, Place};
use crate::failure::Failure;
use crate::output::{Format, Shown, print_json};
use gabion_client::Client;
use gabion_layout::NodeId;
use gabion_meta::Departure;
use serde_json::json;
use std::time::Duration;

/// Refresh interval of a watch.
const WATCH_EVERY: Duration = Duration::from_millis(200);

pub(crate) async fn run(
    arguments: NodeArguments,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    match arguments.command {
        Some(NodeCommand::Drain {
            node,
            cancel,
            watch,
        }) => {
            let client = connect(place).await?;
            drain(&client, NodeId(node), cancel, watch).await?;
            say(&client, NodeId(node), format).await
        }
        Some(NodeCommand::Accept { node }) => {
            let client = connect(place).await?;
            departure(&client, NodeId(node)).await?;
            client.accept(NodeId(node)).await?;
            if format == Format::Json {
                return print_json(&json!({ "node": node, "accepted": true }));
            }
            println!("{} sets its unknown chunks aside and joins", NodeId(node));
            Ok(())
        }
        None => serve::node(arguments.serve, place).await,
    }
}

async fn drain(client: &Client, node: NodeId, cancel: bool, watch: bool) -> Result<(), Failure> {
    // Naming a missing node is a usage error.
    departure(client, node).await?;
    if cancel {
        return Ok(client.keep(node).await?);
    }
    client.drain(node).await?;
    if !watch {
        return Ok(());
    }
    let status = client.status().await?;
    let most = status.repair.moving_chunk_count;
    let mut errors = RepairErrors::since(&status, most);
    let bar = Shown::count("moving chunks", most);
    while departure(client, node).await? == Departure::Draining {
        let repair = client.status().await?.repair;
        bar.set(most.saturating_sub(repair.moving_chunk_count));
        let doing = format!("moving chunks, {}", repair_status::speed(&repair));
        let error = errors.now(&repair, repair.moving_chunk_count);
        bar.say(error.unwrap_or(&doing));
        tokio::time::sleep(WATCH_EVERY).await;
    }
    Ok(())
}

async fn departure(client: &Client, node: NodeId) -> Result<Departure, Failure> {
    let nodes = client.nodes().await?;
    let status = nodes.iter().find(|status| status.node == node);
    let unknown = || Failure::usage(format!("there is no {node} in this cluster"));
    Ok(status.ok_or_else(unknown)?.departure)
}

async fn say(client: &Client, node: NodeId, format: Format) -> Result<(), Failure> {
    let departure = departure(client, node).await?;
    if format == Format::Json {
        return print_json(&json!({ "node": node.0, "departure": departure_name(departure) }));
    }
    match departure {
        Departure::None => println!("{node} stays"),
        Departure::Draining => println!(
            "the chunks of {node} are moving to other nodes; 'gabion repair status' shows the progress"
        ),
        Departure::Drained => println!("{node} is empty and may be removed"),
    }
    Ok(())
}

/// A departure's name in tables and JSON.
pub(crate) const fn departure_name(departure: Departure) -> &'static str {
    match departure {
        Departure::None => "stays",
        Departure::Draining => "draining",
        Departure::Drained => "drained",
    }
}
