//! What a replay measured.

use super::engine::Measured;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, table};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) trace: String,
    pub(super) file: String,
    pub(super) file_bytes: u64,
    pub(super) pool: String,
    pub(super) code: String,
    pub(super) depth: u32,
    pub(super) seconds: f64,
    pub(super) writes: Kind,
    pub(super) reads: Kind,
    /// By purpose, for those that moved anything.
    pub(super) cross_rack: BTreeMap<&'static str, CrossRack>,
    /// Nodes that did not say what they sent, so that metered bytes are too few.
    pub(super) unmetered_nodes: Vec<u32>,
    /// Bytes of the file that were compared in the end, if that was asked for.
    pub(super) verified_bytes: Option<u64>,
}

/// One kind of request.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Kind {
    count: u64,
    bytes: u64,
    per_s: f64,
    bytes_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Kind {
    pub(super) fn new(measured: &Measured, seconds: f64) -> Self {
        let latencies = &measured.latencies;
        // A replay of nothing takes no time, and its rates are 0.
        let rate = |count: u64| count as f64 / seconds.max(f64::MIN_POSITIVE);
        Self {
            count: latencies.count(),
            bytes: measured.bytes,
            per_s: rate(latencies.count()),
            bytes_per_s: rate(measured.bytes),
            p50_ms: latencies.rank_ms(0.50),
            p99_ms: latencies.rank_ms(0.99),
        }
    }
}

/// Payload bytes between nodes of different racks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct CrossRack {
    /// By the plans of what this client did.
    pub(super) planned_bytes: u64,
    /// By what all nodes sent meanwhile, for whomever.
    pub(super) metered_bytes: u64,
}

impl Report {
    pub(super) fn print(&self, format: Format) -> Result<(), Failure> {
        if format == Format::Json {
            return print_json(self);
        }
        println!(
            "{} on {} ({}, pool {}, {}): {:.1} s, at most {} at a time",
            self.trace,
            self.file,
            bytes(self.file_bytes),
            self.pool,
            self.code,
            self.seconds,
            self.depth
        );
        let mut kinds = table(&["", "requests", "size", "ops/s", "MB/s", "p50 ms", "p99 ms"]);
        for (name, kind) in [("writes", &self.writes), ("reads", &self.reads)] {
            if kind.count == 0 {
                continue;
            }
            kinds.add_row([
                name.to_owned(),
                kind.count.to_string(),
                bytes(kind.bytes),
                format!("{:.0}", kind.per_s),
                format!("{:.2}", kind.bytes_per_s / 1e6),
                format!("{:.2}", kind.p50_ms),
                format!("{:.2}", kind.p99_ms),
            ]);
        }
        align_numbers(&mut kinds);
        println!("{kinds}");
        let mut traffic = table(&["across racks", "planned", "metered"]);
        for (purpose, sent) in &self.cross_rack {
            let (planned, metered) = (sent.planned_bytes, sent.metered_bytes);
            traffic.add_row([(*purpose).to_owned(), bytes(planned), bytes(metered)]);
        }
        align_numbers(&mut traffic);
        println!("{traffic}");
        if !self.unmetered_nodes.is_empty() {
            println!(
                "metered bytes are too few: nodes {:?} could not be asked",
                self.unmetered_nodes
            );
        }
        if let Some(verified) = self.verified_bytes {
            println!("verified {}: nothing is lost", bytes(verified));
        }
        Ok(())
    }
}
