//! The cost of requests: processor time, syncs, packets and bytes between racks.

use crate::cluster::LocalCluster;
use crate::error::{Context, TestbedError};
use crate::processor_time;
use crate::replay::{Traffic, cross_rack};
use gabion_client::Client;
use gabion_protocol::message::StoreCounts;
use std::fs::{self, File};
use std::ops::{AddAssign, Sub};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// The cost of some requests.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Processor time of this client, in seconds.
    pub client_s: f64,
    /// Processor time of the servers, if they run on this machine.
    pub servers: Option<Servers>,
    /// Counts of the work of all nodes' stores.
    pub stores: StoreCounts,
    /// Bytes sent between racks, as the plans count them.
    pub planned_cross_rack_bytes: u64,
    /// The same, as the nodes metered them.
    pub metered_cross_rack_bytes: u64,
    /// Whether a node did not answer, so that metered bytes and the stores' counts are too low.
    pub is_incomplete: bool,
}

/// Costs that only the servers' machine can tell.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Servers {
    /// Processor time of the coordinator, in seconds.
    pub coordinator_s: f64,
    /// Processor time of all nodes, in seconds.
    pub nodes_s: f64,
    /// Packets on the loopback interface, those of other programs included.
    pub packet_count: u64,
}

impl AddAssign for Servers {
    fn add_assign(&mut self, other: Self) {
        self.coordinator_s += other.coordinator_s;
        self.nodes_s += other.nodes_s;
        self.packet_count += other.packet_count;
    }
}

impl Sub for Servers {
    type Output = Self;

    /// A process that ended takes its time with it; then the difference is 0.
    fn sub(self, before: Self) -> Self {
        Self {
            coordinator_s: (self.coordinator_s - before.coordinator_s).max(0.0),
            nodes_s: (self.nodes_s - before.nodes_s).max(0.0),
            packet_count: self.packet_count.saturating_sub(before.packet_count),
        }
    }
}

impl Cost {
    /// Adds the cost of further requests.
    pub fn add(&mut self, other: &Self) {
        self.client_s += other.client_s;
        if let (Some(own), Some(others)) = (&mut self.servers, other.servers) {
            *own += others;
        }
        self.stores = sum(self.stores, other.stores, StoreCounts::default());
        self.planned_cross_rack_bytes += other.planned_cross_rack_bytes;
        self.metered_cross_rack_bytes += other.metered_cross_rack_bytes;
        self.is_incomplete |= other.is_incomplete;
    }
}

/// Everything that is metered, so far.
pub(super) struct Meters {
    client_s: f64,
    servers: Option<Servers>,
    stores: StoreCounts,
    traffic: Traffic,
}

impl Meters {
    /// Reads all meters.
    pub(super) async fn read(
        client: &Client,
        local: Option<&LocalCluster>,
    ) -> Result<Self, TestbedError> {
        let nodes = client.store_counts().await?;
        let traffic = Traffic::now(client).await?;
        let servers = local.map(|local| {
            Ok::<_, TestbedError>(Servers {
                coordinator_s: local.coordinator_processor_s(),
                nodes_s: local.nodes_processor_s(),
                packet_count: loopback_packet_count()?,
            })
        });
        let none = StoreCounts::default();
        Ok(Self {
            client_s: processor_time::of_processes(std::iter::once(own_pid())),
            servers: servers.transpose()?,
            stores: nodes.values().fold(none, |all, one| sum(all, *one, none)),
            traffic,
        })
    }

    /// The cost since then.
    pub(super) fn since(&self, before: &Self) -> Cost {
        let flows = self.traffic.since(&before.traffic);
        let crossed = cross_rack(&flows);
        let servers = self.servers.zip(before.servers);
        Cost {
            client_s: self.client_s - before.client_s,
            servers: servers.map(|(now, before)| now - before),
            stores: sum(StoreCounts::default(), self.stores, before.stores),
            planned_cross_rack_bytes: crossed.values().map(|moved| moved.planned_bytes).sum(),
            metered_cross_rack_bytes: crossed.values().map(|moved| moved.metered_bytes).sum(),
            is_incomplete: !self.traffic.unmetered_nodes(&before.traffic).is_empty(),
        }
    }
}

/// `all` and what was added between `before` and `after`. A store that restarted counts from zero again.
fn sum(all: StoreCounts, after: StoreCounts, before: StoreCounts) -> StoreCounts {
    let add = |of: fn(&StoreCounts) -> u64| of(&all) + of(&after).saturating_sub(of(&before));
    StoreCounts {
        sync_count: add(|c| c.sync_count),
        journal_bytes: add(|c| c.journal_bytes),
        image_bytes: add(|c| c.image_bytes),
        reserve_bytes: add(|c| c.reserve_bytes),
        in_place_bytes: add(|c| c.in_place_bytes),
        foreground_merge_count: add(|c| c.foreground_merge_count),
        background_merge_count: add(|c| c.background_merge_count),
        stalled_append_count: add(|c| c.stalled_append_count),
        ..StoreCounts::default()
    }
}

/// This process.
fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

/// Packets that the loopback interface has carried, acknowledgements and heartbeats included.
fn loopback_packet_count() -> Result<u64, TestbedError> {
    let table = fs::read_to_string("/proc/net/dev").context("read the interfaces' counters")?;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("lo:"));
    let packets = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    packets
        .ok_or_else(|| TestbedError::Wrong("the kernel counts no packets on loopback".to_owned()))
}

/// Writes `count` times `bytes` bytes into a file of a directory, and syncs after each. Returns the median time of a
/// write and its sync, in milliseconds.
pub(super) fn plain_write_ms(
    directory: &Path,
    bytes: usize,
    count: u64,
) -> Result<f64, TestbedError> {
    let path = directory.join(format!("bench-plain-{}", std::process::id()));
    let doing = || format!("write {}", path.display());
    let timed = || {
        let file = File::create(&path).context(doing())?;
        let mut times = Vec::new();
        for at in 0..count {
            let begun = Instant::now();
            file.write_all_at(&vec![at as u8; bytes], at * bytes as u64)
                .context(doing())?;
            file.sync_data().context(doing())?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok::<_, TestbedError>(times.get(times.len() / 2).copied().unwrap_or(0.0))
    };
    let timed = timed();
    let removed = fs::remove_file(&path).context(format!("remove {}", path.display()));
    let median = timed?;
    removed?;
    Ok(median)
}
