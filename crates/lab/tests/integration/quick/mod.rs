//! One experiment on its smallest setting, and what holds of every experiment's report.

use gabion_lab::experiments::{Clusters, Progress, Report, Scale, Session, Verdict, experiment};
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
pub(crate) fn quick(id: &str, clusters: Option<&dyn Clusters>) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let progress = Steps::default();
    let session = Session {
        scale: Scale::Quick,
        seed: 1,
        directory: directory.path(),
        traces: None,
        clusters,
        progress: &progress,
    };
    let report = (experiment(id).unwrap().run)(&session).unwrap();
    assert!(!report.setting.is_empty(), "{id} says what it runs");
    assert!(!report.tables.is_empty(), "{id} has figures");
    assert!(!report.plots.is_empty(), "{id} draws something");
    assert!(
        progress.0.load(Ordering::Relaxed) > 0,
        "{id} shows progress"
    );
    for plot in &report.plots {
        assert!(plot.name.starts_with(id), "{id}: {}", plot.name);
        assert!(plot.svg().unwrap().contains("<svg"), "{id}: {}", plot.name);
    }
    report
}

/// Checks that all that a report found is near the paper's, and that it meets its goals.
pub(crate) fn check_findings(report: &Report) {
    assert!(report.findings.len() + report.goals.len() > 0);
    for finding in &report.findings {
        assert_eq!(finding.verdict, Some(Verdict::Near), "{finding:?}");
    }
    for goal in &report.goals {
        assert!(goal.is_met, "{goal:?}");
    }
}

/// Our number of the first finding or goal whose name begins so.
pub(crate) fn value(report: &Report, what: &str) -> f64 {
    let findings = report.findings.iter().map(|f| (&f.what, f.ours_value));
    let goals = report
        .goals
        .iter()
        .map(|goal| (&goal.what, goal.ours_value));
    let mut all = findings.chain(goals);
    let found = all.find(|(name, value)| name.starts_with(what) && value.is_some());
    let value = found.and_then(|(_, value)| value);
    value.unwrap_or_else(|| panic!("no number {what} in {report:#?}"))
}
