//! `gabion coordinator` and `gabion node`: one server process each, in the foreground.

use super::{metadata, security};
use crate::arguments::{Behaviour, CoordinatorOptions, NodeOptions, Place};
use crate::failure::{Context, Failure};
use crate::logging::LogOptions;
use gabion_layout::RackId;
use gabion_meta::Timing;
use gabion_server::{
    CoordinatorConfig, CoordinatorProcess, NodeConfig, NodeProcess, RecoveryConfig,
    RecoveryProcess, check_listen, why_not_listening,
};
use gabion_testbed::{EndSignals, LISTENING, READY, STANDBY};
use gabion_wire::Versions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpListener;

/// Listens on an address, which this option names.
pub(super) async fn listen_on(address: &str, option: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::failed(format!(
            "cannot listen on {address}: {}; choose an address of this machine and a free port with {option}",
            why_not_listening(&error)
        ))
    })
}

/// Refuses a directory of a server's files that is something else. It may be missing.
fn check_directory(data: &Path) -> Result<(), Failure> {
    match std::fs::metadata(data) {
        Ok(found) if !found.is_dir() => Err(Failure::usage(format!(
            "{} is not a directory; name a directory with --data",
            data.display()
        ))),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(Failure::usage(format!(
            "a part of {} is not a directory; name another directory with --data",
            data.display()
        ))),
        _ => Ok(()),
    }
}

/// Raises the limit of open files and connections to the system's maximum.
pub(super) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

pub(crate) async fn coordinator(options: CoordinatorOptions, place: &Place) -> Result<(), Failure> {
    raise_descriptor_limit();
    let CoordinatorOptions {
        listen,
        data,
        metadata,
        init,
        recover,
        behaviour,
        metrics,
        log,
    } = options;
    check_directory(&data)?;
    if recover {
        let config = RecoveryConfig {
            metadata: metadata::place_of(&metadata, &data)?,
            protection: security::of_coordinator(place, &data)?,
            directory: data,
            listen,
        };
        return serve_recovery(config).await;
    }
    let config = CoordinatorConfig {
        database_wait: metadata::wait_of(&metadata),
        metadata: metadata::place_of(&metadata, &data)?,
        protection: security::of_coordinator(place, &data)?,
        versions: Versions::CURRENT,
        directory: data,
        init,
        listen,
        options: behaviour_of(&behaviour),
        metrics,
        slow: slow(&log),
    };
    let standing_by = |address: SocketAddr, metrics: Option<SocketAddr>, leader: &str| {
        tracing::info!(target: "cluster", leader, "this coordinator stands by");
        server_is(STANDBY, address, metrics);
    };
    let process = CoordinatorProcess::start(config, standing_by).await?;
    tracing::info!(target: "cluster", "this coordinator leads");
    let mut ends = EndSignals::listen()?;
    let (address, metrics) = (process.address(), process.metrics_address());
    server_is(LISTENING, address, metrics);
    let serves = process.until_it_serves();
    let mut running = pin!(process.run_until(async move { ends.recv().await }));
    tokio::select! {
        ended = &mut running => return ended.map_err(Failure::failed),
        true = serves => server_is(READY, address, metrics),
    }
    running.await.map_err(Failure::failed)
}

/// Serves reads by an earlier copy of the metadata.
async fn serve_recovery(config: RecoveryConfig) -> Result<(), Failure> {
    let process = RecoveryProcess::start(config).await?;
    tracing::info!(target: "cluster", "this coordinator serves reads by earlier metadata and changes nothing");
    let mut ends = EndSignals::listen()?;
    server_is(READY, process.address(), None);
    process
        .run_until(async move { ends.recv().await })
        .await
        .map_err(Failure::failed)
}

pub(crate) async fn node(options: NodeOptions, place: &Place) -> Result<(), Failure> {
    raise_descriptor_limit();
    let NodeOptions {
        rack,
        join,
        listen,
        data,
        init,
        journal_segment,
        merging,
        engine,
        links,
        token,
        metrics,
        log,
    } = options;
    let (Some(rack), Some(join)) = (rack, join) else {
        return Err(Failure::usage(
            "no rack or coordinator given; use 'gabion node --rack N \
             --join HOST:PORT'",
        ));
    };
    check_directory(&data)?;
    let engine = engine.engine(&data).map_err(Failure::usage)?;
    if init {
        // Nothing is created for a node that cannot listen.
        check_listen(&listen).await.map_err(Failure::failed)?;
        std::fs::create_dir_all(&data).context(format!("create {}", data.display()))?;
    }
    let disk = rustix::fs::statvfs(&data).map_err(|error| match error {
        rustix::io::Errno::NOENT => Failure::failed(format!(
            "{} does not exist; mount the node's disk, or add --init to create a new node there",
            data.display()
        )),
        error => Failure::failed(format!(
            "cannot query the file system of {}: {error}",
            data.display()
        )),
    })?;
    let security = security::of_node(place, &data, token.as_deref(), &join).await?;
    let config = NodeConfig {
        security,
        versions: Versions::CURRENT,
        engine,
        directory: data,
        init,
        rack: RackId(rack),
        listen,
        coordinator: join,
        capacity_bytes: disk.f_blocks * disk.f_frsize,
        journal_segment_bytes: journal_segment,
        log_bytes: merging.log_limit,
        reserve_bytes_per_s: merging.reserve_budget,
        links,
        metrics,
        slow: slow(&log),
    };
    let process = NodeProcess::start(config).await?;
    server_is(READY, process.id(), process.metrics_address());
    process.run().await.map_err(Failure::failed)
}

/// The duration above which operations are logged.
fn slow(log: &LogOptions) -> Option<Duration> {
    (log.slow_ms > 0).then(|| Duration::from_millis(log.slow_ms))
}

/// Reports the state of a server, and the address of its metrics.
fn server_is(state: &str, at: impl std::fmt::Display, metrics: Option<SocketAddr>) {
    let metrics = metrics.map_or_else(String::new, |address| format!(" http://{address}/metrics"));
    report(state, &format!("{at}{metrics}"));
}

/// Reports on stdout that the process serves.
pub(super) fn ready(what: &str) {
    report(READY, what);
}

/// Reports the state of this process on stdout. Its parent process may have ended already.
fn report(state: &str, what: &str) {
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{state} {what}").and_then(|()| stdout.flush());
}

fn behaviour_of(behaviour: &Behaviour) -> gabion_protocol::coordinator::CoordinatorOptions {
    gabion_protocol::coordinator::CoordinatorOptions {
        timing: Timing {
            lease_ms: behaviour.lease_ms,
            margin_ms: (behaviour.lease_ms / 10).max(50),
            grace_ms: behaviour.grace_s.saturating_mul(1000),
        },
        heartbeat_ms: (behaviour.lease_ms / 4).max(50),
        repair_parallel: behaviour.repair_parallel as usize,
        placement_seed: behaviour.placement_seed,
        ..gabion_protocol::coordinator::CoordinatorOptions::default()
    }
}
