//! `gabion cluster`: start, inspect and stop.

use super::array_status;
use super::connect;
use super::health;
use super::metadata;
use super::node::departure_name;
use super::repair_status;
use crate::arguments::{ClusterCommand, Place, UpOptions};
use crate::failure::{Context, Failure};
use crate::output::{Format, Shown, align_numbers, bytes, counted, print_json, remark, say, table};
use comfy_table::{ContentArrangement, Table};
use gabion_client::ClientOptions;
use gabion_layout::NodeId;
use gabion_meta::Departure;
use gabion_protocol::message::{
    ClusterStatus, LifecycleStatus, LinkRate, Liveness, Meter, NodeStatus, Purpose,
};
use gabion_testbed::cluster::{OpenConsole, lock};
use gabion_testbed::{EndSignals, LocalCluster};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(crate) async fn run(
    command: ClusterCommand,
    place: Place,
    format: Format,
) -> Result<(), Failure> {
    match command {
        ClusterCommand::Up(options) => up(options, &place, format).await,
        ClusterCommand::Status => status(&place, format).await,
        ClusterCommand::Links => links(&place, format).await,
        ClusterCommand::Log { last } => log(&place, last, format),
        ClusterCommand::Down => down(&place, format).await,
    }
}

async fn up(options: UpOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let directory = place.dir.as_deref().ok_or_else(|| {
        Failure::usage("no directory given for the cluster's data; use 'gabion cluster up --dir D'")
    })?;
    std::fs::create_dir_all(directory).context(format!("create {}", directory.display()))?;
    let directory = directory
        .canonicalize()
        .context(format!("find {}", directory.display()))?;
    let _lock = lock(&directory)?;
    if let Some(url) = &options.metadata {
        metadata::check_argument(url)?;
    }
    let no_console = options.no_console;
    let mut cluster = LocalCluster::open_or_make(
        &directory,
        &options.cluster(place.insecure).map_err(Failure::usage)?,
    )?;
    let has_console = !no_console && !cluster.options().no_console;
    let mut signals = EndSignals::listen()?;
    let (status, console) = tokio::select! {
        started = start(&mut cluster, has_console) => started?,
        () = signals.recv() => {
            return Err(Failure::failed(format!(
                "interrupted; 'gabion cluster down --dir {}' ends all processes of the cluster",
                directory.display()
            )));
        }
    };
    let coordinator = cluster.coordinator()?;
    let up_count = status.nodes.iter().filter(|node| is_up(&status, node));
    let up_count = up_count.count();
    if format == Format::Json {
        return print_json(&json!({
            "directory": directory.display().to_string(),
            "coordinator": coordinator,
            "nodes": cluster.node_count(),
            "nodes_up": up_count,
            "racks": cluster.options().racks,
            "console": console.map(|console| json!({ "url": console.url, "password": console.password })),
        }));
    }
    let (count, racks) = (cluster.node_count(), cluster.options().racks);
    let of_all = if up_count == count as usize {
        String::new()
    } else {
        format!(" of {count}")
    };
    say(format!(
        "{up_count}{of_all} nodes in {racks} racks are up; the coordinator listens on {coordinator}"
    ));
    for (node, join) in &status.joining {
        say(format!("- {}", health::join_trouble(*node, join)));
    }
    if let Some(console) = console {
        println!(
            "console: {} (one-time password {})",
            console.url, console.password
        );
    }
    println!(
        "next: export GABION_DIR={} && gabion pool create vm --survive 1-rack",
        for_shell(&directory.display().to_string())
    );
    Ok(())
}

/// A word as a shell takes it.
fn for_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,".contains(c);
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Starts the processes that do not run yet, waits for the nodes, and starts the console if it is wanted.
async fn start(
    cluster: &mut LocalCluster,
    has_console: bool,
) -> Result<(ClusterStatus, Option<OpenConsole>), Failure> {
    let progress = Shown::count("starting", u64::from(cluster.node_count()) + 1);
    cluster.start(|| progress.step()).await?;
    drop(progress);
    let status = until_up(cluster).await?;
    let console = if has_console {
        start_console(cluster).await
    } else {
        None
    };
    Ok((status, console))
}

/// Starts the console. A failure here does not fail the cluster.
async fn start_console(cluster: &LocalCluster) -> Option<OpenConsole> {
    match cluster.start_console().await {
        Ok(console) => console,
        Err(error) => {
            remark(error);
            None
        }
    }
}

/// Interval of asking the coordinator whether started nodes are up.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time after which the command prints the missing nodes.
const SAY_AFTER: Duration = Duration::from_secs(5);
/// Time limit of the wait, in addition to a lease.
const UP_DEADLINE: Duration = Duration::from_secs(10);

/// Asks the coordinator until all nodes are up, except those that have left the cluster for good or
/// wait for the operator; returns its status then.
///
/// # Errors
/// If a node is missing for longer than 10 s and a lease.
async fn until_up(cluster: &LocalCluster) -> Result<ClusterStatus, Failure> {
    let client = gabion_wire::connect(
        cluster.coordinator()?,
        cluster.security()?,
        ClientOptions::default(),
    )
    .await?;
    let lease = Duration::from_millis(cluster.options().behaviour.lease_ms);
    let begun = Instant::now();
    let mut was_told = false;
    loop {
        let status = client.status().await?;
        let waits = |node| {
            let join = status.joining.get(&node);
            join.is_some_and(|join| join.waits_with_unknown.is_some())
        };
        let nodes = status.nodes.iter().filter(|node| health::is_needed(node));
        let missing = nodes.filter(|node| !is_up(&status, node) && !waits(node.node));
        let missing: Vec<String> = missing.map(|node| node.node.to_string()).collect();
        if missing.is_empty() {
            return Ok(status);
        }
        let missing = missing.join(", ");
        if begun.elapsed() >= SAY_AFTER && !was_told {
            was_told = true;
            remark(format_args!(
                "waiting for a heartbeat of {missing}; running nodes send one every {:.1} s",
                lease.as_secs_f64() / 4.0
            ));
        }
        if begun.elapsed() >= UP_DEADLINE + lease {
            return Err(Failure::failed(format!(
                "the coordinator receives no heartbeat of {missing} after the start; see 'gabion cluster status' and \
                the logs in the cluster's directory"
            )));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether the coordinator has heard from the node since its own start, and the node serves.
fn is_up(status: &ClusterStatus, node: &NodeStatus) -> bool {
    let was_heard = status.silence_ms.contains_key(&node.node);
    let is_joining = status.joining.contains_key(&node.node);
    node.liveness == Liveness::Up && was_heard && !is_joining
}

/// Prints the matrix of measured links, in megabytes a second, a row for each sender.
async fn links(place: &Place, format: Format) -> Result<(), Failure> {
    let client = connect(place).await?;
    let links = client.links().await?;
    if format == Format::Json {
        let rows = links.iter().map(|link| {
            json!({
                "from": link.from.0,
                "to": link.to.0,
                "bytes_per_s": link.bytes_per_s,
                "age_ms": link.age_ms,
            })
        });
        return print_json(&rows.collect::<Vec<_>>());
    }
    let receivers: BTreeSet<_> = links.iter().map(|link| link.to).collect();
    let senders: BTreeSet<_> = links.iter().map(|link| link.from).collect();
    let receivers: Vec<NodeId> = receivers.into_iter().collect();
    for receivers in receivers.chunks(RECEIVERS_ABREAST) {
        println!("{}", matrix(&links, &senders, receivers));
    }
    Ok(())
}

/// Columns of the matrix of links that fit into the output's width; further tables show the others.
const RECEIVERS_ABREAST: usize = 10;

/// The rates of the links to some receivers.
fn matrix(links: &[LinkRate], senders: &BTreeSet<NodeId>, receivers: &[NodeId]) -> Table {
    let names: Vec<String> = receivers.iter().map(|node| node.0.to_string()).collect();
    let heading: Vec<&str> = ["MB/s from, to"]
        .into_iter()
        .chain(names.iter().map(|n| &**n))
        .collect();
    let mut matrix = table(&heading);
    // Numbers stay unbroken.
    matrix.set_content_arrangement(ContentArrangement::Disabled);
    for &from in senders {
        let rate = |to| {
            let link = links.iter().find(|link| (link.from, link.to) == (from, to));
            link.map_or(String::new(), |link| {
                let megabytes = link.bytes_per_s as f64 / 1e6;
                let digits = usize::from(megabytes < 100.0);
                format!("{megabytes:.digits$}")
            })
        };
        let row = receivers.iter().map(|&to| rate(to));
        matrix.add_row([from.to_string()].into_iter().chain(row));
    }
    align_numbers(&mut matrix);
    matrix
}

/// Prints the end of the coordinator's log; of several, the log of the one that leads.
fn log(place: &Place, last: usize, format: Format) -> Result<(), Failure> {
    let directory = place.dir.as_deref().ok_or_else(|| {
        Failure::usage(
            "no cluster given; use 'gabion cluster log --dir D'. A coordinator that you started yourself logs to its \
            stderr",
        )
    })?;
    let cluster = LocalCluster::open(directory)?;
    let leader = cluster.leader();
    let path = cluster.log_path(leader.as_deref().unwrap_or(COORDINATOR));
    let log = std::fs::read(&path).context(format!("read {}", path.display()))?;
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    let lines = &lines[lines.len().saturating_sub(last)..];
    if format == Format::Json {
        return print_json(&lines);
    }
    for line in lines {
        say(line);
    }
    Ok(())
}

async fn down(place: &Place, format: Format) -> Result<(), Failure> {
    let directory = place
        .dir
        .as_deref()
        .ok_or_else(|| Failure::usage("no cluster given; use 'gabion cluster down --dir D'"))?;
    let cluster = LocalCluster::open(directory)?;
    let _lock = lock(directory)?;
    let stopped = cluster.stop().await?;
    if format == Format::Json {
        let directory = directory.display().to_string();
        return print_json(&json!({ "directory": directory, "stopped_processes": stopped }));
    }
    println!(
        "stopped {stopped} processes; the data stays in {}",
        directory.display()
    );
    Ok(())
}

async fn status(place: &Place, format: Format) -> Result<(), Failure> {
    let client = connect(place).await?;
    let status = client.status().await?;
    let meters = client.meters().await?;
    let metrics = metrics_urls(place, &status);
    if format == Format::Json {
        return print_json(&json!({
            "light": health::light(&status),
            "troubles": health::troubles(&status),
            "heard_at_most_ms_ago": health::age_ms(&status),
            "metrics": metrics.get(COORDINATOR),
            "nodes": status.nodes.iter().map(|node| node_json(&status, node, &metrics)).collect::<Vec<_>>(),
            "stripes_by_failures_left": status.stripes_by_failures_left,
            "appending_stripes": status.appending_stripe_count,
            "grouped_chunks": status.grouped_chunk_count,
            "degraded_stripes": status.at_risk.values().sum::<u64>(),
            "lost_chunks": status.lost_chunk_count,
            "unreachable_chunks": status.unreachable_chunk_count,
            "repair": repair_json(&status),
            "lifecycle": lifecycle_json(&status.lifecycle),
            "traffic": meter_json(&meters.sum()),
            "planned": meter_json(&meters.planned),
            "traffic_unknown_of": meters.unreachable.iter().map(|node| node.0).collect::<Vec<_>>(),
        }));
    }
    let mut nodes = table(&["node", "rack", "address", "state"]);
    for node in &status.nodes {
        nodes.add_row([
            node.node.0.to_string(),
            node.rack.0.to_string(),
            node.address.clone(),
            match node.departure {
                Departure::None => state(&status, node),
                departure => format!("{}, {}", state(&status, node), departure_name(departure)),
            },
        ]);
    }
    println!("{nodes}");
    print_metrics(&metrics);
    array_status::print(&status);
    health::print(&status);
    print_redundancy(&status);
    print_lifecycle(&status.lifecycle);
    print_traffic(&meters.sum());
    Ok(())
}

/// The JSON key of the leading coordinator, and the process name of the first coordinator.
const COORDINATOR: &str = "coordinator";

/// The metrics addresses of a local cluster's processes, by the names of the nodes' processes and [`COORDINATOR`].
fn metrics_urls(place: &Place, status: &ClusterStatus) -> BTreeMap<String, String> {
    let cluster = place.dir.as_deref().filter(|_| place.coordinator.is_none());
    let Some(cluster) = cluster.and_then(|directory| LocalCluster::open(directory).ok()) else {
        return BTreeMap::new();
    };
    let nodes = status.nodes.iter().map(|node| process_name(node.node));
    let nodes = nodes.map(|name| (name.clone(), name));
    let leader = cluster.leader();
    let leader = leader.map(|name| (COORDINATOR.to_owned(), name));
    let known = nodes.chain(leader);
    known
        .filter_map(|(key, name)| Some((key, cluster.metrics_url(&name)?)))
        .collect()
}

/// The name of a node's process in a local cluster.
fn process_name(node: NodeId) -> String {
    format!("node-{}", node.0)
}

fn print_metrics(metrics: &BTreeMap<String, String>) {
    if let Some(url) = metrics.get(COORDINATOR) {
        say(format!(
            "metrics of the coordinator: {url}; for those of the nodes, use --format json"
        ));
    }
}

/// Redundancy and repair in sentences.
pub(crate) fn print_redundancy(status: &ClusterStatus) {
    for (left, stripes) in &status.stripes_by_failures_left {
        let (one, many) = match left {
            -1 => ("stripe has lost data", "stripes have lost data"),
            0 => (
                "stripe survives no further failure",
                "stripes survive no further failure",
            ),
            _ => ("stripe survives", "stripes survive"),
        };
        let further = match left {
            ..=0 => String::new(),
            1 => " one more chunk failure".to_owned(),
            left => format!(" {left} more chunk failures"),
        };
        println!("{}{further}", counted(*stripes, one, many));
    }
    if status.appending_stripe_count > 0 {
        say(format!(
            "{} as many failures as the copies of their updates, until the next commit",
            counted(
                status.appending_stripe_count,
                "stripe survives",
                "stripes survive"
            )
        ));
    }
    let repair = &status.repair;
    say(format!(
        "{} lost now; repair ({}): {} waiting, {} done ({}), {} caught up ({}), \
         {} cross racks planned",
        counted(status.lost_chunk_count, "chunk is", "chunks are"),
        repair.scheme,
        repair.queued_chunk_count,
        repair.repaired_chunk_count,
        bytes(repair.repaired_bytes),
        repair.caught_up_chunk_count,
        bytes(repair.caught_up_bytes),
        bytes(repair.planned_cross_rack_bytes)
    ));
    if let Some(error) = repair_status::last_error(status) {
        say(format!("the last failed repair: {error}"));
    }
}

/// The conversions of replicated blocks, in sentences; nothing if there are none.
fn print_lifecycle(lifecycle: &LifecycleStatus) {
    if lifecycle.replicated_block_count + lifecycle.encoded_stripe_count == 0 {
        return;
    }
    say(format!(
        "{} blocks are replicated, {} stripes of such pools are encoded; {} segments wait, {} are being \
         converted; {} encoded and {} replicated again since the start ({}), {} attempts discarded",
        lifecycle.replicated_block_count,
        lifecycle.encoded_stripe_count,
        lifecycle.waiting_count,
        lifecycle.running_count,
        lifecycle.encoded_count,
        lifecycle.promoted_count,
        bytes(lifecycle.converted_bytes),
        lifecycle.outrun_count,
    ));
    if let Some(error) = last_conversion_error(lifecycle) {
        say(format!("the last failed conversion: {error}"));
    }
}

/// The error of the last failed conversion, while a conversion is due.
fn last_conversion_error(lifecycle: &LifecycleStatus) -> Option<&str> {
    let open = lifecycle.waiting_count + lifecycle.running_count;
    lifecycle.last_error.as_deref().filter(|_| open > 0)
}

fn lifecycle_json(lifecycle: &LifecycleStatus) -> Value {
    json!({
        "replicated_block_count": lifecycle.replicated_block_count,
        "encoded_stripe_count": lifecycle.encoded_stripe_count,
        "waiting_count": lifecycle.waiting_count,
        "running_count": lifecycle.running_count,
        "encoded_count": lifecycle.encoded_count,
        "promoted_count": lifecycle.promoted_count,
        "converted_bytes": lifecycle.converted_bytes,
        "outrun_count": lifecycle.outrun_count,
        "planned_encode_cross_rack_bytes": lifecycle.planned_encode_cross_rack_bytes,
        "planned_download_cross_rack_bytes": lifecycle.planned_download_cross_rack_bytes,
        "planned_promote_cross_rack_bytes": lifecycle.planned_promote_cross_rack_bytes,
        "last_error": last_conversion_error(lifecycle),
    })
}

fn print_traffic(meter: &Meter) {
    if meter.bytes.is_empty() {
        return;
    }
    let mut traffic = table(&["from", "to", "purpose", "payload"]);
    for (&(from, to, purpose), &count) in &meter.bytes {
        let name = |rack: Option<gabion_layout::RackId>| {
            rack.map_or_else(|| "client".to_owned(), |rack| rack.to_string())
        };
        traffic.add_row([
            name(from),
            name(to),
            purpose.name().to_owned(),
            bytes(count),
        ]);
    }
    align_numbers(&mut traffic);
    println!("{traffic}");
    for purpose in Purpose::ALL {
        println!(
            "cross-rack {}: {}",
            purpose.name(),
            bytes(meter.cross_rack(purpose))
        );
    }
}

fn node_json(
    status: &ClusterStatus,
    node: &NodeStatus,
    metrics: &BTreeMap<String, String>,
) -> Value {
    let (space, heard_ms_ago) = health::node_json(status, node.node);
    json!({
        "node": node.node.0,
        "heard_ms_ago": heard_ms_ago,
        "space": space,
        "damaged_chunks": status.damaged_chunk_counts.get(&node.node).unwrap_or(&0),
        "evictions": status.eviction_counts.get(&node.node).unwrap_or(&0),
        "metrics": metrics.get(&process_name(node.node)),
        "rack": node.rack.0,
        "address": node.address,
        "state": liveness(node.liveness),
        "joining": status.joining.get(&node.node).map(|join| json!({
            "told_chunks": join.told_chunk_count,
            "chunks": join.chunk_count,
            "waits_with_unknown_chunks": join.waits_with_unknown,
        })),
        "departure": departure_name(node.departure),
        "array": array_status::as_json(status, node.node),
    })
}

/// The state of repair, as JSON.
pub(crate) fn repair_json(status: &ClusterStatus) -> Value {
    let repair = &status.repair;
    json!({
        "scheme": repair.scheme,
        "queued_chunks": repair.queued_chunk_count,
        "repaired_chunks": repair.repaired_chunk_count,
        "repaired_bytes": repair.repaired_bytes,
        "caught_up_chunks": repair.caught_up_chunk_count,
        "caught_up_bytes": repair.caught_up_bytes,
        "resumed": repair.resumed_count,
        "planned_cross_rack_bytes": repair.planned_cross_rack_bytes,
        "busy_ms": repair.busy_ms,
        "last_error": repair_status::last_error(status),
    })
}

fn meter_json(meter: &Meter) -> Value {
    let rows = meter.bytes.iter().map(|(&(from, to, purpose), &bytes)| {
        json!({
            "from_rack": from.map(|rack| rack.0),
            "to_rack": to.map(|rack| rack.0),
            "purpose": purpose.name(),
            "bytes": bytes,
        })
    });
    rows.collect()
}

/// A node's state; for a joining node, with its progress.
fn state(status: &ClusterStatus, node: &NodeStatus) -> String {
    match status.joining.get(&node.node) {
        Some(join) => format!(
            "joining, {} of {} chunks reported",
            join.told_chunk_count, join.chunk_count
        ),
        None => liveness(node.liveness).to_owned(),
    }
}

fn liveness(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Up => "up",
        Liveness::Suspect => "suspect",
        Liveness::Failed => "failed",
    }
}
