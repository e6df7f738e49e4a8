//! Each experiment on its smallest setting: what it says must be so at any size.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use gabion_codec::Code;
use gabion_lab::LabError;
use gabion_lab::experiments::{
    CacheEffect, Cell, Clusters, Finding, Overwrite, OverwriteSetting, Progress, Report, Scale,
    Sent, Session, TestbedSetting, Throughput, TransferSetting, Transfers, experiment, registry,
};
use gabion_layout::{ByteRange, UpdateScheme};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts steps, so that a test can see that progress is shown.
#[derive(Default)]
struct Steps(AtomicU64);

impl Progress for Steps {
    fn begin(&self, _: &str, step_count: u64) {
        assert!(step_count > 0, "a bar has steps");
    }

    fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cluster that does exactly what its links allow: every chunk passes one node's link, once.
struct Ideal;

impl Clusters for Ideal {
    fn transfer(&self, setting: &TransferSetting) -> Result<Transfers, LabError> {
        let bytes = u64::from(setting.client_count) * setting.file_bytes;
        let read_s =
            bytes as f64 / (f64::from(setting.node_count) * setting.link_bytes_per_s as f64);
        let code = &setting.code;
        let write_s = read_s * code.n() as f64 / code.k() as f64;
        Ok(Transfers { write_s, read_s })
    }

    /// A client whose cache holds everything: one update for each segment that is written at all. Each
    /// takes a millisecond and sends the segment's bytes once.
    fn overwrite(
        &self,
        setting: &OverwriteSetting,
        overwrites: &[Overwrite],
    ) -> Result<Vec<CacheEffect>, LabError> {
        let stripe_bytes = setting.chunk_bytes * setting.code.k() as u64;
        let sent = |updates: usize, cross_rack_bytes| Sent {
            update_count: updates as u64,
            seconds: updates as f64 / 1e3,
            cross_rack_bytes,
        };
        let effect = |overwrite: &Overwrite| {
            let stripe = |write: &ByteRange| {
                assert!(write.end() <= overwrite.file_bytes, "{write:?}");
                let [first, last] = [write.offset, write.end() - 1].map(|at| at / stripe_bytes);
                assert_eq!(first, last, "a write is of one stripe");
                first
            };
            let stripes: BTreeSet<u64> = overwrite.writes.iter().map(stripe).collect();
            let bytes = overwrite.writes.iter().map(|write| write.length).sum();
            CacheEffect {
                off: sent(overwrite.writes.len(), bytes),
                on: sent(stripes.len(), bytes / 2),
            }
        };
        Ok(overwrites.iter().map(effect).collect())
    }

    /// Nothing but uplinks takes time. Deltas cross racks four times, and half as often through collectors.
    fn update_on_testbed(
        &self,
        setting: &TestbedSetting,
        overwrites: &[Overwrite],
    ) -> Result<Vec<Throughput>, LabError> {
        let code: Code = setting.code.parse().unwrap();
        let stripe_bytes = setting.chunk_bytes * code.k() as u64;
        let measured = |overwrite: &Overwrite| {
            let bytes: u64 = overwrite.writes.iter().map(|write| write.length).sum();
            for write in &overwrite.writes {
                assert_eq!(write.offset % setting.chunk_bytes, 0, "{write:?}");
                assert_eq!(
                    write.offset / stripe_bytes,
                    (write.end() - 1) / stripe_bytes
                );
            }
            let copies = if overwrite.scheme == UpdateScheme::Rackcu {
                2
            } else {
                4
            };
            let cross_rack_bytes = copies * bytes;
            let rate = u64::from(setting.rack_count) * setting.uplink_bytes_per_s;
            Throughput {
                seconds: cross_rack_bytes as f64 / rate as f64,
                cross_rack_bytes,
                uplink_share: 1.0,
                processor_share: 0.0,
            }
        };
        Ok(overwrites.iter().map(measured).collect())
    }
}

/// Runs an experiment on its quick setting, without traces.
fn quick(id: &str) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let progress = Steps::default();
    let session = Session {
        scale: Scale::Quick,
        seed: 1,
        directory: directory.path(),
        traces: None,
        clusters: Some(&Ideal),
        progress: &progress,
    };
    let report = (experiment(id).unwrap().run)(&session).unwrap();
    assert!(!report.setting.is_empty(), "{id} says what it runs");
    assert!(!report.scaled.is_empty(), "{id} says what is smaller");
    assert!(!report.plots.is_empty(), "{id} draws something");
    assert!(
        progress.0.load(Ordering::Relaxed) > 0,
        "{id} shows progress"
    );
    for plot in &report.plots {
        assert!(plot.name.starts_with(id), "{id}: {}", plot.name);
        plot.svg().unwrap();
    }
    report
}

/// The finding whose name begins so.
fn finding<'a>(report: &'a Report, what: &str) -> &'a Finding {
    let found = report.findings.iter().find(|f| f.what.starts_with(what));
    found.unwrap_or_else(|| panic!("no finding {what} in {:#?}", report.findings))
}

#[test]
fn ids_are_unique_and_found_in_any_case() {
    let ids: BTreeSet<&str> = registry().iter().map(|e| e.id).collect();
    assert_eq!(ids.len(), registry().len());
    assert_eq!(experiment("cod-t32").unwrap().id, "COD-T32");
    let error = experiment("COD-T99").unwrap_err().to_string();
    assert!(error.contains("no experiment 'COD-T99'"), "{error}");
    assert!(ids.iter().all(|id| error.contains(id)), "{error}");
}

#[test]
fn t32_workloads_come_near_their_rows() {
    let report = quick("COD-T32");
    let near = finding(&report, "calibrated workloads");
    assert_eq!(near.is_reached, Some(true), "{}", near.ours);
    assert_eq!(report.tables[0].rows.len(), 12);
    assert_eq!(report.tables[0].rows[1][2], Cell::Count(1055));
}

/// The finding's number.
fn value(report: &Report, what: &str) -> f64 {
    finding(report, what).ours_value.expect("a number")
}

#[test]
fn parts_of_a_figure_name_its_experiment() {
    for id in ["COD-F52", "COD-F52a", "cod-f52D"] {
        assert_eq!(experiment(id).unwrap().id, "COD-F52");
    }
    for id in ["COD-F52e", "COD-F52ab", "COD-T32a", "COD"] {
        assert!(experiment(id).is_err(), "{id}");
    }
}

/// Six chunks for four of data: the thesis's primaries pass on 2.25 times what clients write, and take in
/// 1.75 times what they read; clients that encode and gather need 1.5 times and once.
#[test]
fn f51_compares_with_both_formulas() {
    let report = quick("COD-F51");
    let near = |what: &str, expected: f64| {
        let found = value(&report, what);
        assert!((found - expected).abs() < 1e-9, "{what}: {found}");
    };
    near("write: over the thesis's formula", 2.25 / 1.5);
    near("read: over the thesis's formula", 1.75);
    near("write: over our own bound", 1.0);
    near("read: over our own bound", 1.0);
}

/// On the model, as in the thesis: full overwrite updates slowest, full logging reads slowest, and
/// recovery is fast where deltas are next to their chunks.
#[test]
fn f52_has_the_order_of_schemes() {
    let report = quick("COD-F52");
    assert!(
        value(
            &report,
            "b: random write, FO below the slowest other, model"
        ) > 0.0
    );
    assert!(value(&report, "c: sequential read, FL over FO, model") < 0.75);
    assert!(value(&report, "d: recovery, FO over FL, model") > 1.5);
    assert!(value(&report, "d: recovery, PLR over PL, model") > 1.2);
    assert_eq!(report.tables[0].rows.len(), 8);
    assert_eq!(report.plots.len(), 4);
    // Two segments of 128 records each, by the cluster above, and half the bytes, under each scheme.
    let updates = value(&report, "client's cache: updates sent");
    assert!((updates - 100.0 * 2.0 / 256.0).abs() < 1e-9, "{updates}");
    let bytes = value(&report, "client's cache: bytes across racks");
    assert!((bytes - 50.0).abs() < 1e-9, "{bytes}");
    let effects = report.tables.last().unwrap();
    assert_eq!(effects.rows.len(), 8);
    assert_eq!(effects.rows[0][2..4], [Cell::Count(256), Cell::Count(256)]);
    assert_eq!(effects.rows[1][2..4], [Cell::Count(256), Cell::Count(2)]);
}

/// As the file system says it: nothing but logs takes chunks apart.
#[test]
fn t51_finds_fragments_where_there_are_logs() {
    let report = quick("COD-T51");
    let row = |scheme: usize| -> (f64, f64) {
        let cells = &report.tables[0].rows[scheme];
        let number = |cell: &Cell| match cell {
            Cell::Number(number) => *number,
            other => panic!("{other:?} is no number"),
        };
        (number(&cells[1]), number(&cells[3]))
    };
    let [fo, fl, pl, plr] = [0, 1, 2, 3].map(row);
    assert_eq!((fo, plr, pl.0), ((0.0, 0.0), (0.0, 0.0), 0.0));
    assert!(fl.0 > 15.0 && fl.0 <= 32.0, "{fl:?}");
    for parity in [fl.1, pl.1] {
        assert!(parity > 60.0 && parity <= 128.0, "{parity}");
    }
}

#[test]
fn f53_more_parity_costs_updates_and_reserved_space_helps_recovery() {
    let report = quick("COD-F53");
    assert!(value(&report, "random write, (8,4) over (8,6) on average, model") < 1.0);
    assert!(value(&report, "recovery, PLR (6,4) over PL (8,6), model") > 1.0);
}

#[test]
fn f54_reserved_space_takes_more_writes_than_full_overwrite() {
    let report = quick("COD-F54");
    assert!(value(&report, "PLR over FO on average, model") > 0.0);
    assert!(value(&report, "client's cache: updates sent") < 100.0);
    assert!(
        report.scaled[1].contains("0 of 1 volumes"),
        "{:?}",
        report.scaled
    );
}

#[test]
fn f55_reserved_space_recovers_faster_than_full_logging() {
    assert!(value(&quick("COD-F55"), "PLR over FL at most, model") > 1.0);
}

#[test]
fn f56_shrinking_gives_most_of_the_reserved_space_back() {
    let report = quick("COD-F56");
    for fixed in ["2 MiB", "8 MiB", "16 MiB"] {
        assert_eq!(finding(&report, fixed).is_reached, Some(true));
    }
    let merged = value(&report, "shrink+merge");
    assert!(
        merged <= 0.2 && merged < value(&report, "2 MiB") + 1e-9,
        "{merged}"
    );
    assert!(merged <= value(&report, "shrink only"));
}

#[test]
fn f57_few_writes_wait_for_a_merge() {
    let report = quick("COD-F57");
    for finding in &report.findings {
        assert_eq!(
            finding.is_reached,
            Some(true),
            "{}: {}",
            finding.what,
            finding.ours
        );
    }
}

#[test]
fn b1_and_b2_hold_rackcu_against_the_baseline_on_each_cluster() {
    for (id, cluster) in [("RCU-B1", "2 Mbit/s"), ("RCU-B2", "4 KiB")] {
        let report = quick(id);
        let gain = value(&report, &format!("RackCU over updates by delta, {cluster}"));
        assert!((gain - 2.0).abs() < 1e-9, "{id}: {gain}");
        assert_eq!(report.tables[0].rows.len(), 2, "a row for each scheme");
    }
}
