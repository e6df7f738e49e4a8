//! Mounts of a cluster as processes.

use super::{TestCluster, path_text, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Whether this machine can mount: prints why not.
pub(crate) fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: needs root and /dev/fuse");
    }
    can
}

/// A mounted directory and its process. It is unmounted when it is dropped, also when the test fails.
pub(crate) struct Mounted {
    child: Child,
    directory: PathBuf,
    cluster: PathBuf,
}

impl Mounted {
    /// Mounts what `source` names, with these further options.
    pub(crate) fn start(cluster: &TestCluster, source: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory").keep();
        let mut command = cluster.command(&["mount", source, path_text(&directory)]);
        let mut child = command
            .arg("--foreground")
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mounted = Self {
            child,
            directory,
            cluster: cluster.path("cluster"),
        };
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        read.expect("the mount says that it is ready");
        assert!(line.starts_with("ready "), "the mount said '{line}'");
        mounted
    }

    /// A path below the mounted directory; the directory itself for an empty one.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Sends its process a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the child is ours");
    }

    /// Waits until its process has ended, and gives its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let status = self.child.wait().expect("the child is ours");
        status.code()
    }

    /// Runs `gabion umount` on it.
    pub(crate) fn unmount(&self, options: &[&str]) -> std::process::Output {
        let mut command = super::gabion(&["umount", path_text(&self.directory)]);
        command.env("GABION_DIR", &self.cluster).args(options);
        command.output().expect("the binary runs")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = self.unmount(&["--lazy"]);
        if !unmounted.status.success() && !std::thread::panicking() {
            let said = text(&unmounted.stderr);
            assert!(said.contains("is not mounted"), "{said}");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir(&self.directory);
    }
}
