//! The faults of a simulated cluster, with their weights and counts. Their effects are in
//! [`crate::fault_injector`].

use crate::dice::Dice;
use std::collections::BTreeMap;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A process is killed.
    Kill,
    /// A machine loses power.
    PowerLoss,
    /// A power failure in the middle of a disk operation.
    PowerLossInWrite,
    /// All machines lose power at once.
    AllLosePower,
    /// A disk operation fails; the machine is restarted soon.
    DiskError,
    /// A disk operation fails; only the process is restarted soon, and its operating system's memory stays.
    ProcessRestart,
    /// A sync fails; only the process is restarted soon.
    SyncError,
    /// A disk operation fails, and the process runs on with the failed store for long.
    FailedStore,
    /// One read of a disk fails.
    ReadError,
    /// A page of a stored chunk cannot be read any more.
    LostPage,
    /// All operations of a disk fail, and the process runs on for long. Then the disk is replaced.
    DeadDisk,
    /// Reads, writes and syncs of a disk block until the hang is over, or until the process is killed.
    HungDisk,
    /// Opening a file fails for a while.
    NoDescriptors,
    /// A disk is full for a while.
    DiskFull,
    /// A bit of a stored chunk rots.
    BitRot,
    /// A machine loses its disk.
    DiskLoss,
    /// A machine's disk returns to an earlier state.
    Rollback,
    /// A node is started with another cluster's coordinator, and later with its own again.
    WrongCluster,
    /// A process is stopped for long, and then continues; its clock has counted.
    Pause,
    /// A process is stopped for long, and its clock with it.
    Suspend,
    /// A client is killed, and another starts on its machine.
    KillClient,
    /// The coordinator is killed.
    KillCoordinator,
    /// The coordinator is down for longer than any lease.
    CoordinatorAway,
    /// The coordinator runs with an old copy of its metadata for a while, and then with the newer one again.
    OldMetadata,
    /// Transactions of the metadata fail.
    MetaError,
    /// A transaction of the metadata is durable, but its commit reports a failure.
    UnknownCommit,
    /// The link between two machines is cut.
    Cut,
    /// A machine is cut off from all others.
    Isolate,
    /// Messages from a machine are lost, or messages to it are.
    OneWay,
    /// Connections break.
    FlakyConnections,
    /// All messages from and to a machine are late, so that its repairs take long.
    Slow,
}

/// The weight of each fault.
pub(crate) const FAULTS: [(Fault, u64); 31] = [
    (Fault::Kill, 3),
    (Fault::PowerLoss, 2),
    (Fault::PowerLossInWrite, 3),
    (Fault::AllLosePower, 1),
    (Fault::DiskError, 1),
    (Fault::ProcessRestart, 1),
    (Fault::SyncError, 1),
    (Fault::FailedStore, 1),
    (Fault::ReadError, 1),
    (Fault::LostPage, 1),
    (Fault::DeadDisk, 1),
    (Fault::HungDisk, 1),
    (Fault::NoDescriptors, 1),
    (Fault::DiskFull, 1),
    (Fault::BitRot, 2),
    (Fault::DiskLoss, 2),
    (Fault::Rollback, 2),
    (Fault::WrongCluster, 1),
    (Fault::Pause, 2),
    // Leases are counted by clocks that count suspension; a clock that stands still cannot detect their
    // end.
    (Fault::Suspend, 0),
    (Fault::KillClient, 2),
    (Fault::KillCoordinator, 2),
    (Fault::CoordinatorAway, 1),
    (Fault::OldMetadata, 1),
    (Fault::MetaError, 1),
    (Fault::UnknownCommit, 1),
    (Fault::Cut, 2),
    (Fault::Isolate, 2),
    (Fault::OneWay, 2),
    (Fault::FlakyConnections, 1),
    (Fault::Slow, 2),
];

impl Fault {
    /// A random fault by weight.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let sum = FAULTS.iter().map(|(_, weight)| weight).sum();
        let mut left = dice.below(sum);
        for (fault, weight) in FAULTS {
            if left < weight {
                return fault;
            }
            left -= weight;
        }
        unreachable!("the weights have this sum")
    }

    /// The faults with a weight above 0.
    pub fn all() -> impl Iterator<Item = Self> {
        let drawn = FAULTS.into_iter().filter(|&(_, weight)| weight > 0);
        drawn.map(|(fault, _)| fault)
    }
}

/// Count of each fault. A fault that was left out, because it would have harmed more than the pool promises
/// to survive, does not count.
pub type FaultCounts = BTreeMap<Fault, u64>;
