//! The demo, smaller than by default: it runs to its end, measures what it planned, and leaves
//! nothing behind, also when it is interrupted.

use crate::support::mount::can_mount;
use crate::support::{complaint, gabion, processes_of, text, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

fn demo(temporary: &Path) -> Command {
    let mut command = gabion(&["demo", "--size=48MiB", "--format=json"]);
    command.env("TMPDIR", temporary);
    command
}

fn is_empty(directory: &Path) -> bool {
    let mut entries = std::fs::read_dir(directory).expect("the directory is there");
    entries.next().is_none()
}

/// Runs the demo to its end and looks at its report.
fn check(further: &[&str]) {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let output = demo(temporary.path()).args(further).output();
    let output = output.expect("the binary runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let updates = &report["updates"];
    assert_eq!(updates["count"], 1055);
    assert!(updates["planned_cross_rack_bytes"].as_u64() > Some(0));
    assert_eq!(
        updates["planned_cross_rack_bytes"],
        updates["metered_cross_rack_bytes"]
    );
    let forms = report["forms"].as_array().expect("a list");
    assert_eq!(forms.len(), 2);
    assert_eq!(forms[0]["data_cross_rack_bytes"], 0, "{}", forms[0]);
    for form in forms {
        let (planned, metered) = (
            &form["planned_cross_rack_bytes"],
            &form["metered_cross_rack_bytes"],
        );
        assert!(metered.as_u64() >= planned.as_u64(), "{form}");
    }
    let repairs = report["repairs"].as_array().expect("a list");
    assert_eq!(repairs.len(), 2);
    for repair in repairs {
        assert!(repair["chunk_count"].as_u64() > Some(0), "{repair}");
        assert_eq!(
            repair["planned_cross_rack_bytes"],
            repair["metered_cross_rack_bytes"]
        );
    }
    let database = &report["database"];
    if can_mount() {
        assert_eq!(database["done"]["transaction_count"], 300, "{database}");
        assert_eq!(database["done"]["row_count"], 1500, "{database}");
    } else {
        assert!(database["not_run"].is_string(), "{database}");
    }
    assert_eq!(report["failures_left"], 3);
    assert!(is_empty(temporary.path()));
}

#[test]
fn it_moves_what_it_planned_and_cleans_up() {
    check(&[]);
}

#[test]
fn it_does_the_same_on_arrays_of_ssds() {
    check(&["--engine=tween"]);
}

#[test]
fn each_signal_that_ends_it_ends_everything_that_it_started() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let temporary = tempfile::tempdir().unwrap();
        let child = demo(temporary.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for("the demo has started its nodes", || {
            let found = std::fs::read_dir(temporary.path()).unwrap().next();
            found.is_some_and(|d| d.unwrap().path().join("run/node-11").exists())
        });
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{signal:?}: {said}");
        assert!(said.contains("interrupted"), "{signal:?}: {said}");
        assert!(is_empty(temporary.path()), "{signal:?}");
        let left = processes_of(temporary.path());
        assert_eq!(left, 0, "{signal:?}: processes of the demo go on");
    }
}

#[test]
fn a_signal_during_the_step_with_a_mount_leaves_none() {
    if !can_mount() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let child = demo(temporary.path())
        // Neither names another cluster.
        .env("GABION_COORDINATOR", "192.0.2.1:1")
        .env("GABION_TLS", "/nowhere")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mounts = || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(temporary.path().to_str().unwrap())
    };
    wait_for("the demo has mounted its cluster", mounts);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!mounts());
    assert!(is_empty(temporary.path()));
    assert_eq!(processes_of(temporary.path()), 0);
}

#[test]
fn a_file_that_does_not_fit_is_refused_before_anything_starts() {
    let temporary = tempfile::tempdir().unwrap();
    let output = gabion(&["demo", "--size=100TiB"])
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("a file of 100 TiB needs about"), "{said}");
    assert!(said.contains("smaller --size"), "{said}");
    assert!(is_empty(temporary.path()));
}
