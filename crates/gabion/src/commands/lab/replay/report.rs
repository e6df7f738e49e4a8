//! The measurements of a replay.

use crate::arguments::ReplayOptions;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, say, table};
use gabion_client::CacheCounts;
use gabion_testbed::replay::{Flow, Measured, Moved, Outcome, cross_rack};
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    trace: String,
    file: String,
    file_bytes: u64,
    pool: String,
    code: String,
    depth: u32,
    seconds: f64,
    /// Duration of the commit of waiting updates at the end, if the pool has append phases.
    commit_seconds: Option<f64>,
    writes: Kind,
    reads: Kind,
    /// The cache's counters, if there was one.
    cache: Option<CacheReport>,
    /// Cross-rack bytes by purpose, without purposes of no bytes.
    cross_rack: BTreeMap<&'static str, Moved>,
    /// By sender's and receiver's rack and purpose, in that order.
    traffic: Vec<Flow>,
    /// Nodes that did not report their traffic. Without them, metered bytes are too low.
    unmetered_nodes: Vec<u32>,
    /// Bytes that the replay has written, each counted once. Null, as the following ones, if they are unknown.
    written_bytes: Option<u64>,
    /// Bytes of the segments that the file has, their disk space with parity, and that of their reserves.
    stored_bytes: Option<u64>,
    raw_bytes: Option<u64>,
    reserved_bytes: Option<u64>,
    /// Bytes of the file compared at the end, if requested.
    verified_bytes: Option<u64>,
}

/// One kind of request.
#[derive(Clone, Debug, Serialize)]
struct Kind {
    count: u64,
    bytes: u64,
    per_s: f64,
    bytes_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Kind {
    fn new(measured: &Measured, seconds: f64) -> Self {
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

/// Counters of a client's segment cache. A request in several segments counts for each.
#[derive(Clone, Debug, Serialize)]
struct CacheReport {
    size_bytes: u64,
    read_ahead_bytes: u64,
    /// Writes into the cache, and writes that bypass it.
    writes: u64,
    writes_through: u64,
    /// Writes that joined waiting ones.
    coalesced_writes: u64,
    /// Updates that wrote changes back, and the number of updates saved against the writes into the cache.
    updates: u64,
    updates_saved: u64,
    failed_updates: u64,
    write_bytes: u64,
    update_bytes: u64,
    /// Bytes that were overwritten before they were sent.
    overwritten_bytes: u64,
    read_hits: u64,
    read_misses: u64,
    read_bytes: u64,
    fetched_bytes: u64,
    /// Segments written back to free space.
    displaced: u64,
    evicted_pages: u64,
}

impl CacheReport {
    const fn new(size_bytes: u64, read_ahead_bytes: u64, counts: &CacheCounts) -> Self {
        Self {
            size_bytes,
            read_ahead_bytes,
            writes: counts.write_count,
            writes_through: counts.write_through_count,
            coalesced_writes: counts.coalesced_write_count,
            updates: counts.update_count,
            updates_saved: counts.write_count.saturating_sub(counts.update_count),
            failed_updates: counts.failed_update_count,
            write_bytes: counts.write_bytes,
            update_bytes: counts.update_bytes,
            overwritten_bytes: counts.overwritten_bytes,
            read_hits: counts.read_hit_count,
            read_misses: counts.read_miss_count,
            read_bytes: counts.read_bytes,
            fetched_bytes: counts.fetched_bytes,
            displaced: counts.displaced_count,
            evicted_pages: counts.evicted_page_count,
        }
    }

    fn print(&self) {
        say(format!(
            "cache of {}: {} writes became {} updates ({} saved), {} instead of {}; {} writes bypassed it",
            bytes(self.size_bytes),
            self.writes,
            self.updates,
            self.updates_saved,
            bytes(self.update_bytes),
            bytes(self.write_bytes),
            self.writes_through
        ));
        println!(
            "cache of reads: {} hits, {} misses, {} read, {} fetched",
            self.read_hits,
            self.read_misses,
            bytes(self.read_bytes),
            bytes(self.fetched_bytes)
        );
    }
}

impl Report {
    /// The report of a replay; `cached` are the counters of its cache, if there was one.
    pub(super) fn new(
        options: &ReplayOptions,
        size: NonZeroU64,
        outcome: Outcome,
        cached: Option<CacheCounts>,
    ) -> Self {
        let seconds = outcome.seconds;
        let cache_bytes = options.cache.map_or(0, NonZeroU64::get);
        Self {
            trace: options.trace.display().to_string(),
            file: options.name.clone(),
            file_bytes: size.get(),
            pool: outcome.pool,
            code: outcome.code,
            depth: options.depth,
            seconds,
            commit_seconds: outcome.commit_seconds,
            writes: Kind::new(&outcome.writes, seconds),
            reads: Kind::new(&outcome.reads, seconds),
            cache: cached.map(|counts| CacheReport::new(cache_bytes, options.read_ahead, &counts)),
            cross_rack: cross_rack(&outcome.flows),
            traffic: outcome.flows,
            unmetered_nodes: outcome.unmetered_nodes,
            written_bytes: outcome.space.map(|space| space.written_bytes),
            stored_bytes: outcome.space.map(|space| space.stored_bytes),
            raw_bytes: outcome.space.map(|space| space.raw_bytes),
            reserved_bytes: outcome.space.and_then(|space| space.reserved_bytes),
            verified_bytes: outcome.verified_bytes,
        }
    }

    pub(super) fn print(&self, format: Format) -> Result<(), Failure> {
        if format == Format::Json {
            return print_json(self);
        }
        say(format!(
            "{} on {} ({}, pool {}, {}): {:.1} s, at most {} at a time",
            self.trace,
            self.file,
            bytes(self.file_bytes),
            self.pool,
            self.code,
            self.seconds,
            self.depth
        ));
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
        let told = |known: Option<u64>| known.map_or_else(|| "unknown".to_owned(), bytes);
        say(format!(
            "space: {} written, in segments of {}; on disks {} raw with parity, {} reserved",
            told(self.written_bytes),
            told(self.stored_bytes),
            told(self.raw_bytes),
            told(self.reserved_bytes)
        ));
        if let Some(cache) = &self.cache {
            cache.print();
        }
        if let Some(seconds) = self.commit_seconds {
            println!("the commit of waiting updates at the end took {seconds:.1} s");
        }
        let mut traffic = table(&["across racks", "planned", "metered"]);
        for (purpose, sent) in &self.cross_rack {
            let (planned, metered) = (sent.planned_bytes, sent.metered_bytes);
            traffic.add_row([(*purpose).to_owned(), bytes(planned), bytes(metered)]);
        }
        align_numbers(&mut traffic);
        println!("{traffic}");
        if !self.unmetered_nodes.is_empty() {
            say(format!(
                "metered bytes are too low, because nodes {:?} did not answer, left or restarted",
                self.unmetered_nodes
            ));
        }
        if let Some(verified) = self.verified_bytes {
            println!("verified {}: every byte is correct", bytes(verified));
        }
        Ok(())
    }
}
