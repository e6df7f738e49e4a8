//! `gabion df`: the space of pools and nodes.

use super::connect;
use super::health;
use super::pool::quota_as_json;
use super::quota;
use crate::arguments::Place;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, counted, print_json, say, table};
use gabion_layout::NodeId;
use gabion_protocol::message::{ClusterUsage, PoolUsage};
use serde_json::{Value, json};

pub(crate) async fn run(place: &Place, format: Format) -> Result<(), Failure> {
    let client = connect(place).await?;
    let (usage, nodes) = (client.usage().await?, client.nodes().await?);
    let needed = nodes.iter().filter(|status| health::is_needed(status));
    let needed = needed.map(|status| status.node);
    let silent: Vec<NodeId> = needed
        .filter(|node| !usage.nodes.contains_key(node))
        .collect();
    if format == Format::Json {
        return print_json(&as_json(&usage, &silent));
    }
    print(&usage);
    if !silent.is_empty() {
        let numbers: Vec<String> = silent.iter().map(|node| node.0.to_string()).collect();
        say(format!(
            "{} not counted, because of a failure or a missing report: {}",
            counted(silent.len() as u64, "node is", "nodes are"),
            numbers.join(", ")
        ));
    }
    Ok(())
}

/// The totals of all pools.
fn total(usage: &ClusterUsage) -> PoolUsage {
    let add = |sum: PoolUsage, pool: &PoolUsage| PoolUsage {
        file_count: sum.file_count + pool.file_count,
        logical_bytes: sum.logical_bytes.saturating_add(pool.logical_bytes),
        orphan_count: sum.orphan_count + pool.orphan_count,
        orphan_bytes: sum.orphan_bytes.saturating_add(pool.orphan_bytes),
        raw_bytes: sum.raw_bytes.saturating_add(pool.raw_bytes),
        inline_bytes: sum.inline_bytes.saturating_add(pool.inline_bytes),
        reserved_bytes: sum.reserved_bytes.saturating_add(pool.reserved_bytes),
        ..sum
    };
    let all = PoolUsage {
        name: "all".to_owned(),
        ..PoolUsage::default()
    };
    usage.pools.values().fold(all, add)
}

/// Bytes of the disks of all nodes together.
struct Disks {
    used: u64,
    reserved: u64,
    free: u64,
    capacity: u64,
}

impl Disks {
    fn of(usage: &ClusterUsage) -> Self {
        let (nodes, spaces) = (|| usage.nodes.values(), || usage.spaces.values());
        Self {
            used: all(nodes().map(|node| node.used_bytes)),
            reserved: all(nodes().flat_map(|node| node.reserved_bytes.values().copied())),
            free: all(spaces().map(|space| space.free_bytes)),
            capacity: all(spaces().map(|space| space.capacity_bytes)),
        }
    }
}

/// The sum of what nodes tell, whatever that is.
fn all(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

fn as_json(usage: &ClusterUsage, silent: &[NodeId]) -> Value {
    let pool = |pool: &PoolUsage| {
        json!({
            "name": pool.name,
            "files": pool.file_count,
            "logical_bytes": pool.logical_bytes,
            "orphans": pool.orphan_count,
            "orphan_bytes": pool.orphan_bytes,
            "raw_bytes": pool.raw_bytes,
            "inline_bytes": pool.inline_bytes,
            "reserved_bytes": pool.reserved_bytes,
        })
    };
    let with_quota = |known: &PoolUsage| {
        let mut row = pool(known);
        row["quota"] = quota_as_json(known);
        row
    };
    let mut whole = pool(&total(usage));
    let disks = Disks::of(usage);
    whole["used_bytes"] = json!(disks.used);
    whole["free_bytes"] = json!(disks.free);
    whole["capacity_bytes"] = json!(disks.capacity);
    let nodes = usage.nodes.iter().map(|(node, known)| {
        let space = usage.spaces.get(node);
        json!({
            "node": node.0,
            "used_bytes": known.used_bytes,
            "reserved_bytes": known.reserved_bytes.values().sum::<u64>(),
            "free_bytes": space.map(|space| space.free_bytes),
            "capacity_bytes": space.map(|space| space.capacity_bytes),
        })
    });
    json!({
        "pools": usage.pools.values().map(with_quota).collect::<Vec<_>>(),
        "all": whole,
        "nodes": nodes.collect::<Vec<_>>(),
        "directories": usage.directories.iter().map(quota::as_json).collect::<Vec<_>>(),
        "open_files": usage.open_file_count,
        "nodes_not_counted": silent.iter().map(|node| node.0).collect::<Vec<_>>(),
    })
}

/// The part of a pool's quota that is used.
fn of_quota(pool: &PoolUsage) -> Option<String> {
    let (used, quota) = (pool.used, pool.quota);
    let of_bytes = |limit| format!("{} of {}", bytes(used.bytes), bytes(limit));
    let of_files = |limit| format!("{} of {limit} files", used.files);
    let parts = [
        quota.bytes.number().map(of_bytes),
        quota.files.number().map(of_files),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let is_limited = !parts.is_empty();
    is_limited.then(|| format!("quota of {}: {} used", pool.name, parts.join(", ")))
}

/// Removed files that clients have open.
fn orphans(pool: &PoolUsage) -> Option<String> {
    let of = counted(pool.orphan_count, "removed file is", "removed files are");
    let (name, size) = (&pool.name, bytes(pool.orphan_bytes));
    (pool.orphan_count > 0).then(|| {
        format!("{name}: {of} still open, with {size}; the space is freed when clients close them")
    })
}

fn print(usage: &ClusterUsage) {
    let mut pools = table(&["pool", "files", "logical", "raw", "reserved", "inline"]);
    for pool in usage.pools.values().chain([&total(usage)]) {
        pools.add_row([
            pool.name.clone(),
            pool.file_count.to_string(),
            bytes(pool.logical_bytes),
            bytes(pool.raw_bytes),
            bytes(pool.reserved_bytes),
            bytes(pool.inline_bytes),
        ]);
    }
    align_numbers(&mut pools);
    println!("{pools}");
    usage.pools.values().filter_map(of_quota).for_each(say);
    usage.pools.values().filter_map(orphans).for_each(say);
    say("logical: sizes of files with holes; a snapshot counts as a whole");
    say(
        "raw: disk space of all chunks, with parity, headers and checksums; files that share stripes share it, holes \
        take none",
    );
    say("reserved: disk space behind parity chunks for records of updates, beside raw");
    say("inline: bytes of small files, which the coordinator keeps in the metadata, not on nodes");
    let mut nodes = table(&["node", "used", "of it reserved", "free", "disk"]);
    for (node, known) in &usage.nodes {
        let space = usage.spaces.get(node);
        let of_disk = |bytes_of: Option<u64>| bytes_of.map_or_else(String::new, bytes);
        nodes.add_row([
            node.0.to_string(),
            bytes(known.used_bytes),
            bytes(known.reserved_bytes.values().sum()),
            of_disk(space.map(|space| space.free_bytes)),
            of_disk(space.map(|space| space.capacity_bytes)),
        ]);
    }
    let all = Disks::of(usage);
    nodes.add_row([
        "all".to_owned(),
        bytes(all.used),
        bytes(all.reserved),
        bytes(all.free),
        bytes(all.capacity),
    ]);
    align_numbers(&mut nodes);
    println!("{nodes}");
    say(
        "used: raw and reserved bytes, journal and trash, counted every 10 s; free: space for new chunks and \
        reserves; a disk that nodes share counts for each of them",
    );
}
