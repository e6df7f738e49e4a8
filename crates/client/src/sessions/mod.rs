//! The sessions of a client, for its advisory locks and its open files. A file that a session has open stays until it
//! is closed, even when it loses its last name; the coordinator knows it by the request that opens it.

mod keeping;
pub(crate) mod open_table;
pub(crate) mod session;
pub(crate) mod slot;

use crate::client::Client;
use crate::error::ClientError;
use crate::file::{File, Holding};
use crate::put::NewFile;
use futures::FutureExt;
use gabion_meta::PutId;
use gabion_protocol::message::{Cause, Opening, ask};
use session::ClientSession;
use std::sync::Arc;

impl Client {
    /// Begins this client's session, so that the first open or lock does not have to. The client renews it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there are too many clients; [`ClientError::NoCoordinator`].
    pub async fn begin_session(&self) -> Result<(), ClientError> {
        self.session().await.map(drop)
    }

    /// Ends this client's session: its locks are free, and its files count as closed. It must have ended its writes.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`]: the session ends when it has not been renewed for ten seconds.
    pub async fn end_session(&self) -> Result<(), ClientError> {
        let sessions = &self.shared.sessions;
        sessions.end_keeping();
        let Some(session) = sessions.last.lock().await.take() else {
            return Ok(());
        };
        session.note_over();
        self.ask(ask::CloseSession(session.id())).await
    }

    /// The session, which begins with the first lock or open, and again after its loss.
    pub(crate) async fn session(&self) -> Result<Arc<ClientSession>, ClientError> {
        let sessions = &self.shared.sessions;
        let mut last = sessions.last.lock().await;
        if let Some(session) = last.as_ref().filter(|session| !session.is_over()) {
            return Ok(Arc::clone(session));
        }
        let ports = &self.shared.ports;
        let asked_ms = ports.now_ms();
        let id = self.ask(ask::OpenSession).await?;
        let session = sessions.begin(&mut last, (id, asked_ms));
        if let Some(turn) = sessions.begin_keeping() {
            let keep = keeping::keep(Arc::clone(ports), Arc::downgrade(sessions), turn);
            ports.spawn(keep.boxed());
        }
        Ok(session)
    }

    /// Opens the file that a put made, whatever its names, and holds it open: it stays until the last clone of the
    /// returned handle is dropped, even if another client removes its last name. It goes if the coordinator does not
    /// hear this client for ten seconds.
    ///
    /// # Errors
    /// [`ClientError::FileGone`], also if it has no name any more and this client does not have it open;
    /// [`ClientError::Refused`] for a symbolic link and at a limit; [`ClientError::Late`];
    /// [`ClientError::NoCoordinator`].
    pub async fn open_held(&self, file: PutId) -> Result<File, ClientError> {
        // It is held from before the request on: a report to another coordinator has it.
        let held = self.shared.sessions.open.hold(file);
        let mut attempts = self.attempts(format!("opening {file}"), 0);
        loop {
            let session = self.session().await?;
            let awaited = session.begin();
            held.note_number(awaited.number);
            let opener = awaited.opener();
            let missing = match self.ask(ask::OpenFile { file, opener }).await {
                Ok(Opening::Open(layout)) => {
                    held.note_opened();
                    self.note_layout(&layout, 0)?;
                    return File::of_layout(self, *layout, Holding::Open(held));
                }
                Ok(Opening::Gone) => return Err(ClientError::FileGone(file.to_string())),
                Ok(Opening::Over) => {
                    session.note_over();
                    "the session has ended".to_owned()
                }
                // The request has waited for too long behind others.
                Err(stale) if stale.cause() == Cause::Stale => stale.to_string(),
                Err(error) => return Err(error),
            };
            drop(awaited);
            attempts.pause(missing).await?;
        }
    }

    /// Makes an empty file, and opens it as [`Client::open_held`] does.
    ///
    /// # Errors
    /// Those of [`Client::create`] and of [`Client::open_held`].
    pub async fn create_held(&self, new: NewFile<'_>) -> Result<File, ClientError> {
        let session = self.session().await?;
        let awaited = session.begin();
        let (open, number) = (&self.shared.sessions.open, awaited.number);
        let empty = (futures::io::empty(), Some(0));
        let opener = Some(awaited.opener());
        let making = open.begin_making(number);
        let made = self.put_all(new, empty, (&(), opener)).await?;
        making.end();
        match made.record {
            Some(record) if made.is_open => {
                let held = open.hold(record.put);
                held.note_number(number);
                held.note_opened();
                File::new_inline(self, (*record, made.pool), Holding::Open(held))
            }
            // It has been stored in another way, or is gone, or the session has ended.
            _ => {
                drop(awaited);
                self.open_held(made.put).await
            }
        }
    }
}

#[cfg(test)]
mod tests;
