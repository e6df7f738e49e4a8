//! A server of images as a process, and Debian's NBD tools.

use super::{TestCluster, gabion, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Python with Debian's libnbd, which other Pythons of the machine do not have.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// The clients of images that tests run by Python.
pub(crate) const NBD_CLIENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/integration/nbd_client.py"
);

/// Whether the machine has the tools. Prints the missing packages if it does not.
pub(crate) fn has_nbd_tools() -> bool {
    let has_python = runs(PYTHON, &["-c", "import nbd"]);
    let has_tools =
        has_python && runs("nbdcopy", &["--version"]) && runs("qemu-img", &["--version"]);
    if !has_tools {
        println!("skipped: needs the packages libnbd-bin, python3-libnbd and qemu-utils");
    }
    has_tools
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// Runs a tool, which must succeed, and gives its stdout.
pub(crate) fn tool(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.expect("the tool runs");
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A running `gabion nbd serve`, killed when it is dropped.
pub(crate) struct ImageServer {
    child: Child,
    /// Its address, as `nbd://127.0.0.1:PORT`.
    address: String,
    stdout: BufReader<ChildStdout>,
}

impl ImageServer {
    /// Serves all images of a cluster, with these further options.
    pub(crate) fn start(cluster: &TestCluster, options: &[&str]) -> Self {
        Self::spawn(cluster.command(&[]), options)
    }

    /// The same for a cluster in this directory.
    pub(crate) fn start_in(directory: &std::path::Path, options: &[&str]) -> Self {
        let mut command = gabion(&[]);
        command.env("GABION_DIR", directory);
        Self::spawn(command, options)
    }

    fn spawn(mut command: Command, options: &[&str]) -> Self {
        let mut child = command
            .args(["nbd", "serve", "--listen=127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut server = Self {
            address: String::new(),
            stdout: BufReader::new(stdout),
            child,
        };
        server.address = server.ready();
        server
    }

    /// The next address at which the server says that it is ready.
    pub(crate) fn ready(&mut self) -> String {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        read.expect("the server says where it listens");
        let address = line.trim().strip_prefix("ready ");
        let address = address.unwrap_or_else(|| panic!("the server said '{line}'"));
        address.to_owned()
    }

    /// An image.
    pub(crate) fn uri(&self, image: &str) -> String {
        format!("{}/{image}", self.address)
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the child is ours");
        self.child.wait().expect("the child is ours");
    }
}

impl ImageServer {
    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the child is ours");
    }

    /// Ends it by SIGTERM: other servers can have its images at once.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.child.wait().expect("the child is ours");
        assert!(status.success(), "{status}");
    }
}

impl Drop for ImageServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
