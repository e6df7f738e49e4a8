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
        logical_bytes: sum.logical_bytes + pool.logical_bytes,
        raw_bytes: sum.raw_bytes + pool.raw_bytes,
        inline_bytes: sum.inline_bytes + pool.inline_bytes,
        reserved_bytes: sum.reserved_bytes + pool.reserved_bytes,
        ..sum
    };
    let all = PoolUsage {
        name: "all".to_owned(),
        ..PoolUsage::default()
    };
    usage.pools.values().fold(all, add)
}

fn as_json(usage: &ClusterUsage, silent: &[NodeId]) -> Value {
    let pool = |pool: &PoolUsage| {
        json!({
            "name": pool.name,
            "files": pool.file_count,
            "logical_bytes": pool.logical_bytes,
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
        "all": pool(&total(usage)),
        "nodes": nodes.collect::<Vec<_>>(),
        "directories": usage.directories.iter().map(quota::as_json).collect::<Vec<_>>(),
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
    say("raw: all chunks with parity; reserved: space behind parity chunks for records of updates");
    say("inline: bytes of small files, which the coordinator keeps in the metadata");
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
    align_numbers(&mut nodes);
    println!("{nodes}");
    say(
        "used: chunks, reserves, journal and trash, counted every 10 s; free: space for new chunks",
    );
}
