//! `gabion lab` on traces: what they are like, making them, and running them on a real cluster.

use crate::support::{
    TestCluster, complaint, fails, gabion, path_text, pattern, run, text, trace, wait_for,
};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

fn json(arguments: &[&str]) -> Value {
    let mut all = vec!["--format=json", "lab"];
    all.extend(arguments);
    serde_json::from_str(&run(&all)).expect("JSON")
}

#[test]
fn rsrch_1_has_its_row_of_the_table() {
    let Some(rsrch_1) = trace("msr/rsrch_1.csv") else {
        return;
    };
    let printed = run(&["lab", "trace-stats", &rsrch_1]);
    for expected in ["13738", "0.11 GiB", "10.42%", "4.66%", "32.27%"] {
        assert!(printed.contains(expected), "no {expected} in {printed}");
    }
}

#[test]
fn a_trace_of_our_own_has_the_figures_that_it_must_have() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    // Eight sectors are read; the first is written over, then 8 KiB across their end, then elsewhere.
    let rows = "10000000,h,0,Read,0,4096,1\n20000000,h,0,Write,0,512,1\n\
                30000000,h,0,Write,2048,8192,1\n40000000,h,0,Write,12582912,4096,1\n";
    fs::write(&path, rows).unwrap();
    let path = path_text(&path);
    let found = json(&["trace-stats", path, "--code=rs(4,2)", "--chunk=1MiB"]);
    assert_eq!(found["writes"], 3);
    let counts = &found["counts"];
    assert_eq!(counts["working_set_sectors"], 8 + 12 + 8);
    assert_eq!(counts["written_sectors"], 1 + 16 + 8);
    assert_eq!(counts["update_sectors"], 1 + 4);
    assert_eq!(counts["updated_extent_sectors"], 8);
    assert_eq!(counts["updated_sectors"], 1 + 4);
    assert_eq!(found["update_sizes"][0]["updates"], 1);
    assert_eq!(found["update_sizes"][1]["updates"], 1);
    // Byte 12 Mi is in the fourth stripe of 4 MiB.
    assert_eq!(found["locality"]["stripes_per_window"], 2.0);
    assert_eq!(found["locality"]["window_updates"], 3);
    assert_eq!(found["duration_s"], 3.0);
    let printed = run(&["lab", "trace-stats", path, "--code=rs(4,2)"]);
    for expected in ["28.57%", "17.86%", "20.00%", "2 writes update data"] {
        assert!(printed.contains(expected), "no {expected} in {printed}");
    }
}

#[test]
fn a_made_trace_is_as_near_as_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made.csv");
    let path = path_text(&path);
    let made = json(&["synth", "--volume=rsrch_1", "--out", path]);
    assert!(made["held_out"].is_null(), "nothing of it is guessed");
    let guessed = json(&["synth", "--volume=usr_0", "--one-in=1000", "--out", path]);
    assert_eq!(guessed["held_out"]["chunk_updates"][0]["least"], 0.8);
    let printed = run(&[
        "lab",
        "synth",
        "--volume=web_3",
        "--one-in=100",
        "--out",
        path,
    ]);
    assert!(printed.contains("as on other data disks"), "{printed}");
    assert!(printed.contains("stripes in 1,000 writes"), "{printed}");
    let made = json(&["synth", "--volume=rsrch_1", "--out", path]);
    let found = json(&["trace-stats", path]);
    for (figure, target, tolerance) in [
        ("writes", 13_738.0, 0.0),
        ("working_set_gib", 0.108, 0.002),
        ("updated_working_set_pct", 10.42, 0.25),
        ("update_writes_pct", 32.27, 0.25),
    ] {
        let value = |v: &Value| v.as_f64().expect("a number");
        assert!((value(&made["target"][figure]) - target).abs() < 1e-9);
        let is = value(&found[figure]);
        assert!((value(&made["made"][figure]) - is).abs() < 1e-9, "{figure}");
        assert!((is - target).abs() <= tolerance, "{figure}: {is}");
    }
    assert_eq!(made["mean_update_bytes"], found["mean_update_bytes"]);
    let first = fs::read_to_string(path).unwrap();
    assert!(
        first
            .lines()
            .all(|row| row.split(',').nth(1) == Some("rsrch"))
    );
    run(&[
        "lab",
        "synth",
        "--volume=rsrch_1",
        "--out",
        path,
        "--seed=2",
    ]);
    assert_ne!(first, fs::read_to_string(path).unwrap(), "another seed");
}

#[test]
fn the_file_server_has_rows_with_file_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made.csv");
    let text_path = path_text(&path);
    let arguments = [
        "synth",
        "--volume=harvard",
        "--one-in=10000",
        "--out",
        text_path,
    ];
    let made = json(&arguments);
    let rows = fs::read_to_string(&path).unwrap();
    let mut files: Vec<&str> = rows.lines().filter_map(|r| r.split(',').nth(2)).collect();
    files.sort_unstable();
    files.dedup();
    assert_eq!(made["made"]["files_accessed"], files.len());
    let off = files.len() as f64 / (2_039_724.0 / 10_000.0) - 1.0;
    assert!(off.abs() < 0.05, "{} files", files.len());
    let mean = made["mean_update_bytes"].as_f64().unwrap() / 1024.0;
    assert!((mean - 10.58).abs() < 0.2, "{mean} KiB");
    let printed = run(&[
        "lab",
        "synth",
        "--volume=harvard",
        "--one-in=10000",
        "--out",
        text_path,
    ]);
    assert!(printed.contains("files updated"), "{printed}");
}

#[test]
fn mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out.csv");
    let error = fails(
        &["lab", "synth", "--volume=tape_9", "--out", path_text(&out)],
        2,
    );
    assert!(
        error.contains("'tape_9'") && error.contains("wdev_1"),
        "{error}"
    );
    let nowhere = directory.path().join("no/out.csv");
    let nowhere = path_text(&nowhere);
    let error = fails(&["lab", "synth", "--volume=wdev_1", "--out", nowhere], 1);
    assert!(error.contains("no/out.csv"), "{error}");
    let error = fails(&["lab", "trace-stats", "nowhere.csv"], 1);
    assert!(error.contains("nowhere.csv"), "{error}");
    let error = fails(&["lab", "trace-stats", "x", "--chunk=0"], 2);
    assert!(error.contains("at least one byte"), "{error}");
    let replay = ["lab", "replay", "--trace=x", "--pace=trace"];
    let error = fails(&[&replay[..], &["--speed=0"]].concat(), 2);
    assert!(error.contains("not a speed"), "{error}");
    let error = fails(&["lab", "replay", "--trace=x", "--read-ahead=1MiB"], 2);
    assert!(error.contains("--cache"), "{error}");
    let error = fails(&["lab", "replay", "--trace=x", "--speed=2"], 2);
    assert!(error.contains("--pace trace"), "{error}");
    fs::write(&out, "1,h,0,Write,0,4096,1\n2,h,0,Wrote,0,1,1\n").unwrap();
    let error = fails(&["lab", "replay", "--trace", path_text(&out)], 1);
    assert!(error.contains("line 2"), "before any cluster: {error}");
    refuses_a_trace_of_several_volumes_or_none(path_text(&out));
}

/// Two volumes, of which `trace-stats` prints a table and which other commands do not mix.
fn refuses_a_trace_of_several_volumes_or_none(path: &str) {
    fs::write(path, "7,W,0,4096,2\n8,R,0,512,1\n7,W,0,4096,1\n").expect("write a temporary file");
    let counted = [
        "lab",
        "update-traffic",
        "--code=rs(4,2)",
        "--racks=3",
        "--trace",
        path,
    ];
    let error = fails(&counted, 2);
    assert!(
        error.contains("line 2") && error.contains("7, 8"),
        "{error}"
    );
    let error = fails(&[&counted[..], &["--volume=9"]].concat(), 2);
    assert!(error.contains("'9'"), "{error}");
    let error = fails(&[&counted[..], &["--trace-format=tape"]].concat(), 2);
    assert!(error.contains("msr, fio"), "{error}");
    let error = fails(&[&counted[..], &["--trace-format=disksim"]].concat(), 1);
    assert!(error.contains("line 1: 1 fields"), "{error}");
    let table = run(&["lab", "trace-stats", path]);
    assert!(
        table.contains("2 volumes; choose one with --volume"),
        "{table}"
    );
    let one = json(&["trace-stats", path, "--volume=7"]);
    assert_eq!(one["writes"], 2);
    fs::write(path, "\n").expect("write a temporary file");
    let error = fails(&counted, 1);
    assert!(
        error.contains("line 1: the trace has no requests"),
        "{error}"
    );
    fs::write(path, "7,R,0,4096,2\n7,R,0,512,4\n").expect("write a temporary file");
    let expected = format!("{path}: none of its 2 requests is a write");
    for unit in ["chunks", "bytes"] {
        let error = fails(&[&counted[..], &["--unit", unit]].concat(), 1);
        assert!(error.contains(&expected), "{unit}: {error}");
    }
}

/// A warning of odd times of a trace reaches stderr, once however often the trace is read, and spoils no result.
#[test]
fn odd_times_are_warned_of_on_stderr() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd.csv");
    let times = [9, 5].into_iter().chain(100..200).chain([300; 100]);
    let rows = times.map(|at| format!("{at},h,0,Write,0,4096,1\n"));
    fs::write(&path, rows.collect::<String>()).unwrap();
    let path = path_text(&path);
    let advise = [
        "advise",
        "--racks=3",
        "--chunk=64KiB,1MiB",
        "--code=rs(4,2)",
    ];
    let count = ["update-traffic", "--racks=3", "--code=rs(4,2)"];
    for command in [&advise[..], &count] {
        let all = [&["--format=json", "lab"][..], command, &["--trace", path]].concat();
        let output = gabion(&all).output().expect("the binary runs");
        assert!(output.status.success());
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
        assert!(!found.is_null());
        let said = complaint(&output);
        let warnings: Vec<&str> = said.lines().collect();
        let expected = [
            (2, "before the previous request's time"),
            (67, "sequence numbers"),
            (167, "have the same time"),
        ];
        assert_eq!(warnings.len(), expected.len(), "{said}");
        for (warning, (line, fault)) in warnings.iter().zip(expected) {
            let start = format!("warning: {path}, line {line}: ");
            assert!(warning.starts_with(&start), "{warning}");
            assert!(warning.contains(fault), "{warning}");
        }
    }
}

/// A file that was to be made is whole or not there, and one that was there stays as it was.
#[test]
fn what_fails_leaves_no_half_file() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("kept.csv");
    fs::write(&kept, "kept").unwrap();
    let new = directory.path().join("new.csv");
    for path in [&kept, &new] {
        let out = path_text(path);
        // So small a part has too few writes for its shares.
        let synth = ["lab", "synth", "--volume=src2_1", "--one-in=14000"];
        let error = fails(&[&synth[..], &["--out", out]].concat(), 2);
        assert!(error.contains("updates"), "{error}");
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
    let rows = directory.path().join("trace.csv");
    fs::write(&rows, "1,h,0,Write,0,4096,1\n2,h,0,Wrote,0,1,1\n").unwrap();
    // A member of gzip whose one block is stored, and cut off in its second row.
    let cut = directory.path().join("trace.csv.gz");
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 0xe8, 3, 0x17, 0xfc];
    member.extend(b"1,h,0,Write,0,4096,1\n2,h,0,Wri");
    fs::write(&cut, member).unwrap();
    let gzip = "the gzip data is damaged or cut off within the first 45 bytes of the file";
    for (trace, fault) in [(&rows, "Wrote"), (&cut, gzip)] {
        let trace = path_text(trace);
        for command in ["trace-stats", "update-traffic", "advise", "replay"] {
            let further: &[&str] = match command {
                "trace-stats" => &[trace],
                "update-traffic" => &["--trace", trace, "--code=rs(4,2)", "--racks=3"],
                "advise" => &["--trace", trace, "--racks=3"],
                _ => &["--trace", trace],
            };
            let all = [&["--format=json", "lab", command][..], further].concat();
            let output = gabion(&all).output().expect("the binary runs");
            assert_eq!(output.status.code(), Some(1), "{command}");
            assert_eq!(text(&output.stdout), "", "{command}: half a result");
            let error = complaint(&output);
            let place = format!("{trace}, line 2: ");
            assert!(error.contains(&place) && error.contains(fault), "{error}");
        }
    }
    let left = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut left: Vec<String> = left
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    left.sort_unstable();
    assert_eq!(left, ["kept.csv", "trace.csv", "trace.csv.gz"]);
}

/// Rows of writes and reads that meet at the same bytes, within and across chunks and stripes, 10 ms
/// apart.
fn busy_trace(count: u64) -> String {
    let place = pattern(count as usize * 3, 5);
    let rows = (0..count).map(|at| {
        let bytes = &place[at as usize * 3..][..3];
        let kind = if bytes[0] < 64 { "Read" } else { "Write" };
        // Two thirds go to a few pages, so that many conflict.
        let (offset, length) = match bytes[1] % 3 {
            0 => (u64::from(bytes[2]) * 3001, 9000),
            _ => (u64::from(bytes[2] % 4) * 1000, 1 + u64::from(bytes[1]) * 7),
        };
        format!("{},h,0,{kind},{offset},{length},0\n", 7 + at * 100_000)
    });
    rows.collect()
}

/// Replays that contradict the file, the pool or the trace.
fn refuses_what_does_not_fit(cluster: &TestCluster, trace: &str) {
    let refused = |arguments: &[&str], expected: &str| {
        let output = cluster.output(&[&["lab", "replay", "--trace", trace], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = complaint(&output);
        assert!(error.contains(expected), "{error}");
    };
    refused(&["--size=1MiB"], "omitting --size");
    refused(&["--pool=other"], "in pool vm, not other");
    let empty = cluster.path("empty.csv");
    fs::write(&empty, "").expect("write a temporary file");
    let nothing = ["--trace", path_text(&empty), "--name=none"];
    let output = cluster.output(&[&["lab", "replay"], &nothing[..]].concat());
    assert!(text(&output.stderr).contains("no requests"));
    // A directory has the name, or there is no such pool: nothing begins, and nothing is left.
    cluster.run(&["mkdir", "taken"]);
    let before = cluster.run(&["ls"]);
    for (arguments, expected) in [
        (&["--name=taken"][..], "'taken' is a directory"),
        (
            &["--name=new", "--pool=none"],
            "choose one of vm with --pool",
        ),
    ] {
        let output = cluster.output(&[&["lab", "replay", "--trace", trace], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        let error = complaint(&output);
        assert!(
            error.contains(expected) && !error.contains("creating"),
            "{error}"
        );
    }
    assert_eq!(cluster.run(&["ls"]), before);
    // The quota refuses the stripes of a file that is there by then.
    cluster.run(&["pool", "quota", "vm", "--bytes=1"]);
    let arguments = [
        "lab",
        "replay",
        "--trace",
        trace,
        "--name=full",
        "--size=4MiB",
    ];
    let error = complaint(&cluster.output(&arguments));
    assert!(error.contains("of its quota"), "{error}");
    assert_eq!(cluster.run(&["ls"]), before, "nothing is left of it");
    cluster.run(&["pool", "quota", "vm", "--bytes=none"]);
}

#[test]
fn an_interrupted_replay_leaves_nothing_of_the_file_that_it_stores() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=4KiB"]);
    // Each row has parts of its own, which are stored one after the other.
    let rows = (0..20_000_u64).map(|at| format!("{},h,0,Write,{},4096,0\n", 7 + at, at << 17));
    let trace = cluster.path("wide.csv");
    fs::write(&trace, rows.collect::<String>()).expect("write a temporary file");
    let mut replay = cluster.command(&["lab", "replay", "--trace", path_text(&trace), "--name=f"]);
    for signal in [Signal::INT, Signal::TERM] {
        let replay = replay.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let replay = replay.expect("the binary runs");
        wait_for("the replay stores the file", || {
            cluster.run(&["ls"]).contains("f.unfinished")
        });
        rustix::process::kill_process(Pid::from_child(&replay), signal).expect("it runs");
        let output = replay.wait_with_output().expect("it ends");
        let error = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("the replay was interrupted"), "{error}");
        let left = cluster.json(&["ls"]);
        assert_eq!(left, serde_json::json!([]), "{left}");
    }
}

#[test]
fn a_replay_loses_nothing_and_meters_what_it_planned() {
    let cluster = TestCluster::start(3, 3);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let trace = cluster.path("busy.csv");
    fs::write(&trace, busy_trace(300)).unwrap();
    let trace = path_text(&trace);
    let replay = |further: &[&str]| {
        let all = ["lab", "replay", "--trace", trace, "--verify"];
        cluster.json(&[&all[..], further].concat())
    };

    let fast = replay(&["--pool=vm", "--depth=8"]);
    let requests = |report: &Value| {
        let count = |kind: &str| report[kind]["count"].as_u64().unwrap();
        (count("writes"), count("reads"))
    };
    let (writes, reads) = requests(&fast);
    assert_eq!(writes + reads, 300);
    assert!(writes > 150 && reads > 30, "{fast}");
    // The file is as large as the trace spans, and all of it is known.
    let span = fast["file_bytes"].as_u64().unwrap();
    assert!((700_000..800_000).contains(&span), "{fast}");
    assert_eq!(fast["verified_bytes"], span);
    let planned = &fast["cross_rack"]["update"]["planned_bytes"];
    assert!(planned.as_u64() > Some(0), "{fast}");
    // Bytes of a failed attempt are metered, but are in no plan that was completed.
    for (purpose, sent) in fast["cross_rack"].as_object().unwrap() {
        assert!(
            sent["metered_bytes"].as_u64() >= sent["planned_bytes"].as_u64(),
            "{purpose}"
        );
    }
    assert!(fast["writes"]["p50_ms"].as_f64() <= fast["writes"]["p99_ms"].as_f64());
    assert_eq!(cluster.get("replay").len() as u64, span);

    // On a file that is there; 0.29 s of the trace at half its speed.
    let paced = replay(&["--pace=trace", "--speed=0.5", "--first=30", "--writes-only"]);
    assert_eq!(requests(&paced).1, 0);
    assert!(requests(&paced).0 < 30, "reads were among the first 30");
    assert!(paced["seconds"].as_f64().unwrap() >= 0.5, "{paced}");
    let verified = paced["verified_bytes"].as_u64().unwrap();
    assert!(
        0 < verified && verified < span,
        "only what was written: {paced}"
    );

    // Folded into less than a stripe, with one request at a time.
    let folded = replay(&["--name=small", "--size=100KiB", "--depth=1"]);
    assert_eq!(folded["verified_bytes"], 100 << 10);
    assert_eq!(requests(&folded), (writes, reads));
    assert!(
        folded["cross_rack"]["update"]["planned_bytes"].as_u64() > Some(0),
        "{folded}"
    );
    has_metered_what_it_planned(&folded);

    refuses_what_does_not_fit(&cluster, trace);
    let printed = cluster.run(&["lab", "replay", "--trace", trace, "--first=20", "--verify"]);
    for expected in ["ops/s", "MB/s", "p99", "metered", "every byte is correct"] {
        assert!(printed.contains(expected), "no {expected} in {printed}");
    }
}

/// That a replay whose requests followed one another sent what its plans said.
fn has_metered_what_it_planned(report: &Value) {
    for (purpose, sent) in report["cross_rack"].as_object().into_iter().flatten() {
        let bytes = |which: &str| sent[which].as_u64();
        let (planned, metered) = (bytes("planned_bytes"), bytes("metered_bytes"));
        // A read that was slow was asked for twice, and one of the two was in no plan that was done.
        let is_right = match purpose.as_str() {
            "client" => metered >= planned,
            _ => metered == planned,
        };
        assert!(
            is_right,
            "{purpose}: {planned:?} planned, {metered:?} metered"
        );
    }
}

#[test]
fn a_replay_through_a_cache_loses_nothing_and_sends_fewer_updates() {
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=64KiB"]);
    let trace = cluster.path("busy.csv");
    fs::write(&trace, busy_trace(300)).unwrap();
    let replay = [
        "lab",
        "replay",
        "--trace",
        path_text(&trace),
        "--depth=8",
        "--cache=512KiB",
        "--read-ahead=64KiB",
    ];
    // The final comparison reads past the cache.
    let cached = cluster.json(&[&replay[..], &["--verify"]].concat());
    assert_eq!(cached["verified_bytes"], cached["file_bytes"]);
    let cache = &cached["cache"];
    let count = |figure: &str| cache[figure].as_u64().expect(figure);
    let writes = cached["writes"]["count"].as_u64().expect("a count");
    // One that spans segments is one for each.
    assert!(150 < writes && writes <= count("writes"), "{cached}");
    assert!(
        0 < count("updates") && count("updates") < writes / 2,
        "{cached}"
    );
    assert_eq!(count("updates_saved"), count("writes") - count("updates"));
    let sent_or_overwritten = count("update_bytes") + count("overwritten_bytes");
    assert_eq!(sent_or_overwritten, count("write_bytes"), "{cached}");
    assert!(count("read_hits") > 0, "{cached}");
    let printed = cluster.run(&replay);
    assert!(
        printed.contains("updates (") && printed.contains("hits"),
        "{printed}"
    );
}

/// An experiment whose runs differ by their seeds, and one that needs a single run.
#[test]
fn runs_are_averaged_and_each_is_judged() {
    let directory = tempfile::tempdir().unwrap();
    let out = path_text(directory.path());
    let quick = |id, more: &[&str]| {
        let all = [&["run", id, "--scale=quick", "--out", out][..], more].concat();
        json(&all)
    };
    let alone = quick("RCU-A2", &[]);
    assert_eq!(alone["runs"], 1, "one at the quick scale");
    let figure = |report: &Value| report["findings"][0]["ours"].as_str().map(str::to_owned);
    assert!(figure(&alone).unwrap().ends_with("(one run)"), "{alone}");
    let three = quick("RCU-A2", &["--runs=3"]);
    assert_eq!(three["runs"], 3);
    assert_eq!(three["by_run"].as_array().map(Vec::len), Some(3));
    let first = &three["findings"][0];
    assert_eq!(first["runs"], 3);
    assert!(first["half_interval"].is_number(), "{first}");
    assert!(figure(&three).unwrap().contains(" +- "), "{first}");
    assert!(three["verdict"].is_string());
    let svg = fs::read_to_string(directory.path().join("RCU-A2.svg")).unwrap();
    assert!(svg.contains("mean of 3 runs"), "{svg}");
    let exact = quick("RCU-EX", &[]);
    assert_eq!(exact["findings"][0]["ours"], "24.00 chunks");
    let complaint = fails(&["lab", "run", "RCU-EX", "--runs=0"], 2);
    assert!(complaint.contains("1..=100"), "{complaint}");
    let printed = run(&["lab", "run", "RCU-EX", "--out", out]);
    let verdict = "Verdict: near (4 near, 0 direction only, 0 opposite)";
    assert!(printed.contains(verdict), "{printed}");
}

/// Experiments that were run have their verdicts, and the others say that they have none.
#[test]
fn a_summary_has_a_row_for_each_experiment() {
    let directory = tempfile::tempdir().unwrap();
    let out = path_text(directory.path());
    run(&["lab", "run", "RCU-EX", "--out", out]);
    let printed = run(&["lab", "summary", "--from", out]);
    let row = |id: &str| {
        let mut rows = printed
            .lines()
            .filter(|line| line.contains(&format!("`{id}`")));
        rows.next()
            .unwrap_or_else(|| panic!("no {id} in {printed}"))
    };
    let example = "| `RCU-EX` | 4/0/0 | the same | the same | near | 1 |  |";
    assert_eq!(row("RCU-EX"), example);
    assert!(row("ECP-8a").contains("not run here: needs root and a testbed"));
    assert!(row("CAU-F8").contains("not run here |"));
    let other = ["--scale=quick", "--seed=7", "--out", out];
    run(&[&["lab", "run", "RCU-A2"][..], &other].concat());
    let printed = run(&["lab", "summary", "--from", out]);
    assert!(
        printed.contains("| `RCU-A2` (quick, seeds from 7) |"),
        "{printed}"
    );
    fs::write(directory.path().join("CAU-F8.json"), "{").unwrap();
    let complaint = fails(&["lab", "summary", "--from", out], 1);
    assert!(complaint.contains("CAU-F8.json"), "{complaint}");
}
