//! Permissions and times of files and directories.

use crate::client::Client;
use crate::error::ClientError;
use crate::file::File;
use gabion_meta::{AttributeChange, Attributes, FILE_BYTES_MAX, Inode};
use gabion_protocol::message::{Cause, Denial, ask};

impl Client {
    /// What a path belongs to, with permissions and times. The empty path is the root directory's.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when nothing has the path; [`ClientError::NoCoordinator`].
    pub async fn inode(&self, path: &str) -> Result<(Inode, Attributes), ClientError> {
        let path = path.to_owned();
        self.ask(ask::LookupInode { path }).await
    }

    /// Changes permissions or times of what a path belongs to, all at once. Those that are not named stay, whatever
    /// other clients change meanwhile.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when nothing has the path, or for invalid values; [`ClientError::Late`] when other
    /// clients change them all the time; [`ClientError::NoCoordinator`], after which they may have changed.
    pub async fn set_attributes(
        &self,
        path: &str,
        change: &AttributeChange,
    ) -> Result<(), ClientError> {
        let mut attempts = self.attempts(format!("changing the attributes of {path}"), 0);
        loop {
            let found = self.inode(path).await?;
            match self.set(found, change).await? {
                None => return Ok(()),
                Some(denial) => attempts.pause(denial).await?,
            }
        }
    }

    /// Changes those of an inode that was looked up; the refusal, if others have changed them since.
    async fn set(
        &self,
        (inode, known): (Inode, Attributes),
        change: &AttributeChange,
    ) -> Result<Option<Denial>, ClientError> {
        let request = ask::SetAttributes {
            inode,
            seen: known.version,
            change: change.clone(),
        };
        match self.ask(request).await {
            Err(ClientError::Refused(denial)) if denial.cause == Cause::Stale => Ok(Some(denial)),
            done => done.map(|()| None),
        }
    }
}

impl File {
    /// Its permissions and times now.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub async fn attributes(&self) -> Result<Attributes, ClientError> {
        // Nothing is stored there.
        let layout = self.look_past(FILE_BYTES_MAX).await?;
        Ok(layout.file.file.attributes)
    }

    /// Changes its permissions or times, whatever its name is by now.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; otherwise those of [`Client::set_attributes`].
    pub async fn set_attributes(&self, change: &AttributeChange) -> Result<(), ClientError> {
        let inode = Inode::File(self.put_id());
        let what = format!("changing the attributes of {}", self.name());
        let mut attempts = self.client.attempts(what, 0);
        loop {
            let found = (inode, self.attributes().await?);
            match self.client.set(found, change).await? {
                None => return Ok(()),
                Some(denial) => attempts.pause(denial).await?,
            }
        }
    }
}
