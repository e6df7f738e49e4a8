//! What may go wrong in a simulated cluster, how often it should, and how often it did. What each fault does is in
//! [`crate::fault_injector`].

use crate::dice::Dice;
use std::collections::BTreeMap;

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A process is killed.
    Kill,
    /// A machine loses power.
    PowerLoss,
    /// Power goes in the middle of a disk operation.
    PowerLossInWrite,
    /// All machines lose power at once.
    AllLosePower,
    /// A disk operation fails; the machine is restarted soon.
    DiskError,
    /// A disk operation fails; the process alone is restarted soon, and what its system has in memory stays.
    ProcessRestart,
    /// A sync fails; the process alone is restarted soon.
    SyncError,
    /// A disk operation fails, and the process goes on with the failed store for long.
    FailedStore,
    /// One read of a disk fails.
    ReadError,
    /// A page of a stored chunk cannot be read any more.
    LostPage,
    /// A disk answers nothing but errors; the process goes on for long. Then the disk is replaced.
    DeadDisk,
    /// Reads, writes and syncs of a disk take until the hang is over, or until the process is killed.
    HungDisk,
    /// No more files can be opened for a while.
    NoDescriptors,
    /// A disk is full for a while.
    DiskFull,
    /// A bit of a stored chunk rots.
    BitRot,
    /// A machine loses its disk.
    DiskLoss,
    /// A machine's disk is what it was at an earlier instant.
    Rollback,
    /// A process is stopped for long, and then goes on; its clock has counted.
    Pause,
    /// A process is stopped for long, and its clock with it.
    Suspend,
    /// A client is killed, and another begins on its machine.
    KillClient,
    /// The coordinator is killed.
    KillCoordinator,
    /// The coordinator is away for longer than any lease.
    CoordinatorAway,
    /// The coordinator runs with an old copy of its metadata for a while, and then with the newer one again.
    OldMetadata,
    /// Transactions of the metadata fail.
    MetaError,
    /// A transaction of the metadata is durable, and its commit says that it failed.
    UnknownCommit,
    /// The link between two machines is cut.
    Cut,
    /// A machine is cut off from all others.
    Isolate,
    /// What a machine sends does not arrive, or nothing arrives there.
    OneWay,
    /// Connections break.
    FlakyConnections,
    /// All that a machine sends and gets is late: repairs that it takes part in last.
    Slow,
}

/// As often as each should happen.
pub(crate) const FAULTS: [(Fault, u64); 30] = [
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
    (Fault::Pause, 2),
    // Leases are counted by clocks that count suspension; one that stands still cannot know that it is over.
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
    /// One of those that happen, each as often as it should.
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

    /// Those that happen at all.
    pub fn all() -> impl Iterator<Item = Self> {
        let drawn = FAULTS.into_iter().filter(|&(_, weight)| weight > 0);
        drawn.map(|(fault, _)| fault)
    }
}

/// How often each fault has happened: one that had to be left out, since it would have harmed more than the pool
/// promises to survive, does not count.
pub type FaultCounts = BTreeMap<Fault, u64>;
