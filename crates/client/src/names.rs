//! Names: finding inodes, listing directories, and making, renaming and removing names.
//!
//! Each call names the state of what it changes as it has looked it up, and a number that it has drawn: a request that
//! arrives again, or late, changes nothing more. If other clients change the names at the same time, it looks again.

use crate::attempts::Attempts;
use crate::client::Client;
use crate::error::ClientError;
use crate::file::{File, Holding};
use crate::put::NewFile;
use gabion_meta::{
    DirectoryEntry, DirectoryId, Existing, Inode, InodeStatus, MetaError, NewAttributes, PutId,
    RelativePath, SeenName,
};
use gabion_protocol::message::{Cause, ask};

impl Client {
    /// The inode of a path. An empty path is the directory itself.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when nothing has the path; [`ClientError::NoCoordinator`].
    pub async fn inode(&self, at: impl Into<RelativePath>) -> Result<InodeStatus, ClientError> {
        Ok(*self.ask(ask::LookupInode { at: at.into() }).await?)
    }

    /// An inode, whatever its path; none if it is gone.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`].
    pub async fn inode_status(&self, inode: Inode) -> Result<Option<InodeStatus>, ClientError> {
        let status = self.ask(ask::StatInode(inode)).await?;
        Ok(status.map(|status| *status))
    }

    /// At most `limit` names of a directory, and at most 1,000, behind the entry of an earlier page, whether or not
    /// that is there yet; and whether more follow. An entry that is there during all calls is in one page, once.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the directory is gone; [`ClientError::NoCoordinator`].
    pub async fn read_directory(
        &self,
        directory: DirectoryId,
        after: Option<&DirectoryEntry>,
        limit: u64,
    ) -> Result<(Vec<DirectoryEntry>, bool), ClientError> {
        let request = ask::ReadDirectory {
            directory,
            after: after.map(DirectoryEntry::place),
            limit,
        };
        self.ask(request).await
    }

    /// The path to which a symbolic link leads.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for another file; [`ClientError::Refused`] when it is gone;
    /// [`ClientError::NoCoordinator`].
    pub async fn read_link(&self, file: PutId) -> Result<String, ClientError> {
        let target = self.ask(ask::ReadLink(file)).await?;
        target.ok_or_else(|| ClientError::Usage("the file is not a symbolic link".to_owned()))
    }

    /// Makes a symbolic link, which belongs to this pool, or to the only one.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the name is taken or a name is invalid; [`ClientError::NoCoordinator`], after
    /// which the link may have been made.
    pub async fn make_symlink(
        &self,
        at: impl Into<RelativePath>,
        target: &str,
        pool: Option<&str>,
        attributes: NewAttributes,
    ) -> Result<(), ClientError> {
        let request = ask::MakeSymlink {
            at: at.into(),
            target: target.to_owned(),
            pool: pool.map(str::to_owned),
            attributes,
            number: self.draw_change(),
        };
        self.ask(request).await
    }

    /// Makes a directory, and those above it that are missing, all with these attributes. A put or a rename makes
    /// those above its name by itself.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when a file or a directory has the path; [`ClientError::NoCoordinator`], after which
    /// the directory may have been made.
    pub async fn make_directory(
        &self,
        at: impl Into<RelativePath>,
        attributes: NewAttributes,
    ) -> Result<(), ClientError> {
        let request = ask::MakeDirectory {
            at: at.into(),
            attributes,
            number: self.draw_change(),
        };
        self.ask(request).await
    }

    /// Makes a file `to` that has the bytes of another one, and shares its space: one that never changes
    /// (a snapshot), or one like any other (a clone). Of a directory, makes one with all that is below it at one
    /// instant. It has all writes that were acknowledged before this call, and none that begins after it has returned.
    /// Takes no longer for a large file.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the name is taken or invalid, the file is gone or has too many snapshots, it is in
    /// a pool that replicates blocks first, or too much is below the directory; [`ClientError::Late`] when nodes or
    /// repairs were in the way; [`ClientError::NoCoordinator`], after which the file may have been made.
    pub async fn snapshot(
        &self,
        inode: Inode,
        to: impl Into<RelativePath>,
        is_read_only: bool,
    ) -> Result<(), ClientError> {
        let request = ask::Snapshot {
            inode,
            to: to.into(),
            is_read_only,
            number: self.draw_change(),
        };
        self.ask(request).await
    }

    /// Makes an empty file, and opens it.
    ///
    /// # Errors
    /// Those of [`Client::put`]; [`ClientError::FileGone`] when another client removes it at once.
    pub async fn create(&self, new: NewFile<'_>) -> Result<File, ClientError> {
        let made = self.put_over(new, futures::io::empty(), 0, &()).await?;
        match made.record {
            Some(record) => File::new_inline(self, (*record, made.pool), Holding::Nothing),
            None => self.open_inode(made.put).await,
        }
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::Refused`] when the name is taken or invalid, or the file has too many;
    /// [`ClientError::Late`] when other clients change its names all the time; [`ClientError::NoCoordinator`], after
    /// which it may have the name.
    pub async fn link(&self, file: PutId, to: impl Into<RelativePath>) -> Result<(), ClientError> {
        let to = to.into();
        let number = self.draw_change();
        let mut attempts = self.attempts(format!("linking {to}"), 0);
        loop {
            let known = self.inode_status(Inode::File(file)).await?;
            let known = known.ok_or_else(|| ClientError::FileGone(file.to_string()))?;
            let request = ask::Link {
                file,
                generation: known.generation,
                number,
                to: to.clone(),
            };
            if is_settled(&mut attempts, self.ask(request).await).await? {
                return Ok(());
            }
        }
    }

    /// Gives a file or a directory another name, atomically and whatever its size or what is below it. Open files stay
    /// open. A file of that name is replaced by a file if it may be, and so is an empty directory by a directory. If
    /// both names are the same file's, and a file may be replaced, both stay, as POSIX has it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when nothing has the first name, and when the second one is taken or invalid, or lies
    /// below the directory; [`ClientError::Late`] when other clients change the names all the time;
    /// [`ClientError::NoCoordinator`], after which it may have either name.
    pub async fn rename(
        &self,
        from: impl Into<RelativePath>,
        to: impl Into<RelativePath>,
        existing: Existing,
    ) -> Result<(), ClientError> {
        let (from, to) = (from.into(), to.into());
        let number = self.draw_change();
        let mut attempts = self.attempts(format!("renaming {from}"), 0);
        loop {
            let known = self.inode(from.clone()).await?;
            let (generation, to) = (known.generation, to.clone());
            let done = match known.inode {
                Inode::File(file) => {
                    let request = ask::Rename {
                        file,
                        from: from.clone(),
                        generation,
                        number,
                        to,
                        existing,
                    };
                    self.ask(request).await
                }
                Inode::Directory(directory) => {
                    let request = ask::RenameDirectory {
                        directory,
                        generation,
                        number,
                        to,
                        existing,
                    };
                    self.ask(request).await
                }
            };
            if is_settled(&mut attempts, done).await? {
                return Ok(());
            }
        }
    }

    /// Gives two files or directories each other's name, atomically: both names are taken at every instant. Two names
    /// of one file stay.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when nothing has one of the names, or one lies below the other; [`ClientError::Late`]
    /// when other clients change the names all the time; [`ClientError::NoCoordinator`], after which both may have
    /// their old names or both the new ones.
    pub async fn exchange_names(
        &self,
        one: impl Into<RelativePath>,
        other: impl Into<RelativePath>,
    ) -> Result<(), ClientError> {
        let names = [one.into(), other.into()];
        let number = self.draw_change();
        let mut attempts = self.attempts(format!("exchanging {} and {}", names[0], names[1]), 0);
        loop {
            let [one, other] = &names;
            let names = [self.seen(one).await?, self.seen(other).await?];
            let request = ask::ExchangeNames { names, number };
            if is_settled(&mut attempts, self.ask(request).await).await? {
                return Ok(());
            }
        }
    }

    /// A name with its present inode.
    async fn seen(&self, at: &RelativePath) -> Result<SeenName, ClientError> {
        let known = self.inode(at.clone()).await?;
        Ok(SeenName {
            at: at.clone(),
            inode: known.inode,
            generation: known.generation,
        })
    }

    /// Takes a name of a file away. The file goes with its last name; its chunks are reclaimed in the background.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when no file has this name; [`ClientError::Late`] when other clients change its names
    /// all the time; [`ClientError::NoCoordinator`], after which the name may be gone.
    pub async fn rm(&self, at: impl Into<RelativePath>) -> Result<(), ClientError> {
        self.remove_name(at.into(), None).await
    }

    /// Takes a name of this file away. Another file that has the name by now keeps it.
    ///
    /// # Errors
    /// Those of [`Client::rm`]; [`ClientError::FileGone`] if another file has the name.
    pub async fn rm_file(&self, at: RelativePath, file: PutId) -> Result<(), ClientError> {
        self.remove_name(at, Some(file)).await
    }

    /// Takes a name of a file away; of this file alone if there is one.
    async fn remove_name(&self, at: RelativePath, only: Option<PutId>) -> Result<(), ClientError> {
        let number = self.draw_change();
        let mut attempts = self.attempts(format!("removing {at}"), 0);
        loop {
            // The order may be repeated, and must not affect a file that another client stores under the name in
            // between.
            let known = self.inode(at.clone()).await?;
            let Inode::File(file) = known.inode else {
                return Err(ClientError::Refused(
                    MetaError::IsADirectory(at.path).into(),
                ));
            };
            if only.is_some_and(|only| only != file) {
                return Err(ClientError::FileGone(at.to_string()));
            }
            let request = ask::RemoveFile {
                at: at.clone(),
                file,
                generation: known.generation,
                number,
            };
            if is_settled(&mut attempts, self.ask(request).await).await? {
                return Ok(());
            }
        }
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is none, or it is not empty; [`ClientError::Late`] when other clients rename
    /// it all the time; [`ClientError::NoCoordinator`], after which the directory may be gone.
    pub async fn remove_directory(&self, at: impl Into<RelativePath>) -> Result<(), ClientError> {
        let at = at.into();
        let number = self.draw_change();
        let mut attempts = self.attempts(format!("removing {at}"), 0);
        loop {
            let known = self.inode(at.clone()).await?;
            let Inode::Directory(directory) = known.inode else {
                return Err(ClientError::Refused(
                    MetaError::NotADirectory(at.path).into(),
                ));
            };
            let request = ask::RemoveDirectory {
                directory,
                generation: known.generation,
                number,
            };
            if is_settled(&mut attempts, self.ask(request).await).await? {
                return Ok(());
            }
        }
    }
}

impl File {
    /// Takes the name by which it was opened away. Another file that has the name by now keeps it.
    ///
    /// # Errors
    /// Those of [`Client::rm`]; [`ClientError::FileGone`] if another file has the name.
    pub async fn remove(&self) -> Result<(), ClientError> {
        let at = RelativePath::from(self.name());
        self.client.rm_file(at, self.put_id()).await
    }
}

/// Whether a change of names was made. If it named an earlier state, this pauses, and the caller looks again.
async fn is_settled(
    attempts: &mut Attempts,
    done: Result<(), ClientError>,
) -> Result<bool, ClientError> {
    match done {
        Err(stale) if stale.cause() == Cause::Stale => {
            attempts.pause(stale.to_string()).await?;
            Ok(false)
        }
        done => done.map(|()| true),
    }
}
