//! Testbeds of network namespaces: their limits are installed, whole clusters run on them and move what
//! was planned over the limited links, and nothing of one outlives it, however it ends.
//!
//! The resulting rates of the links are no test's business; docs/testbed.md says how they were measured.

use crate::support::{complaint, gabion, path_text, run, text, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// Whether testbeds can be made here; says what lacks where they cannot.
fn is_possible() -> bool {
    let can = |program: &str, arguments: &[&str]| {
        let status = Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    let is_possible = can("unshare", &["--net", "--mount", "--pid", "--fork", "true"])
        && can("ip", &["-V"])
        && can("tc", &["-V"]);
    if !is_possible {
        println!("skipped: testbeds need root, and the package iproute2");
    }
    is_possible
}

/// A testbed with these options and this shell script in it, not started yet.
fn testbed(options: &[&str], script: &str) -> Command {
    let mut arguments = vec!["lab", "testbed"];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-e", "-c", script]);
    let mut command = gabion(&arguments);
    command.env("GABION", env!("CARGO_BIN_EXE_gabion"));
    command
}

/// Returns the script's output; it must succeed.
fn output_of(options: &[&str], script: &str) -> String {
    let output = testbed(options, script).output().expect("the binary runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs the command, which must fail with this exit code and one line on stderr.
fn refused(mut command: Command, code: i32) -> String {
    let output = command.output().expect("the program runs");
    let error = complaint(&output);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.trim().lines().count(), 1, "{error}");
    error
}

/// The rates of all token buckets that `tc` lists as JSON, by device.
fn bucket_rates(listed: &str) -> Vec<(String, u64)> {
    let listed: Vec<Value> = serde_json::from_str(listed).expect("tc prints JSON");
    let buckets = listed.iter().filter(|qdisc| qdisc["kind"] == "tbf");
    let of = |qdisc: &Value| {
        let device = qdisc["dev"].as_str().expect("a device").to_owned();
        (device, qdisc["options"]["rate"].as_u64().expect("a rate"))
    };
    let mut rates: Vec<_> = buckets.map(of).collect();
    rates.sort();
    rates
}

#[test]
fn every_link_has_its_limit() {
    if !is_possible() {
        return;
    }
    let options = [
        "--racks=2",
        "--nodes-per-rack=1",
        "--inner=800Mbit",
        "--cross=80Mbit",
    ];
    let script = "nsenter --net=/run/netns/core tc -j qdisc show";
    let (node, uplink) = (100_000_000, 10_000_000);
    let expected = [
        ("down-0", uplink),
        ("down-1", uplink),
        ("port-0-0", node),
        ("port-1-0", node),
        ("up-0", uplink),
        ("up-1", uplink),
    ];
    let expected = expected.map(|(device, rate)| (device.to_owned(), rate));
    assert_eq!(bucket_rates(&output_of(&options, script)), expected);
    let script = "nsenter --net=/run/netns/node-1-0 tc -j qdisc show";
    let own = bucket_rates(&output_of(&options, script));
    assert_eq!(own, [("eth0".to_owned(), node)]);
    let unlimited = output_of(&[], "nsenter --net=/run/netns/core tc -j qdisc show");
    assert_eq!(bucket_rates(&unlimited), []);
}

/// Returns the output of `tc` or `ip` inside a testbed whose links serve connections in turn.
fn fair(what: &str) -> String {
    let options = [
        "--racks=2",
        "--nodes-per-rack=2",
        "--inner=40Mbit",
        "--cross=80Mbit",
        "--spare-core",
        "--fair",
    ];
    output_of(&options, what)
}

#[test]
fn connections_that_are_served_in_turn_have_queues_of_their_own() {
    if !is_possible() {
        return;
    }
    // Three other nodes, the coordinator, and sixteen for clients; two nodes with two of the other rack.
    for (device, queue_count, rate) in [("port-0-1", 3 + 1 + 16, "40Mbit"), ("up-1", 4, "80Mbit")] {
        let listed = fair(&format!(
            "nsenter --net=/run/netns/core tc class show dev {device}"
        ));
        let classes: Vec<&str> = listed.lines().collect();
        assert_eq!(classes.len(), 1 + queue_count, "{listed}");
        let of_all = classes
            .iter()
            .find(|class| class.contains("class htb 1:1 "));
        let of_all = of_all.expect("a class above all others");
        assert!(of_all.contains(&format!("rate {rate}")), "{of_all}");
        let others = classes.iter().filter(|class| class.contains("parent 1:1 "));
        let lent = others.filter(|class| class.contains(&format!("ceil {rate}")));
        assert_eq!(
            lent.count(),
            queue_count,
            "each may have all of it: {listed}"
        );
    }
    // Bytes from one seat to another pass in the queue of these two.
    let listed = fair(
        "nsenter --net=/run/netns/node-0-0 bash -c 'echo hello > /dev/udp/10.83.1.10/9'; \
         nsenter --net=/run/netns/node-0-0 tc -s class show dev eth0",
    );
    let leaves = listed
        .split("class htb ")
        .filter(|class| class.contains("leaf"));
    let used = leaves.filter(|class| !class.contains("Sent 0 bytes"));
    assert_eq!(used.count(), 1, "{listed}");
}

#[test]
fn a_matrix_of_regions_limits_each_pair() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let matrix = directory.path().join("regions");
    fs::write(&matrix, "800Mbit 80Mbit\n16Mbit 400Mbit\n").unwrap();
    let regions = format!("--regions={}", path_text(&matrix));
    let options = [&regions, "--nodes-per-rack=1"];
    let script = "for up in up-0 up-1; do nsenter --net=/run/netns/core tc class show dev $up; done; \
                  nsenter --net=/run/netns/core tc filter show dev up-1";
    let listed = output_of(&options, script);
    assert!(
        listed.contains("class htb 1:2 root") && listed.contains("rate 80Mbit"),
        "{listed}"
    );
    assert!(
        listed.contains("class htb 1:1 root") && listed.contains("rate 16Mbit"),
        "{listed}"
    );
    // 10.83.0.0/24, the first region.
    assert!(listed.contains("match 0a530000/ffffff00 at 16"), "{listed}");

    fs::write(&matrix, "800Mbit 80Mbit\n").unwrap();
    let error = refused(testbed(&options, "true"), 2);
    assert!(error.contains("regions"), "{error}");
}

#[test]
fn a_cluster_moves_what_was_planned_over_the_limited_links() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = ["--inner=1Gbit", "--cross=400Mbit"];
    // The demo stores, updates, loses nodes, reads on and repairs.
    let script = "\"$GABION\" demo --size=16MiB --format=json; \
                  nsenter --net=/run/netns/core cat /proc/net/dev";
    let mut command = testbed(&options, script);
    let output = command.env("TMPDIR", directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = text(&output.stdout);
    let (report, counters) = output.split_once('\n').unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    let repairs = report["repairs"].as_array().unwrap();
    assert_eq!(repairs.len(), 2);
    let mut metered = 0;
    for part in repairs.iter().chain([&report["updates"]]) {
        let bytes = part["metered_cross_rack_bytes"].as_u64().unwrap();
        assert_eq!(part["planned_cross_rack_bytes"], bytes, "{part}");
        assert!(bytes > 0, "{part}");
        metered += bytes;
    }
    // The kernel has seen at least as much on the racks' uplinks.
    let sent = |line: &str| -> Option<u64> {
        let (device, figures) = line.trim().split_once(':')?;
        let mut figures = figures.split_whitespace();
        device
            .starts_with("up-")
            .then(|| figures.nth(8)?.parse().ok())?
    };
    let sent: Vec<u64> = counters.lines().filter_map(sent).collect();
    assert_eq!(sent.len(), 3, "{counters}");
    assert!(sent.iter().sum::<u64>() >= metered, "{sent:?} {metered}");
}

/// A testbed with a process that no other one waits for, and the mark by which all of its processes are
/// known: each inherits it.
fn marked(name: &str) -> (Child, String) {
    let mark = format!("{name}-{}", std::process::id());
    let script = "setsid sleep 100000 & nsenter --net=/run/netns/node-0-0 sleep 100000 & \
                  echo started; wait";
    let mut child = testbed(
        &["--racks=2", "--nodes-per-rack=2", "--inner=1Gbit"],
        script,
    )
    .env("GABION_TEST_MARK", &mark)
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("the binary runs");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("stdout is piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("it says that it started");
    assert_eq!(line, "started\n");
    (child, mark)
}

/// The living processes that have the mark.
fn processes_with(mark: &str) -> Vec<i32> {
    let wanted = format!("GABION_TEST_MARK={mark}");
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_it = |id: &i32| {
        let variables = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        variables
            .split(|&byte| byte == 0)
            .any(|v| v == wanted.as_bytes())
    };
    ids.filter(has_it).collect()
}

/// Nothing is left: no process, and with it no namespace, for no other mount holds one.
fn expect_gone(mark: &str) {
    wait_for("the testbed's processes are gone", || {
        processes_with(mark).is_empty()
    });
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts are listed");
    assert!(!mounts.contains("netns/node-"), "{mounts}");
    assert!(!std::path::Path::new("/run/netns/node-0-0").exists());
}

#[test]
fn signals_remove_everything() {
    if !is_possible() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (child, mark) = marked("signalled");
        assert!(processes_with(&mark).len() >= 5, "the mark finds processes");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("interrupted"), "{error}");
        expect_gone(&mark);
    }
}

#[test]
fn sigkill_removes_everything() {
    if !is_possible() {
        return;
    }
    let (child, mark) = marked("killed");
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait_with_output().unwrap();
    expect_gone(&mark);

    // The first process inside, as if it had crashed.
    let (child, mark) = marked("crashed");
    let is_inner = |id: &i32| {
        let line = text(&fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default());
        line.contains("gabion\0lab\0testbed\0--inside\0") && !line.contains("unshare")
    };
    let inner = processes_with(&mark).into_iter().find(is_inner).unwrap();
    kill_process(Pid::from_raw(inner).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    expect_gone(&mark);
}

#[test]
fn failures_are_told_once_and_in_plain_words() {
    if !is_possible() {
        return;
    }
    let error = refused(testbed(&["--racks=1"], "exit 3"), 1);
    assert!(error.contains("exit status: 3"), "{error}");
    let error = refused(testbed(&["--cross=5"], "true"), 2);
    assert!(error.contains('5'), "{error}");

    let directory = tempfile::tempdir().unwrap();
    let too_large =
        "\"$GABION\" cluster up --dir \"$PLACE\" --racks=2 --nodes-per-rack=1 2>&1 || true";
    let mut command = testbed(&["--racks=1"], too_large);
    let output = command.env("PLACE", directory.path()).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("1 racks of 4"), "{said}");

    let mut without_rights = Command::new("setpriv");
    without_rights
        .arg("--bounding-set=-sys_admin,-net_admin")
        .arg(env!("CARGO_BIN_EXE_gabion"))
        .args(["lab", "testbed", "--", "true"]);
    let error = refused(without_rights, 1);
    assert!(error.contains("needs root"), "{error}");
}

/// A real cluster encodes on limited links, with puts meanwhile: what crosses racks is what the plans say, to
/// the byte, and under EAR less. How fast it is, beside the model, is for `gabion lab run EAR-B1` to say.
#[test]
fn encodings_send_across_racks_what_the_model_is_given() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let out = path_text(directory.path());
    let arguments = ["--format=json", "lab", "run", "EAR-B1", "--scale=quick"];
    let printed = run(&[&arguments[..], &["--out", out]].concat());
    let report: Value = serde_json::from_str(&printed).unwrap();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let crossing: Vec<(f64, f64)> = rows
        .iter()
        .map(|row| (row[7].as_f64().unwrap(), row[8].as_f64().unwrap()))
        .collect();
    let [(random, random_planned), (aware, aware_planned)] = crossing[..] else {
        panic!("two trials: {rows:?}");
    };
    assert_eq!((random, aware), (random_planned, aware_planned));
    assert!(aware < random / 2.0, "{aware} of {random} MB");
    // Whether a put comes before all is encoded depends on the machine.
    let goals = report["goals"].as_array().unwrap().iter();
    let is_of_encoding = |goal: &&Value| goal["what"].as_str().unwrap().contains("encoding");
    assert_eq!(goals.filter(is_of_encoding).count(), 2);
}
