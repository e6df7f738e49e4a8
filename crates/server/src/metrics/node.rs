//! The metrics of a node.

use super::labels::{Label, add, by_label, of_node, seconds_of_ms, seconds_of_us, times, traffic};
use super::listener::MetricsListener;
use super::requests::Requests;
use crate::array_watch::{ArrayWatch, Wear};
use crate::error::ServerError;
use crate::slow::SlowLog;
use gabion_layout::{NodeId, RackId};
use gabion_metrics::{Exposed, Form, Labels, Page, add_process};
use gabion_protocol::event::Event;
use gabion_protocol::measure::{Measure, Updated};
use gabion_protocol::message::{ArrayStatus, DeviceState, StoreCounts};
use gabion_protocol::node::Node;
use gabion_protocol::node::figures::NodeFigures;
use gabion_wire::{NotAdmitted, Observer, TrafficMeter, WireError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The labels of updates.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfPool {
    pool: String,
    scheme: &'static str,
}

/// The work of a node since its process began.
#[derive(Debug)]
pub(crate) struct NodeWork {
    requests: Requests,
    updates: Family<OfPool, Histogram>,
    updated_bytes: Family<OfPool, Counter>,
    merges: Family<[Label; 1], Histogram>,
    syncs: Family<[Label; 1], Histogram>,
    slow: Option<SlowLog>,
}

impl NodeWork {
    /// All counts are zero. Operations that take longer than this are logged.
    pub(crate) fn new(slow: Option<Duration>) -> Self {
        Self {
            requests: Requests::new(),
            updates: Family::new_with_constructor(times),
            updated_bytes: Family::default(),
            merges: Family::new_with_constructor(times),
            syncs: Family::new_with_constructor(times),
            slow: slow.map(SlowLog::new),
        }
    }

    /// Counts a sync of the disk.
    pub(crate) fn synced(&self, what: &'static str, time: Duration) {
        let syncs = self.syncs.get_or_create(&[("of", what)]);
        syncs.observe(time.as_secs_f64());
        if let Some(slow) = &self.slow {
            slow.synced(what, time);
        }
    }

    /// Counts a request that did not reach the node.
    pub(crate) fn not_admitted(&self, why: NotAdmitted) {
        self.requests.not_admitted(why);
    }

    /// Counts a connection that was not accepted.
    pub(crate) fn not_accepted(&self, reason: &WireError) {
        self.requests.not_accepted(reason);
    }

    fn updated(&self, updated: &Updated<'_>) {
        let labels = OfPool {
            pool: updated.pool.to_owned(),
            scheme: updated.scheme,
        };
        let seconds = seconds_of_us(updated.times.all_us());
        self.updates.get_or_create(&labels).observe(seconds);
        let bytes = self.updated_bytes.get_or_create(&labels);
        bytes.inc_by(updated.bytes);
    }

    fn add_to(&self, page: &mut Page, limited: &BTreeMap<&'static str, u64>) {
        self.requests.add_to(page, limited);
        add! { page:
            add "update"[Unit::Seconds]:
                "Duration of updates that this node committed as a primary, by pool and update scheme",
                self.updates.clone();
            add "updated"[Unit::Bytes]: "Bytes that these updates have changed", self.updated_bytes.clone();
            add "merge"[Unit::Seconds]:
                "Duration of merges of records into chunks: applied from the journal, or merged from a reserve",
                self.merges.clone();
            add "disk_sync"[Unit::Seconds]: "Duration of disk syncs of files and directories", self.syncs.clone();
        }
    }
}

impl Observer for NodeWork {
    fn measured(&self, measure: &Measure<'_>) {
        if let Some(slow) = &self.slow {
            slow.measured(measure);
        }
        match measure {
            Measure::Answered(answered) => self.requests.answered(answered),
            Measure::Updated(updated) => self.updated(updated),
            Measure::Merged { what, took_us } => {
                let merges = self.merges.get_or_create(&[("of", what.name())]);
                merges.observe(seconds_of_us(*took_us));
            }
            // The coordinator's.
            Measure::Transaction { .. } | Measure::Repaired { .. } => {}
        }
    }

    fn happened(&self, event: &Event) {
        self.requests.happened(event.name());
    }
}

/// The counters of a node's work, and the listener from which the counts are read.
pub(crate) struct Counting {
    listener: Option<MetricsListener>,
    /// None where nothing is counted.
    pub(crate) work: Option<Arc<NodeWork>>,
}

impl Counting {
    /// Listens at an address, if there is one; what takes longer than `slow` is logged.
    pub(crate) async fn begin(
        metrics: Option<&str>,
        slow: Option<Duration>,
    ) -> Result<Self, ServerError> {
        let listener = MetricsListener::bind(metrics).await?;
        let is_observed = listener.is_some() || slow.is_some();
        let work = is_observed.then(|| Arc::new(NodeWork::new(slow)));
        Ok(Self { listener, work })
    }

    /// The work, as the ports tell it.
    pub(crate) fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.work.clone().map(|work| work as Arc<dyn Observer>)
    }

    /// The listener, if there is one, with the metrics to serve.
    pub(crate) fn served(self, parts: NodeParts) -> Option<(MetricsListener, NodeMetrics)> {
        let served = self.listener.zip(self.work);
        served.map(|(listener, work)| (listener, NodeMetrics { work, parts }))
    }
}

/// The parts of a node's page, beside its work.
pub(crate) struct NodeParts {
    pub(crate) node: Arc<Node>,
    pub(crate) rack: RackId,
    pub(crate) meter: Arc<TrafficMeter>,
    pub(crate) array: Option<ArrayWatch>,
}

/// The metrics of a node.
pub(crate) struct NodeMetrics {
    work: Arc<NodeWork>,
    parts: NodeParts,
}

impl Exposed for NodeMetrics {
    async fn text(&self, form: Form) -> String {
        let parts = &self.parts;
        let mut page = Page::new("gabion_node");
        add_process(&mut page);
        add_identity(&mut page, parts.node.id(), parts.rack);
        let figures = parts.node.figures().await;
        self.work.add_to(&mut page, &figures.limited);
        add! { page:
            counters "sent"[Unit::Bytes]:
                "Payload bytes of slices that this node has sent, by the racks of sender and receiver and by purpose",
                traffic(&parts.meter.snapshot());
        }
        add_figures(&mut page, &figures);
        add_store(&mut page, &figures.store);
        if let Some(array) = &parts.array {
            add_array(&mut page, &array.status(), &array.wear());
        }
        page.text(form)
    }
}

fn add_identity(page: &mut Page, node: NodeId, rack: RackId) {
    let mut labels = of_node(node);
    labels.push(("rack", rack.0.to_string()));
    labels.push(("version", env!("CARGO_PKG_VERSION").to_owned()));
    add! { page:
        gauges "info": "The node's id, its rack and its release; the value is always 1", [(labels, 1.0)];
    }
}

fn add_figures(page: &mut Page, figures: &NodeFigures) {
    add! { page:
        counters "planned"[Unit::Bytes]:
            "Payload bytes that nodes should have sent for the updates and commits that this node has run as a primary",
            traffic(&figures.planned);
        gauge "lease_left"[Unit::Seconds]: "Time until the node's lease expires; 0 when it does not serve",
            seconds_of_ms(figures.lease_ms);
        gauge "store_failed": "1 when the store has failed and the node leaves, else 0",
            f64::from(u8::from(figures.has_failed));
    }
    if let Some(space) = figures.space {
        add! { page:
            gauge "capacity"[Unit::Bytes]: "Capacity of the disk", space.capacity_bytes as f64;
            gauge "free"[Unit::Bytes]: "Bytes of the disk that are free for new chunks", space.free_bytes as f64;
        }
    }
    if let Some(usage) = &figures.usage {
        add! { page:
            gauge "used"[Unit::Bytes]:
                "Bytes that the store uses: chunks with headers and reserves, the journal, the trash",
                usage.used_bytes as f64;
        }
    }
    if let Some(pending_bytes) = figures.pending_bytes {
        add! { page:
            gauge "pending"[Unit::Bytes]:
                "Bytes of settled and unsettled records in the journal that are not in their chunks yet",
                pending_bytes as f64;
        }
    }
    let reserved = figures.usage.iter().flat_map(|usage| &usage.reserved_bytes);
    let reserved = reserved.map(|(pool, &bytes)| {
        let labels: Labels = vec![("pool_id", pool.0.to_string())];
        (labels, bytes as f64)
    });
    add! { page:
        gauge "staged"[Unit::Bytes]: "New bytes that clients have staged", figures.staged_bytes as f64;
        gauge "early_slices"[Unit::Bytes]: "Bytes of slices that wait for their parts of plans",
            figures.waiting_bytes as f64;
        gauge "pending_age"[Unit::Seconds]:
            "Time since the journal last had no pending records; 0 when it has none",
            seconds_of_ms(figures.pending_ms.unwrap_or(0));
        gauge "led_stripes": "Stripes in the node's memory as a primary", figures.led_stripe_count as f64;
        gauges "reserved"[Unit::Bytes]:
            "Bytes of reserves that have disk space, by the number of the pool", reserved;
    }
}

fn add_store(page: &mut Page, counts: &StoreCounts) {
    let merged = [
        ("foreground", counts.foreground_merge_count),
        ("background", counts.background_merge_count),
    ];
    let written = [
        ("journal", counts.journal_bytes),
        ("images", counts.image_bytes),
        ("reserves", counts.reserve_bytes),
        ("in_place", counts.in_place_bytes),
    ];
    add! { page:
        counter "appended_records": "Records appended by updates", counts.append_count as f64;
        counter "stalled_appends":
            "Appends that waited for a merge because their chunk's reserve was full, or was given back",
            counts.stalled_append_count as f64;
        counter "spilled_records":
            "Records that went to the journal because their reserve had no space for them",
            counts.spilled_record_count as f64;
        counter "store_syncs": "Syncs of files' data that the store has asked for", counts.sync_count as f64;
        counters "merged_chunks": "Merges of chunks, in the background or while an append waited",
            by_label("where", merged);
        counters "written"[Unit::Bytes]:
            "Bytes that the store has written: to its journal, as images in it, to reserves, and in place by merges",
            by_label("to", written);
        counter "stalled"[Unit::Bytes]: "Bytes of records whose appends have stalled",
            counts.stalled_append_bytes as f64;
        counter "punched"[Unit::Bytes]: "Bytes of reserves given back to the file system",
            counts.punched_bytes as f64;
    }
}

fn add_array(page: &mut Page, status: &ArrayStatus, wear: &Wear) {
    let name = |state: DeviceState| match state {
        DeviceState::Whole => "whole",
        DeviceState::Rebuilding { .. } => "rebuilding",
        DeviceState::Absent => "absent",
        DeviceState::Failed => "failed",
    };
    let by_state = ["whole", "rebuilding", "absent", "failed"].map(|state| {
        let devices = status.devices.iter();
        let count = devices.filter(|device| name(device.state) == state).count();
        (state, count as u64)
    });
    let written = [
        ("files", wear.counts.written_pages),
        ("table", wear.counts.table_pages),
        ("collection", wear.counts.moved_pages),
    ];
    let stripes = [
        ("buffered", wear.counts.flushed_stripes),
        ("direct", wear.counts.direct_stripes),
        ("collected", wear.counts.collected_stripes),
    ];
    add! { page:
        gauges "array_devices": "Devices of the array, by state", by_label("state", by_state);
        gauge "array_stripes": "Stripes on the array's devices", f64::from(status.stripe_count);
        gauge "array_degraded_stripes": "Stripes of the array that lack a chunk",
            f64::from(status.degraded_stripe_count);
        gauge "array_unreadable_stripes":
            "Stripes of the array with unreadable bytes, which are neither collected nor rebuilt",
            wear.unreadable_stripe_count as f64;
        gauge "array_free_stripes": "Free stripes of the array", f64::from(wear.free_stripe_count);
        counters "array_written_pages":
            "Pages of 4 KiB written to the array: of files, of their table, and moved by collection",
            by_label("of", written);
        counter "array_absorbed_pages":
            "Pages that were written again in a buffer and never reached a device",
            wear.counts.absorbed_pages as f64;
        counters "array_moved_stripes":
            "Stripes of the array written from buffers or directly, and emptied by collection",
            by_label("how", stripes);
        counter "array_stalls": "Times that a write waited for collection", wear.counts.stall_count as f64;
        counter "array_device_written"[Unit::Bytes]:
            "Bytes that the array's devices were given with whole stripes, parity included; rebuilds are not counted",
            wear.device_bytes() as f64;
    }
}
