//! Output of the command line: figures of the lab, and sentences for mistakes.

use crate::support::{fails, gabion, path_text, run, trace};
use gabion_planner::{placement, repair, update};
use serde_json::Value;
use std::fs;

fn baseline(trace: &str, arguments: &[&str]) -> (u64, u64) {
    let mut all = vec![
        "lab",
        "update-traffic",
        "--trace",
        trace,
        "--format",
        "json",
    ];
    all.extend(arguments);
    let report: Value = serde_json::from_str(&run(&all)).expect("JSON");
    let chunks = report["schemes"]["baseline"]["cross_rack_chunks"].as_u64();
    (
        report["chunk_updates"].as_u64().expect("a count"),
        chunks.expect("a count"),
    )
}

#[test]
fn the_lab_prints_the_golden_counts() {
    let Some(wdev_1) = trace("msr/wdev_1.csv") else {
        return;
    };
    let rotate = |code, racks| {
        baseline(
            &wdev_1,
            &[
                "--code", code, "--racks", racks, "--layout", "rotate", "--chunk", "1MiB",
            ],
        )
        .1
    };
    assert_eq!(rotate("rs(6,3)", "3"), 2400);
    assert_eq!(rotate("rs(12,4)", "4"), 4224);
    let grouped = [
        "--code", "rs(12,4)", "--layout", "6x2+2x2", "--chunk", "4KiB",
    ];
    assert_eq!(baseline(&wdev_1, &grouped), (1354, 5416));
}

#[test]
fn the_lab_counts_a_trace_of_our_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    // Two writes and a read: chunks 0, then 5 and 6, of rs(6,3) with 1 MiB chunks. Chunk 6 is the
    // first of stripe 1. Every chunk has 3 parity chunks, of which rotate puts some in other racks.
    let rows = "1,h,0,Write,0,4096,1\n2,h,0,Read,0,4096,1\n3,h,0,Write,6287360,8192,1\n";
    std::fs::write(&path, rows).unwrap();
    let rotate = [
        "--code", "rs(6,3)", "--racks", "3", "--layout", "rotate", "--chunk", "1MiB",
    ];
    // Stripe 0: data 0 in rack 0 and data 5 in rack 1, parity 6, 7, 8 in rack 2: 3 each. Stripe 1:
    // data 0 on node 1, rack 0; parity on nodes 7, 8 (rack 2) and 0 (rack 0): 2.
    assert_eq!(baseline(path_text(&path), &rotate), (3, 8));
}

#[test]
fn a_malformed_row_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.csv");
    std::fs::write(&path, "1,h,0,Write,0,4096,1\n2,h,0,Wrote,0,4096,1\n").unwrap();
    let trace = path_text(&path);
    let error = fails(
        &[
            "lab",
            "update-traffic",
            "--trace",
            trace,
            "--code",
            "rs(6,3)",
            "--racks",
            "3",
        ],
        1,
    );
    assert!(
        error.contains("line 2") && error.contains("Wrote"),
        "{error}"
    );
}

#[test]
fn mistakes_get_one_plain_sentence_and_exit_code_2() {
    let nowhere = tempfile::tempdir().unwrap();
    let nowhere = path_text(nowhere.path());
    for (arguments, expected) in [
        (vec!["ls"], "--dir"),
        (vec!["ls", "--dir", nowhere], "no cluster"),
        (vec!["cluster", "down", "--dir", nowhere], "no cluster"),
        (vec!["cluster", "up"], "--dir"),
        (vec!["chaos", "kill-node", "1"], "--dir"),
        (
            vec!["lab", "synth", "--volume=wdev_1", "--out=x", "--one-in=0"],
            "at least 1",
        ),
        (
            vec!["lab", "run", "COD-T32", "--traces=/nowhere"],
            "/nowhere is not a directory",
        ),
        (vec!["metadata", "check", "--of=redb:/"], "metadata.redb"),
        (vec!["cert", "revoke", ""], "a value is required"),
        (
            vec!["nbd", "serve", "vm/a", "vm/b", "vm/a"],
            "vm/a is named twice",
        ),
        (
            vec!["pool", "create", "p", "--survive", "1-shelf"],
            "1-rack or 2-nodes",
        ),
        (
            vec!["pool", "create", "p", "--chunk", "big"],
            "such as 4096",
        ),
        (
            vec!["pool", "create", "p", "--update", "raid5"],
            "use fo, fl, pl, plr, parix",
        ),
        (
            vec!["pool", "create", "p", "--reserve-period", "12"],
            "such as 45s, 30m or 12h",
        ),
        (
            vec!["pool", "create", "p", "--reserve-alpha", "2"],
            "such as 0.3",
        ),
        (
            vec![
                "pool",
                "create",
                "p",
                "--reserve-bytes=96KiB",
                "--chunk=64KiB",
            ],
            "a multiple of 65536",
        ),
        (
            vec!["pool", "create", "p", "--update=fo", "--reserve-bytes=1MiB"],
            "no reserved space; use --update plr",
        ),
        (
            vec!["repair", "--scheme", "magic", "--dir", nowhere],
            "conventional, pipeline, ppr",
        ),
        (
            vec!["lab", "update-traffic", "--trace", "x", "--code", "rs(6)"],
            "rs(",
        ),
    ] {
        let error = fails(&arguments, 2).replace("\n  ", " ");
        assert!(error.contains(expected), "gabion {arguments:?}: {error}");
    }
}

#[test]
fn addresses_names_and_ranges_that_cannot_be_right_get_exit_code_2() {
    let nowhere = tempfile::tempdir().unwrap();
    let nowhere = path_text(nowhere.path());
    for (arguments, expected) in [
        (vec!["ls", "--coordinator", "foo"], "HOST:PORT"),
        (vec!["ls", "--coordinator", "foo:0"], "HOST:PORT"),
        (vec!["coordinator", "--listen", "foo"], "HOST:PORT"),
        (
            vec!["node", "--rack=0", "--join=127.0.0.1:1", "--listen=:1"],
            "HOST:PORT",
        ),
        (vec!["node", "--rack=0", "--join=127.0.0.1"], "HOST:PORT"),
        (vec!["put", "x", ""], "1 to 4096 bytes"),
        (vec!["stat", "a\nb"], "control characters"),
        (vec!["pool", "create", "A b"], "starts with a letter"),
        (vec!["pool", "commit", ""], "starts with a letter"),
        (vec!["put", "x", "y", "--pool=P"], "starts with a letter"),
        (
            vec!["plan", "show", "disk", "--update=0:0", "--dir", nowhere],
            "has no bytes",
        ),
    ] {
        let error = fails(&arguments, 2).replace("\n  ", " ");
        assert!(error.contains(expected), "gabion {arguments:?}: {error}");
    }
}

#[test]
fn options_without_effect_and_values_out_of_range_get_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path_text(&path).to_owned()
    };
    let row = |disk: u32, kind: &str| format!("128166372003061629,web,{disk},{kind},0,4096,100\n");
    let reads = file("reads.csv", &row(0, "Read"));
    let two = file("two.csv", &[row(0, "Write"), row(1, "Write")].concat());
    let one = file("one.csv", &row(0, "Write"));
    let traffic = |option: &str, value: &str| {
        let all = ["lab", "update-traffic", "--code=rs(6,3)", "--racks=3"];
        let mut all = all.map(str::to_owned).to_vec();
        all.retain(|word| !word.starts_with(option));
        all.extend([format!("--trace={one}"), format!("{option}={value}")]);
        all
    };
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for (arguments, expected) in [
        (
            words("lab bound --code rs(12,4) --racks 8 --update 12"),
            "data chunks 0 to 11",
        ),
        (
            words(&format!("lab advise --racks 1 --trace {one}")),
            "2..=255",
        ),
        (
            words(&format!("lab advise --racks 100000 --trace {one}")),
            "2..=255",
        ),
        (words("lab summary --from nosuch"), "no directory nosuch"),
        (
            words("lab synth --volume wdev_1 --span 512 --out /dev/null"),
            "larger --span",
        ),
        (words("demo --volume web_0"), "name the trace with --trace"),
        (words("demo --size 1MiB"), "at least 4 MiB"),
        (words(&format!("demo --trace {reads}")), "has no writes"),
        (words(&format!("demo --trace {two}")), "--volume"),
        (
            words("plan show disk --update 0:1 --scheme ppr"),
            "--repair",
        ),
        (
            words("node --rack=0 --join=127.0.0.1:1 --parity-devices=2"),
            "--engine tween",
        ),
        (
            words("node --rack=0 --join=127.0.0.1:1 --device-size=1GiB"),
            "--engine tween",
        ),
        (words("pool create p --update=cau --replicas=0"), "1.."),
        (words("cluster up --racks=many"), "write a whole number"),
        (traffic("--racks", "0"), "0 racks"),
        (traffic("--scheme", "foo"), "no update scheme 'foo'"),
        (traffic("--chunk", "0"), "0 bytes"),
        (traffic("--us", "0"), "--us"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let error = fails(&arguments, 2).replace("\n  ", " ");
        assert!(error.contains(expected), "gabion {arguments:?}: {error}");
    }
}

#[test]
fn hidden_commands_are_not_listed() {
    let error = fails(&["lab"], 2);
    assert!(error.contains("trace-stats"), "{error}");
    assert!(!error.contains("in-testbed"), "{error}");
}

#[test]
fn what_cannot_be_started_leaves_nothing_behind() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let place = format!("--data={}", path_text(&data));
    // No machine has this address: it is for examples.
    let listen = "--listen=192.0.2.1:7070";
    let node = ["node", "--init", "--rack=0", "--join=127.0.0.1:1"];
    let node = [&node[..], &[listen, &place]].concat();
    let coordinator = ["coordinator", "--init", listen, &place];
    for (arguments, code) in [
        (
            vec!["cluster", "up", "--inner=abc", "--dir", path_text(&data)],
            2,
        ),
        (
            vec![
                "cluster",
                "up",
                "--cross=1",
                "--racks=0",
                "--dir",
                path_text(&data),
            ],
            2,
        ),
        (coordinator.to_vec(), 1),
        (node, 1),
    ] {
        let error = fails(&arguments, code);
        assert!(!data.exists(), "gabion {arguments:?}: {error}");
    }
}

#[test]
fn sizes_beyond_those_of_files_are_refused_before_anything_is_asked() {
    let above = "--size=9223372036854775808";
    for (arguments, expected) in [
        (
            ["image", "create", "vm/a", above].as_slice(),
            "from 512 to 9223372036854775296",
        ),
        (
            &["image", "resize", "vm/a", "--size=9223372036854775807"],
            "from 512 to 9223372036854775296",
        ),
        (&["create", "a", above], "at most 9223372036854775807 bytes"),
        (
            &["truncate", "a", above],
            "at most 9223372036854775807 bytes",
        ),
    ] {
        let error = fails(arguments, 2).replace("\n  ", " ");
        assert!(error.contains(expected), "gabion {arguments:?}: {error}");
    }
}

#[test]
fn errors_of_the_system_get_a_cause_and_an_advice() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| path_text(&root.path().join(name)).to_owned();
    let (file, below) = (at("file"), at("file/data"));
    fs::write(&file, "no directory").unwrap();
    let node = ["node", "--rack=0", "--join=127.0.0.1:1", "--insecure"];
    let coordinator = ["coordinator", "--listen=127.0.0.1:0", "--insecure"];
    for server in [&coordinator[..], &node] {
        for data in [&file, &below] {
            for init in [&[][..], &["--init"]] {
                let arguments = [server, &["--data", data], init].concat();
                let error = fails(&arguments, 2);
                assert!(error.contains("not a directory; name a"), "{error}");
                assert!(!error.contains("os error"), "{error}");
            }
        }
    }
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("--listen={}", held.local_addr().unwrap());
    let data = at("data");
    let arguments = [
        "coordinator",
        "--insecure",
        "--init",
        &listen,
        "--data",
        &data,
    ];
    let error = fails(&arguments, 1);
    let used = "another process uses the port; choose an address of this machine and a free port with --listen";
    assert!(error.contains(used), "{error}");
    let mount = ["mount", "vm", "/mnt", "-o"];
    for (option, expected) in [
        ("coordinator", "needs a value, as coordinator=HOST:PORT"),
        ("ro,coordinator=", "needs a value, as coordinator=HOST:PORT"),
        (
            "coordinator=foo",
            "'foo' is not the address of a coordinator; write HOST:PORT",
        ),
    ] {
        let error = fails(&[&mount[..], &[option]].concat(), 2);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_certificate_that_is_none_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("c");
    run(&["init", "--data", path_text(&made)]);
    let tls = made.join("operator");
    let arguments = ["ls", "--coordinator=127.0.0.1:1", "--tls", path_text(&tls)];
    let certificate = fs::read(tls.join("cert.pem")).unwrap();
    for (name, bytes, expected) in [
        ("cert.pem", &b"garbage"[..], "it has no certificate in PEM"),
        ("cert.pem", &[0xff, 0xfe, 0][..], "it is not text in PEM"),
        ("ca.pem", &b"garbage"[..], "it has no certificate in PEM"),
        ("key.pem", &certificate[..], "it has no private key in PEM"),
    ] {
        let path = tls.join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let error = fails(&arguments, 1);
        let sentence = format!("{} is not usable: {expected}; restore", path_text(&path));
        assert!(error.contains(&sentence), "{error}");
        assert!(error.contains("gabion cert issue"), "{error}");
        fs::write(&path, whole).unwrap();
    }
}

#[test]
fn a_file_that_is_not_there_fails_with_exit_code_1() {
    let error = fails(
        &[
            "lab",
            "update-traffic",
            "--trace",
            "nowhere.csv",
            "--code",
            "rs(6,3)",
        ],
        1,
    );
    assert!(error.contains("nowhere.csv"), "{error}");
    let error = fails(&["ls", "--insecure", "--coordinator", "127.0.0.1:1"], 1);
    assert!(error.contains("127.0.0.1:1"), "{error}");
}

#[test]
fn help_teaches() {
    for arguments in [
        vec!["--help"],
        vec!["cluster", "up", "--help"],
        vec!["pool", "create", "--help"],
    ] {
        let output = gabion(&arguments).output().unwrap();
        assert!(output.status.success());
        assert!(output.stdout.len() > 300, "{arguments:?}");
    }
}

/// Checks that a command's help has the name of every scheme with its description.
#[track_caller]
fn check_help(command: &str, known: &[(&str, &str)]) {
    let words: Vec<&str> = command.split(' ').collect();
    let help = run(&[&words[..], &["--help"]].concat());
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, line) in known {
        let expected = format!("{name} ({line})");
        assert!(
            help.contains(&expected),
            "gabion {command}: no '{expected}' in {help}"
        );
    }
}

#[test]
fn help_has_a_line_on_every_registered_scheme() {
    let update = update::SCHEMES.map(|known| (known.scheme.name(), known.help));
    check_help("pool create", &update);
    let replicas = placement::REPLICA_PLACEMENTS.map(|known| (known.placement.name(), known.help));
    check_help("pool create", &replicas);
    let repair = repair::SCHEMES.map(|known| (known.name, known.help));
    check_help("repair", &repair);
    check_help("plan show", &repair);
    let layouts = placement::LAYOUTS.map(|known| (known.forms, known.help));
    check_help("lab update-traffic", &layouts);
    check_help("lab bound", &layouts);
}
