//! `gabion lab list` and `gabion lab run`: what is printed, what is saved, and what is left behind.

use crate::support::{fails, gabion, path_text, processes_of, run, text, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

#[test]
fn experiments_are_listed_and_unknown_ones_refused_in_one_sentence() {
    let listed = run(&["lab", "list"]);
    assert!(listed.contains("COD-T32"), "{listed}");
    let directory = tempfile::tempdir().unwrap();
    let error = fails(
        &[
            "lab",
            "run",
            "COD-F99",
            "--out",
            path_text(directory.path()),
        ],
        2,
    );
    assert!(
        error.contains("there is no experiment 'COD-F99'; choose from"),
        "{error}"
    );
    assert_eq!(error.trim().lines().count(), 1, "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_run_prints_both_figures_and_saves_json_and_a_plot() {
    let directory = tempfile::tempdir().unwrap();
    let out = path_text(directory.path());
    let arguments = ["lab", "run", "cau-f9", "--scale=quick", "--out", out];
    let printed = run(&arguments);
    for expected in [
        "Not as in the paper",
        "Beside the paper",
        "wdev_1",
        "saved ",
    ] {
        assert!(printed.contains(expected), "no {expected} in {printed}");
    }
    let mut names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["CAU-F9.json", "CAU-F9.svg"],
        "and no files of the run"
    );
    let saved: Value =
        serde_json::from_slice(&fs::read(directory.path().join("CAU-F9.json")).unwrap()).unwrap();
    assert_eq!(saved["experiment"], "CAU-F9");
    assert_eq!(saved["scale"], "quick");
    let mut with_json = vec!["--format=json"];
    with_json.extend(arguments);
    let on_stdout: Value = serde_json::from_str(&run(&with_json)).unwrap();
    assert_eq!(on_stdout["tables"], saved["tables"]);
}

/// An experiment that computes, and one that uses a cluster of this process.
#[test]
fn an_interrupted_run_ends_and_leaves_nothing_behind() {
    for experiment in ["cau-f9", "cod-f51"] {
        let directory = tempfile::tempdir().unwrap();
        let out = format!("--out={}", path_text(directory.path()));
        let running = gabion(&[
            "lab",
            "run",
            experiment,
            "--scale=quick",
            "--runs=100",
            &out,
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
        let works = || fs::read_dir(directory.path()).unwrap();
        wait_for("the run has begun", || {
            works().count() > 0 && (experiment == "cau-f9" || processes_of(directory.path()) > 0)
        });
        kill_process(Pid::from_child(&running), Signal::INT).unwrap();
        let ended = running.wait_with_output().unwrap();
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{experiment}: {said}");
        assert_eq!(works().count(), 0, "{experiment}: {said}");
        assert_eq!(processes_of(directory.path()), 0, "{experiment}: {said}");
    }
}

/// Real processes on emulated links: nothing passes a link faster than it is, and what clients do at
/// the same time is not slower than what the thesis's formulas give by an order of magnitude.
#[test]
fn a_cluster_of_real_processes_stays_within_its_links() {
    let directory = tempfile::tempdir().unwrap();
    let out = path_text(directory.path());
    let arguments = [
        "--format=json",
        "lab",
        "run",
        "COD-F51",
        "--scale=quick",
        "--out",
        out,
    ];
    let report: Value = serde_json::from_str(&run(&arguments)).unwrap();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "6 and 8 nodes");
    for row in rows {
        let number = |at: usize| row[at].as_f64().unwrap();
        // Links let a burst through before they hold a sender to their rate.
        for (measured, bound) in [(number(2), number(3)), (number(5), number(6))] {
            assert!(measured > 0.1 * bound && measured < 1.5 * bound, "{row}");
        }
    }
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(
        left.len(),
        3,
        "JSON and two plots, and no cluster: {left:?}"
    );
}
