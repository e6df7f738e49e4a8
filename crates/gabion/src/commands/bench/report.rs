//! The measurements of a bench as tables, JSON and a plot.

use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, say, table};
use gabion_lab::plot::Plot;
use gabion_testbed::bench::{Line, Outcome, Setting, State, Workload};
use serde_json::{Value, json};

/// The report of a bench.
pub(super) struct Report<'a> {
    setting: &'a Setting,
    outcome: Outcome,
}

impl<'a> Report<'a> {
    /// The report of these measurements.
    pub(super) const fn new(setting: &'a Setting, outcome: Outcome) -> Self {
        Self { setting, outcome }
    }

    pub(super) fn print(&self, format: Format) -> Result<(), Failure> {
        if format == Format::Json {
            return print_json(&self.json());
        }
        let (size, seconds) = (
            bytes(self.setting.file_bytes.get()),
            self.setting.time.as_secs(),
        );
        let rounds = self.setting.round_count;
        say(format!(
            "files of {size}, {seconds} s a measurement, {rounds} of each; a write is durable when it returns"
        ));
        for state in [State::Found, State::Degraded, State::Repairing] {
            let lines: Vec<&Line> = self.of(state).collect();
            if lines.is_empty() {
                continue;
            }
            if self.setting.node.is_some() {
                println!("{}:", state.name());
            }
            self.print_rates(&lines);
            print_costs(&lines);
        }
        self.print_notes();
        Ok(())
    }

    fn of(&self, state: State) -> impl Iterator<Item = &Line> {
        self.outcome
            .lines
            .iter()
            .filter(move |line| line.state == state)
    }

    fn print_rates(&self, lines: &[&Line]) {
        let mut heading = vec![
            "requests", "pool", "ops/s", "MB/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms",
        ];
        let compares = self.setting.pools.len() > 1;
        let ratio = format!("ops/s to {}", self.setting.pools[0]);
        if compares {
            heading.push(&ratio);
        }
        let mut rates = table(&heading);
        for line in lines {
            let latencies = &line.measured.latencies;
            let ms = |share| format!("{:.2}", latencies.rank_ms(share));
            let mut row = vec![
                named(line.workload),
                line.pool.clone(),
                format!("{:.0}", per_s(line)),
                format!("{:.1}", line.measured.bytes as f64 / line.seconds / 1e6),
                ms(0.5),
                ms(0.99),
                ms(0.999),
                ms(1.0),
            ];
            if compares {
                row.push(
                    self.to_first(line)
                        .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                );
            }
            rates.add_row(row);
        }
        align_numbers(&mut rates);
        println!("{rates}");
    }

    /// The rate relative to the first pool in the same state; none for the first pool.
    fn to_first(&self, line: &Line) -> Option<f64> {
        let first = self.setting.pools.first()?;
        let mut same = self
            .of(line.state)
            .filter(|other| other.workload == line.workload);
        let first = same.find(|other| &other.pool == first)?;
        (first.pool != line.pool).then(|| per_s(line) / per_s(first))
    }

    fn print_notes(&self) {
        let outcome = &self.outcome;
        if let Some(ms) = outcome.longest_wait_ms {
            say(format!(
                "right after the kill, writes of 4 KiB, one into each stripe, waited at most {:.1} s",
                ms / 1e3
            ));
        }
        if let Some(seconds) = outcome.repair_seconds {
            println!("the repair of the killed node's chunks took {seconds:.1} s");
        }
        for note in &outcome.left_out {
            say(note);
        }
        if outcome.lines.iter().any(|line| line.cost.is_incomplete) {
            say("a node did not answer, so the counts of syncs and cross-rack bytes are too low");
        }
        if let Some(ms) = outcome.plain_write_ms {
            say(format!(
                "the disk alone: a plain write and sync of 4 KiB takes {ms:.2} ms"
            ));
        }
        println!(
            "verified {}: every byte has the value of its last write",
            bytes(outcome.verified_bytes)
        );
    }

    fn json(&self) -> Value {
        let line = |line: &Line| {
            let latencies = &line.measured.latencies;
            let servers = line.cost.servers;
            json!({
                "pool": line.pool,
                "state": line.state.name(),
                "workload": line.workload.name(),
                "block_bytes": line.workload.block_bytes,
                "depth": line.workload.depth,
                "seconds": line.seconds,
                "requests": latencies.count(),
                "bytes": line.measured.bytes,
                "requests_per_s": per_s(line),
                "p50_ms": latencies.rank_ms(0.5),
                "p99_ms": latencies.rank_ms(0.99),
                "p999_ms": latencies.rank_ms(0.999),
                "max_ms": latencies.rank_ms(1.0),
                "latencies_us": latencies.ranges().collect::<Vec<_>>(),
                "client_processor_s": line.cost.client_s,
                "coordinator_processor_s": servers.map(|servers| servers.coordinator_s),
                "nodes_processor_s": servers.map(|servers| servers.nodes_s),
                "loopback_packets": servers.map(|servers| servers.packet_count),
                "stores": line.cost.stores,
                "planned_cross_rack_bytes": line.cost.planned_cross_rack_bytes,
                "metered_cross_rack_bytes": line.cost.metered_cross_rack_bytes,
                "is_incomplete": line.cost.is_incomplete,
            })
        };
        json!({
            "file_bytes": self.setting.file_bytes,
            "rounds": self.setting.round_count,
            "seed": self.setting.seed,
            "killed_node": self.setting.node,
            "lines": self.outcome.lines.iter().map(line).collect::<Vec<_>>(),
            "longest_wait_ms": self.outcome.longest_wait_ms,
            "repair_seconds": self.outcome.repair_seconds,
            "left_out": self.outcome.left_out,
            "plain_write_ms": self.outcome.plain_write_ms,
            "verified_bytes": self.outcome.verified_bytes,
        })
    }

    /// The rates of all workloads, with a bar for each pool and state.
    pub(super) fn plot(&self) -> Plot {
        let workloads = &self.setting.workloads;
        let categories = workloads.iter().map(|workload| named(*workload)).collect();
        let mut series = Vec::new();
        for state in [State::Found, State::Degraded] {
            if self.of(state).count() == 0 {
                continue;
            }
            for pool in &self.setting.pools {
                let rate = |workload: &Workload| {
                    let mut lines = self.of(state);
                    let line = lines.find(|l| l.workload == *workload && &l.pool == pool);
                    line.map_or(0.0, |line| line.measured.bytes as f64 / line.seconds / 1e6)
                };
                let name = match state {
                    State::Found => pool.clone(),
                    _ => format!("{pool}, {}", state.name()),
                };
                series.push((name, workloads.iter().map(rate).collect()));
            }
        }
        let title = "Rates of the pools";
        Plot::bars("bench", title, ["requests", "MB/s"], categories, series)
    }
}

/// A workload's name, size and depth.
fn named(workload: Workload) -> String {
    let block = bytes(workload.block_bytes.get());
    format!("{} {block} x{}", workload.name(), workload.depth)
}

/// Requests a second.
fn per_s(line: &Line) -> f64 {
    line.measured.latencies.count() as f64 / line.seconds.max(f64::MIN_POSITIVE)
}

/// The cost of a request of each line.
fn print_costs(lines: &[&Line]) {
    let mut costs = table(&[
        "cost of a request",
        "pool",
        "client",
        "coordinator",
        "nodes",
        "syncs",
        "packets",
        "cross-rack",
        "metered",
    ]);
    for line in lines {
        let count = line.measured.latencies.count().max(1) as f64;
        let ms = |seconds: f64| format!("{:.3}", seconds * 1e3 / count);
        let a_byte =
            |bytes: u64| format!("{:.2}", bytes as f64 / line.measured.bytes.max(1) as f64);
        let servers = line.cost.servers;
        let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        costs.add_row([
            named(line.workload),
            line.pool.clone(),
            ms(line.cost.client_s),
            known(servers.map(|servers| ms(servers.coordinator_s))),
            known(servers.map(|servers| ms(servers.nodes_s))),
            format!("{:.2}", line.cost.stores.sync_count as f64 / count),
            known(servers.map(|servers| format!("{:.1}", servers.packet_count as f64 / count))),
            a_byte(line.cost.planned_cross_rack_bytes),
            a_byte(line.cost.metered_cross_rack_bytes),
        ]);
    }
    align_numbers(&mut costs);
    println!("{costs}");
    say(
        "client, coordinator and nodes: milliseconds of processor time; cross-rack: planned and metered bytes between \
        racks for each byte of the requests",
    );
}
