//! Faults: the injection of each into a cluster, and its end.

mod copies;
mod descriptors;
mod strays;

use crate::clients::Signals;
use crate::cluster::{Cluster, Process};
use crate::dice::Dice;
use crate::disk::{self, Frozen};
use crate::network::{Direction, Seat, peers};
use crate::stop::Stop;
use clap::ValueEnum;
use descriptors::Exhausted;
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::Duration;
use strays::OwnProcess;

/// Kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum FaultKind {
    /// SIGKILL of a node, which is started again later
    Kill,
    /// SIGSTOP of a node, and SIGCONT later
    Stop,
    /// SIGKILL of the coordinator, which is started again later, also after more than a lease
    KillCoordinator,
    /// SIGSTOP of the coordinator, and SIGCONT later
    StopCoordinator,
    /// A node reaches neither the other nodes nor clients; in half of the cases not the coordinator
    /// either
    Partition,
    /// A node's packets to some others are lost, theirs arrive
    OneWay,
    /// A node's disk answers with EIO
    DeadDisk,
    /// A node's disk answers no write and still reads
    FrozenDisk,
    /// A node's disk is full
    FullDisk,
    /// A node may open no more descriptors, and has idle connections
    Descriptors,
    /// A node comes back with an old copy of its directory
    Rollback,
    /// The coordinator comes back with an old copy of its database, and then with the newer one
    OldDatabase,
    /// A node is started with another cluster's coordinator
    WrongCluster,
    /// Another process runs with a copy of a node's directory
    Twin,
}

impl FaultKind {
    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it requires root and namespaces.
    pub(crate) const fn needs_testbed(self) -> bool {
        matches!(
            self,
            Self::Partition | Self::OneWay | Self::DeadDisk | Self::FrozenDisk | Self::FullDisk
        )
    }

    /// Whether it requires a node on a disk of its own.
    pub(crate) const fn needs_disk(self) -> bool {
        matches!(self, Self::DeadDisk | Self::FrozenDisk | Self::FullDisk)
    }

    /// Whether it concerns the coordinator, so that no chunk is out of reach.
    pub(crate) const fn is_of_coordinator(self) -> bool {
        matches!(
            self,
            Self::KillCoordinator | Self::StopCoordinator | Self::OldDatabase
        )
    }

    /// Its duration: mostly some seconds, sometimes hardly any, sometimes the longest.
    pub(crate) fn draw_duration(self, dice: &mut Dice, longest: Duration) -> Duration {
        let ms = match (self, dice.below(8)) {
            (
                Self::Stop
                | Self::StopCoordinator
                | Self::Partition
                | Self::OneWay
                | Self::FrozenDisk,
                0,
            ) => dice.between(15_000, 60_000),
            (_, 0 | 1) => dice.between(100, 900),
            (_, 2) => dice.between(8_000, 16_000),
            _ => dice.between(1_000, 8_000),
        };
        Duration::from_millis(ms).min(longest)
    }
}

/// The state to undo a fault.
#[derive(Debug)]
enum Undo {
    Nothing,
    Cuts(Vec<Direction>),
    Exhausted(Exhausted),
    Frozen(Frozen),
    /// An old copy, to be used.
    Copy(PathBuf),
    Other(OwnProcess),
}

/// An active fault.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) process: Process,
    undo: Undo,
}

/// The tools for faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tools<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) signals: &'a Signals,
}

impl Fault {
    /// Harms a process, or prepares that. The returned remark adds details to the kind.
    pub(crate) fn begin(
        kind: FaultKind,
        process: Process,
        tools: Tools<'_>,
        dice: &mut Dice,
    ) -> Result<(Self, String), Stop> {
        let cluster = tools.cluster;
        let mut remark = String::new();
        let undo = match (kind, process) {
            (FaultKind::Kill | FaultKind::KillCoordinator, _) => {
                cluster.kill(process)?;
                Undo::Nothing
            }
            (FaultKind::Stop | FaultKind::StopCoordinator, _) => {
                cluster.signal(process, Signal::STOP)?;
                Undo::Nothing
            }
            (FaultKind::Partition | FaultKind::OneWay, Process::Node(node)) => {
                let (directions, from_whom) = cuts(kind, node, dice);
                remark = from_whom;
                directions.iter().try_for_each(Direction::cut)?;
                Undo::Cuts(directions)
            }
            (FaultKind::DeadDisk, Process::Node(node)) => {
                disk::die(cluster, node)?;
                Undo::Nothing
            }
            (FaultKind::FrozenDisk, Process::Node(node)) => {
                Undo::Frozen(disk::freeze(cluster, node)?)
            }
            (FaultKind::FullDisk, Process::Node(node)) => {
                disk::fill(cluster, node)?;
                Undo::Nothing
            }
            (FaultKind::Descriptors, Process::Node(node)) => {
                let exhausted = Exhausted::begin(cluster, node)?;
                remark = exhausted.remark();
                Undo::Exhausted(exhausted)
            }
            (FaultKind::Rollback | FaultKind::OldDatabase, _) => {
                "copied".clone_into(&mut remark);
                Undo::Copy(copies::take(cluster, process)?)
            }
            (FaultKind::WrongCluster, Process::Node(node)) => {
                remark = strays::join_another(cluster, node)?;
                Undo::Nothing
            }
            (FaultKind::Twin, Process::Node(node)) => Undo::Other(strays::twin(cluster, node)?),
            (_, Process::Coordinator) => unreachable!("{kind:?} is a fault of nodes"),
        };
        let fault = Self {
            kind,
            process,
            undo,
        };
        Ok((fault, remark))
    }

    /// Undoes it, or carries out its prepared part; the cluster heals afterwards.
    pub(crate) fn end(self, tools: Tools<'_>) -> Result<String, Stop> {
        let (cluster, process) = (tools.cluster, self.process);
        match (self.kind, self.undo) {
            (FaultKind::Stop | FaultKind::StopCoordinator, _) => {
                cluster.signal(process, Signal::CONT)?;
            }
            (_, Undo::Cuts(directions)) => directions.iter().try_for_each(Direction::mend)?,
            (_, Undo::Exhausted(exhausted)) => exhausted.end(cluster)?,
            (_, Undo::Frozen(frozen)) => drop(frozen),
            (FaultKind::OldDatabase, Undo::Copy(copy)) => {
                return copies::use_old_database(tools, &copy);
            }
            (_, Undo::Copy(copy)) => {
                cluster.kill(process)?;
                copies::put_back(cluster, process, &copy)?;
                cluster.note_rollback();
                let Process::Node(node) = process else {
                    unreachable!("the coordinator's copy is an old database");
                };
                let has_asked = cluster.start_and_accept(node)?;
                let remark = if has_asked {
                    "put back; it has asked the operator"
                } else {
                    "put back"
                };
                return Ok(remark.to_owned());
            }
            (_, Undo::Other(mut twin)) => {
                let runs = twin.runs()?;
                drop(twin);
                cluster.kill(process)?;
                copies::remove(&cluster.beside("twin"))?;
                cluster.start(process)?;
                let ran = if runs { "ran on" } else { "had ended" };
                return Ok(format!("the other process {ran}"));
            }
            (FaultKind::DeadDisk, _) => {
                let Process::Node(node) = process else {
                    unreachable!("only nodes have disks of their own");
                };
                let ran = if cluster.runs(process) {
                    "ran on"
                } else {
                    "had ended"
                };
                cluster.kill(process)?;
                disk::unmount(cluster, node)?;
                disk::mount(cluster, node)?;
                cluster.start(process)?;
                return Ok(format!("mounted again; the process {ran}"));
            }
            (FaultKind::FullDisk, _) => {
                let Process::Node(node) = process else {
                    unreachable!("only nodes have disks of their own");
                };
                disk::empty(cluster, node)?;
            }
            (_, Undo::Nothing) => {}
        }
        // A process may have ended by itself; its operator restarts it.
        if cluster.runs(process) {
            return Ok(String::new());
        }
        cluster.start(process)?;
        Ok("started".to_owned())
    }
}

/// The directions that a partition cuts, and their description.
fn cuts(kind: FaultKind, node: u32, dice: &mut Dice) -> (Vec<Direction>, String) {
    let own = Seat::Node(node);
    let mut all: Vec<Seat> = peers(node).collect();
    if kind == FaultKind::Partition {
        all.push(Seat::Client);
        let is_alone = dice.one_in(2);
        all.extend(is_alone.then_some(Seat::Coordinator));
        let but = if is_alone { "" } else { " but the coordinator" };
        return (Direction::both(node, all), format!("from all{but}"));
    }
    if dice.one_in(3) {
        all = vec![Seat::Coordinator];
    } else {
        all.retain(|_| dice.one_in(2));
    }
    let to = all.iter().map(|seat| seat.name()).collect::<Vec<_>>();
    let direction = |to| Direction { from: own, to };
    let remark = format!("to {}", to.join(", "));
    (all.into_iter().map(direction).collect(), remark)
}
