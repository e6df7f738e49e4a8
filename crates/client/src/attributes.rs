//! Attributes of files and directories.

use crate::client::Client;
use crate::error::ClientError;
use crate::file::File;
use gabion_meta::{AttributeChange, Attributes, FILE_BYTES_MAX, Inode};
use gabion_protocol::message::{Cause, ask};

/// Whose attributes are to change.
enum Target<'a> {
    /// Those of the inode that has the path at that moment.
    Path(&'a Client, &'a str),
    /// Those of the file, whatever its name.
    File(&'a File),
}

impl Client {
    /// The inode of a path, and its attributes. The empty path is the root directory's.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when nothing has the path; [`ClientError::NoCoordinator`].
    pub async fn inode(&self, path: &str) -> Result<(Inode, Attributes), ClientError> {
        let path = path.to_owned();
        self.ask(ask::LookupInode { path }).await
    }

    /// Changes attributes of the inode of a path, all at once, and once unless an answer is lost and 16 other changes
    /// follow before it is asked for again. Those that are absent stay, even if another client changes them at the same
    /// time. Returns all of them.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when nothing has the path, or for invalid values; [`ClientError::Late`] when other
    /// clients change them all the time; [`ClientError::NoCoordinator`], after which they may have changed.
    pub async fn set_attributes(
        &self,
        path: &str,
        change: &AttributeChange,
    ) -> Result<Attributes, ClientError> {
        Target::Path(self, path).set(change).await
    }
}

impl File {
    /// Its attributes now.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub async fn attributes(&self) -> Result<Attributes, ClientError> {
        // Nothing is stored there.
        let layout = self.look_past(FILE_BYTES_MAX).await?;
        Ok(layout.file.file.attributes)
    }

    /// Changes attributes of the file, whatever its name is by now. Returns all of them.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; otherwise those of [`Client::set_attributes`].
    pub async fn set_attributes(
        &self,
        change: &AttributeChange,
    ) -> Result<Attributes, ClientError> {
        Target::File(self).set(change).await
    }
}

impl Target<'_> {
    async fn set(&self, change: &AttributeChange) -> Result<Attributes, ClientError> {
        let (client, name) = match *self {
            Self::Path(client, path) => (client, path),
            Self::File(file) => (&file.client, file.name()),
        };
        let mut attempts = client.attempts(format!("changing the attributes of {name}"), 0);
        let number = client.ports().random();
        loop {
            let (inode, known) = self.look_up().await?;
            let request = ask::SetAttributes {
                inode,
                seen: known.version,
                number,
                change: change.clone(),
            };
            match client.ask(request).await {
                Err(ClientError::Refused(denial)) if denial.cause == Cause::Stale => {
                    attempts.pause(denial).await?;
                }
                done => return done,
            }
        }
    }

    async fn look_up(&self) -> Result<(Inode, Attributes), ClientError> {
        match *self {
            Self::Path(client, path) => client.inode(path).await,
            Self::File(file) => Ok((Inode::File(file.put_id()), file.attributes().await?)),
        }
    }
}
