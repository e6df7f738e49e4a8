//! Errors of making, starting or stopping a cluster or a testbed: one sentence for people each.

use crate::size::bytes;
use gabion_client::{ClientError, ErrorKind};
use gabion_wire::trust::TrustError;
use gabion_wire::{RateError, WireError};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use thiserror::Error;

/// A failure of this crate.
#[derive(Debug, Error)]
pub enum TestbedError {
    /// The operating system or a file refused an operation.
    #[error("cannot {operation}: {source}")]
    Cannot {
        /// The operation, such as `write PATH`.
        operation: String,
        /// The cause of the failure.
        source: io::Error,
    },
    /// The directory holds no cluster.
    #[error("there is no cluster in {directory}; start one with 'gabion cluster up --dir {directory}'", directory = .0.display())]
    NoCluster(PathBuf),
    /// A new cluster needs an empty directory.
    #[error("{} is not empty and holds no cluster; name a new or empty directory", .0.display())]
    NotEmpty(PathBuf),
    /// The processes of a cluster get its directory as text.
    #[error("{} is not UTF-8; name a directory with a UTF-8 path", .0.display())]
    NotText(PathBuf),
    /// An option that was given differs from the cluster's.
    #[error("the cluster in {} has --{option} {has}, not {wants}; omit the option, or {advice}", directory.display())]
    OtherOption {
        /// The cluster's directory.
        directory: PathBuf,
        /// Name of the option.
        option: String,
        /// The cluster's value.
        has: String,
        /// The given value.
        wants: String,
        /// The way to get the given value.
        advice: &'static str,
    },
    /// The disk has too little free space for what was asked for.
    #[error(
        "{what} needs about {} in {}, but {} are free there; {advice}",
        bytes(*needed), directory.display(), bytes(*free)
    )]
    NoSpace {
        /// The user of the space.
        what: String,
        /// Bytes that it needs.
        needed: u64,
        /// A directory on the disk.
        directory: PathBuf,
        /// Free bytes there.
        free: u64,
        /// The advice.
        advice: &'static str,
    },
    /// The cluster's certificates cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The cluster has no coordinator yet.
    #[error("the cluster in {directory} was never started; run 'gabion cluster up --dir {directory}'", directory = .0.display())]
    NeverStarted(PathBuf),
    /// A node that the cluster does not have.
    #[error("there is no node {node}; this cluster has nodes 0 to {last}")]
    NoNode {
        /// The node that was asked for.
        node: u32,
        /// The last node of the cluster.
        last: u32,
    },
    /// A process that should run does not.
    #[error("{0} is not running")]
    NotRunning(String),
    /// A process is not ready in time, and keeps trying.
    #[error("{name} is not ready after {after_s} s ({said}) and continues to try; see {}", log.display())]
    Late {
        /// The process.
        name: String,
        /// The time that it had, in seconds.
        after_s: u64,
        /// The last sentence of its log.
        said: String,
        /// Path of its log.
        log: PathBuf,
    },
    /// A process ended before it was ready.
    #[error("{name} did not start ({why}); see {}", log.display())]
    Gone {
        /// The process.
        name: String,
        /// The last sentence of its log, or what was seen of it.
        why: String,
        /// Path of its log.
        log: PathBuf,
    },
    /// The data that a process made at its first start is not there.
    #[error("{name} did not start: {} is not there; {advice}", path.display())]
    DataGone {
        /// The process.
        name: String,
        /// The expected path of its data.
        path: PathBuf,
        /// The advice.
        advice: String,
    },
    /// A killed process does not end.
    #[error("{what} was killed and has not ended after {after_s} s; its disk may hang")]
    Lingers {
        /// The process.
        what: String,
        /// The time that it had, in seconds.
        after_s: u64,
    },
    /// Another command holds the cluster's lock.
    #[error("another command is starting or stopping the cluster in {}; retry after it has ended", .0.display())]
    Locked(PathBuf),
    /// All ports that a coordinator or a node may take are in use.
    #[error("no port is free for a coordinator or a node")]
    NoPort,
    /// A testbed has one seat for a coordinator.
    #[error("a testbed has only one coordinator; omit --coordinators")]
    OneCoordinator,
    /// Several processes failed: a line each.
    #[error("{}", lines(.0))]
    Several(Vec<TestbedError>),
    /// The variable that names this process's testbed has another form than this crate's.
    #[error("only 'gabion lab testbed' may set {0}; unset it")]
    Variable(&'static str),
    /// The testbed of this process has too few seats for a cluster.
    #[error(
        "the testbed has {} racks of {} nodes, but {} of {} are needed; start 'gabion lab testbed' with more",
        has.0, has.1, wants.0, wants.1
    )]
    TooSmall {
        /// Racks of the testbed, and nodes of each.
        has: (u32, u32),
        /// Racks of the cluster, and nodes of each.
        wants: (u32, u32),
    },
    /// A file of regions is no matrix of rates.
    #[error("{}: {why}", path.display())]
    Regions {
        /// Path of the file.
        path: PathBuf,
        /// The error in it.
        why: String,
    },
    /// A program refused to build a part of the testbed's network.
    #[error("cannot build the testbed: '{command}' failed ({said})")]
    Network {
        /// The program and its arguments.
        command: String,
        /// Its output.
        said: String,
    },
    /// A testbed within a testbed.
    #[error("a testbed cannot run inside a testbed; leave this testbed first")]
    Nested,
    /// A program that testbeds need is not installed.
    #[error("a testbed needs the program '{program}'; install the package {package}")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// This process may not make namespaces.
    #[error(
        "a testbed needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN) to make network namespaces; run \
         'gabion lab testbed' as root"
    )]
    NotRoot,
    /// The inner half of a testbed was started by hand.
    #[error("--inside is an internal option of 'gabion lab testbed'; omit it")]
    NotInside,
    /// A signal ended the testbed.
    #[error("interrupted; the testbed was removed")]
    Interrupted,
    /// The first process inside was killed.
    #[error("the testbed was ended by {0}")]
    Ended(ExitStatus),
    /// The command inside failed.
    #[error("the testbed's command failed: {0}")]
    CommandFailed(ExitStatus),
    /// A job inside a testbed failed.
    #[error("{0}")]
    Inner(String),
    /// The inner half of a job has no memory for its files.
    #[error("a directory in memory cannot be mounted")]
    NoMemory,
    /// A signal ended an experiment or a demo.
    #[error("interrupted; its processes were stopped")]
    Stopped,
    /// A signal ended a replay.
    #[error("the replay was interrupted")]
    ReplayInterrupted,
    /// A demo or a replay found what a correct cluster cannot have.
    #[error("{0}")]
    Wrong(String),
    /// The replayed file exists with another size.
    #[error(
        "{name} exists and has {has} bytes; fold the trace into it by omitting --size, or choose another --name"
    )]
    OtherSize {
        /// Name of the file.
        name: String,
        /// Its bytes.
        has: u64,
    },
    /// The replayed file exists in another pool.
    #[error("{name} exists in pool {has}, not {wants}; choose another --name")]
    OtherPool {
        /// Name of the file.
        name: String,
        /// Its pool.
        has: String,
        /// The given pool.
        wants: String,
    },
    /// Neither the trace nor the options give the size of the file to replay on.
    #[error("{0} has no requests to replay and does not contain its volume's size")]
    NoRequests(String),
    /// A request is due after the end of time.
    #[error("the trace lasts too long for this clock; raise --speed")]
    TooLong,
    /// A replayed file has other bytes than were written.
    #[error("byte {at} of {name} differs from its last write")]
    Differs {
        /// Name of the file.
        name: String,
        /// The first byte that differs.
        at: u64,
    },
    /// A bench cannot be made as it was asked for.
    #[error("{0}")]
    NoBench(&'static str),
    /// The emulated links of a cluster cannot be used.
    #[error(transparent)]
    Links(#[from] WireError),
    /// A rate that is none.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// A request to the cluster failed.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl TestbedError {
    /// Whether the caller asked for something impossible, so that to try again is of no use.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::NoCluster(_)
            | Self::NotEmpty(_)
            | Self::NotText(_)
            | Self::OtherOption { .. }
            | Self::NoSpace { .. }
            | Self::NeverStarted(_)
            | Self::NoNode { .. }
            | Self::Variable(_)
            | Self::TooSmall { .. }
            | Self::OneCoordinator
            | Self::Regions { .. }
            | Self::Nested
            | Self::NotInside
            | Self::OtherSize { .. }
            | Self::OtherPool { .. }
            | Self::NoRequests(_)
            | Self::TooLong
            | Self::NoBench(_)
            | Self::Rate(_) => true,
            Self::Client(error) => error.kind() == ErrorKind::Usage,
            Self::Several(errors) => errors.iter().all(Self::is_usage),
            _ => false,
        }
    }
}

/// The sentences of several errors, a line each.
fn lines(errors: &[TestbedError]) -> String {
    let sentences: Vec<String> = errors.iter().map(ToString::to_string).collect();
    sentences.join("\n")
}

/// Adds the operation to an error.
pub(crate) trait Context<T> {
    /// Fails with [`TestbedError::Cannot`].
    fn context(self, operation: impl fmt::Display) -> Result<T, TestbedError>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, operation: impl fmt::Display) -> Result<T, TestbedError> {
        self.map_err(|error| TestbedError::Cannot {
            operation: operation.to_string(),
            source: error.into(),
        })
    }
}
