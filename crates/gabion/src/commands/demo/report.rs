//! The demo's measurements.

use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, table};
use serde::Serialize;

/// All measurements, in their order.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) code: String,
    pub(super) chunk_bytes: u64,
    pub(super) file_bytes: u64,
    pub(super) node_bytes_per_s: u64,
    pub(super) rack_bytes_per_s: u64,
    pub(super) start_s: f64,
    pub(super) put_s: f64,
    pub(super) updates: Updates,
    pub(super) direct_send_s: f64,
    pub(super) forms: Vec<Form>,
    pub(super) degraded: Vec<Degraded>,
    pub(super) repairs: Vec<Repair>,
    pub(super) final_read_s: f64,
    pub(super) scrubbed_bytes: u64,
    /// Failures that the weakest stripe survives at the end.
    pub(super) failures_left: i32,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Updates {
    pub(super) source: String,
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) planned_cross_rack_bytes: u64,
    pub(super) metered_cross_rack_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Degraded {
    pub(super) node: u32,
    /// Failures that the weakest stripe survived while the node was lost.
    pub(super) failures_left: i32,
    /// Writes in place during that time.
    pub(super) updates: Updates,
    /// Time to read the whole file.
    pub(super) seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Repair {
    pub(super) scheme: String,
    pub(super) chunk_count: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Sum of the times of the single repairs.
    pub(super) busy_s: f64,
    pub(super) planned_cross_rack_bytes: u64,
    pub(super) metered_cross_rack_bytes: u64,
}

/// Replicated blocks that became stripes, or stripes that became blocks.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Form {
    pub(super) name: String,
    /// Bytes of data.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Writes in place during the conversion.
    pub(super) write_count: u64,
    pub(super) slowest_write_ms: f64,
    /// Number of segments restarted because of these.
    pub(super) begun_anew_count: u64,
    /// Data that crossed racks for encoding.
    pub(super) data_cross_rack_bytes: u64,
    /// Planned bytes of the successful attempts.
    pub(super) planned_cross_rack_bytes: u64,
    /// Measured bytes of all attempts.
    pub(super) metered_cross_rack_bytes: u64,
}

impl Updates {
    fn row(&self, how: &str) -> [String; 5] {
        [
            format!("{} updates {how}, {}", self.count, bytes(self.bytes)),
            format!("{:.2} s", self.seconds),
            format!("{:.0}/s", self.count as f64 / self.seconds),
            self.planned_cross_rack_bytes.to_string(),
            self.metered_cross_rack_bytes.to_string(),
        ]
    }
}

impl Repair {
    fn chunk_s(&self) -> f64 {
        self.busy_s / self.chunk_count.max(1) as f64
    }
}

impl Report {
    pub(super) fn print(&self, format: Format) -> Result<(), Failure> {
        if format == Format::Json {
            return print_json(self);
        }
        println!(
            "12 nodes in 3 racks, {} with {} chunks; links {}/s a node, {}/s a rack",
            self.code,
            bytes(self.chunk_bytes),
            bytes(self.node_bytes_per_s),
            bytes(self.rack_bytes_per_s)
        );
        self.print_steps();
        self.print_forms();
        self.print_repairs();
        println!(
            "every byte was compared after each step; scrub verified {} on disk; every stripe \
             survives {} more chunk failures",
            bytes(self.scrubbed_bytes),
            self.failures_left
        );
        Ok(())
    }

    fn print_steps(&self) {
        let rate = |seconds: f64| format!("{}/s", bytes((self.file_bytes as f64 / seconds) as u64));
        let mut steps = table(&["step", "time", "rate", "cross-rack planned", "metered"]);
        let none = String::new;
        let file = bytes(self.file_bytes);
        let row = |what: String, seconds: f64, rate: String| {
            [what, format!("{seconds:.2} s"), rate, none(), none()]
        };
        steps.add_row(row("start the cluster".to_owned(), self.start_s, none()));
        steps.add_row(row(format!("store {file}"), self.put_s, rate(self.put_s)));
        steps.add_row(self.updates.row("in place"));
        for degraded in &self.degraded {
            let without = format!("without node {}", degraded.node);
            steps.add_row(degraded.updates.row(&without));
            let what = format!(
                "read {file} without node {} ({} failures left)",
                degraded.node, degraded.failures_left
            );
            steps.add_row(row(what, degraded.seconds, rate(degraded.seconds)));
        }
        let last = format!("read {file} after repair");
        steps.add_row(row(last, self.final_read_s, rate(self.final_read_s)));
        align_numbers(&mut steps);
        println!("{steps}");
        let degraded = self.degraded.iter().map(|degraded| &degraded.updates);
        for updates in std::iter::once(&self.updates).chain(degraded) {
            println!(
                "updates: {}; latency p50 {:.2} ms, p99 {:.2} ms",
                updates.source, updates.p50_ms, updates.p99_ms
            );
        }
    }

    fn print_forms(&self) {
        let mut forms = table(&[
            "three replicas a block",
            "data",
            "time",
            "writes during it",
            "slowest",
            "restarted",
            "cross-rack data",
            "all planned",
            "metered",
        ]);
        for form in &self.forms {
            forms.add_row([
                form.name.clone(),
                bytes(form.bytes),
                format!("{:.2} s", form.seconds),
                form.write_count.to_string(),
                format!("{:.0} ms", form.slowest_write_ms),
                form.begun_anew_count.to_string(),
                form.data_cross_rack_bytes.to_string(),
                form.planned_cross_rack_bytes.to_string(),
                form.metered_cross_rack_bytes.to_string(),
            ]);
        }
        align_numbers(&mut forms);
        println!("{forms}");
        if self.forms.iter().any(|form| form.begun_anew_count > 0) {
            println!(
                "segments written during their conversion were restarted: the metered bytes include all \
                 attempts, the planned bytes only the successful ones"
            );
        }
    }

    fn print_repairs(&self) {
        let limit_s = self.chunk_bytes as f64 / self.node_bytes_per_s.max(1) as f64;
        println!(
            "one {} chunk sent directly takes {:.1} ms (the link's own limit: {:.1} ms)",
            bytes(self.chunk_bytes),
            self.direct_send_s * 1e3,
            limit_s * 1e3
        );
        let mut repairs = table(&[
            "repair",
            "chunks",
            "time",
            "a chunk",
            "against direct send",
            "cross-rack planned",
            "metered",
        ]);
        for repair in &self.repairs {
            repairs.add_row([
                repair.scheme.clone(),
                repair.chunk_count.to_string(),
                format!("{:.2} s", repair.seconds),
                format!("{:.1} ms", repair.chunk_s() * 1e3),
                format!("{:.2}x", repair.chunk_s() / self.direct_send_s),
                repair.planned_cross_rack_bytes.to_string(),
                repair.metered_cross_rack_bytes.to_string(),
            ]);
        }
        align_numbers(&mut repairs);
        println!("{repairs}");
    }
}
