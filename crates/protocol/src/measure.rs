//! Measurements of a role's work, for its process's metrics and its log of slow operations.
//!
//! They are plain facts: no role reads them back, so a process without metrics does the same work.

use crate::message::Purpose;
use gabion_layout::NodeId;

/// A fact about work that is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure<'a> {
    /// A node or the coordinator has answered a request.
    Answered(Answered),
    /// A primary has committed an update.
    Updated(Updated<'a>),
    /// The coordinator has ended a transaction of its metadata, which includes the wait for a thread and for other
    /// transactions.
    Transaction {
        /// Its time in microseconds.
        took_us: u64,
    },
    /// A node has applied settled records to their chunks, or merged a reserve into its chunk.
    Merged {
        /// The kind of work.
        what: Merging,
        /// Its time in microseconds.
        took_us: u64,
    },
    /// The coordinator has repaired a stripe, or has failed to.
    Repaired {
        /// The name of the repair scheme.
        scheme: &'static str,
        /// Whether it has succeeded.
        is_done: bool,
        /// Its time in microseconds.
        took_us: u64,
    },
}

/// An answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The name of the request.
    pub request: &'static str,
    /// The purpose of a part of a plan; none for other requests.
    pub purpose: Option<Purpose>,
    /// The name of the refusal or of its cause, if it was refused.
    pub refusal: Option<&'static str>,
    /// Time from its arrival to its answer, in microseconds.
    pub took_us: u64,
}

/// A committed update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Updated<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The name of the pool's update scheme.
    pub scheme: &'static str,
    /// Bytes that it has changed.
    pub bytes: u64,
    /// The parts of its time.
    pub times: UpdateTimes,
    /// The node that was the last to do its part.
    pub last: Option<NodeId>,
}

/// The time of an update at its primary, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UpdateTimes {
    /// The wait for earlier updates of the stripe.
    pub turn_us: u64,
    /// Ending append phases that hold it up, getting and settling a term, and planning.
    pub term_us: u64,
    /// The parts of its nodes.
    pub parts_us: u64,
}

impl UpdateTimes {
    /// Time from its arrival to its commit.
    pub const fn all_us(&self) -> u64 {
        self.turn_us + self.term_us + self.parts_us
    }
}

/// The work that brings records into chunks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Merging {
    /// Settled records of the journal, applied in the background.
    Apply,
    /// A reserve, merged into its chunk.
    Reserve,
}

impl Merging {
    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Reserve => "reserve",
        }
    }
}
