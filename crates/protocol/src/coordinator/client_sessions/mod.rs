//! Clients' sessions, as far as memory is enough: when each was heard, which of its requests count no more, and which
//! files it has open.
//!
//! A session is a row, so a new coordinator knows which sessions there are. It does not know their open files: until
//! each of them has reported its own or has ended, any file may be open, and no orphan is freed. This is the *report
//! period*.

mod known;
mod open_table;

use super::rejection::Rejection;
use crate::locks::lock;
use crate::message::{Cause, Denial, OpenedFile, Opener, ReportPart, SessionState};
use crate::wake_up::WakeUp;
use gabion_meta::{ClientSessionId, OpenFiles, PutId};
use known::Known;
pub(super) use known::Standing;
use open_table::OpenTable;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Most sessions: each is in memory.
const SESSIONS_MAX: usize = 100_000;
/// Most open files of a session.
pub(super) const SESSION_FILES_MAX: usize = 1 << 16;
/// Most open files of all sessions.
pub(super) const FILES_MAX: usize = 1 << 20;
/// A report to another run may have this many times as many: requests may have opened files since the reports of other
/// sessions, and a report has files that its client is only about to open.
const REPORTED_FACTOR: usize = 2;

/// The sessions by their numbers, and their open files.
#[derive(Debug)]
pub(super) struct ClientSessions {
    state: Mutex<State>,
    /// Sent when no client has some orphan open any more.
    idle: WakeUp,
}

#[derive(Debug)]
struct State {
    sessions: BTreeMap<ClientSessionId, Known>,
    /// Sessions whose open files are not all known.
    unreported_count: usize,
    table: OpenTable,
}

/// The outcome of an attempt to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// The file counts as open until it has been looked up.
    Open,
    /// The session has ended.
    Over,
}

/// The result of a look-up for a request to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// A file with a name.
    Named,
    /// A file that has lost its last name.
    Orphan,
    /// None, or it could not look.
    Nothing,
}

/// The answer to a request to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grant {
    /// The client has the file open.
    Granted,
    /// It has not.
    Denied,
    /// The session has ended.
    Over,
}

impl ClientSessions {
    /// Those of an earlier run: each gets the full time. The orphans stay until all of them have reported their files.
    pub(super) fn new(sessions: Vec<ClientSessionId>, orphans: Vec<PutId>, now_ms: u64) -> Self {
        let known = sessions
            .into_iter()
            .map(|session| (session, Known::new(now_ms, Some(now_ms))));
        let sessions: BTreeMap<_, _> = known.collect();
        let mut state = State {
            unreported_count: sessions.len(),
            sessions,
            table: OpenTable::new(orphans),
        };
        let idle = WakeUp::default();
        state.end_report_period(&idle);
        Self {
            state: Mutex::new(state),
            idle,
        }
    }

    /// Whether another session fits.
    pub(super) fn has_room(&self) -> bool {
        lock(&self.state).sessions.len() < SESSIONS_MAX
    }

    /// A session has begun.
    pub(super) fn begin(&self, session: ClientSessionId, now_ms: u64) {
        let known = Known::new(now_ms, None);
        lock(&self.state).sessions.insert(session, known);
    }

    /// The client of a session is alive.
    pub(super) fn renew(&self, session: ClientSessionId, now_ms: u64) -> SessionState {
        match lock(&self.state).sessions.get_mut(&session) {
            Some(known) if !known.is_ending => known.renew(now_ms),
            _ => SessionState::Over,
        }
    }

    /// Notes which requests a session's client waits for no longer.
    pub(super) fn note(&self, session: ClientSessionId, oldest: u64, voids: Option<u64>) {
        if let Some(known) = lock(&self.state).sessions.get_mut(&session) {
            known.note(oldest, voids);
        }
    }

    /// Whether a request may take effect.
    pub(super) fn standing(&self, session: ClientSessionId, number: u64) -> Standing {
        let state = lock(&self.state);
        let known = state.sessions.get(&session);
        known.map_or(Standing::Over, |known| known.standing(number))
    }

    /// The sessions that were not renewed in time, or are ending already. They are ending from now on, and have no file
    /// open.
    pub(super) fn end_silent(&self, now_ms: u64) -> Vec<ClientSessionId> {
        let mut state = lock(&self.state);
        let is_ending = |known: &Known| known.is_ending || known.is_late(now_ms);
        let known = state.sessions.iter();
        let ending = known.filter(|(_, known)| is_ending(known));
        let ending: Vec<_> = ending.map(|(&session, _)| session).collect();
        for &session in &ending {
            state.end(session, &self.idle);
        }
        ending
    }

    /// A session gets no more locks, and has no file open any more.
    pub(super) fn end(&self, session: ClientSessionId) {
        lock(&self.state).end(session, &self.idle);
    }

    /// The locks of a session are free.
    pub(super) fn forget(&self, session: ClientSessionId) {
        let mut state = lock(&self.state);
        state.end(session, &self.idle);
        state.sessions.remove(&session);
    }

    /// Sessions could not be heard for this time.
    pub(super) fn give_time(&self, extra_ms: u64) {
        for known in lock(&self.state).sessions.values_mut() {
            known.give_time(extra_ms);
        }
    }

    /// No client could report its files for this time.
    pub(super) fn excuse_reports(&self, extra_ms: u64) {
        for known in lock(&self.state).sessions.values_mut() {
            known.excuse_report(extra_ms);
        }
    }

    /// A session's client opens a file. The caller then looks the file up, and calls [`ClientSessions::settle_open`].
    ///
    /// # Errors
    /// At a limit; if the client does not wait for this request any more; for a short time also while a transaction
    /// may end the file.
    pub(super) fn open(&self, opener: Opener, file: PutId) -> Result<Claim, Rejection> {
        let mut state = lock(&self.state);
        let State {
            sessions, table, ..
        } = &mut *state;
        let Some(known) = sessions.get_mut(&opener.session) else {
            return Ok(Claim::Over);
        };
        known.note(opener.oldest, None);
        match known.standing(opener.number) {
            Standing::Counts => {}
            Standing::Over => return Ok(Claim::Over),
            Standing::Abandoned => return Err(abandoned()),
        }
        if table.is_ending(file) {
            return Err(ending());
        }
        let is_new = !known.open.contains_key(&file);
        check_room((opener.session, &*known), table, (usize::from(is_new), 1))?;
        let entry = table.open((opener.session, known), file, opener.number);
        entry.begin_look(opener.number);
        Ok(Claim::Open)
    }

    /// A request that opens a file has looked it up. Only clients that have an orphan open may open it again: those
    /// that have not reported their files may have. A copy that finds less than another one closes nothing.
    ///
    /// # Errors
    /// If the client does not wait for this request any more.
    pub(super) fn settle_open(
        &self,
        opener: Opener,
        file: PutId,
        found: Found,
    ) -> Result<Grant, Rejection> {
        let mut state = lock(&self.state);
        let Some(known) = state.sessions.get_mut(&opener.session) else {
            return Ok(Grant::Over);
        };
        if known.is_ending {
            return Ok(Grant::Over);
        }
        let may_be_open = known.unreported_since_ms.is_some();
        let Some(entry) = known.open.get_mut(&file) else {
            return Err(abandoned());
        };
        if !entry.end_look(opener.number) {
            return Err(abandoned());
        }
        entry.is_granted |= match found {
            Found::Named => true,
            Found::Orphan => may_be_open,
            Found::Nothing => false,
        };
        if entry.is_granted && found != Found::Nothing {
            return Ok(Grant::Granted);
        }
        if entry.is_vain() {
            known.open.remove(&file);
            // A late copy must not open it: the client has its answer.
            known.note(0, Some(opener.number));
            state.close_open(opener.session, file, &self.idle);
        }
        Ok(Grant::Denied)
    }

    /// A session's client tells which files it has open and has closed. It is alive.
    ///
    /// # Errors
    /// Those of [`ClientSessions::open`].
    pub(super) fn report(
        &self,
        (opener, now_ms): (Opener, u64),
        (open, part): (&[OpenedFile], Option<ReportPart>),
        (closed, abandoned_numbers): (&[OpenedFile], &[u64]),
    ) -> Result<SessionState, Rejection> {
        let session = opener.session;
        let mut state = lock(&self.state);
        let State {
            sessions, table, ..
        } = &mut *state;
        let Some(known) = sessions.get_mut(&session) else {
            return Ok(SessionState::Over);
        };
        known.note(opener.oldest, abandoned_numbers.iter().copied());
        match known.standing(opener.number) {
            Standing::Counts => {}
            Standing::Over => return Ok(SessionState::Over),
            Standing::Abandoned => return Err(abandoned()),
        }
        known.note_heard(now_ms);
        if open.iter().any(|opened| table.is_ending(opened.file)) {
            return Err(ending());
        }
        let is_new = |opened: &&OpenedFile| !known.open.contains_key(&opened.file);
        let new_count = open.iter().filter(is_new).count();
        let factor = match known.unreported_since_ms {
            Some(_) => REPORTED_FACTOR,
            None => 1,
        };
        check_room((session, &*known), table, (new_count, factor))?;
        for &OpenedFile { file, number } in open {
            table.open((session, known), file, number).is_granted = true;
        }
        let is_whole = part.is_some_and(|part| known.follows(part));
        // A late copy must not open files that are closed by then.
        known.note(0, Some(opener.number));
        for &closed in closed {
            state.close(session, closed, &self.idle);
        }
        state.close_numbers(session, abandoned_numbers, &self.idle);
        if is_whole {
            state.note_reported(session, &self.idle);
        }
        let known = state.sessions.get(&session);
        Ok(known.map_or(SessionState::Over, Known::state))
    }

    /// A put begins with this number, which its client has drawn. The file that it makes is open at once.
    ///
    /// # Errors
    /// At a limit.
    pub(super) fn begin_making(&self, number: u64, opener: Opener) -> Result<(), Rejection> {
        let mut state = lock(&self.state);
        let State {
            sessions, table, ..
        } = &mut *state;
        if let Some(known) = sessions.get_mut(&opener.session) {
            known.note(opener.oldest, None);
            let room = check_room((opener.session, &*known), table, (1, 1));
            // The file of an earlier copy of this request counts already.
            let mut entries = known.open.values();
            if room.is_err() && !entries.any(|entry| entry.number == opener.number) {
                return room;
            }
        }
        table.begin_making(number, opener);
        Ok(())
    }

    /// A put with this number has ended, and has stored this file if any. Returns whether its client has the file open.
    pub(super) fn end_making(&self, number: u64, stored: Option<PutId>) -> bool {
        let mut state = lock(&self.state);
        let Some(opener) = state.table.maker(number) else {
            return false;
        };
        for closed in state.table.end_making(number, stored) {
            state.close(opener.session, closed, &self.idle);
        }
        let known = state.sessions.get(&opener.session);
        stored.is_some_and(|file| known.is_some_and(|known| known.open.contains_key(&file)))
    }

    /// Waits until there may be orphans that no client has open.
    pub(super) async fn orphans_are_idle(&self) {
        self.idle.woken().await;
    }

    /// Takes some of the orphans that no client has open, to free them.
    pub(super) fn take_idle(&self, limit: usize) -> Vec<PutId> {
        let mut state = lock(&self.state);
        if state.unreported_count > 0 {
            return Vec::new();
        }
        state.table.take_idle(limit)
    }

    /// Gives orphans back that were taken and could not be freed.
    pub(super) fn give_back(&self, taken: Vec<PutId>) {
        let mut state = lock(&self.state);
        for file in taken {
            state.table.give_back(file);
        }
    }

    /// The number of open files, counted for each session.
    pub(super) fn open_count(&self) -> usize {
        lock(&self.state).table.open_count()
    }
}

impl State {
    /// A session ends.
    fn end(&mut self, session: ClientSessionId, idle: &WakeUp) {
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        known.is_ending = true;
        for file in std::mem::take(&mut known.open).into_keys() {
            self.close_open(session, file, idle);
        }
        self.note_reported(session, idle);
    }

    /// Closes a file of a session, unless a later request has opened it. Copies of earlier ones do not open it.
    fn close(&mut self, session: ClientSessionId, closed: OpenedFile, idle: &WakeUp) {
        let OpenedFile { file, number } = closed;
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        known.note(0, Some(number));
        let opened = known.open.get(&file);
        if opened.is_some_and(|opened| opened.number <= number) {
            known.open.remove(&file);
            self.close_open(session, file, idle);
        }
    }

    /// Closes the files that requests have opened whose client does not know them.
    fn close_numbers(&mut self, session: ClientSessionId, numbers: &[u64], idle: &WakeUp) {
        let Some(known) = self.sessions.get(&session).filter(|_| !numbers.is_empty()) else {
            return;
        };
        let numbers: BTreeSet<u64> = numbers.iter().copied().collect();
        let opened = known.open.iter().map(|(&file, opened)| OpenedFile {
            file,
            number: opened.number,
        });
        let opened: Vec<OpenedFile> = opened
            .filter(|opened| numbers.contains(&opened.number))
            .collect();
        for closed in opened {
            self.close(session, closed, idle);
        }
    }

    /// All open files of a session are known.
    fn note_reported(&mut self, session: ClientSessionId, idle: &WakeUp) {
        let known = self.sessions.get_mut(&session);
        if known.is_some_and(|known| known.unreported_since_ms.take().is_some()) {
            self.unreported_count -= 1;
            self.end_report_period(idle);
        }
    }

    /// Lets orphans that no client has open be freed, if all open files are known.
    fn end_report_period(&mut self, idle: &WakeUp) {
        if self.unreported_count == 0 && self.table.note_all_idle() {
            idle.wake();
        }
    }

    /// A session that had a file open has it open no more.
    fn close_open(&mut self, session: ClientSessionId, file: PutId, idle: &WakeUp) {
        if self.table.close(session, file) && self.unreported_count == 0 {
            idle.wake();
        }
    }
}

/// Whether a session may have some more files open, at some times the usual limits.
fn check_room(
    (session, known): (ClientSessionId, &Known),
    table: &OpenTable,
    (more, factor): (usize, usize),
) -> Result<(), Rejection> {
    if more == 0 {
        return Ok(());
    }
    let (own, all) = table.making_counts(session);
    for (who, count, limit) in [
        ("this client has", known.open.len() + own, SESSION_FILES_MAX),
        ("all clients have", table.open_count() + all, FILES_MAX),
    ] {
        if count + more > factor * limit {
            let sentence = format!("{who} {limit} files open, which is the limit; close some");
            return Err(Denial::new(Cause::TooManyOpen, sentence).into());
        }
    }
    Ok(())
}

fn abandoned() -> Rejection {
    let sentence = "a later request has taken the place of this one";
    Denial::new(Cause::Stale, sentence).into()
}

fn ending() -> Rejection {
    Rejection::busy("the file is being removed; try again")
}

impl OpenFiles for ClientSessions {
    fn keeps(&self, file: PutId) -> bool {
        let state = &mut *lock(&self.state);
        state.table.keep(file, state.unreported_count > 0)
    }

    fn made(&self, number: u64, file: PutId) {
        let State {
            sessions, table, ..
        } = &mut *lock(&self.state);
        let session = table.maker(number).map(|opener| opener.session);
        if let Some(known) = session.and_then(|session| sessions.get_mut(&session)) {
            table.make(number, file, known);
        }
    }

    fn settled(&self, files: Vec<PutId>) {
        let mut state = lock(&self.state);
        for file in files {
            state.table.settle(file);
        }
    }
}

#[cfg(test)]
mod tests;
