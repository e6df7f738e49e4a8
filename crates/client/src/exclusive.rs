//! Exclusive opens: a client that is the only writer of a file, as block devices need it.
//!
//! The session has a fencing token. Nodes and the coordinator refuse writes with a lower one, so a client that
//! was displaced changes nothing any more, whatever it still believes.

use crate::client::Client;
use crate::error::ClientError;
use crate::file::{File, Layout};
use crate::session::Session;
use gabion_meta::{FencingToken, SessionId};
use gabion_protocol::message::{InUse, ask};

/// Whether an exclusive open displaces another client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakeOver {
    /// Only after its client has given no sign of life for ten seconds.
    IfAbandoned,
    /// At once. It is safe: the other client's writes are refused before the open succeeds.
    Now,
}

impl Client {
    /// Opens a file for this client alone. No other client can write it until the last clone of the returned
    /// handle is dropped, or [`File::end_session`] is called; reads of all clients go on. When this returns, no
    /// earlier client's write takes effect any more. Renewed in the background; after a partition or a
    /// pause of more than ten seconds another client may take the file over, and writes fail with
    /// [`ClientError::Superseded`].
    ///
    /// # Errors
    /// Those of [`Client::open`]; [`ClientError::InUse`] while another client has it;
    /// [`ClientError::FileGone`].
    pub async fn open_exclusive(
        &self,
        name: &str,
        take_over: TakeOver,
    ) -> Result<File, ClientError> {
        let file = self.lookup(name).await?.file.put;
        let id = SessionId(self.ports().random());
        let request = ask::OpenExclusive {
            file,
            session: id,
            takes_over: take_over == TakeOver::Now,
        };
        let opened = self.ask(request).await?;
        let token = opened.map_err(|InUse { left_ms }| ClientError::InUse {
            name: name.to_owned(),
            left_ms: Some(left_ms),
        })?;
        let session = Session::new(&self.shared.ports, file, id, token);
        let layout = self.lookup_file(file).await?;
        let layout = layout.ok_or_else(|| ClientError::FileGone(name.to_owned()))?;
        File::with_layout(self, name, layout, Some(session))
    }
}

impl File {
    /// Ends this client's session, if the file was opened exclusively: all clients may write it again, and
    /// writes of this handle are refused.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`]: the session ends ten seconds after this client's last sign of life.
    pub async fn end_session(&self) -> Result<(), ClientError> {
        match self.session() {
            None => Ok(()),
            Some(session) => self.client.ask(session.close()).await,
        }
    }

    /// Whether this handle was the file's only writer and can no longer write it: another client has taken the file
    /// over, or the session has ended.
    pub fn is_superseded(&self) -> bool {
        matches!(
            self.known_token(&self.layout()),
            Err(ClientError::Superseded(_))
        )
    }

    /// A node has refused a write: a later session has the file.
    pub(crate) fn note_superseded(&self) {
        if let Some(session) = self.session() {
            session.note_over();
        }
    }

    /// The fencing token of this handle's writes, from a new layout if the known one forbids them.
    ///
    /// # Errors
    /// [`ClientError::Superseded`]; [`ClientError::InUse`]; those of [`File::refresh`].
    pub(crate) async fn token(&self) -> Result<FencingToken, ClientError> {
        match self.known_token(&self.layout()) {
            Err(ClientError::InUse { .. }) => {
                self.refresh().await?;
                self.known_token(&self.layout())
            }
            known => known,
        }
    }

    fn known_token(&self, layout: &Layout) -> Result<FencingToken, ClientError> {
        let name = || self.name().to_owned();
        match self.session() {
            Some(session) => {
                let is_over = session.is_over() || layout.file.exclusive.token > session.token;
                if is_over {
                    return Err(ClientError::Superseded(name()));
                }
                Ok(session.token)
            }
            None if layout.file.exclusive.session.is_some() => Err(ClientError::InUse {
                name: name(),
                left_ms: None,
            }),
            None => Ok(layout.file.exclusive.token),
        }
    }
}
