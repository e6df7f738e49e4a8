//! `gabion repair` and `gabion scrub`.

use super::cluster::{print_redundancy, repair_json};
use super::health::with;
use super::repair_status::{RepairErrors, is_over, missing_count};
use super::{connect, repair_status};
use crate::arguments::{LimitOptions, Place, RepairCommand, RepairOptions};
use crate::failure::Failure;
use crate::output::{Format, Shown, bytes, counted, print_json};
use gabion_client::Client;
use gabion_layout::NodeId;
use gabion_planner::manager::Limits;
use gabion_planner::repair::Scheme;
use gabion_protocol::message::{ClusterStatus, Liveness, RepairOrder, RepairStatus};
use gabion_wire::parse_rate;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Refresh interval of a watch.
const WATCH_EVERY: Duration = Duration::from_millis(200);

pub(crate) async fn repair(
    options: RepairOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    if let Some(command) = options.command {
        let client = connect(place).await?;
        return manage(&client, command, format).await;
    }
    if let Some(scheme) = &options.scheme {
        scheme.parse::<Scheme>().map_err(Failure::usage)?;
    }
    let client = connect(place).await?;
    client.repair_now(options.scheme.as_deref()).await?;
    let status = if options.watch {
        watch(&client).await?
    } else {
        client.status().await?
    };
    if format == Format::Json {
        return print_json(&json!({
            "lost_chunks": status.lost_chunk_count,
            "stripes_by_failures_left": status.stripes_by_failures_left,
            "repair": repair_json(&status),
        }));
    }
    print_redundancy(&status);
    Ok(())
}

async fn manage(client: &Client, command: RepairCommand, format: Format) -> Result<(), Failure> {
    match command {
        RepairCommand::Status { watch } => return repair_status::show(client, watch, format).await,
        RepairCommand::Pause => client.order_repair(RepairOrder::Pause).await?,
        RepairCommand::Resume => client.order_repair(RepairOrder::Resume).await?,
        RepairCommand::Limit(options) => {
            let repair = client.status().await?.repair;
            if let Some(order) = limit(&options, &repair)? {
                client.order_repair(order).await?;
            }
            return repair_status::show_limits(client, format).await;
        }
    }
    repair_status::show(client, false, format).await
}

/// The order for the requested limits; none if none is requested.
fn limit(options: &LimitOptions, repair: &RepairStatus) -> Result<Option<RepairOrder>, Failure> {
    if options.none {
        let limits = Limits::default();
        let p99_target_ms = None;
        return Ok(Some(RepairOrder::Limit {
            limits,
            p99_target_ms,
        }));
    }
    let rate = |text: &Option<String>, now| match text.as_deref().map(parse_rate) {
        None => Ok(now),
        Some(Ok(bytes_per_s)) => Ok(Some(bytes_per_s).filter(|rate| *rate > 0)),
        Some(Err(error)) => Err(Failure::usage(error)),
    };
    let now = &repair.limits;
    let limits = Limits {
        node_bytes_per_s: rate(&options.node, now.node_bytes_per_s)?,
        rack_bytes_per_s: rate(&options.rack, now.rack_bytes_per_s)?,
        total_bytes_per_s: rate(&options.total, now.total_bytes_per_s)?,
    };
    let p99_target_ms = options.p99_ms.or(repair.p99_target_ms);
    let is_news = (&limits, p99_target_ms) != (now, repair.p99_target_ms);
    Ok(is_news.then_some(RepairOrder::Limit {
        limits,
        p99_target_ms,
    }))
}

/// Shows progress until every node has reported or failed, and no chunk is lost; returns the last status. Chunks of
/// nodes that fail during the wait are also repaired now.
async fn watch(client: &Client) -> Result<ClusterStatus, Failure> {
    let begun = Instant::now();
    let mut status = client.status().await?;
    let mut most = missing_count(&status);
    let mut errors = RepairErrors::since(&status, most);
    let bar = Shown::count("repairing chunks", most);
    let mut abandoned = BTreeSet::new();
    loop {
        let failed: BTreeSet<NodeId> = with(&status, Liveness::Failed).collect();
        if !failed.is_subset(&abandoned) {
            client.repair_now(None).await?;
        }
        abandoned = failed;
        let missing = missing_count(&status);
        most = most.max(missing);
        bar.set_of(most - missing, most);
        let waits_for = with(&status, Liveness::Suspect).next();
        let doing = waits_for.map(|node| format!("{node} does not answer"));
        let doing = doing.as_deref().unwrap_or("repairing chunks");
        bar.say(errors.now(&status.repair, missing).unwrap_or(doing));
        let watched = begun.elapsed();
        status = client.status().await?;
        if is_over(&status, watched) {
            return Ok(status);
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

pub(crate) async fn scrub(place: &Place, format: Format) -> Result<(), Failure> {
    let client = connect(place).await?;
    let spinner = Shown::spinner("verifying every stored byte");
    let report = client.scrub().await?;
    drop(spinner);
    if format == Format::Json {
        let damage = report.damage.iter().map(|d| {
            json!({
                "stripe": d.chunk.stripe.0,
                "chunk": d.chunk.index.0,
                "offset": d.range.offset,
                "length": d.range.length,
            })
        });
        print_json(&json!({
            "chunks": report.chunk_count,
            "bytes": report.bytes,
            "damage": damage.collect::<Vec<_>>(),
            "unreachable_nodes": report.unreachable.iter().map(|n| n.0).collect::<Vec<_>>(),
        }))?;
        return all_were_asked(&report.unreachable);
    }
    println!(
        "verified {}, {}",
        counted(report.chunk_count, "chunk", "chunks"),
        bytes(report.bytes)
    );
    for damage in &report.damage {
        println!(
            "damaged: {} bytes {}..{}; the repair has started",
            damage.chunk,
            damage.range.offset,
            damage.range.end()
        );
    }
    if report.damage.is_empty() && report.unreachable.is_empty() {
        println!("no damage");
    }
    all_were_asked(&report.unreachable)
}

/// Fails if a scrub did not cover these nodes' chunks.
fn all_were_asked(unreachable: &[NodeId]) -> Result<(), Failure> {
    if unreachable.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = unreachable.iter().map(NodeId::to_string).collect();
    Err(Failure::failed(format!(
        "the scrub could not reach {}, so some chunks are not verified; see 'gabion cluster status', then scrub again",
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_that_could_not_ask_a_node_fails() {
        assert!(all_were_asked(&[]).is_ok());
        let failure = all_were_asked(&[NodeId(3), NodeId(5)]).unwrap_err();
        let words = "could not reach node 3, node 5";
        assert!(failure.to_string().contains(words), "{failure}");
    }
}
