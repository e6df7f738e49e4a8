//! A client's session: when it was heard, which of its requests count no more, and which files it has open.

use crate::message::{CLIENT_SESSION_MS, ReportPart, SessionState};
use gabion_meta::PutId;
use std::collections::{BTreeMap, BTreeSet};

/// Most abandoned requests of a session that are remembered one by one.
const VOIDED_MAX: usize = 4_096;
/// A session of an earlier run that has not reported its open files within this time ends, even if it is renewed.
const REPORT_LIMIT_MS: u64 = 3 * CLIENT_SESSION_MS;

/// A file that a session has open.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// The number of the last request that has opened it.
    pub(super) number: u64,
    /// Whether the client has it open, or may have: a request to open it was granted, or the client has told it.
    pub(super) is_granted: bool,
    /// The requests to open it that look the file up.
    looking: Vec<u64>,
}

impl Opened {
    /// A request to open it looks the file up.
    pub(super) fn begin_look(&mut self, number: u64) {
        self.looking.push(number);
    }

    /// A request has looked the file up. Returns whether it did so since the file was opened.
    pub(super) fn end_look(&mut self, number: u64) -> bool {
        let at = self.looking.iter().position(|&looking| looking == number);
        at.map(|at| self.looking.swap_remove(at)).is_some()
    }

    /// Whether no request was granted and none can be.
    pub(super) const fn is_vain(&self) -> bool {
        !self.is_granted && self.looking.is_empty()
    }
}

/// A session of a client.
#[derive(Debug)]
pub(super) struct Known {
    heard_ms: u64,
    /// Its locks are being freed: it gets no more, opens nothing, and cannot be renewed.
    pub(super) is_ending: bool,
    /// Its client waits for no answer to a request below this number.
    oldest: u64,
    /// Requests above `oldest` whose answer its client does not wait for.
    voided: BTreeSet<u64>,
    /// Its open files.
    pub(super) open: BTreeMap<PutId, Opened>,
    /// Since when this run waits for the report of its open files; none once it has come.
    pub(super) unreported_since_ms: Option<u64>,
    /// Whether this run has answered a renewal, so that its client knows that it is to report.
    is_renewed: bool,
    /// The report of open files that has begun, with the number of its parts.
    report: Option<(u64, u64)>,
}

/// Whether a request may take effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::coordinator) enum Standing {
    /// It may.
    Counts,
    /// Its client does not wait for it any more.
    Abandoned,
    /// Its session has ended.
    Over,
}

impl Known {
    /// A session that was heard just now. Its open files are not known if this run waits for them.
    pub(super) const fn new(heard_ms: u64, unreported_since_ms: Option<u64>) -> Self {
        Self {
            heard_ms,
            is_ending: false,
            oldest: 0,
            voided: BTreeSet::new(),
            open: BTreeMap::new(),
            unreported_since_ms,
            is_renewed: false,
            report: None,
        }
    }

    /// Notes a part of the report of all open files. Returns whether the report is whole. This run of the coordinator
    /// has to see all parts.
    pub(super) fn follows(&mut self, part: ReportPart) -> bool {
        let before = (part.index > 0).then_some((part.report, part.index));
        if part.index > 0 && self.report != before {
            return false;
        }
        self.report = Some((part.report, part.index.saturating_add(1)));
        part.is_last
    }

    /// Its client is alive.
    pub(super) fn note_heard(&mut self, now_ms: u64) {
        self.heard_ms = self.heard_ms.max(now_ms);
    }

    /// Its client could not be heard for some time.
    pub(super) fn give_time(&mut self, extra_ms: u64) {
        self.heard_ms = self.heard_ms.saturating_add(extra_ms);
        self.excuse_report(extra_ms);
    }

    /// Its client could not report its files for some time.
    pub(super) fn excuse_report(&mut self, extra_ms: u64) {
        let since_ms = &mut self.unreported_since_ms;
        *since_ms = since_ms.map(|since_ms| since_ms.saturating_add(extra_ms));
    }

    /// Its client is alive, and is told the state.
    pub(super) fn renew(&mut self, now_ms: u64) -> SessionState {
        self.note_heard(now_ms);
        if !std::mem::replace(&mut self.is_renewed, true) {
            self.unreported_since_ms = self.unreported_since_ms.map(|_| now_ms);
        }
        self.state()
    }

    /// Notes which requests its client waits for no longer.
    pub(super) fn note(&mut self, oldest: u64, voids: impl IntoIterator<Item = u64>) {
        self.oldest = self.oldest.max(oldest);
        self.voided = self.voided.split_off(&self.oldest);
        let oldest = self.oldest;
        self.voided
            .extend(voids.into_iter().filter(|&voided| voided >= oldest));
        while self.voided.len() > VOIDED_MAX {
            // A lower number is refused, and asked again under a higher one.
            if let Some(lowest) = self.voided.pop_first() {
                self.oldest = self.oldest.max(lowest + 1);
            }
        }
    }

    /// Whether a request may take effect.
    pub(super) fn standing(&self, number: u64) -> Standing {
        if self.is_ending {
            Standing::Over
        } else if number < self.oldest || self.voided.contains(&number) {
            Standing::Abandoned
        } else {
            Standing::Counts
        }
    }

    /// The state that the client gets in its reply.
    pub(super) const fn state(&self) -> SessionState {
        match (self.is_ending, self.unreported_since_ms) {
            (true, _) => SessionState::Over,
            (false, Some(_)) => SessionState::Unreported,
            (false, None) => SessionState::GoesOn,
        }
    }

    /// Whether its client is silent, or has not reported its files in time.
    pub(super) fn is_late(&self, now_ms: u64) -> bool {
        let is_over = |since_ms: u64, limit_ms| since_ms.saturating_add(limit_ms) <= now_ms;
        let has_not_reported = |since_ms| is_over(since_ms, REPORT_LIMIT_MS);
        is_over(self.heard_ms, CLIENT_SESSION_MS)
            || self.unreported_since_ms.is_some_and(has_not_reported)
    }
}
