//! A client's session: the files that it has open in it, and what becomes of them.

use gabion_meta::{ClientSessionId, PutId};
use serde::{Deserialize, Serialize};

/// A request that opens a file, as one of its client's session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opener {
    /// The session.
    pub session: ClientSessionId,
    /// The request's number in the session.
    pub number: u64,
    /// The lowest number whose answer the client waits for. Requests with lower ones have no effect from now on.
    pub oldest: u64,
}

/// A file that a client has opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OpenedFile {
    /// The put that brought it.
    pub file: PutId,
    /// The number of the last request that has opened it, or was to open it.
    pub number: u64,
}

/// The place of a request in a client's report of all files that it has open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReportPart {
    /// The number of the report's first request in the session.
    pub report: u64,
    /// The number of its parts before this one.
    pub index: u64,
    /// Whether it is the last one.
    pub is_last: bool,
}

/// The state of a client's session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SessionState {
    /// It goes on.
    GoesOn,
    /// It goes on, and the client is to report all files that it has open: this coordinator does not know them.
    Unreported,
    /// It has ended.
    Over,
}
