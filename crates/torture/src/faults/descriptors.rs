//! A node that may open no more descriptors: its limit is lowered, and idle connections take the
//! remaining ones.

use crate::cluster::{Cluster, Process};
use crate::stop::{Context, Stop};
use rustix::process::{Resource, Rlimit, prlimit};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Descriptors left to the node.
const LEFT: u64 = 6;
const CONNECTIONS: u64 = 40;
const CONNECT_LIMIT: Duration = Duration::from_millis(500);

/// A node at its limit.
#[derive(Debug)]
pub(super) struct Exhausted {
    node: u32,
    pid: rustix::process::Pid,
    former: Rlimit,
    connections: Vec<TcpStream>,
}

impl Exhausted {
    /// Lowers the limit and takes the remaining descriptors.
    pub(super) fn begin(cluster: &Cluster, node: u32) -> Result<Self, Stop> {
        // Asked first: afterwards the node may not answer.
        let address = address(cluster, node)?;
        let pid = cluster.pid(Process::Node(node))?;
        let directory = format!("/proc/{}/fd", pid.as_raw_pid());
        let open = std::fs::read_dir(directory).context("count a node's descriptors")?;
        let limit = open.count() as u64 + LEFT;
        let former = limits(pid)?;
        let lowered = Rlimit {
            current: Some(limit),
            maximum: former.maximum,
        };
        prlimit(Some(pid), Resource::Nofile, lowered).context("limit a node's descriptors")?;
        let connect = |_| TcpStream::connect_timeout(&address?, CONNECT_LIMIT).ok();
        let connections = (0..CONNECTIONS).map_while(connect).collect();
        Ok(Self {
            node,
            pid,
            former,
            connections,
        })
    }

    pub(super) fn remark(&self) -> String {
        format!("{} idle connections", self.connections.len())
    }

    /// Restores the limit and closes the connections; the limit of an ended node is gone with it.
    pub(super) fn end(self, cluster: &Cluster) -> Result<(), Stop> {
        drop(self.connections);
        let is_same = cluster.pid(Process::Node(self.node))? == self.pid;
        if is_same && cluster.runs(Process::Node(self.node)) {
            prlimit(Some(self.pid), Resource::Nofile, self.former)
                .context("give a node its descriptors back")?;
        }
        Ok(())
    }
}

/// The node's address; none while no coordinator answers.
fn address(cluster: &Cluster, node: u32) -> Result<Option<SocketAddr>, Stop> {
    let status = cluster.json(&["cluster", "status"])?.unwrap_or_default();
    let nodes = status["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let one = nodes.iter().find(|one| one["node"] == node);
    let address = one.and_then(|one| one["address"].as_str());
    Ok(address.and_then(|address| address.parse().ok()))
}

/// The descriptor limits of a process: the soft limit, and the hard one, which stays.
fn limits(pid: rustix::process::Pid) -> Result<Rlimit, Stop> {
    let doing = "read a node's limits";
    let path = format!("/proc/{}/limits", pid.as_raw_pid());
    let text = std::fs::read_to_string(path).context(doing)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let line = line.ok_or_else(|| Stop::Failed(format!("cannot {doing}")))?;
    let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
    Ok(Rlimit {
        current: numbers.next().flatten(),
        maximum: numbers.next().flatten(),
    })
}
