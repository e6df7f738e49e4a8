//! A cluster in one process: every server has a run-time that stops with it.

use gabion_client::{Client, ClientOptions};
use gabion_layout::{NodeId, RackId, Survive, UpdateScheme};
use gabion_meta::Timing;
use gabion_protocol::coordinator::CoordinatorOptions;
use gabion_protocol::message::PoolRequest;
use gabion_server::{
    CoordinatorConfig, CoordinatorProcess, Engine, MetadataPlace, NodeConfig, NodeProcess,
    Protection,
};
use gabion_wire::Versions;
use gabion_wire::trust::Security;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Of nodes: longer than a busy machine pauses a process.
pub(crate) const LEASE_MS: u64 = 5_000;
const LISTEN: &str = "127.0.0.1:0";
/// Longest wait for a change that the servers make by themselves.
const WAIT_LIMIT: Duration = Duration::from_mins(4);

/// A server and its run-time.
pub(crate) struct Server {
    /// None once it is stopped.
    runtime: Option<Runtime>,
    pub(crate) address: String,
    pub(crate) metrics: SocketAddr,
}

impl Server {
    /// Stops it at once, with all its tasks and connections.
    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Servers that speak without certificates.
pub(crate) struct Cluster {
    pub(crate) coordinator: Server,
    pub(crate) nodes: Vec<Server>,
    /// Dropped last.
    directory: tempfile::TempDir,
}

impl Cluster {
    /// Starts racks of nodes, and waits until all of them have joined.
    pub(crate) fn start(racks: u32, per_rack: u32) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let coordinator = coordinator(directory.path());
        let nodes = (0..racks * per_rack).map(|id| {
            node(
                directory.path(),
                NodeId(id),
                id / per_rack,
                &coordinator.address,
            )
        });
        let nodes = nodes.collect();
        Self {
            coordinator,
            nodes,
            directory,
        }
    }

    /// The directory of all servers' files.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A client, which lives on the caller's run-time.
    pub(crate) async fn client(&self) -> Client {
        let address = &self.coordinator.address;
        let client = gabion_wire::connect(address, Security::insecure(), ClientOptions::default());
        client.await.expect("the coordinator answers")
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a run-time")
}

fn coordinator(directory: &Path) -> Server {
    let directory = directory.join("coordinator");
    let config = CoordinatorConfig {
        metadata: MetadataPlace::in_directory(&directory),
        database_wait: Duration::ZERO,
        directory,
        init: true,
        listen: LISTEN.to_owned(),
        options: CoordinatorOptions {
            timing: Timing {
                lease_ms: LEASE_MS,
                margin_ms: 100,
                grace_ms: 3_600_000,
            },
            heartbeat_ms: 500,
            ..CoordinatorOptions::default()
        },
        protection: Protection::Insecure,
        versions: Versions::CURRENT,
        metrics: Some(LISTEN.to_owned()),
        slow: None,
    };
    let runtime = runtime();
    let process = runtime.block_on(CoordinatorProcess::start(config, |_, _, _| {}));
    let process = process.expect("the coordinator starts");
    let address = process.address().to_string();
    let metrics = process.metrics_address().expect("it serves metrics");
    runtime.spawn(process.run());
    Server {
        runtime: Some(runtime),
        address,
        metrics,
    }
}

fn node(directory: &Path, id: NodeId, rack: u32, coordinator: &str) -> Server {
    let config = NodeConfig {
        directory: directory.join(id.to_string()),
        init: true,
        rack: RackId(rack),
        listen: LISTEN.to_owned(),
        coordinator: coordinator.to_owned(),
        engine: Engine::Files,
        capacity_bytes: 1 << 40,
        journal_segment_bytes: 32 << 20,
        log_bytes: 256 << 20,
        reserve_bytes_per_s: 16 << 20,
        links: None,
        security: Security::insecure(),
        versions: Versions::CURRENT,
        metrics: Some(LISTEN.to_owned()),
        slow: None,
    };
    let runtime = runtime();
    let process = runtime.block_on(NodeProcess::start(config));
    let process = process.expect("the node joins");
    assert_eq!(process.id(), id, "nodes join in their order");
    let metrics = process.metrics_address().expect("it serves metrics");
    runtime.spawn(process.run());
    Server {
        runtime: Some(runtime),
        address: String::new(),
        metrics,
    }
}

/// A pool of `rs(4,2)` with chunks of 64 KiB.
pub(crate) fn pool(name: &str, update: UpdateScheme) -> PoolRequest {
    PoolRequest {
        name: name.to_owned(),
        survive: Survive::Nodes(2),
        code: Some("rs(4,2)".to_owned()),
        chunk_bytes: 64 << 10,
        update,
        reserve: None,
        append: None,
        inline_bytes: 0,
        lifecycle: None,
    }
}

/// Asks again until there is an answer; fails after some minutes.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < WAIT_LIMIT, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
