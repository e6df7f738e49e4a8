//! The metrics of the coordinator: its own work, and the cluster as it counts it.

use super::labels::{Label, of_node, seconds_of_ms, seconds_of_us, times, traffic};
use super::requests::Requests;
use crate::metadata::MetadataStore;
use crate::own_disk::OwnDisk;
use crate::slow::SlowLog;
use gabion_layout::PoolId;
use gabion_meta::{Departure, Limit, Quota, QuotaStatus};
use gabion_metrics::{Exposed, Form, Labels, Page, add_process};
use gabion_protocol::coordinator::Coordinator;
use gabion_protocol::coordinator::figures::CoordinatorFigures;
use gabion_protocol::measure::Measure;
use gabion_protocol::message::{ClusterStatus, ClusterUsage, Liveness, PoolUsage, RepairStatus};
use gabion_wire::{NotAdmitted, WireError};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// The shortest time between two counts of the cluster.
const COUNT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A count that takes long is repeated only after as many times its time, so that scrapes take at most 1 % of a
/// processor.
const COUNT_SHARE: u32 = 100;

/// Maximum wait of a scrape for a count: less than Prometheus waits for a scrape by default.
const COUNT_PATIENCE: Duration = Duration::from_secs(5);

/// The work of a coordinator since its process began.
#[derive(Debug)]
pub(crate) struct CoordinatorWork {
    requests: Requests,
    transactions: Histogram,
    repairs: Family<[Label; 2], Histogram>,
    slow: Option<SlowLog>,
}

impl CoordinatorWork {
    /// All counts are zero; the count of the `expected` kind of events has a row. Operations that take longer than this are
    /// logged.
    pub(crate) fn new(slow: Option<Duration>, expected: &'static str) -> Self {
        let requests = Requests::new();
        requests.expect(expected);
        Self {
            requests,
            transactions: times(),
            repairs: Family::new_with_constructor(times),
            slow: slow.map(SlowLog::new),
        }
    }

    /// Counts a request that did not reach the coordinator.
    pub(crate) fn not_admitted(&self, why: NotAdmitted) {
        self.requests.not_admitted(why);
    }

    /// Counts a connection that was not accepted.
    pub(crate) fn not_accepted(&self, reason: &WireError) {
        self.requests.not_accepted(reason);
    }

    /// Counts an event of the event log.
    pub(crate) fn happened(&self, kind: &'static str) {
        self.requests.happened(kind);
    }

    fn add_to(&self, page: &mut Page) {
        self.requests.add_to(page, &BTreeMap::new());
        let help = "Duration of metadata transactions, including the wait for a thread and for other transactions";
        let transactions = self.transactions.clone();
        page.add(
            "metadata_transaction",
            help,
            Some(Unit::Seconds),
            transactions,
        );
        let help = "Duration of repairs of stripes, by repair scheme and outcome";
        page.add("repair", help, Some(Unit::Seconds), self.repairs.clone());
    }
}

impl CoordinatorWork {
    /// Counts what the role tells.
    pub(crate) fn measured(&self, measure: &Measure<'_>) {
        if let Some(slow) = &self.slow {
            slow.measured(measure);
        }
        match measure {
            Measure::Answered(answered) => self.requests.answered(answered),
            Measure::Transaction { took_us } => {
                self.transactions.observe(seconds_of_us(*took_us));
            }
            Measure::Repaired {
                scheme,
                is_done,
                took_us,
            } => {
                let outcome = if *is_done { "done" } else { "failed" };
                let labels = [("scheme", *scheme), ("outcome", outcome)];
                let repairs = self.repairs.get_or_create(&labels);
                repairs.observe(seconds_of_us(*took_us));
            }
            // A node's.
            Measure::Updated(_) | Measure::Merged { .. } => {}
        }
    }
}

/// The metrics of a coordinator.
pub(crate) struct CoordinatorMetrics {
    work: Arc<CoordinatorWork>,
    coordinator: Arc<Coordinator<MetadataStore>>,
    disk: Arc<OwnDisk>,
    /// The last count of the cluster.
    counted: watch::Sender<Option<Arc<Counted>>>,
    /// Whether another is being made.
    is_counting: Arc<AtomicBool>,
}

struct Counted {
    at: Instant,
    took: Duration,
    figures: CoordinatorFigures,
}

impl Counted {
    fn is_due(&self) -> bool {
        self.at.elapsed() >= COUNT_AGAIN_AFTER.max(self.took * COUNT_SHARE)
    }
}

impl CoordinatorMetrics {
    /// The metrics of this coordinator, and of the disk of its directory.
    pub(crate) fn new(
        work: Arc<CoordinatorWork>,
        (coordinator, disk): (Arc<Coordinator<MetadataStore>>, Arc<OwnDisk>),
    ) -> Self {
        Self {
            work,
            coordinator,
            disk,
            counted: watch::Sender::new(None),
            is_counting: Arc::default(),
        }
    }

    /// Counts the cluster, unless it was counted a moment ago. At most one count runs at a time, and it goes on without
    /// the scrape that has begun it.
    fn count(&self) {
        let is_due = self
            .counted
            .borrow()
            .as_ref()
            .is_none_or(|counted| counted.is_due());
        if !is_due || self.is_counting.swap(true, Ordering::AcqRel) {
            return;
        }
        let (coordinator, counted) = (Arc::clone(&self.coordinator), self.counted.clone());
        let is_counting = Arc::clone(&self.is_counting);
        tokio::spawn(async move {
            let at = Instant::now();
            // A metadata store that has failed ends the process, which shows in the target's health.
            if let Ok(figures) = coordinator.figures().await {
                let took = at.elapsed();
                counted.send_replace(Some(Arc::new(Counted { at, took, figures })));
            }
            is_counting.store(false, Ordering::Release);
        });
    }

    /// Adds the figures of the cluster: fresh ones if they can be had soon, otherwise the last ones.
    async fn add_cluster(&self, page: &mut Page) {
        let asked = Instant::now();
        let mut news = self.counted.subscribe();
        self.count();
        let is_fresh = |counted: &Option<Arc<Counted>>| {
            counted
                .as_ref()
                .is_some_and(|counted| !counted.is_due() || counted.at >= asked)
        };
        let fresh = timeout(COUNT_PATIENCE, news.wait_for(is_fresh)).await;
        drop(fresh);
        let counted = self.counted.borrow().clone();
        if let Some(Counted { at, figures, .. }) = counted.as_deref() {
            let help = "Age of the figures of the cluster on this page";
            let age_s = at.elapsed().as_secs_f64();
            page.gauge("figures_age", help, Some(Unit::Seconds), age_s);
            add_nodes(page, &figures.status);
            add_spaces(page, &figures.status, &figures.usage);
            add_pools(page, &figures.usage);
            add_directories(page, &figures.usage);
            add_redundancy(page, &figures.status);
            add_repair(page, &figures.status.repair);
            add_queues(page, figures);
        }
    }
}

impl Exposed for CoordinatorMetrics {
    async fn text(&self, form: Form) -> String {
        let mut page = Page::new("gabion_coordinator");
        add_process(&mut page);
        let version: Labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        let help = "The coordinator's release; the value is always 1";
        page.gauges("info", help, None, [(version, 1.0)]);
        self.work.add_to(&mut page);
        if let Some(space) = self.disk.space().await {
            let help = "Capacity of the disk of the coordinator's directory";
            let capacity = space.capacity_bytes as f64;
            page.gauge("disk_capacity", help, Some(Unit::Bytes), capacity);
            let help = "Bytes of the disk of the coordinator's directory that are free";
            let free = space.free_bytes as f64;
            page.gauge("disk_free", help, Some(Unit::Bytes), free);
        }
        self.add_cluster(&mut page).await;
        page.text(form)
    }
}

fn add_nodes(page: &mut Page, status: &ClusterStatus) {
    let mut by_state = BTreeMap::from([("up", 0), ("suspect", 0), ("failed", 0), ("drained", 0)]);
    for node in &status.nodes {
        let state = match (node.departure, node.liveness) {
            (Departure::Drained, _) => "drained",
            (_, Liveness::Up) => "up",
            (_, Liveness::Suspect) => "suspect",
            (_, Liveness::Failed) => "failed",
        };
        *by_state.entry(state).or_default() += 1;
    }
    let rows = by_state.into_iter().map(|(state, count)| {
        let labels: Labels = vec![("state", state.to_owned())];
        (labels, f64::from(count))
    });
    page.gauges("nodes", "Nodes, by state", None, rows.collect::<Vec<_>>());
    let up = status.nodes.iter().map(|node| {
        let mut labels = of_node(node.node);
        labels.push(("rack", node.rack.0.to_string()));
        (labels, f64::from(u8::from(node.liveness == Liveness::Up)))
    });
    let help = "1 while the node is up, else 0";
    page.gauges("node_up", help, None, up.collect::<Vec<_>>());
    let silences = status.silence_ms.iter();
    let silences = silences.map(|(&node, &ms)| (of_node(node), seconds_of_ms(ms)));
    let help = "Age of the last heartbeat of nodes that are not failed";
    page.gauges(
        "heartbeat_age",
        help,
        Some(Unit::Seconds),
        silences.collect::<Vec<_>>(),
    );
    add_node_counts(page, status);
}

fn add_node_counts(page: &mut Page, status: &ClusterStatus) {
    let nodes = || status.nodes.iter().map(|node| node.node);
    let damaged = nodes().map(|node| {
        let count = status.damaged_chunk_counts.get(&node);
        (of_node(node), *count.unwrap_or(&0) as f64)
    });
    let help = "Damaged chunks that the node has found";
    page.counters("damaged_chunks", help, None, damaged.collect::<Vec<_>>());
    let evictions = nodes().map(|node| {
        let count = status.eviction_counts.get(&node);
        (of_node(node), *count.unwrap_or(&0) as f64)
    });
    let help = "Evictions of the node because other nodes could not reach it";
    page.counters("evictions", help, None, evictions.collect::<Vec<_>>());
    let served = status.served.iter().flat_map(|(&node, served)| {
        let counts = [("update", served.update_count), ("read", served.read_count)];
        counts.map(|(operation, count)| {
            let mut labels = of_node(node);
            labels.push(("operation", operation.to_owned()));
            (labels, count as f64)
        })
    });
    let help =
        "Clients' updates and parts of reads that the node has served since its process started";
    page.counters(
        "node_served_requests",
        help,
        None,
        served.collect::<Vec<_>>(),
    );
    let degraded = status.arrays.iter();
    let degraded = degraded.map(|(&node, array)| {
        let count = f64::from(array.degraded_stripe_count);
        (of_node(node), count)
    });
    let help = "Stripes of the node's array of SSDs that lack a chunk";
    page.gauges(
        "node_array_degraded_stripes",
        help,
        None,
        degraded.collect::<Vec<_>>(),
    );
}

fn add_spaces(page: &mut Page, status: &ClusterStatus, usage: &ClusterUsage) {
    let mut add = |name, help, rows: Vec<(Labels, f64)>| {
        page.gauges(name, help, Some(Unit::Bytes), rows);
    };
    let spaces = || status.spaces.iter();
    let capacity = spaces().map(|(&node, space)| (of_node(node), space.capacity_bytes as f64));
    add(
        "node_capacity",
        "Capacity of the node's disk",
        capacity.collect(),
    );
    let free = spaces().map(|(&node, space)| (of_node(node), space.free_bytes as f64));
    add(
        "node_free",
        "Bytes of the node's disk that are free for new chunks",
        free.collect(),
    );
    let used = usage.nodes.iter();
    let used = used.map(|(&node, usage)| (of_node(node), usage.used_bytes as f64));
    add(
        "node_used",
        "Bytes that the node's store uses",
        used.collect(),
    );
    let reserved = usage.nodes.iter().flat_map(|(&node, usage)| {
        let pools = usage.reserved_bytes.iter();
        pools.map(move |(pool, &bytes)| (node, *pool, bytes))
    });
    let reserved = reserved.map(|(node, pool, bytes)| {
        let mut labels = of_node(node);
        labels.push(("pool_id", pool.0.to_string()));
        (labels, bytes as f64)
    });
    let help = "Bytes of reserves that have disk space, by node and by the number of the pool";
    add("node_reserved", help, reserved.collect());
}

fn add_pools(page: &mut Page, usage: &ClusterUsage) {
    let labels = |id: &PoolId, pool: &PoolUsage| -> Labels {
        vec![("pool", pool.name.clone()), ("pool_id", id.0.to_string())]
    };
    let rows = |value: fn(&PoolUsage) -> u64| {
        let pools = usage.pools.iter();
        let rows = pools.map(|(id, pool)| (labels(id, pool), value(pool) as f64));
        rows.collect::<Vec<_>>()
    };
    let limits = |limit: fn(&Quota) -> Limit| {
        let pools = usage.pools.iter();
        let rows = pools.filter_map(|(id, pool)| {
            let limit = limit(&pool.quota).number()?;
            Some((labels(id, pool), limit as f64))
        });
        rows.collect::<Vec<_>>()
    };
    page.gauges(
        "pool_files",
        "Files of the pool",
        None,
        rows(|pool| pool.file_count),
    );
    let mut add = |name, help, rows| page.gauges(name, help, Some(Unit::Bytes), rows);
    let help = "Bytes of the pool's files";
    add("pool_logical", help, rows(|pool| pool.logical_bytes));
    let help = "Bytes of the pool's chunks, parity included, without headers and reserves";
    add("pool_raw", help, rows(|pool| pool.raw_bytes));
    let help = "Bytes of the pool's reserves that have disk space";
    add("pool_reserved", help, rows(|pool| pool.reserved_bytes));
    let help = "Inline bytes of the pool's files, which are in the metadata";
    add("pool_inline", help, rows(|pool| pool.inline_bytes));
    let help = "Data bytes of the pool's stripes and unfinished puts, and its inline bytes, which count against its quota";
    add("pool_used", help, rows(|pool| pool.used.bytes));
    let help = "Most data bytes of the pool's stripes and inline bytes, of pools with such a quota";
    add("pool_quota", help, limits(|quota| quota.bytes));
    let help = "Most files of the pool, of pools with such a quota";
    page.gauges("pool_quota_files", help, None, limits(|quota| quota.files));
}

fn add_directories(page: &mut Page, usage: &ClusterUsage) {
    let rows = |value: fn(&QuotaStatus) -> Option<u64>| {
        let rows = usage.directories.iter().filter_map(|known| {
            let labels: Labels = vec![("directory", known.path.clone())];
            Some((labels, value(known)? as f64))
        });
        rows.collect::<Vec<_>>()
    };
    let mut add = |name, help, rows| page.gauges(name, help, Some(Unit::Bytes), rows);
    let help = "Bytes of the files below a directory with a quota";
    add("directory_used", help, rows(|known| Some(known.used.bytes)));
    let help = "Most bytes of the files below the directory, of directories with such a quota";
    add(
        "directory_quota",
        help,
        rows(|known| known.quota.bytes.number()),
    );
    let mut add = |name, help, rows| page.gauges(name, help, None, rows);
    let help = "Files and directories below a directory with a quota";
    add(
        "directory_used_files",
        help,
        rows(|known| Some(known.used.entries)),
    );
    let help = "Most files and directories below the directory, of directories with such a quota";
    add(
        "directory_quota_files",
        help,
        rows(|known| known.quota.files.number()),
    );
}

fn add_redundancy(page: &mut Page, status: &ClusterStatus) {
    let by_left = |stripes: &BTreeMap<i32, u64>| {
        let rows = stripes.iter().map(|(left, &count)| {
            let labels: Labels = vec![("failures_left", left.to_string())];
            (labels, count as f64)
        });
        rows.collect::<Vec<_>>()
    };
    let help = "Stripes by the number of further failures that they survive; -1 means lost data";
    page.gauges(
        "stripes",
        help,
        None,
        by_left(&status.stripes_by_failures_left),
    );
    let help = "Stripes with lost chunks, by the number of further failures that they survive";
    page.gauges("stripes_at_risk", help, None, by_left(&status.at_risk));
    let mut count = |name, help, value: u64| page.gauge(name, help, None, value as f64);
    let help = "Stripes that may have updates not yet included in parity";
    count("appending_stripes", help, status.appending_stripe_count);
    count(
        "lost_chunks",
        "Chunks that are lost now",
        status.lost_chunk_count,
    );
    let help = "Chunks that are not lost, but on nodes that do not answer now";
    count("unreachable_chunks", help, status.unreachable_chunk_count);
    let lifecycle = &status.lifecycle;
    let help = "Replicated blocks in pools that replicate first";
    count("replicated_blocks", help, lifecycle.replicated_block_count);
    let help = "Segments that wait to be encoded, or to be replicated again";
    count("waiting_conversions", help, lifecycle.waiting_count);
    let conversions = [
        ("encoded", lifecycle.encoded_count),
        ("promoted", lifecycle.promoted_count),
        ("discarded", lifecycle.outrun_count),
    ];
    let conversions =
        conversions.map(|(of, count)| (vec![("outcome", of.to_owned())], count as f64));
    let help = "Conversions of segments, by outcome";
    page.counters("conversions", help, None, conversions);
    let crossing = [
        ("encode", lifecycle.planned_encode_cross_rack_bytes),
        ("promote", lifecycle.planned_promote_cross_rack_bytes),
    ];
    let crossing = crossing.map(|(of, bytes)| (vec![("of", of.to_owned())], bytes as f64));
    let help = "Planned cross-rack bytes of conversions";
    page.counters(
        "conversion_planned_cross_rack",
        help,
        Some(Unit::Bytes),
        crossing,
    );
    let help = "Payload bytes that nodes should have sent for the commits and regroupings that the coordinator has run";
    page.counters("planned", help, Some(Unit::Bytes), traffic(&status.planned));
}

/// The unit of rates, which the library does not have.
fn bytes_per_second() -> Unit {
    Unit::Other("bytes_per_second".to_owned())
}

fn add_repair(page: &mut Page, repair: &RepairStatus) {
    let mut count = |name, help, value: u64| page.gauge(name, help, None, value as f64);
    let help = "Chunks that are being repaired or wait for it";
    count("repair_queued_chunks", help, repair.queued_chunk_count);
    let help = "Chunks that are being moved off leaving nodes or wait for it";
    count("repair_moving_chunks", help, repair.moving_chunk_count);
    let help = "Stripes under repair now";
    count("repair_running_stripes", help, repair.running_count);
    let help = "1 while repairs are paused, else 0";
    count("repair_paused", help, u64::from(repair.is_paused));
    let help = "Bytes of chunks that are to be rebuilt or moved";
    let left_bytes = repair.left_bytes as f64;
    page.gauge("repair_left", help, Some(Unit::Bytes), left_bytes);
    let help = "Recent rate of rebuilt and moved chunks";
    page.gauge(
        "repair_speed",
        help,
        Some(bytes_per_second()),
        repair.bytes_per_s as f64,
    );
    let limits = [
        ("node", repair.limits.node_bytes_per_s),
        ("rack", repair.limits.rack_bytes_per_s),
        ("total", repair.limits.total_bytes_per_s),
        ("guard", repair.guard_bytes_per_s),
    ];
    let limits = limits.into_iter().filter_map(|(of, limit)| {
        let labels: Labels = vec![("of", of.to_owned())];
        Some((labels, limit? as f64))
    });
    let help = "Limits on the traffic of repairs; limits that are not set are absent";
    page.gauges(
        "repair_limit",
        help,
        Some(bytes_per_second()),
        limits.collect::<Vec<_>>(),
    );
    if let Some(rest_ms) = repair.rest_ms {
        let help = "Time until all repairs are done at their recent rate; absent while the rate is unknown";
        page.gauge(
            "repair_left",
            help,
            Some(Unit::Seconds),
            seconds_of_ms(rest_ms),
        );
    }
    if let Some(p99_ms) = repair.p99_ms {
        let help = "99th percentile of clients' latencies at the last check of the repairs' guard";
        let seconds = seconds_of_ms(p99_ms);
        page.gauge("foreground_p99", help, Some(Unit::Seconds), seconds);
    }
    add_repaired(page, repair);
}

fn add_repaired(page: &mut Page, repair: &RepairStatus) {
    let chunks = [
        ("rebuilt", repair.repaired_chunk_count),
        ("moved", repair.moved_chunk_count),
        ("caught_up", repair.caught_up_chunk_count),
    ];
    let chunks = chunks.map(|(how, count)| (vec![("how", how.to_owned())], count as f64));
    let help = "Chunks that repairs have rebuilt, moved off leaving nodes, or brought up to date";
    page.counters("repaired_chunks", help, None, chunks);
    let bytes = [
        ("rebuilt", repair.repaired_bytes),
        ("moved", repair.moved_bytes),
        ("caught_up", repair.caught_up_bytes),
    ];
    let bytes = bytes.map(|(how, bytes)| (vec![("how", how.to_owned())], bytes as f64));
    let help = "Bytes that repairs have written, by the same kinds";
    page.counters("repaired", help, Some(Unit::Bytes), bytes);
    let help = "Planned cross-rack bytes of repairs";
    let planned = repair.planned_cross_rack_bytes as f64;
    page.counter(
        "repair_planned_cross_rack",
        help,
        Some(Unit::Bytes),
        planned,
    );
    let help = "Repairs that were resumed with other helpers";
    page.counter("repair_resumes", help, None, repair.resumed_count as f64);
    let help = "Total time of repairs";
    let busy_s = seconds_of_ms(repair.busy_ms);
    page.counter("repair_busy", help, Some(Unit::Seconds), busy_s);
}

fn add_queues(page: &mut Page, figures: &CoordinatorFigures) {
    let mut age = |name, help, ms: Option<u64>| {
        let seconds = seconds_of_ms(ms.unwrap_or(0));
        page.gauge(name, help, Some(Unit::Seconds), seconds);
    };
    let help = "Longest current wait of a stripe for the end of its repair; 0 when none waits";
    age("repair_queue_age", help, figures.repair_wait_ms);
    let help =
        "Time since a pass over all garbage last removed all of it; 0 when the last pass did";
    age("garbage_age", help, figures.garbage_wait_ms);
    let help = "Stripes with chunks that nodes still have to remove";
    page.gauge(
        "garbage_stripes",
        help,
        None,
        figures.garbage_stripe_count as f64,
    );
    let help = "Clients that wait for changes of names and inodes";
    page.gauge("followers", help, None, figures.follower_count as f64);
}
