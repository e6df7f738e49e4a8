//! Runs the `gabion` command against clusters of real processes in temporary directories.

pub(crate) mod mount;
pub(crate) mod nbd;
pub(crate) mod rounds;
pub(crate) mod writers;

use gabion_client::{Client, ClientOptions};
use gabion_testbed::cluster::process_has_ended;
use gabion_wire::trust::Security;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// The command with its arguments, not started yet.
pub(crate) fn gabion(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
    command
        .args(arguments)
        .env("GABION_NO_CONSOLE", "true")
        .env_remove("GABION_DIR")
        .env_remove("GABION_TLS")
        .env_remove("GABION_COORDINATOR");
    command
}

/// Runs the command and gives its stdout; panics with its stderr when it fails.
pub(crate) fn run(arguments: &[&str]) -> String {
    let output = gabion(arguments).output().expect("the binary runs");
    assert!(
        output.status.success(),
        "gabion {arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Runs the command, which must fail with this exit code and one sentence on stderr.
pub(crate) fn fails(arguments: &[&str], code: i32) -> String {
    let output = gabion(arguments).output().expect("the binary runs");
    let stderr = complaint(&output);
    assert_eq!(
        output.status.code(),
        Some(code),
        "gabion {arguments:?}: {stderr}"
    );
    stderr
}

/// Runs the command on a cluster; it must fail with this exit code. Gives its stderr.
pub(crate) fn fails_on(cluster: &TestCluster, arguments: &[&str], code: i32) -> String {
    let output = cluster.output(arguments);
    let stderr = complaint(&output);
    assert_eq!(
        output.status.code(),
        Some(code),
        "gabion {arguments:?}: {stderr}"
    );
    stderr
}

/// Returns a command's sentences on stderr, each in one line, however long it is.
pub(crate) fn complaint(output: &Output) -> String {
    text(&output.stderr).replace("\n        ", " ")
}

/// Tells threads when to end: when this is dropped, and so also if the test fails while they run.
pub(crate) struct Load<'a>(&'a AtomicBool);

impl<'a> Load<'a> {
    pub(crate) fn until_dropped(is_over: &'a AtomicBool) -> Self {
        Self(is_over)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The number of processes that name a file below a directory as an argument.
pub(crate) fn processes_of(directory: &Path) -> usize {
    let below = format!("{}/", directory.display());
    let processes = fs::read_dir("/proc").expect("the system lists processes");
    // A process may end meanwhile.
    let lines = processes.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.filter(|line| text(line).contains(&below)).count()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Failures are noticed quickly and repaired only on demand.
const PATIENT: [&str; 2] = ["--lease-ms=1000", "--grace-s=3600"];

/// A cluster that is stopped and deleted when the test ends.
pub(crate) struct TestCluster {
    directory: tempfile::TempDir,
}

impl TestCluster {
    /// Starts `racks` racks of `per_rack` nodes whose failures are noticed quickly and repaired
    /// only on demand.
    pub(crate) fn start(racks: u32, per_rack: u32) -> Self {
        Self::start_with(racks, per_rack, &PATIENT)
    }

    /// Starts a cluster whose coordinator behaves as told.
    pub(crate) fn start_with(racks: u32, per_rack: u32, behaviour: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let cluster = Self { directory };
        let racks = format!("--racks={racks}");
        let mut arguments = vec!["cluster", "up", &racks];
        let per_rack = format!("--nodes-per-rack={per_rack}");
        arguments.push(&per_rack);
        arguments.extend(behaviour);
        cluster.run(&arguments);
        cluster
    }

    /// Sends a signal to a process of the cluster, named as in its directory of running processes. A process that is
    /// killed has ended when this returns, so that its successor finds neither its files nor its port in use.
    pub(crate) fn signal(&self, process: &str, signal: Signal) {
        let known = fs::read(self.path("cluster/run").join(process)).expect("the process runs");
        let known: Value = serde_json::from_slice(&known).expect("its file is JSON");
        let pid = known["pid"].as_i64().expect("the file names a process");
        let pid = Pid::from_raw(pid as i32).expect("it is no group");
        kill_process(pid, signal).expect("the process is there");
        if signal == Signal::KILL {
            wait_for("the killed process has ended", || {
                process_has_ended(pid.as_raw_pid())
            });
        }
    }

    /// Starts again what does not run, as the cluster was started first.
    pub(crate) fn up(&self) {
        self.run(&["cluster", "up"]);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("cluster")
    }

    /// Returns the coordinator's address.
    pub(crate) fn coordinator(&self) -> String {
        coordinator_of(&self.data())
    }

    /// Returns the proof that clients of this test belong to the cluster.
    pub(crate) fn security(&self) -> Security {
        Security::open(&self.path("cluster/coordinator/operator")).expect("the cluster has made it")
    }

    /// A client of the library, as the operator.
    pub(crate) async fn client(&self) -> Client {
        let coordinator = self.coordinator();
        let client = gabion_wire::connect(&coordinator, self.security(), ClientOptions::default());
        client.await.expect("the coordinator answers")
    }

    /// The command on this cluster, not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gabion(arguments);
        command.env("GABION_DIR", self.data());
        command
    }

    /// Starts a command on this cluster, and gives it all of `bytes` on its stdin.
    pub(crate) fn start_with_input(&self, arguments: &[&str], bytes: &[u8]) -> Child {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin.write_all(bytes).expect("the command reads its stdin");
        child
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(
            output.status.success(),
            "gabion {arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["--format=json"];
        all.extend(arguments);
        serde_json::from_str(&self.run(&all)).expect("JSON")
    }

    /// Stores bytes under a name.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let file = self.path("put");
        fs::write(&file, bytes).expect("write a temporary file");
        self.run(&["put", path_text(&file), name]);
    }

    /// Reads a stored file whole.
    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        let file = self.path("got");
        self.run(&["get", name, path_text(&file)]);
        fs::read(&file).expect("read a temporary file")
    }

    /// Overwrites bytes of a stored file.
    pub(crate) fn write(&self, name: &str, offset: usize, bytes: &[u8]) {
        let file = self.path("write");
        fs::write(&file, bytes).expect("write a temporary file");
        self.run(&[
            "write",
            name,
            &format!("--offset={offset}"),
            path_text(&file),
        ]);
    }

    /// Waits until the coordinator counts exactly these nodes as failed.
    pub(crate) fn wait_until_failed(&self, nodes: &[u64]) {
        wait_for(&format!("nodes {nodes:?} are declared failed"), || {
            let status = self.json(&["cluster", "status"]);
            let all = status["nodes"].as_array().expect("nodes");
            let failed = all.iter().filter(|n| n["state"] == "failed");
            failed
                .filter_map(|n| n["node"].as_u64())
                .collect::<Vec<_>>()
                == nodes
        });
    }

    /// Has every stored byte verified.
    ///
    /// A node that has missed heartbeats on a busy machine, or that has not reached a new coordinator yet, cannot be
    /// asked: the test waits for it. Damage that any of these scrubs finds fails the test.
    #[track_caller]
    pub(crate) fn assert_no_damage(&self) {
        wait_for("a scrub reaches every node", || {
            let scrub = self.output(&["--format=json", "scrub"]);
            let found: Value = serde_json::from_slice(&scrub.stdout).unwrap_or_default();
            assert!(
                found["damage"].as_array().is_none_or(Vec::is_empty),
                "{found}"
            );
            if scrub.status.success() {
                assert_eq!(found["damage"], serde_json::json!([]));
            }
            scrub.status.success()
        });
    }

    /// Kills every process of the cluster with SIGKILL.
    pub(crate) fn kill_all(&self) {
        self.run(&["cluster", "down"]);
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        let _ = self.output(&["cluster", "down"]);
    }
}

/// Asks again until the answer is yes; fails after four minutes.
///
/// The limit ends a test that hangs, and is no measure: a loaded machine may take many times what an idle one does.
pub(crate) fn wait_for(what: &str, is_so: impl FnMut() -> bool) {
    wait_at_most(240, what, is_so);
}

/// Asks again until the answer is yes; fails after `limit_s` seconds.
pub(crate) fn wait_at_most(limit_s: u64, what: &str, is_so: impl FnMut() -> bool) {
    assert!(becomes(limit_s, is_so), "waited {limit_s} s until {what}");
}

/// Asks again until the answer is yes. Returns false if it is not after `limit_s` seconds.
pub(crate) fn becomes(limit_s: u64, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = std::time::Instant::now();
    while !is_so() {
        if begun.elapsed().as_secs() >= limit_s {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    true
}

/// The address of the coordinator of the cluster in a directory.
pub(crate) fn coordinator_of(data: &Path) -> String {
    let shape = fs::read(data.join("cluster.json")).expect("the cluster's shape");
    let shape: Value = serde_json::from_slice(&shape).expect("JSON");
    let coordinator = shape["coordinator"].as_str();
    coordinator.expect("it was started").to_owned()
}

pub(crate) fn path_text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Bytes that differ everywhere and are the same in each run.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A real trace, where this machine has it.
pub(crate) fn trace(name: &str) -> Option<String> {
    let place = std::env::var("GABION_TRACES").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        std::convert::Into::into,
    );
    let path = place.join(name);
    if path.exists() {
        return Some(path_text(&path).to_owned());
    }
    println!("skipped: no trace {name} in ../shared/traces or $GABION_TRACES");
    None
}
