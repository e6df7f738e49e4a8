//! Names: look-up, directories, links, removal and renames.

use crate::attributes::Maker;
use crate::errno::Errno;
use crate::gateway::{Gateway, Stat};
use crate::open_files::{HiddenName, OpenFile, State};
use fuser::{INodeNo, RenameFlags};
use gabion_client::{Cause, Client, ClientError};
use gabion_meta::{Existing, Inode, InodeStatus, Kind, PutId, RelativePath};
use std::path::Path;
use std::time::Instant;

impl Gateway {
    /// Returns the attributes of the inode with this name.
    pub(crate) async fn look_up(&self, at: RelativePath) -> Result<Stat, Errno> {
        let asked = Instant::now();
        let status = self.client.inode(at).await?;
        Ok(self.stat(&status, asked))
    }

    /// Makes a directory.
    pub(crate) async fn make_directory(
        &self,
        (parent, at): (INodeNo, RelativePath),
        maker: Maker,
    ) -> Result<Stat, Errno> {
        let above = self.numbers.inode(parent);
        let attributes = self.new_attributes(above, maker, Kind::Directory).await?;
        self.client.make_directory(at.clone(), attributes).await?;
        self.look_up(at).await
    }

    /// Makes a symbolic link.
    pub(crate) async fn make_symlink(
        &self,
        (parent, at): (INodeNo, RelativePath),
        target: &Path,
        maker: Maker,
    ) -> Result<Stat, Errno> {
        let target = target.to_str().ok_or(Errno::Invalid)?;
        let above = self.numbers.inode(parent);
        let attributes = self.new_attributes(above, maker, Kind::Symlink).await?;
        self.client
            .make_symlink(at.clone(), target, Some(&self.pool), attributes)
            .await?;
        self.look_up(at).await
    }

    /// The target of a symbolic link.
    pub(crate) async fn read_link(&self, number: INodeNo) -> Result<Vec<u8>, Errno> {
        let Inode::File(put) = self.numbers.inode(number) else {
            return Err(Errno::Invalid);
        };
        Ok(self.client.read_link(put).await?.into_bytes())
    }

    /// Gives a file a further name.
    pub(crate) async fn link(&self, number: INodeNo, to: RelativePath) -> Result<Stat, Errno> {
        let inode = self.numbers.inode(number);
        let Inode::File(put) = inode else {
            return Err(Errno::NotPermitted);
        };
        self.client.link(put, to).await?;
        self.stat_number(number).await
    }

    /// Removes a name of a file. A file that this mount has open stays for its handles.
    pub(crate) async fn unlink(&self, at: RelativePath) -> Result<(), Errno> {
        self.check_writable()?;
        let mut inode = self.client.inode(at.clone()).await?.inode;
        loop {
            let Inode::File(put) = inode else {
                return Err(Errno::IsADirectory);
            };
            let shared = self.open_files.entry(put);
            let mut state = shared.state.lock().await;
            if state.handle_count == 0 {
                match self.client.rm_file(at.clone(), put).await {
                    // Another client has given the name to another file, which this mount may have open.
                    Err(ClientError::FileGone(_)) => {}
                    removed => return Ok(removed?),
                }
            }
            // This mount may have taken other names away until it had the turn.
            let status = self.client.inode(at.clone()).await?;
            if status.inode == inode && state.handle_count > 0 {
                return self.unlink_open(at, &status, (&shared, &mut state)).await;
            }
            inode = status.inode;
        }
    }

    /// Removes a name of an open file, whose state the caller has locked.
    async fn unlink_open(
        &self,
        at: RelativePath,
        status: &InodeStatus,
        (shared, state): (&OpenFile, &mut State),
    ) -> Result<(), Errno> {
        if !is_last_name(status, state) {
            return Ok(self.client.rm_file(at, shared.put).await?);
        }
        let hidden = HiddenName::of(shared.put, at.directory, self.mount);
        let to = RelativePath::new(hidden.directory, hidden.name.clone());
        shared.hide(state, Some(hidden));
        let renamed = self.client.rename(at, to, Existing::Stays).await;
        if let Err(ClientError::Refused(_)) = renamed {
            // In other cases it may have been renamed.
            shared.hide(state, None);
        }
        Ok(renamed?)
    }

    /// Removes an empty directory.
    pub(crate) async fn remove_directory(&self, at: RelativePath) -> Result<(), Errno> {
        self.check_writable()?;
        self.client.remove_directory(at).await?;
        Ok(())
    }

    /// Renames a file or a directory, or exchanges two names. A file that this mount has open and that loses its last name
    /// stays for its handles.
    pub(crate) async fn rename(
        &self,
        from: RelativePath,
        to: RelativePath,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let existing = match flags {
            flags if flags.is_empty() => Existing::IsReplaced,
            RenameFlags::RENAME_NOREPLACE => Existing::Stays,
            RenameFlags::RENAME_EXCHANGE => {
                return Ok(self.client.exchange_names(from, to).await?);
            }
            _ => return Err(Errno::Invalid),
        };
        let mut replaced = match existing {
            Existing::IsReplaced => self.status_at(&to).await?,
            _ => None,
        };
        while let Some(Inode::File(put)) = replaced.map(|status| status.inode) {
            let shared = self.open_files.entry(put);
            let mut state = shared.state.lock().await;
            if state.handle_count == 0 {
                return Ok(self.client.rename(from, to, existing).await?);
            }
            // As in a removal.
            replaced = self.status_at(&to).await?;
            if let Some(status) = &replaced
                && status.inode == Inode::File(put)
            {
                if !is_last_name(status, &state) {
                    return Ok(self.client.rename(from, to, existing).await?);
                }
                return self.replace_open(from, to, (&shared, &mut state)).await;
            }
        }
        Ok(self.client.rename(from, to, existing).await?)
    }

    /// Renames a file over the last name of an open file, whose state the caller has locked.
    async fn replace_open(
        &self,
        from: RelativePath,
        to: RelativePath,
        (shared, state): (&OpenFile, &mut State),
    ) -> Result<(), Errno> {
        // The name is never without a file: a further name keeps the replaced one.
        let hidden = HiddenName::of(shared.put, to.directory, self.mount);
        let kept = RelativePath::new(hidden.directory, hidden.name.clone());
        shared.hide(state, Some(hidden));
        let linked = self.client.link(shared.put, kept.clone()).await;
        if let Err(ClientError::Refused(_)) = linked {
            // In other cases it may have the name.
            shared.hide(state, None);
        }
        linked?;
        let renamed = self.client.rename(from, to, Existing::IsReplaced).await;
        // In other cases the file may have this name alone; its last close takes it away.
        let is_refused = matches!(renamed, Err(ClientError::Refused(_)));
        if is_refused && unlink_kept(&self.client, kept, shared.put).await {
            shared.hide(state, None);
        }
        Ok(renamed?)
    }

    /// The status of the inode that has a path, if there is one.
    async fn status_at(&self, at: &RelativePath) -> Result<Option<InodeStatus>, Errno> {
        match self.client.inode(at.clone()).await {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.cause() == Cause::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the file has handles, and would go with this name.
fn is_last_name(status: &InodeStatus, state: &State) -> bool {
    state.handle_count > 0 && status.link_count == 1
}

/// Takes a further name away again. Returns whether that is certain.
async fn unlink_kept(client: &Client, kept: RelativePath, put: PutId) -> bool {
    match client.rm(kept).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(file = %put, %error, "a hidden name stays until the file is closed");
            error.cause() == Cause::NotFound
        }
    }
}
