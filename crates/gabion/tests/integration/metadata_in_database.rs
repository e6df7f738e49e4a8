//! Clusters whose metadata are in a database: the coordinator is killed and the database restarted under load, and the
//! metadata move between the engines.

use crate::support::{
    Load, TestCluster, complaint, fails, gabion, path_text, pattern, run, text, wait_for,
};
use gabion_sql::StoreOptions;
use gabion_testbed::database::{Endurance, LocalDatabase, Relay, Stop};
use rustix::process::Signal;
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const PATIENT: [&str; 2] = ["--lease-ms=1000", "--grace-s=3600"];
const FILE_BYTES: usize = 30_000;
const WRITERS: u64 = 2;

/// A directory, and a server with databases in it, which ends before the directory goes away.
fn server(databases: &[&str]) -> Option<(tempfile::TempDir, LocalDatabase)> {
    if !LocalDatabase::is_installed() {
        println!("skipped: no PostgreSQL server; install the package postgresql");
        return None;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = LocalDatabase::create(directory.path(), Endurance::Processes);
    let server = server.expect("a server");
    for name in databases {
        server.create_database(name).expect("a database");
        run(&["metadata", "migrate", "--to", &server.url(name)]);
    }
    Some((directory, server))
}

fn start(url: &str) -> TestCluster {
    let metadata = format!("--metadata={url}");
    let cluster = TestCluster::start_with(3, 2, &[&PATIENT[..], &[&metadata]].concat());
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=4KiB"]);
    cluster
}

/// The bytes of a writer's file.
fn contents(writer: u64, number: u64) -> Vec<u8> {
    pattern(FILE_BYTES, (writer << 32) | number)
}

/// Stores files until it is over; gives the numbers of those that were acknowledged.
fn store_files(
    cluster: &TestCluster,
    writer: u64,
    stored_count: &AtomicU64,
    is_over: &AtomicBool,
) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if is_over.load(Ordering::Acquire) {
            break;
        }
        let file = cluster.path(&format!("new-{writer}"));
        std::fs::write(&file, contents(writer, number)).expect("a disk with room");
        let name = format!("{writer}/{number}");
        let mut command = cluster.command(&["put", path_text(&file), &name]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if command.status().expect("the binary runs").success() {
            acknowledged.push(number);
            stored_count.fetch_add(1, Ordering::Release);
        }
    }
    acknowledged
}

/// Disturbs a cluster while writers store files. The disturbance is given a wait until a number of further files is
/// stored. Returns the numbers of each writer's acknowledged files.
fn under_load(cluster: &TestCluster, disturb: impl FnOnce(&dyn Fn(u64))) -> Vec<Vec<u64>> {
    let (stored_count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| {
            let (stored_count, is_over) = (&stored_count, &is_over);
            scope.spawn(move || store_files(cluster, writer, stored_count, is_over))
        });
        let writers: Vec<_> = writers.collect();
        let load = Load::until_dropped(&is_over);
        let until_stored = |more: u64| {
            let goal = stored_count.load(Ordering::Acquire) + more;
            wait_for("files are stored", || {
                stored_count.load(Ordering::Acquire) >= goal
            });
        };
        disturb(&until_stored);
        until_stored(3);
        drop(load);
        let ended = writers.into_iter();
        let ended = ended.map(|writer| writer.join().expect("a writer does not panic"));
        ended.collect::<Vec<_>>()
    })
}

#[test]
fn kills_of_the_coordinator_and_restarts_of_the_database_lose_nothing() {
    let Some((_directory, server)) = server(&["meta"]) else {
        return;
    };
    let cluster = start(&server.url("meta"));
    let acknowledged = under_load(&cluster, |until_stored| {
        for stop in [Stop::Fast, Stop::Immediate] {
            until_stored(3);
            // The coordinator goes on when the database is back.
            server.stop(stop).unwrap();
            server.start().unwrap();
            until_stored(3);
            cluster.run(&["chaos", "kill-coordinator"]);
            server.stop(stop).unwrap();
            server.start().unwrap();
            wait_for("the cluster is up again", || {
                cluster.output(&["cluster", "up"]).status.success()
            });
        }
    });
    check_files(&cluster, &acknowledged);
    let stored: usize = acknowledged.iter().map(Vec::len).sum();
    assert!(stored as u64 >= 15, "{stored} files");
    cluster.run(&["cluster", "down"]);
    let checked = run(&["metadata", "check", "--of", &server.url("meta")]);
    assert_eq!(checked, "all rows agree\n");
}

#[test]
fn a_command_that_begins_in_an_outage_of_the_database_waits_for_it() {
    let Some((_directory, server)) = server(&["meta"]) else {
        return;
    };
    let cluster = start(&server.url("meta"));
    cluster.put("one", &contents(0, 1));
    server.stop(Stop::Fast).unwrap();
    let file = cluster.path("found");
    let mut command = cluster.command(&["get", "one", path_text(&file)]);
    let mut reading = Beside(command.spawn().expect("the binary runs"));
    // A coordinator that does not answer at all is left after 3 s.
    let began = Instant::now();
    wait_for("the command has waited", || {
        assert!(!reading.has_ended(), "after {:?}", began.elapsed());
        began.elapsed().as_secs() >= 5
    });
    server.start().unwrap();
    assert!(reading.0.wait().expect("its own child").success());
    assert!(std::fs::read(&file).unwrap() == contents(0, 1));
}

/// All acknowledged files are there.
fn check_files(cluster: &TestCluster, acknowledged: &[Vec<u64>]) {
    for (writer, numbers) in (0..).zip(acknowledged) {
        for &number in numbers {
            let found = cluster.get(&format!("{writer}/{number}"));
            assert!(
                found == contents(writer, number),
                "{writer}/{number} is another"
            );
        }
    }
}

/// Names of coordinators, with their addresses.
type Coordinators<'a> = [(&'a str, &'a str)];

/// The coordinators that listen.
fn leaders<'a>(coordinators: &Coordinators<'a>) -> Vec<&'a str> {
    let listens = |(_, address): &&(&str, &str)| TcpStream::connect(address).is_ok();
    let leaders = coordinators.iter().filter(listens);
    leaders.map(|(name, _)| *name).collect()
}

/// Kills or pauses the leader, and waits for another one.
fn unseat(
    cluster: &TestCluster,
    coordinators: &Coordinators<'_>,
    signal: Signal,
    until_stored: &dyn Fn(u64),
) {
    let [leader] = leaders(coordinators)[..] else {
        panic!("there is not one leader");
    };
    let began = Instant::now();
    if signal == Signal::KILL {
        cluster.run(&["chaos", "kill-coordinator"]);
    } else {
        cluster.signal(leader, signal);
    }
    // A command that begins now waits for the next leader.
    cluster.run(&["ls"]);
    wait_for("another coordinator leads", || {
        leaders(coordinators).iter().any(|now| *now != leader)
    });
    let led = began.elapsed();
    // As many as there are writers may have been about to end.
    until_stored(WRITERS + 1);
    let stored = began.elapsed();
    println!(
        "{leader} got {signal:?}: another leads after {led:.1?}, files are stored after {stored:.1?}"
    );
    if signal == Signal::STOP {
        cluster.signal(leader, Signal::CONT);
    }
    // The deposed one ends by itself.
    wait_for(
        "one coordinator leads, another one",
        || matches!(leaders(coordinators)[..], [now] if now != leader),
    );
    cluster.run(&["cluster", "up"]);
}

/// Kills and pauses the leader of three coordinators under load. A paused one comes back while another leads.
#[test]
fn coordinators_that_stand_by_take_over() {
    let Some((_directory, server)) = server(&["meta"]) else {
        return;
    };
    let metadata = format!("--metadata={}", server.url("meta"));
    let options = [&PATIENT[..], &[&metadata, "--coordinators=3"]].concat();
    let cluster = TestCluster::start_with(3, 2, &options);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=4KiB"]);
    let addresses = cluster.coordinator();
    let coordinators = ["coordinator", "coordinator-1", "coordinator-2"];
    let coordinators: Vec<_> = coordinators.into_iter().zip(addresses.split(',')).collect();
    assert_eq!(coordinators.len(), 3, "{addresses}");
    let acknowledged = under_load(&cluster, |until_stored| {
        for signal in [Signal::KILL, Signal::STOP] {
            until_stored(3);
            unseat(&cluster, &coordinators, signal, until_stored);
        }
    });
    check_files(&cluster, &acknowledged);
    let status = cluster.json(&["cluster", "status"]);
    assert_eq!(
        status["nodes"].as_array().map(Vec::len),
        Some(6),
        "{status}"
    );
    // Those of the one that leads, which is not the first one.
    assert!(status["metrics"].is_string(), "{status}");
    // All of them, told to end at once or killed, leave metadata that agree.
    cluster.run(&["cluster", "down"]);
    assert_eq!(leaders(&coordinators), [""; 0]);
    let checked = run(&["metadata", "check", "--of", &server.url("meta")]);
    assert_eq!(checked, "all rows agree\n");
}

/// A process that the test has started, beside those of its cluster.
struct Beside(Child);

impl Beside {
    fn start(cluster: &TestCluster, name: &str, address: &str, url: &str) -> Self {
        let data = cluster.path("cluster").join(name);
        let arguments = [
            &["coordinator", "--listen", address, "--data"][..],
            &[path_text(&data), "--metadata", url],
            &PATIENT,
        ];
        let mut command = gabion(&arguments.concat());
        // What it complains of tells why a test that waits for it fails.
        command.stdout(Stdio::null());
        Self(command.spawn().expect("the binary runs"))
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("its own child").is_some()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The link between the leader and its database is cut, and all others are whole.
#[test]
fn a_leader_that_does_not_reach_its_database_is_replaced() {
    let Some((directory, server)) = server(&["meta"]) else {
        return;
    };
    let metadata = format!("--metadata={}", server.url("meta"));
    let options = [&PATIENT[..], &[&metadata, "--coordinators=2"]].concat();
    let cluster = TestCluster::start_with(3, 2, &options);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=4KiB"]);
    let addresses = cluster.coordinator();
    let coordinators: Vec<_> = ["coordinator", "coordinator-1"]
        .into_iter()
        .zip(addresses.split(','))
        .collect();
    let [(whole, at_whole), (cut, at_cut)] = coordinators[..] else {
        panic!("there are not two coordinators at {addresses}");
    };
    cluster.signal(cut, Signal::KILL);
    cluster.signal(whole, Signal::KILL);
    let relay = Relay::start(&server, &directory.path().join("relay")).expect("a relay");
    let mut old = Beside::start(&cluster, cut, at_cut, &relay.url("meta"));
    // It listens before it leads, and answers only when it does.
    cluster.run(&["ls"]);
    assert_eq!(leaders(&coordinators), [cut]);
    let _new = Beside::start(&cluster, whole, at_whole, &server.url("meta"));
    let acknowledged = under_load(&cluster, |until_stored| {
        until_stored(3);
        relay.pause();
        // Its process lives, and its port takes connections.
        wait_for("another coordinator leads", || {
            leaders(&coordinators).contains(&whole)
        });
        until_stored(WRITERS + 1);
        relay.resume();
        wait_for("the old leader ends", || old.has_ended());
        until_stored(3);
    });
    check_files(&cluster, &acknowledged);
    assert_eq!(leaders(&coordinators), [whole]);
}

#[test]
fn a_deposed_coordinator_ends_and_one_that_is_told_to_end_frees_the_database() {
    let Some((_directory, server)) = server(&["meta"]) else {
        return;
    };
    let url = server.url("meta");
    let cluster = start(&url);
    cluster.put("one", &contents(0, 1));
    let until_ended = || {
        let address = cluster.coordinator();
        wait_for("the coordinator ends", || {
            TcpStream::connect(&address).is_err()
        });
    };
    // It finds out by itself: no client asks it for anything.
    let deposed = "UPDATE gabion_leader SET term = term + 1, holder = 'a rival'";
    server.execute("meta", deposed).unwrap();
    until_ended();
    cluster.run(&["cluster", "up"]);
    assert!(cluster.get("one") == contents(0, 1));

    cluster.signal("coordinator", Signal::TERM);
    until_ended();
    let began = Instant::now();
    let checked = run(&["metadata", "check", "--of", &url]);
    assert_eq!(checked, "all rows agree\n");
    // A command waits that long for the lease of a coordinator that was killed.
    let waited = began.elapsed();
    assert!(waited < StoreOptions::COMMAND_WATCH, "{waited:?}");

    // A promoted standby lacks the last commits.
    let lost = "UPDATE gabion_leader SET sequence = sequence - 50";
    server.execute("meta", lost).unwrap();
    let refused = cluster.output(&["cluster", "up"]);
    assert!(!refused.status.success());
    let said = complaint(&refused);
    assert!(
        said.contains("lacks metadata that this coordinator had committed"),
        "{said}"
    );
}

#[test]
fn metadata_move_to_a_database_and_back() {
    let Some((directory, server)) = server(&["first", "second"]) else {
        return;
    };
    let (first, second) = (server.url("first"), server.url("second"));
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=4KiB"]);
    cluster.put("one", &contents(0, 1));
    let file = format!(
        "redb:{}",
        path_text(&cluster.path("cluster/coordinator/metadata.redb"))
    );
    let in_use = fails(&["metadata", "copy", "--from", &file, "--to", &first], 1);
    assert!(in_use.contains("is in use by another process"), "{in_use}");
    cluster.kill_all();
    let copied = run(&["metadata", "copy", "--from", &file, "--to", &first]);
    let copied: Vec<&str> = copied.split_whitespace().collect();
    assert!(copied.ends_with(&["all", "rows", "agree"]), "{copied:?}");

    // It is not empty any more.
    let full = fails(&["metadata", "copy", "--from", &file, "--to", &first], 1);
    assert!(full.contains("already has rows"), "{full}");

    let metadata = format!("--metadata={first}");
    cluster.run(&[&["cluster", "up", &metadata][..], &PATIENT].concat());
    assert!(cluster.get("one") == contents(0, 1));
    cluster.put("two", &contents(0, 2));
    let in_use = fails(&["metadata", "copy", "--from", &first, "--to", &second], 1);
    assert!(in_use.contains("in use by the coordinator at"), "{in_use}");
    let second_one = cluster.path("another");
    let another = fails(
        &[
            "--insecure",
            "coordinator",
            "--listen=127.0.0.1:0",
            "--init",
            "--data",
            path_text(&second_one),
            &metadata,
        ],
        1,
    );
    assert!(
        another.contains("in use by the coordinator at"),
        "{another}"
    );
    cluster.run(&["cluster", "down"]);

    let back = directory.path().join("back.redb");
    let back = format!("redb:{}", path_text(&back));
    run(&["metadata", "copy", "--from", &first, "--to", &second]);
    run(&["metadata", "copy", "--from", &second, "--to", &back]);
    let rows = |place: &str| {
        let checked = run(&["metadata", "check", "--of", place]);
        assert_eq!(checked, "all rows agree\n", "{place}");
    };
    for place in [&first, &second, &back] {
        rows(place);
    }
    let metadata = format!("--metadata={second}");
    cluster.run(&["cluster", "up", &metadata]);
    assert!(cluster.get("one") == contents(0, 1));
    assert!(cluster.get("two") == contents(0, 2));
}

#[test]
fn a_database_that_cannot_be_used_is_named_without_a_password() {
    let shown = "postgres://gabion:secret@127.0.0.1:1/meta";
    let visible = fails(&["coordinator", "--metadata", shown], 2);
    assert!(visible.contains("visible to other users"), "{visible}");
    assert!(!visible.contains("secret"), "{visible}");
    let up = tempfile::tempdir().unwrap();
    let visible = fails(
        &[
            "cluster",
            "up",
            "--dir",
            path_text(up.path()),
            "--metadata",
            shown,
        ],
        2,
    );
    assert!(!visible.contains("secret"), "{visible}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("url");
    std::fs::write(&file, shown).unwrap();
    let arguments = |file: &str| {
        let data = path_text(directory.path());
        let arguments = [
            "--insecure",
            "coordinator",
            "--listen=127.0.0.1:0",
            "--init",
            "--data",
            data,
        ];
        let mut command = gabion(&arguments);
        command.args(["--metadata-file", file, "--metadata-wait-s=0"]);
        command.output().unwrap()
    };
    let open = arguments(path_text(&file));
    assert_eq!(open.status.code(), Some(2), "{}", text(&open.stderr));
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, private).unwrap();
    let refused = arguments(path_text(&file));
    let said = complaint(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("cannot connect to the database postgres://gabion@127.0.0.1:1/meta"),
        "{said}"
    );
    assert!(!said.contains("secret"), "{said}");
    let remote = fails(
        &[
            "metadata",
            "migrate",
            "--to",
            "postgres://u@db.example/meta",
        ],
        2,
    );
    assert!(remote.contains("sslmode=verify-full"), "{remote}");
    let Some((_directory, server)) = server(&[]) else {
        return;
    };
    server.create_database("bare").unwrap();
    let bare = fails(&["metadata", "check", "--of", &server.url("bare")], 1);
    assert!(bare.contains("gabion metadata migrate"), "{bare}");
}
