//! The parameters of a cluster of this machine, and those that may change later.

use crate::error::TestbedError;
use crate::size::bytes;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The options with which a cluster is made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterOptions {
    /// Racks.
    pub racks: u32,
    /// Nodes of each.
    pub nodes_per_rack: u32,
    /// Emulated rate of each node's link, in bytes a second; 0 means unlimited.
    pub node_bytes_per_s: u64,
    /// Emulated rate of each rack's uplink, in bytes a second; 0 means unlimited.
    pub rack_bytes_per_s: u64,
    /// Options of the nodes' start. Clusters made before these options existed have none.
    #[serde(default)]
    pub merging: Merging,
    /// Storage engine of nodes; files for clusters made before there was a choice.
    #[serde(default)]
    pub engine: Engine,
    /// Options of the coordinator's start.
    pub behaviour: Behaviour,
    /// The database of the metadata, as its URL without a password; a file in the coordinator's directory otherwise.
    #[serde(default)]
    pub metadata: Option<String>,
    /// The directory of the metadata log of a file.
    #[serde(default)]
    pub metadata_log: Option<PathBuf>,
    /// Whether it is started without a console.
    #[serde(default)]
    pub no_console: bool,
    /// Whether its processes prove nothing to each other. So it is with clusters made before they could.
    #[serde(default = "as_ever")]
    pub insecure: bool,
    /// Coordinators that share the metadata in a database, of which one leads.
    #[serde(default = "one")]
    pub coordinators: u32,
    /// Names of the fields, such as `racks`, that must hold for a cluster that was made before; all others
    /// may be different there. Rates are called `inner` and `cross`.
    #[serde(skip)]
    pub given: Vec<String>,
}

impl ClusterOptions {
    /// Applies the given options. Those of a cluster's shape cannot change, and those of the
    /// coordinator only while it does not run.
    pub(super) fn adopt(
        &mut self,
        wanted: &Self,
        directory: &Path,
        is_running: bool,
    ) -> Result<(), TestbedError> {
        let advice = "create another cluster in a new directory";
        wanted.refuse_other(directory, self.fixed(), wanted.fixed(), advice)?;
        let stop = "stop the cluster first with 'gabion cluster down'";
        if is_running {
            wanted.refuse_other(directory, self.place(), wanted.place(), stop)?;
        }
        if wanted.is_given("no_console") {
            self.no_console = wanted.no_console;
        }
        let (has, wants) = (&mut self.behaviour, wanted.behaviour);
        if is_running {
            return wanted.refuse_other(directory, has.named(), wants.named(), stop);
        }
        if wanted.is_given("metadata") {
            self.metadata.clone_from(&wanted.metadata);
        }
        if wanted.is_given("metadata_log") {
            self.metadata_log.clone_from(&wanted.metadata_log);
        }
        if wanted.is_given("lease_ms") {
            has.lease_ms = wants.lease_ms;
        }
        if wanted.is_given("grace_s") {
            has.grace_s = wants.grace_s;
        }
        if wanted.is_given("repair_parallel") {
            has.repair_parallel = wants.repair_parallel;
        }
        if wanted.is_given("placement_seed") {
            has.placement_seed = wants.placement_seed;
        }
        Ok(())
    }

    /// Returns the values that can never change, by the names of their options.
    fn fixed(&self) -> Vec<(&'static str, String)> {
        vec![
            ("racks", self.racks.to_string()),
            ("coordinators", self.coordinators.to_string()),
            ("nodes_per_rack", self.nodes_per_rack.to_string()),
            ("inner", speed(self.node_bytes_per_s)),
            ("cross", speed(self.rack_bytes_per_s)),
            ("log_limit", bytes(self.merging.log_limit)),
            ("reserve_budget", bytes(self.merging.reserve_budget)),
            ("engine", name_of(self.engine)),
            ("insecure", self.insecure.to_string()),
        ]
    }

    /// Returns the places of the metadata, by the names of the options.
    fn place(&self) -> Vec<(&'static str, String)> {
        let place = self.metadata.clone();
        let log = self.metadata_log.as_ref();
        vec![
            ("metadata", place.unwrap_or_else(|| "in a file".to_owned())),
            (
                "metadata_log",
                log.map_or_else(|| "none".to_owned(), |log| log.display().to_string()),
            ),
        ]
    }

    /// Whether a field must hold for a cluster that was made before.
    fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|given| given == name)
    }

    /// Refuses a given option that differs from the cluster's.
    fn refuse_other(
        &self,
        directory: &Path,
        has: Vec<(&'static str, String)>,
        wants: Vec<(&'static str, String)>,
        advice: &'static str,
    ) -> Result<(), TestbedError> {
        let mut pairs = has.into_iter().zip(wants);
        let other = pairs.find(|(has, wants)| self.is_given(has.0) && has != wants);
        let Some(((name, has), (_, wants))) = other else {
            return Ok(());
        };
        Err(TestbedError::OtherOption {
            directory: directory.to_owned(),
            option: name.replace('_', "-"),
            has,
            wants,
            advice,
        })
    }
}

/// When a node merges the records of updates into its chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Merging {
    /// Logs are merged once they exceed this size, in bytes.
    pub log_limit: u64,
    /// Bytes a second for shrinking and merging reserves while there are no updates.
    pub reserve_budget: u64,
}

impl Default for Merging {
    fn default() -> Self {
        Self {
            log_limit: 256 << 20,
            reserve_budget: 16 << 20,
        }
    }
}

/// The storage engine of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Files of a directory.
    #[default]
    Files,
    /// An array of SSDs that is written in whole stripes only.
    Tween,
}

/// Timeouts and limits of the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Behaviour {
    /// Silence after which a node is declared failed, in milliseconds.
    pub lease_ms: u64,
    /// Time for a failed node to return before its chunks are repaired elsewhere, in seconds.
    pub grace_s: u64,
    /// Stripes repaired at once.
    pub repair_parallel: u32,
    /// Seed of the places of stripes; none for random places.
    #[serde(default)]
    pub placement_seed: Option<u64>,
}

/// A cluster as `cluster.json` has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Shape {
    #[serde(flatten)]
    pub(super) options: ClusterOptions,
    /// The coordinator's address, or those of all coordinators, separated by commas; nodes and clients depend on it, so
    /// it stays.
    pub(super) coordinator: Option<String>,
}

impl Behaviour {
    /// All fields, by the name of their option.
    fn named(&self) -> Vec<(&'static str, String)> {
        vec![
            ("lease_ms", self.lease_ms.to_string()),
            ("grace_s", self.grace_s.to_string()),
            ("repair_parallel", self.repair_parallel.to_string()),
            ("placement_seed", seed_name(self.placement_seed)),
        ]
    }
}

const fn as_ever() -> bool {
    true
}

const fn one() -> u32 {
    1
}

/// The words for a seed of places.
fn seed_name(seed: Option<u64>) -> String {
    seed.map_or_else(|| "none".to_owned(), |seed| seed.to_string())
}

/// The command line name of an engine.
fn name_of(engine: Engine) -> String {
    format!("{engine:?}").to_lowercase()
}

/// The command line form of a rate.
fn speed(bytes_per_s: u64) -> String {
    match bytes_per_s {
        0 => "unlimited".to_owned(),
        some => format!("{}Mbit", some as f64 / 125_000.0),
    }
}
