//! Clusters of real processes on one machine, for trials and experiments.
//!
//! - [`cluster`]: a coordinator and nodes in a directory: made, started, killed and stopped.
//! - [`namespaces`]: racks of network namespaces whose links the kernel limits (the local clusters of CAU
//!   section 5.3 and `RackCU` section V-B), for as long as a command runs.
//! - [`replay`]: requests on a stored file, several at a time and at their times, whose results are compared.
//! - [`bench`]: pools of a running cluster under synthetic requests, with what the requests cost.
//! - [`database`]: a `PostgreSQL` server in a directory, and a relay that cuts its connections.
//! - [`demo`]: a tour of a whole cluster, measured and compared.
//! - [`processor_time`]: what processes take, by the kernel's count.
//!
//! Processes are those of the running program itself, which must be `gabion`: this crate starts its
//! `coordinator`, `node`, `console`, `mount` and `lab testbed` commands. It prints nothing; its errors are sentences
//! for people.

pub mod bench;
pub mod cluster;
mod contents;
pub mod database;
pub mod demo;
mod error;
pub mod namespaces;
pub mod processor_time;
mod progress;
pub mod replay;
mod signals;
mod size;
mod space;

pub use cluster::{
    Behaviour, ClusterOptions, Engine, LISTENING, LocalCluster, Merging, READY, STANDBY, Started,
};
pub use error::TestbedError;
pub use progress::{Bars, Unit};
pub use signals::EndSignals;
pub use size::bytes;
pub use space::require_free;
