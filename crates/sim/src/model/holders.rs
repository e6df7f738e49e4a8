//! The holders of advisory locks and of exclusive sessions, as the model knows them.

use super::answer::FileNumber;
use gabion_meta::{LockKind, LockOwner};

/// A client of the run. The first two live as long as the run. Each later one takes the place of the one before it,
/// which was killed or has lost its lease.
pub(crate) type ClientNumber = u64;

/// The clients that live as long as the run.
pub(crate) const LASTING: [ClientNumber; 2] = [0, 1];
/// The first of those that do not.
pub(crate) const FIRST_MORTAL: ClientNumber = 2;

/// A handle of a file that was opened exclusively. No number is used twice.
pub(crate) type HandleNumber = u64;

/// A holder of advisory locks: an owner of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Holder {
    pub(crate) client: ClientNumber,
    pub(crate) kind: LockKind,
    pub(crate) number: u64,
}

impl Holder {
    /// It as an owner of its client's session.
    pub(crate) const fn owner(self) -> LockOwner {
        LockOwner {
            kind: self.kind,
            number: self.number,
        }
    }
}

/// A handle of a file that was opened exclusively. Its session may have ended since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    pub(crate) file: FileNumber,
    pub(crate) client: ClientNumber,
}

/// The session that a file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sole {
    pub(crate) handle: HandleNumber,
    /// Set once its client has left without ending it, or was cut off.
    pub(crate) left: Option<Left>,
}

/// The departure of a client whose locks or session become free by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_field_names, reason = "each is a time in microseconds")]
pub(crate) struct Left {
    pub(crate) at_us: u64,
    /// Before this time they are not free.
    pub(crate) earliest_us: u64,
    /// Set for a client that was cut off and lives: from this time on it has renewed what it still has.
    pub(crate) returns_us: Option<u64>,
}

impl Left {
    /// The end of a lease of this time, in which two renewals may be missing: one for its period, and one that was
    /// lost with a coordinator.
    pub(crate) const fn killed(now_us: u64) -> Self {
        Self {
            at_us: now_us,
            earliest_us: now_us + LEASE_US - 2 * RENEW_US - DRIFT_US,
            returns_us: None,
        }
    }

    /// The client is cut off for a time. Its session may be displaced until it renews it, and stays if it is not.
    pub(crate) const fn cut_off(now_us: u64, ms: u64) -> Self {
        Self {
            returns_us: Some(now_us + (ms + RETURN_MS) * 1_000),
            ..Self::killed(now_us)
        }
    }

    /// The same after an earlier departure, from which the session may be free already.
    pub(crate) const fn after(self, earlier: Option<Self>) -> Self {
        match earlier {
            Some(earlier) if earlier.earliest_us < self.earliest_us => Self {
                earliest_us: earlier.earliest_us,
                ..self
            },
            _ => self,
        }
    }

    /// The client tells the coordinator, if that answers.
    pub(crate) const fn told(now_us: u64) -> Self {
        Self {
            at_us: now_us,
            earliest_us: now_us,
            returns_us: None,
        }
    }

    /// The time from which on all is free, if it becomes free by itself. The cluster has been whole since `whole_us`: a
    /// coordinator that starts gives each client the full time, and a node that is down delays the end of writes.
    pub(crate) const fn latest_us(&self, whole_us: u64) -> u64 {
        if self.returns_us.is_some() {
            return u64::MAX;
        }
        let from_us = if self.at_us > whole_us {
            self.at_us
        } else {
            whole_us
        };
        from_us + LEASE_US + DRIFT_US + FENCE_US
    }
}

/// The time for which a session lasts without a renewal.
const LEASE_US: u64 = 10_000_000;
/// The period of renewals.
const RENEW_US: u64 = 2_000_000;
/// Clocks run 4 % fast or slow.
const DRIFT_US: u64 = 500_000;
/// The longest time in which a whole cluster finds out that a session is over, and ends its writes.
const FENCE_US: u64 = 3_000_000;

/// The locks of a client that is gone: none of them is free yet, or all are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dead {
    pub(crate) client: ClientNumber,
    pub(crate) left: Left,
}

/// The longest time in which a client that was cut off renews its sessions: a request that waits, and a pause.
pub(crate) const RETURN_MS: u64 = 6_000;
/// The time for which a client is cut off, after which its session is over for certain.
pub(crate) const LOST_AFTER_MS: u64 = 12_000;
/// The time for which a client is cut off, up to which it keeps its session for certain.
pub(crate) const KEPT_UNTIL_MS: u64 = 4_000;
