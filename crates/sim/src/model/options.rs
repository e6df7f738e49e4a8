//! The options and the counts of runs.

use super::operation::Kind;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Operations of one seed. More operations are more seeds, so that files and metadata stay small.
pub const OPERATIONS_PER_SEED: u64 = 1_000;

/// A deliberate fault of the model, which a run must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// An append begins one byte before the end.
    AppendOverwritesTheLastByte,
    /// A hole leaves its last byte.
    PunchLeavesTheLastByte,
    /// What is renamed keeps its old name too.
    RenameKeepsTheOldName,
    /// A put or a rename takes any name of a file.
    NamesAreNeverTaken,
    /// No quota refuses anything.
    QuotasAreIgnored,
    /// Locks of different holders never conflict.
    LocksNeverConflict,
    /// All clients may write a file that one has opened exclusively.
    SessionsExcludeNoClient,
    /// Snapshots of directories accept new names.
    SnapshotsAcceptNames,
}

impl Wrong {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AppendOverwritesTheLastByte,
        Self::PunchLeavesTheLastByte,
        Self::RenameKeepsTheOldName,
        Self::NamesAreNeverTaken,
        Self::QuotasAreIgnored,
        Self::LocksNeverConflict,
        Self::SessionsExcludeNoClient,
        Self::SnapshotsAcceptNames,
    ];
}

/// A run, apart from its seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelOptions {
    /// The number of operations.
    pub operation_count: u64,
    /// The fault of the model.
    pub wrong: Option<Wrong>,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            operation_count: OPERATIONS_PER_SEED,
            wrong: None,
        }
    }
}

/// What runs have done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModelCounts {
    /// Operations by kind, the refused ones included.
    pub operations: BTreeMap<Kind, u64>,
    /// Refused operations by the names of their causes.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Accesses through a handle that may know an earlier layout.
    pub old_handle_count: u64,
    /// Restarts of the coordinator.
    pub coordinator_restart_count: u64,
    /// Kills of nodes, which have come back.
    pub node_kill_count: u64,
    /// Operations without an outcome.
    pub doubt_count: u64,
    /// Comparisons of everything.
    pub comparison_count: u64,
    /// Outcomes that a run of enough operations must have reached, by what has happened.
    pub reached: BTreeMap<Reached, u64>,
}

/// An outcome that shows a rule of locks, sessions, quotas or snapshots at work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reached {
    /// A lock of another holder was in the way.
    LockConflict,
    /// A client that was cut off has kept its locks.
    LocksKept,
    /// A client that was cut off has lost its locks.
    LocksLost,
    /// The locks of a client that was gone were free.
    LocksFreed,
    /// A write through a handle was refused because its session was over.
    SupersededWrite,
    /// The session of a client that was gone was free.
    SessionFreed,
    /// The quota of a directory has refused something.
    DirectoryQuota,
    /// The limit of a pool's files has refused something.
    PoolFiles,
    /// The limit of a pool's bytes has refused something.
    PoolBytes,
    /// A file of a pool that was at its limit of bytes was made smaller or removed.
    RoomGivenBack,
    /// A name was removed from a snapshot of a directory.
    SnapshotRemoval,
    /// A file of a clone of a directory was changed.
    CloneWrite,
}

impl Reached {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::LockConflict,
        Self::LocksKept,
        Self::LocksLost,
        Self::LocksFreed,
        Self::SupersededWrite,
        Self::SessionFreed,
        Self::DirectoryQuota,
        Self::PoolFiles,
        Self::PoolBytes,
        Self::RoomGivenBack,
        Self::SnapshotRemoval,
        Self::CloneWrite,
    ];
}

/// The number of operations that must include each kind, and reach each outcome.
pub const COVERING_COUNT: u64 = 10_000;

impl ModelCounts {
    /// The kinds and outcomes that never occurred.
    pub fn missing(&self) -> Vec<String> {
        let kinds = Kind::ALL.iter();
        let kinds = kinds.filter(|kind| !self.operations.contains_key(kind));
        let reached = Reached::ALL.iter();
        let reached = reached.filter(|reached| !self.reached.contains_key(reached));
        let kinds = kinds.map(|kind| format!("{kind:?}"));
        kinds
            .chain(reached.map(|reached| format!("{reached:?}")))
            .collect()
    }

    /// The number of operations.
    pub fn operation_count(&self) -> u64 {
        self.operations.values().sum()
    }

    /// The number of refused operations.
    pub fn refusal_count(&self) -> u64 {
        self.refusals.values().sum()
    }
}

impl AddAssign for ModelCounts {
    fn add_assign(&mut self, other: Self) {
        for (kind, count) in other.operations {
            *self.operations.entry(kind).or_default() += count;
        }
        for (cause, count) in other.refusals {
            *self.refusals.entry(cause).or_default() += count;
        }
        for (reached, count) in other.reached {
            *self.reached.entry(reached).or_default() += count;
        }
        self.old_handle_count += other.old_handle_count;
        self.coordinator_restart_count += other.coordinator_restart_count;
        self.node_kill_count += other.node_kill_count;
        self.doubt_count += other.doubt_count;
        self.comparison_count += other.comparison_count;
    }
}
