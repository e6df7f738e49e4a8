//! Each experiment on its smallest setting: what it says must be so at any size.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use gabion_lab::experiments::{
    Cell, Finding, Progress, Report, Scale, Session, experiment, registry,
};
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

/// Runs an experiment on its quick setting, without traces.
fn quick(id: &str) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let progress = Steps::default();
    let session = Session {
        scale: Scale::Quick,
        seed: 1,
        directory: directory.path(),
        traces: None,
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
