//! Keeps a client's session: renews it, tells the coordinator which files were closed, and reports all open files to a
//! coordinator that does not know them. If the session has ended, another one takes over the open files.

use super::open_table::Owed;
use super::session::{Awaited, ClientSession};
use super::slot::Sessions;
use futures::{FutureExt, select_biased};
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::message::{
    CoordinatorCall, OpenedFile, RENEW_EVERY_MS, REPORTED_FILES_MAX, ReportPart, SessionState, ask,
};
use gabion_protocol::ports::{Ask as _, CoordinatorError};
use std::sync::{Arc, Weak};

/// Time limit of the coordinator's answer.
const DEADLINE_MS: u64 = 2_000;
/// Pause after a request without an answer.
const RETRY_AFTER_MS: u64 = 250;
/// Least time between two messages about closed files: they gather in between.
const GATHER_MS: u64 = 10;

/// Runs as long as the client lives and this is its turn.
pub(super) async fn keep(ports: Arc<dyn ClientPorts>, sessions: Weak<Sessions>, turn: u64) {
    let mut due_ms = ports.now_ms().saturating_add(RENEW_EVERY_MS);
    loop {
        let Some(open) = sessions
            .upgrade()
            .map(|sessions| Arc::clone(&sessions.open))
        else {
            return;
        };
        let left_ms = due_ms.saturating_sub(ports.now_ms());
        select_biased! {
            () = open.woken().fuse() => {}
            () = ports.sleep_ms(left_ms).fuse() => {}
        }
        let kept = sessions.upgrade();
        let Some(kept) = kept.filter(|sessions| sessions.is_kept(turn)) else {
            return;
        };
        let keeper = Keeper {
            ports: &*ports,
            sessions: &kept,
        };
        if ports.now_ms() >= due_ms {
            let pause_ms = match keeper.renew().await {
                Ok(()) => RENEW_EVERY_MS,
                Err(_) => RETRY_AFTER_MS,
            };
            due_ms = ports.now_ms().saturating_add(pause_ms);
        }
        match keeper.tell().await {
            Ok(true) => ports.sleep_ms(GATHER_MS).await,
            Ok(false) => {}
            Err(_) => due_ms = due_ms.min(ports.now_ms().saturating_add(RETRY_AFTER_MS)),
        }
    }
}

struct Keeper<'k> {
    ports: &'k dyn ClientPorts,
    sessions: &'k Sessions,
}

impl Keeper<'_> {
    /// Renews the session, or begins another one if files are open.
    async fn renew(&self) -> Result<(), CoordinatorError> {
        if let Some(session) = self.sessions.present().await {
            let asked_ms = self.ports.now_ms();
            let state = self.ask(ask::RenewSession(session.id())).await?;
            note_state(&session, state);
            if state != SessionState::Over {
                session.note_renewed(asked_ms);
                return Ok(());
            }
        }
        if self.sessions.open.is_empty() {
            return Ok(());
        }
        let mut last = self.sessions.last.lock().await;
        if last.as_ref().is_some_and(|last| !last.is_over()) {
            return Ok(());
        }
        let asked_ms = self.ports.now_ms();
        let id = self.ask(ask::OpenSession).await?;
        self.sessions.begin(&mut last, (id, asked_ms));
        Ok(())
    }

    /// Tells the coordinator what it does not know of the open files: at most one message of those that were closed,
    /// so that renewals do not wait for closes that never stop. Returns whether there was anything.
    async fn tell(&self) -> Result<bool, CoordinatorError> {
        let Some(session) = self.sessions.present().await else {
            return Ok(false);
        };
        // A report that is refused does not hold up closes.
        let reported = if session.is_unreported() {
            self.report(&session).await
        } else {
            Ok(())
        };
        if let Err(silent @ CoordinatorError::Silent(_)) = reported {
            return Err(silent);
        }
        // What is owed then belongs to the session after it, which the next call tells.
        if session.is_over() {
            return reported.map(|()| false);
        }
        let open = &self.sessions.open;
        let owed = open.take_owed(REPORTED_FILES_MAX);
        if owed.is_empty() {
            return reported.map(|()| false);
        }
        let awaited = session.begin();
        let told = self.send((&session, &awaited), (Vec::new(), None), &owed);
        match told.await {
            Ok(state) => note_state(&session, state),
            Err(error) => {
                open.owe(owed);
                return Err(error);
            }
        }
        if open.owes() {
            open.wake();
        }
        reported.map(|()| true)
    }

    /// Reports all open files. The coordinator knows those that are opened during the report by their requests.
    async fn report(&self, session: &ClientSession) -> Result<(), CoordinatorError> {
        let all = self.sessions.open.all();
        let mut pages: Vec<Vec<OpenedFile>> =
            all.chunks(REPORTED_FILES_MAX).map(<[_]>::to_vec).collect();
        if pages.is_empty() {
            pages.push(Vec::new());
        }
        let (mut report, page_count) = (None, pages.len());
        for (index, page) in pages.into_iter().enumerate() {
            // One request at a time: a late copy has a number that counts no more.
            let awaited = session.begin();
            let report = *report.get_or_insert(awaited.number);
            let is_last = index + 1 == page_count;
            let part = ReportPart {
                report,
                index: index as u64,
                is_last,
            };
            let nothing = Owed::default();
            let told = self.send((session, &awaited), (page, Some(part)), &nothing);
            match told.await? {
                // It asks again if it has not seen all parts.
                state if is_last || state == SessionState::Over => {
                    session.note_unreported(false);
                    note_state(session, state);
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Tells of open and closed files, which renews the session too.
    async fn send(
        &self,
        (session, awaited): (&ClientSession, &Awaited<'_>),
        (open, part): (Vec<OpenedFile>, Option<ReportPart>),
        owed: &Owed,
    ) -> Result<SessionState, CoordinatorError> {
        let report = ask::ReportFiles {
            opener: awaited.opener(),
            open,
            part,
            closed: owed.closed.clone(),
            abandoned: owed.abandoned.clone(),
        };
        let asked_ms = self.ports.now_ms();
        let state = self.ask(report).await?;
        if state != SessionState::Over {
            session.note_renewed(asked_ms);
        }
        Ok(state)
    }

    async fn ask<C: CoordinatorCall>(&self, call: C) -> Result<C::Reply, CoordinatorError> {
        let reached = self.ports.reach_coordinator(DEADLINE_MS).await;
        reached.map_err(CoordinatorError::Silent)?;
        self.ports.ask_coordinator(call, DEADLINE_MS).await
    }
}

fn note_state(session: &ClientSession, state: SessionState) {
    match state {
        SessionState::GoesOn => {}
        SessionState::Unreported => session.note_unreported(true),
        SessionState::Over => session.note_over(),
    }
}
