//! The metrics of the coordinator: its own work, and the cluster as it counts it.

use super::labels::{
    Label, add, by_label, by_node, of_node, seconds_of_ms, seconds_of_us, times, traffic,
};
use super::requests::Requests;
use crate::metadata::MetadataStore;
use crate::own_disk::OwnDisk;
use crate::slow::SlowLog;
use gabion_layout::{NodeId, PoolId};
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
    /// All counts are zero; the count of the `expected` kind of events has a row. Operations that take longer than
    /// this are logged.
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
        add! { page:
            add "metadata_transaction"[Unit::Seconds]:
                "Duration of metadata transactions, including the wait for a thread and for other transactions",
                self.transactions.clone();
            add "repair"[Unit::Seconds]: "Duration of repairs of stripes, by repair scheme and outcome",
                self.repairs.clone();
        }
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
            add! { page:
                gauge "figures_age"[Unit::Seconds]: "Age of the figures of the cluster on this page",
                    at.elapsed().as_secs_f64();
            }
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
        add! { page:
            gauges "info": "The coordinator's release; the value is always 1", [(version, 1.0)];
        }
        self.work.add_to(&mut page);
        if let Some(space) = self.disk.space().await {
            add! { page:
                gauge "disk_capacity"[Unit::Bytes]: "Capacity of the disk of the coordinator's directory",
                    space.capacity_bytes as f64;
                gauge "disk_free"[Unit::Bytes]: "Bytes of the disk of the coordinator's directory that are free",
                    space.free_bytes as f64;
            }
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
    let up = status.nodes.iter().map(|node| {
        let mut labels = of_node(node.node);
        labels.push(("rack", node.rack.0.to_string()));
        (labels, f64::from(u8::from(node.liveness == Liveness::Up)))
    });
    add! { page:
        gauges "nodes": "Nodes, by state", by_label("state", by_state);
        gauges "node_up": "1 while the node is up, else 0", up;
        gauges "heartbeat_age"[Unit::Seconds]: "Age of the last heartbeat of nodes that are not failed",
            by_node(&status.silence_ms, |&ms| seconds_of_ms(ms));
    }
    add_node_counts(page, status);
}

fn add_node_counts(page: &mut Page, status: &ClusterStatus) {
    let nodes = || status.nodes.iter().map(|node| (&node.node, node.node));
    let number =
        |counts: &BTreeMap<NodeId, u64>, node: NodeId| *counts.get(&node).unwrap_or(&0) as f64;
    let served = status.served.iter().flat_map(|(&node, served)| {
        let counts = [("update", served.update_count), ("read", served.read_count)];
        counts.map(|(operation, count)| {
            let mut labels = of_node(node);
            labels.push(("operation", operation.to_owned()));
            (labels, count as f64)
        })
    });
    add! { page:
        counters "damaged_chunks": "Damaged chunks that the node has found",
            by_node(nodes(), |node| number(&status.damaged_chunk_counts, node));
        counters "evictions": "Evictions of the node because other nodes could not reach it",
            by_node(nodes(), |node| number(&status.eviction_counts, node));
        counters "node_served_requests":
            "Clients' updates and parts of reads that the node has served since its process started", served;
        gauges "node_array_degraded_stripes": "Stripes of the node's array of SSDs that lack a chunk",
            by_node(&status.arrays, |array| f64::from(array.degraded_stripe_count));
    }
}

fn add_spaces(page: &mut Page, status: &ClusterStatus, usage: &ClusterUsage) {
    let reserved = usage.nodes.iter().flat_map(|(&node, usage)| {
        let pools = usage.reserved_bytes.iter();
        pools.map(move |(pool, &bytes)| {
            let mut labels = of_node(node);
            labels.push(("pool_id", pool.0.to_string()));
            (labels, bytes as f64)
        })
    });
    add! { page:
        gauges "node_capacity"[Unit::Bytes]: "Capacity of the node's disk",
            by_node(&status.spaces, |space| space.capacity_bytes as f64);
        gauges "node_free"[Unit::Bytes]: "Bytes of the node's disk that are free for new chunks",
            by_node(&status.spaces, |space| space.free_bytes as f64);
        gauges "node_used"[Unit::Bytes]: "Bytes that the node's store uses",
            by_node(&usage.nodes, |usage| usage.used_bytes as f64);
        gauges "node_reserved"[Unit::Bytes]:
            "Bytes of reserves that have disk space, by node and by the number of the pool", reserved;
    }
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
    let help = "Files of the pool without a name that clients have open";
    page.gauges("pool_orphans", help, None, rows(|pool| pool.orphan_count));
    let mut add = |name, help, rows| page.gauges(name, help, Some(Unit::Bytes), rows);
    let help = "Sizes of the pool's files, holes included";
    add("pool_logical", help, rows(|pool| pool.logical_bytes));
    let help = "Bytes of the pool's files without a name that clients have open";
    add("pool_orphan", help, rows(|pool| pool.orphan_bytes));
    let help =
        "Disk space of the pool's chunks, with parity, headers and checksums, without reserves";
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
        usage.directories.iter().filter_map(move |known| {
            let labels: Labels = vec![("directory", known.path.clone())];
            Some((labels, value(known)? as f64))
        })
    };
    add! { page:
        gauges "directory_used"[Unit::Bytes]: "Bytes of the files below a directory with a quota",
            rows(|known| Some(known.used.bytes));
        gauges "directory_quota"[Unit::Bytes]:
            "Most bytes of the files below the directory, of directories with such a quota",
            rows(|known| known.quota.bytes.number());
        gauges "directory_used_files": "Files and directories below a directory with a quota",
            rows(|known| Some(known.used.entries));
        gauges "directory_quota_files":
            "Most files and directories below the directory, of directories with such a quota",
            rows(|known| known.quota.files.number());
    }
}

/// Numbers of stripes by the failures that they survive.
fn by_failures_left(stripes: &BTreeMap<i32, u64>) -> impl Iterator<Item = (Labels, f64)> {
    stripes.iter().map(|(left, &count)| {
        let labels: Labels = vec![("failures_left", left.to_string())];
        (labels, count as f64)
    })
}

fn add_redundancy(page: &mut Page, status: &ClusterStatus) {
    let lifecycle = &status.lifecycle;
    let conversions = [
        ("encoded", lifecycle.encoded_count),
        ("promoted", lifecycle.promoted_count),
        ("discarded", lifecycle.outrun_count),
    ];
    let crossing = [
        ("encode", lifecycle.planned_encode_cross_rack_bytes),
        ("promote", lifecycle.planned_promote_cross_rack_bytes),
    ];
    add! { page:
        gauges "stripes": "Stripes by the number of further failures that they survive; -1 means lost data",
            by_failures_left(&status.stripes_by_failures_left);
        gauges "stripes_at_risk":
            "Stripes with lost chunks, by the number of further failures that they survive",
            by_failures_left(&status.at_risk);
        gauge "appending_stripes": "Stripes that may have updates not yet included in parity",
            status.appending_stripe_count as f64;
        gauge "lost_chunks": "Chunks that are lost now", status.lost_chunk_count as f64;
        gauge "unreachable_chunks": "Chunks that are not lost, but on nodes that do not answer now",
            status.unreachable_chunk_count as f64;
        gauge "replicated_blocks": "Replicated blocks in pools that replicate first",
            lifecycle.replicated_block_count as f64;
        gauge "waiting_conversions": "Segments that wait to be encoded, or to be replicated again",
            lifecycle.waiting_count as f64;
        counters "conversions": "Conversions of segments, by outcome", by_label("outcome", conversions);
        counters "conversion_planned_cross_rack"[Unit::Bytes]: "Planned cross-rack bytes of conversions",
            by_label("of", crossing);
        counters "planned"[Unit::Bytes]:
            "Payload bytes that nodes should have sent for the commits and regroupings that the coordinator has run",
            traffic(&status.planned);
    }
}

/// The unit of rates, which the library does not have.
fn bytes_per_second() -> Unit {
    Unit::Other("bytes_per_second".to_owned())
}

fn add_repair(page: &mut Page, repair: &RepairStatus) {
    let limits = [
        ("node", repair.limits.node_bytes_per_s),
        ("rack", repair.limits.rack_bytes_per_s),
        ("total", repair.limits.total_bytes_per_s),
        ("guard", repair.guard_bytes_per_s),
    ];
    let limits = limits
        .into_iter()
        .filter_map(|(of, limit)| Some((of, limit?)));
    add! { page:
        gauge "repair_queued_chunks": "Chunks that are being repaired or wait for it",
            repair.queued_chunk_count as f64;
        gauge "repair_moving_chunks": "Chunks that are being moved off leaving nodes or wait for it",
            repair.moving_chunk_count as f64;
        gauge "repair_running_stripes": "Stripes under repair now", repair.running_count as f64;
        gauge "repair_paused": "1 while repairs are paused, else 0", f64::from(u8::from(repair.is_paused));
        gauge "repair_left"[Unit::Bytes]: "Bytes of chunks that are to be rebuilt or moved",
            repair.left_bytes as f64;
        gauge "repair_speed"[bytes_per_second()]: "Recent rate of rebuilt and moved chunks",
            repair.bytes_per_s as f64;
        gauges "repair_limit"[bytes_per_second()]:
            "Limits on the traffic of repairs; limits that are not set are absent", by_label("of", limits);
    }
    if let Some(rest_ms) = repair.rest_ms {
        add! { page:
            gauge "repair_left"[Unit::Seconds]:
                "Time until all repairs are done at their recent rate; absent while the rate is unknown",
                seconds_of_ms(rest_ms);
        }
    }
    if let Some(p99_ms) = repair.p99_ms {
        add! { page:
            gauge "foreground_p99"[Unit::Seconds]:
                "99th percentile of clients' latencies at the last check of the repairs' guard",
                seconds_of_ms(p99_ms);
        }
    }
    add_repaired(page, repair);
}

fn add_repaired(page: &mut Page, repair: &RepairStatus) {
    let chunks = [
        ("rebuilt", repair.repaired_chunk_count),
        ("moved", repair.moved_chunk_count),
        ("caught_up", repair.caught_up_chunk_count),
    ];
    let bytes = [
        ("rebuilt", repair.repaired_bytes),
        ("moved", repair.moved_bytes),
        ("caught_up", repair.caught_up_bytes),
    ];
    add! { page:
        counters "repaired_chunks":
            "Chunks that repairs have rebuilt, moved off leaving nodes, or brought up to date",
            by_label("how", chunks);
        counters "repaired"[Unit::Bytes]: "Bytes that repairs have written, by the same kinds",
            by_label("how", bytes);
        counter "repair_planned_cross_rack"[Unit::Bytes]: "Planned cross-rack bytes of repairs",
            repair.planned_cross_rack_bytes as f64;
        counter "repair_resumes": "Repairs that were resumed with other helpers", repair.resumed_count as f64;
        counter "repair_busy"[Unit::Seconds]: "Total time of repairs", seconds_of_ms(repair.busy_ms);
    }
}

fn add_queues(page: &mut Page, figures: &CoordinatorFigures) {
    let age = |ms: Option<u64>| seconds_of_ms(ms.unwrap_or(0));
    add! { page:
        gauge "repair_queue_age"[Unit::Seconds]:
            "Longest current wait of a stripe for the end of its repair; 0 when none waits",
            age(figures.repair_wait_ms);
        gauge "garbage_age"[Unit::Seconds]:
            "Time since a pass over all garbage last removed all of it; 0 when the last pass did",
            age(figures.garbage_wait_ms);
        gauge "garbage_stripes": "Stripes with chunks that nodes still have to remove",
            figures.garbage_stripe_count as f64;
        gauge "followers": "Clients that wait for changes of names and inodes", figures.follower_count as f64;
        gauge "open_files": "Files that clients such as mounts have open, counted for each client",
            figures.usage.open_file_count as f64;
    }
}
