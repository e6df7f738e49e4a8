//! An upgrade by one version of the wire: the nodes and then the coordinator start again in the next version, below a
//! mount and commands of this one.
//!
//! The servers of the next version are processes of this test's program, which runs them as a library with other
//! versions of the wire. A server in the test's own process would keep its store locked until that process ends.
//!
//! The load on the mount is a process too, so the test has no open files there. Each process that it starts would close
//! its copies of them at once, and the kernel lets a close wait for a sync of the same file. The sync waits for the
//! coordinator, so the test could not start that.

use crate::support::mount::{Mounted, can_mount};
use crate::support::{TestCluster, path_text, pattern, text, wait_for};
use gabion_layout::RackId;
use gabion_meta::Timing;
use gabion_protocol::coordinator::CoordinatorOptions;
use gabion_protocol::message::Flow;
use gabion_server::{
    CoordinatorConfig, CoordinatorProcess, Engine, MetadataPlace, NodeConfig, NodeProcess,
    Protection,
};
use gabion_testbed::READY;
use gabion_wire::trust::Security;
use gabion_wire::{
    Connection, Endpoint, Handler, Hello, Options, PeerIdentity, Role, TrafficMeter, VERSION,
    Versions, WireError,
};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const NODE_COUNT: u32 = 6;
const NODES_PER_RACK: u32 = 2;
/// Bytes of the open file: three stripes, the last one in part.
const SIZE: usize = 700_000;
/// Its first bytes are the pattern of this seed.
const SEED: u64 = 77;
/// Bytes of a write to it, and of each new file.
const WRITE_BYTES: usize = 5_000;
const LEASE_MS: u64 = 3_000;
/// The test. Its other processes are the same test with one of the two variables.
const TEST: &str = "upgrade::a_mount_outlives_an_upgrade_of_all_servers_by_one_version";
/// Set for a process that is a server of the next version: its [`Place`] as JSON.
const SERVER: &str = "GABION_UPGRADED_SERVER";
/// Set for a process that loads a mount: the mounted directory.
const LOADED: &str = "GABION_UPGRADED_BELOW";
/// What such a process prints before the number of its finished rounds.
const ROUNDS: &str = "rounds: ";
/// Limit of the start of a server.
const START_LIMIT: Duration = Duration::from_mins(4);

/// The versions of a release that is one version ahead of this one.
fn next() -> Versions {
    Versions::between(VERSION, VERSION + 1).expect("two neighbours")
}

/// The place of a server in its cluster.
#[derive(Serialize, Deserialize)]
struct Place {
    /// The cluster's directory.
    cluster: PathBuf,
    /// Where the coordinator listens.
    coordinator: String,
    /// The node, and where it listens; none for the coordinator.
    node: Option<(u32, String)>,
}

impl Place {
    fn node(self, node: u32, listen: String) -> NodeConfig {
        let directory = self.cluster.join("nodes").join(node.to_string());
        let disk = rustix::fs::statvfs(&directory).expect("the node has run there");
        NodeConfig {
            security: Security::open(&directory.join("tls")).expect("the node's certificate"),
            directory,
            init: false,
            rack: RackId(node / NODES_PER_RACK),
            listen,
            coordinator: self.coordinator,
            engine: Engine::Files,
            capacity_bytes: disk.f_blocks * disk.f_frsize,
            journal_segment_bytes: 32 << 20,
            log_bytes: 256 << 20,
            reserve_bytes_per_s: 16 << 20,
            links: None,
            versions: next(),
            metrics: None,
            slow: None,
        }
    }

    fn coordinator(self) -> CoordinatorConfig {
        let directory = self.cluster.join("coordinator");
        CoordinatorConfig {
            metadata: MetadataPlace::in_directory(&directory),
            database_wait: Duration::ZERO,
            init: false,
            listen: self.coordinator,
            options: CoordinatorOptions {
                timing: Timing {
                    lease_ms: LEASE_MS,
                    margin_ms: LEASE_MS / 10,
                    grace_ms: 3_600_000,
                },
                heartbeat_ms: LEASE_MS / 4,
                ..CoordinatorOptions::default()
            },
            protection: Protection::Managed {
                authority: directory.join("ca"),
                own: directory.join("tls"),
                operator: directory.join("operator"),
            },
            directory,
            versions: next(),
            metrics: None,
            slow: None,
        }
    }

    /// Serves until the server fails, and reports on stdout when it is ready.
    async fn serve(mut self) {
        if let Some((node, listen)) = self.node.take() {
            let starting = timeout(START_LIMIT, NodeProcess::start(self.node(node, listen)));
            let process = starting.await.expect("the node joins in time");
            let process = process.expect("the node joins");
            println!("{READY}");
            process.run().await.expect("the node serves");
        } else {
            let starting = CoordinatorProcess::start(self.coordinator(), |_, _, _| {});
            let process = timeout(START_LIMIT, starting).await;
            let process = process.expect("the coordinator starts in time");
            let process = process.expect("the coordinator starts");
            println!("{READY}");
            process.run().await.expect("the coordinator serves");
        }
    }
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().build().expect("a run-time")
}

/// Does something when the test ends, however that ends: then the stdin of its processes ends.
fn at_end(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        work();
    });
}

/// Starts the test again, as the process that this variable asks for.
fn start_again(variable: &str, value: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().expect("tests have a file"))
        .args(["--exact", TEST, "--nocapture"])
        .env(variable, value)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a test can be started");
    let stdout = child.stdout.take().expect("stdout is piped");
    (child, BufReader::new(stdout))
}

/// Serves in the next version, if this process is one of its servers. Returns whether it is.
fn serves_in_the_next_version() -> bool {
    let Ok(place) = std::env::var(SERVER) else {
        return false;
    };
    let place: Place = serde_json::from_str(&place).expect("the test names its place");
    at_end(|| std::process::exit(0));
    runtime().block_on(place.serve());
    true
}

/// A process of the next version. It is killed when this is dropped.
struct Server {
    child: Child,
    /// Open, because the process may still write to it.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server, whose earlier process has ended, and waits until it is ready.
    fn start(cluster: &TestCluster, node: Option<(u32, String)>) -> Self {
        let place = Place {
            cluster: cluster.path("cluster"),
            coordinator: cluster.coordinator(),
            node,
        };
        let place = serde_json::to_string(&place).expect("its path is text");
        let (child, mut stdout) = start_again(SERVER, &place);
        let mut lines = stdout.by_ref().lines().map_while(Result::ok);
        let is_ready = lines.any(|line| line.ends_with(READY));
        let server = Self {
            child,
            _stdout: stdout,
        };
        assert!(is_ready, "the server has ended");
        server
    }

    /// Kills it, and returns when it has ended.
    fn stop(&mut self) {
        // Neither fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A client that only connects.
struct Silent;

impl Handler for Silent {
    fn flow(&self, _: &Arc<Connection>, _: Flow) {}
}

/// Whether the server at this address speaks this version.
fn speaks(cluster: &TestCluster, address: &str, version: u16) -> bool {
    let runtime = runtime();
    let mut found = None;
    wait_for("a server answers", || {
        let options = Options {
            versions: Versions::between(version, version).expect("a possible version"),
            security: cluster.security(),
            ..Options::default()
        };
        let hello = Hello {
            cluster: None,
            role: Role::Operator,
            identity: PeerIdentity::default(),
        };
        let meter = Arc::new(TrafficMeter::default());
        let endpoint = Endpoint::new(hello, Arc::new(Silent), options, meter);
        found = match runtime.block_on(Connection::connect(address, &endpoint)) {
            Ok(_) => Some(true),
            Err(WireError::WrongVersion { .. }) => Some(false),
            Err(error) => {
                println!("{address}: {error}");
                None
            }
        };
        found.is_some()
    });
    found.expect("it has answered")
}

/// Where a node listens.
fn address(cluster: &TestCluster, node: u32) -> String {
    let status = cluster.json(&["cluster", "status"]);
    let address = status["nodes"][node as usize]["address"].as_str();
    address.expect("the node is a member").to_owned()
}

/// Repeats an operation, which may fail while a server starts again.
fn until_done<T>(what: &str, mut operation: impl FnMut() -> std::io::Result<T>) -> T {
    let mut done = None;
    wait_for(what, || {
        match operation() {
            Ok(result) => done = Some(result),
            Err(error) => println!("{what}: {error}"),
        }
        done.is_some()
    });
    done.expect("it is done")
}

/// Works in the mount, if this is the process for that. Returns whether it is.
fn loads_a_mount() -> bool {
    let Some(directory) = std::env::var_os(LOADED).map(PathBuf::from) else {
        return false;
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    at_end(move || over.store(true, Ordering::Release));
    let open = directory.join("open");
    let file = File::options().read(true).write(true).open(open);
    let file = file.expect("it is there");
    let mut expected = pattern(SIZE, SEED);
    let mut number = 0;
    while !is_over.load(Ordering::Acquire) {
        work(&directory, (&file, &mut expected), number);
        number += 1;
        println!("{ROUNDS}{number}");
    }
    true
}

/// Writes to the open file, makes a new one, and reads the open one.
fn work(directory: &Path, (file, expected): (&File, &mut Vec<u8>), number: u64) {
    write(expected, number);
    let (new, offset) = (pattern(WRITE_BYTES, number), offset(number));
    until_done("a write is durable", || {
        file.write_all_at(&new, offset as u64)?;
        file.sync_data()
    });
    until_done("a file is made and durable", || {
        let mut file = File::create(new_file(directory, number))?;
        file.write_all(&new)?;
        file.sync_all()
    });
    let mut found = vec![0; SIZE];
    until_done("the file is read", || file.read_exact_at(&mut found, 0));
    assert!(found == *expected, "round {number} reads other bytes");
}

/// What a round writes to the open file.
fn write(bytes: &mut [u8], number: u64) {
    let offset = offset(number);
    bytes[offset..offset + WRITE_BYTES].copy_from_slice(&pattern(WRITE_BYTES, number));
}

/// Where a round writes to the open file.
fn offset(number: u64) -> usize {
    number as usize * 37_117 % (SIZE - WRITE_BYTES)
}

fn new_file(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("new-{number}"))
}

/// The process that works in the mount during the whole upgrade. It is killed when this is dropped.
struct Load {
    child: Child,
    round_count: Arc<AtomicU64>,
    reading: JoinHandle<()>,
}

impl Load {
    fn start(directory: &Path) -> Self {
        let (child, stdout) = start_again(LOADED, path_text(directory));
        let round_count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&round_count);
        let reading = std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some((_, count)) = line.rsplit_once(ROUNDS) {
                    let count = count.parse().expect("a number");
                    counted.store(count, Ordering::Release);
                } else {
                    println!("load: {line}");
                }
            }
        });
        Self {
            child,
            round_count,
            reading,
        }
    }

    fn round_count(&self) -> u64 {
        self.round_count.load(Ordering::Acquire)
    }

    /// Waits until a whole round has been done from now on.
    fn wait_for_round(&self) {
        let before = self.round_count();
        wait_for("a round of the load is done", || {
            assert!(!self.reading.is_finished(), "the load has ended");
            self.round_count() > before + 1
        });
    }

    /// Lets it finish its round, and returns the number of its rounds.
    fn end(mut self) -> u64 {
        drop(self.child.stdin.take());
        wait_for("the load ends", || self.reading.is_finished());
        let status = self.child.wait().expect("the child is ours");
        assert!(status.success(), "the load reads what it has written");
        self.round_count()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Neither fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until_well(cluster: &TestCluster) {
    wait_for("all is well", || {
        cluster.json(&["cluster", "status"])["light"] == "green"
    });
}

/// Stops the shipped process of a node, starts the node in the next version at its address, and waits until nothing is
/// to be repaired.
fn upgrade(cluster: &TestCluster, load: &Load, node: u32) -> Server {
    load.wait_for_round();
    let address = address(cluster, node);
    assert!(!speaks(cluster, &address, VERSION + 1));
    cluster.run(&["chaos", "kill-node", &node.to_string()]);
    let server = Server::start(cluster, Some((node, address.clone())));
    assert!(speaks(cluster, &address, VERSION + 1) && speaks(cluster, &address, VERSION));
    wait_until_well(cluster);
    server
}

/// Stops a node of the next version, and starts its shipped process.
fn go_back(cluster: &TestCluster, load: &Load, (node, mut server): (u32, Server)) {
    load.wait_for_round();
    server.stop();
    let started = cluster.output(&["chaos", "start-node", &node.to_string()]);
    assert!(started.status.success(), "{}", text(&started.stderr));
    assert!(!speaks(cluster, &address(cluster, node), VERSION + 1));
    wait_until_well(cluster);
}

#[test]
fn a_mount_outlives_an_upgrade_of_all_servers_by_one_version() {
    if serves_in_the_next_version() || loads_a_mount() || !can_mount() {
        return;
    }
    let lease = format!("--lease-ms={LEASE_MS}");
    let cluster = TestCluster::start_with(3, NODES_PER_RACK, &[&lease, "--grace-s=3600"]);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=64KiB"]);
    let mut expected = pattern(SIZE, SEED);
    cluster.put("open", &expected);
    let mut servers = Vec::new();
    let mounted = Mounted::start(&cluster, "p", &[]);
    let load = Load::start(&mounted.path(""));
    let upgraded = upgrade(&cluster, &load, 0);
    go_back(&cluster, &load, (0, upgraded));
    servers.extend((0..NODE_COUNT).map(|node| upgrade(&cluster, &load, node)));
    load.wait_for_round();
    let coordinator = cluster.coordinator();
    assert!(!speaks(&cluster, &coordinator, VERSION + 1));
    cluster.run(&["chaos", "kill-coordinator"]);
    servers.push(Server::start(&cluster, None));
    let spoken = [VERSION, VERSION + 1, VERSION + 2];
    let spoken = spoken.map(|version| speaks(&cluster, &coordinator, version));
    assert_eq!(spoken, [true, true, false]);
    load.wait_for_round();
    wait_until_well(&cluster);
    load.wait_for_round();
    let count = load.end();
    for number in 0..count {
        write(&mut expected, number);
        let found = fs::read(new_file(&mounted.path(""), number)).expect("it was made");
        assert!(
            found == pattern(WRITE_BYTES, number),
            "new-{number} has other bytes"
        );
    }
    // As a command of this version reads it from the servers of the next one.
    assert!(cluster.get("open") == expected, "durable bytes");
    cluster.assert_no_damage();
    println!("{count} rounds of the load during the upgrade");
}
