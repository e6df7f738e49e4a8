//! The coordinators of a local cluster: one, or several on one database, of which one leads.

use super::LocalCluster;
use super::address::{COORDINATOR_PORTS, free_addresses};
use crate::error::{Context, TestbedError};
use crate::{namespaces, processor_time};
use std::fs;
use std::path::PathBuf;

/// The name of the first coordinator.
pub(super) const COORDINATOR: &str = "coordinator";

/// The names of coordinators: `coordinator`, `coordinator-1` and so on.
pub(super) fn coordinator_names(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(|number| match number {
        0 => COORDINATOR.to_owned(),
        number => format!("{COORDINATOR}-{number}"),
    })
}

impl LocalCluster {
    /// Whether a coordinator's process runs.
    #[must_use]
    pub fn coordinator_runs(&self) -> bool {
        self.running_coordinators().next().is_some()
    }

    /// The names of the coordinators that run.
    fn running_coordinators(&self) -> impl Iterator<Item = String> {
        let names = coordinator_names(self.shape.options.coordinators);
        names.filter(|name| self.running(name).is_some())
    }

    /// Kills the coordinator at once; of several, the one that leads.
    ///
    /// # Errors
    /// [`TestbedError::NotRunning`], or why it does not end.
    pub async fn kill_coordinator(&self) -> Result<(), TestbedError> {
        let none = || TestbedError::NotRunning("the coordinator".to_owned());
        let leader = self.leader().ok_or_else(none)?;
        self.kill(&leader, "the coordinator").await
    }

    /// The name of the coordinator that leads: the only one that runs, or the one that listens; none while none does.
    #[must_use]
    pub fn leader(&self) -> Option<String> {
        let mut running: Vec<_> = self.running_coordinators().collect();
        if running.len() > 1 {
            running.retain(|name| self.listens(name));
        }
        running.into_iter().next()
    }

    /// The directories of the coordinators.
    #[must_use]
    pub fn coordinator_directories(&self) -> Vec<PathBuf> {
        let names = coordinator_names(self.shape.options.coordinators);
        names.map(|name| self.directory.join(name)).collect()
    }

    /// Processor time of all running coordinators, in seconds.
    #[must_use]
    pub fn coordinator_processor_s(&self) -> f64 {
        let running = self.running_coordinators();
        processor_time::of_processes(running.filter_map(|name| Some(self.running(&name)?.pid)))
    }

    /// Whether a coordinator listens, as only the one that leads does.
    fn listens(&self, name: &str) -> bool {
        let addresses = self.shape.coordinator.iter();
        let addresses = addresses.flat_map(|list| list.split(','));
        let names = coordinator_names(self.shape.options.coordinators);
        let mut known = names.zip(addresses);
        let own = known.find(|(known, _)| known == name);
        own.is_some_and(|(_, address)| std::net::TcpStream::connect(address).is_ok())
    }

    /// Starts the coordinators that do not run. The first one makes the cluster; it and the others lead and stand by as
    /// it comes.
    pub(super) async fn start_coordinators(&mut self) -> Result<(), TestbedError> {
        let addresses = match (&self.shape.coordinator, self.testbed()?) {
            (Some(list), _) => list.split(',').map(str::to_owned).collect(),
            (None, Some(_)) if self.shape.options.coordinators > 1 => {
                return Err(TestbedError::OneCoordinator);
            }
            (None, Some(_)) => vec![namespaces::coordinator_listen()],
            (None, None) => {
                let count = self.shape.options.coordinators as usize;
                free_addresses(&COORDINATOR_PORTS, count)?
            }
        };
        let mut started = Vec::with_capacity(addresses.len());
        let names: Vec<_> = coordinator_names(self.shape.options.coordinators).collect();
        for (name, address) in names.iter().zip(addresses) {
            started.push(match self.staying(name).await? {
                Some(_) => address,
                None => self.start_coordinator(name, &address).await?,
            });
        }
        self.shape.coordinator = Some(started.join(","));
        self.save()
    }

    async fn start_coordinator(&self, name: &str, listen: &str) -> Result<String, TestbedError> {
        let options = &self.shape.options;
        let mut arguments = vec![
            "coordinator".to_owned(),
            format!("--listen={listen}"),
            format!("--data={}", self.directory.join(name).display()),
            format!("--lease-ms={}", options.behaviour.lease_ms),
            format!("--grace-s={}", options.behaviour.grace_s),
            format!("--repair-parallel={}", options.behaviour.repair_parallel),
        ];
        let (seed, place) = (options.behaviour.placement_seed, &options.metadata);
        arguments.extend(seed.map(|seed| format!("--placement-seed={seed}")));
        arguments.extend(options.insecure.then(|| "--insecure".to_owned()));
        arguments.extend(place.iter().map(|url| format!("--metadata={url}")));
        let log = options.metadata_log.iter();
        arguments.extend(log.map(|log| format!("--metadata-log={}", log.display())));
        arguments.extend(self.metrics_argument()?);
        let kept = place
            .as_ref()
            .map_or("coordinator/metadata.redb", |_| "cluster.json");
        let (kept, seat) = (self.directory.join(kept), namespaces::COORDINATOR);
        if name == COORDINATOR {
            return self.spawn_with_data(name, seat, &kept, arguments).await;
        }
        // The first one has made the cluster, and its authority serves all.
        self.share_authority(name)?;
        self.spawn(name, seat, &arguments).await
    }

    /// Gives another coordinator the authority of the first one.
    fn share_authority(&self, name: &str) -> Result<(), TestbedError> {
        let own = self.directory.join(name);
        let link = own.join("ca");
        let share = || match std::os::unix::fs::symlink("../coordinator/ca", &link) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            shared => shared,
        };
        fs::create_dir_all(&own)
            .and_then(|()| share())
            .context(format!("make {}", link.display()))
    }
}
