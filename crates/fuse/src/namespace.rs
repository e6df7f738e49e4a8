//! Names: look-up, directories, links, removal and renames.

use crate::attributes::Maker;
use crate::errno::Errno;
use crate::gateway::{Gateway, Stat};
use fuser::{INodeNo, RenameFlags};
use gabion_meta::{Existing, Inode, Kind, RelativePath};
use std::path::Path;

impl Gateway {
    /// Returns the attributes of the inode with this name.
    pub(crate) async fn look_up(&self, at: RelativePath) -> Result<Stat, Errno> {
        let asked = self.ask_now();
        let status = self.client.inode(at).await?;
        Ok(self.stat(&status, &asked))
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

    /// Removes a name of a file. A file that is open stays for its handles.
    pub(crate) async fn unlink(&self, at: RelativePath) -> Result<(), Errno> {
        self.check_writable()?;
        Ok(self.client.rm(at).await?)
    }

    /// Removes an empty directory.
    pub(crate) async fn remove_directory(&self, at: RelativePath) -> Result<(), Errno> {
        self.check_writable()?;
        self.client.remove_directory(at).await?;
        Ok(())
    }

    /// Renames a file or a directory, or exchanges two names. An open file that loses its last name stays for its
    /// handles.
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
        Ok(self.client.rename(from, to, existing).await?)
    }
}
