//! Exclusive opens: a client that is the only writer of a file, as block devices need it.
//!
//! The session has a fencing token. Nodes and the coordinator refuse writes with a lower one, so a client that
//! was displaced changes nothing any more, whatever it still believes.

use crate::client::Client;
use crate::error::ClientError;
use crate::file::{File, Holding};
use crate::session::Session;
use gabion_meta::FencingToken;
use gabion_protocol::message::{NotOpened, ask};

/// Whether an exclusive open displaces another client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakeOver {
    /// Only ten seconds after its last renewal.
    IfAbandoned,
    /// At once. It is safe: the other client's writes are refused before the open succeeds.
    Now,
}

impl Client {
    /// Opens a file exclusively: no other client can write it until the last clone of the returned handle is dropped,
    /// or [`File::end_session`] is called. All clients may read it, and let it grow. When this returns, no
    /// earlier client's write takes effect any more. The session is renewed in the background; after a
    /// partition or a pause of more than ten seconds another client may take the file over, and writes fail
    /// with [`ClientError::Superseded`].
    ///
    /// # Errors
    /// Those of [`Client::open`]; [`ClientError::InUse`] while another client has it;
    /// [`ClientError::Superseded`] when another client has opened it exclusively during this call;
    /// [`ClientError::Late`] when earlier writes cannot be settled in time, though the other client is displaced;
    /// [`ClientError::FileGone`].
    pub async fn open_exclusive(
        &self,
        name: &str,
        take_over: TakeOver,
    ) -> Result<File, ClientError> {
        self.open(name).await?.reopen_exclusive(take_over).await
    }
}

impl File {
    /// Opens the same file exclusively, whatever its names, as [`Client::open_exclusive`] does.
    ///
    /// # Errors
    /// Those of [`Client::open_exclusive`].
    pub async fn reopen_exclusive(&self, take_over: TakeOver) -> Result<Self, ClientError> {
        let session = self.begin_session(take_over).await?;
        let name = self.name();
        let layout = self.client.lookup_file(self.put_id(), 0).await?;
        let layout = layout.ok_or_else(|| ClientError::FileGone(name.to_owned()))?;
        let file = Self::with_layout(&self.client, name, layout, Holding::Exclusive(session))?;
        if file.is_superseded() {
            // A later session has begun before this one's answer has come.
            return Err(ClientError::Superseded(name.to_owned()));
        }
        Ok(file)
    }

    /// Begins a session, from the known layout if that is not too old. Until then it is renewed too, since the
    /// coordinator may have to settle many stripes, and it ends if the caller stops waiting.
    async fn begin_session(&self, take_over: TakeOver) -> Result<Session, ClientError> {
        let what = format!("opening {} exclusively", self.name());
        let mut attempts = self.client.attempts(what, 0);
        loop {
            let (file, present) = (self.put_id(), self.exclusive());
            let session = Session::new(&self.client.shared.ports, file);
            let request = ask::OpenExclusive {
                file,
                session: session.id(),
                seen: present.token,
                takes_over: take_over == TakeOver::Now,
            };
            match self.client.ask(request).await? {
                Ok(token) => return Ok(session.opened(token)),
                Err(NotOpened::InUse { left_ms }) => {
                    return Err(ClientError::InUse {
                        name: self.name().to_owned(),
                        left_ms: Some(left_ms),
                    });
                }
                Err(NotOpened::Changed) => attempts.pause("others open it exclusively").await?,
            }
            self.refresh_record().await?;
            let later = self
                .exclusive()
                .session
                .filter(|_| take_over == TakeOver::Now);
            if later.is_some() && later != present.session {
                // It may have displaced this client's session, whose answer was lost. A take-over is not repeated.
                return Err(ClientError::Superseded(self.name().to_owned()));
            }
        }
    }

    /// Ends this client's session, if the file was opened exclusively: all clients may write it again, and
    /// writes of this handle are refused.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`]: other clients may take the file over ten seconds after this client's last
    /// renewal.
    pub async fn end_session(&self) -> Result<(), ClientError> {
        let Some(session) = self.session() else {
            return Ok(());
        };
        self.client.ask(session.close()).await?;
        session.note_ended();
        Ok(())
    }

    /// Whether this handle was the file's only writer and can no longer write it: another client has taken the file
    /// over, or the session has ended.
    pub fn is_superseded(&self) -> bool {
        matches!(self.known_token(), Err(ClientError::Superseded(_)))
    }

    /// The fencing token of a write, if this client still has its locks in the file. They are looked at behind the
    /// token: one that is raised when they are lost is higher.
    ///
    /// # Errors
    /// [`ClientError::Superseded`]; [`ClientError::InUse`]; [`ClientError::LocksLost`]; those of [`File::refresh`].
    pub(crate) async fn token(&self) -> Result<FencingToken, ClientError> {
        let token = self.present_token().await?;
        self.check_locks().await?;
        Ok(token)
    }

    /// The fencing token of this handle's writes, from a new layout if the known one forbids them. Waits while a
    /// snapshot of the file is taken, and ends another client's session if that client has not renewed it for too
    /// long.
    async fn present_token(&self) -> Result<FencingToken, ClientError> {
        let what = format!("writing {}", self.name());
        let mut attempts = self.client.attempts(what, 0);
        let mut is_fresh = false;
        loop {
            if self.is_read_only() {
                return Err(ClientError::ReadOnly(self.name().to_owned()));
            }
            let is_frozen = self.exclusive().frozen_in.is_some();
            let known = self.known_token();
            if is_frozen && is_fresh {
                attempts
                    .pause("a snapshot of the file is being taken")
                    .await?;
            } else if !is_frozen && !matches!(known, Err(ClientError::InUse { .. })) {
                return known;
            } else if is_fresh {
                break;
            }
            self.refresh_record().await?;
            is_fresh = true;
        }
        let session = self.begin_session(TakeOver::IfAbandoned).await?;
        self.client.ask(session.close()).await?;
        session.note_ended();
        self.refresh_record().await?;
        self.known_token()
    }

    fn known_token(&self) -> Result<FencingToken, ClientError> {
        let name = || self.name().to_owned();
        let exclusive = self.exclusive();
        match self.session() {
            Some(session) => {
                // A snapshot raises the token of the session that goes on.
                let is_its = exclusive.session == Some(session.id());
                if session.is_over() || (exclusive.token > session.token() && !is_its) {
                    return Err(ClientError::Superseded(name()));
                }
                Ok(exclusive.token.max(session.token()))
            }
            None if exclusive.session.is_some() => Err(ClientError::InUse {
                name: name(),
                left_ms: None,
            }),
            None => Ok(exclusive.token),
        }
    }

    /// A node has refused a write because the file has a higher token: a later session has the file, or this one goes
    /// on with that token after a snapshot.
    pub(crate) async fn note_superseded(&self) {
        // If it cannot be looked up now, the next attempt does so.
        let is_fresh = self.refresh_record().await.is_ok();
        if let Some(session) = self.session()
            && is_fresh
            && self.exclusive().session != Some(session.id())
        {
            session.note_over();
        }
    }
}
