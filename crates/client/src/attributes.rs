//! Attributes of files and directories.

use crate::client::Client;
use crate::error::ClientError;
use crate::file::File;
use gabion_meta::{AttributeChange, Attributes, Inode, RelativePath, WallTime};
use gabion_protocol::message::{Cause, Denial, ask};
use std::collections::BTreeMap;

/// The inode to change.
enum Target<'a> {
    /// The inode that has the path at that moment.
    Path(&'a RelativePath),
    /// This inode, regardless of its path.
    Inode(Inode),
}

/// The required state of a user attribute before a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It may exist or not.
    Any,
    /// It must exist.
    There,
    /// It must not exist.
    Absent,
}

impl Client {
    /// Changes attributes of the inode of a path, all at once and once. Those that are absent stay, even if another
    /// client changes them at the same time. Returns all of them.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when nothing has the path, or for invalid values; [`ClientError::Late`] when other
    /// clients change them all the time; [`ClientError::NoCoordinator`], after which they may have changed.
    pub async fn set_attributes(
        &self,
        at: impl Into<RelativePath>,
        change: &AttributeChange,
    ) -> Result<Attributes, ClientError> {
        let at = at.into();
        let name = at.path.clone();
        self.change_attributes(&Target::Path(&at), &name, change)
            .await
    }

    /// As [`Client::set_attributes`], of this inode, whatever its path.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; otherwise those of [`Client::set_attributes`].
    pub async fn set_inode_attributes(
        &self,
        inode: Inode,
        change: &AttributeChange,
    ) -> Result<Attributes, ClientError> {
        self.change_attributes(&Target::Inode(inode), "an inode", change)
            .await
    }

    /// Notes when a file was written last, by a clock that shows `now`. The cluster's time never goes back: if it
    /// knows a later one that has passed, this adds a nanosecond to that, so that the write shows. A time in the
    /// future is not later: a user has chosen it before.
    ///
    /// # Errors
    /// Those of [`Client::set_inode_attributes`].
    pub async fn note_written(
        &self,
        inode: Inode,
        written: WallTime,
        now: WallTime,
    ) -> Result<(), ClientError> {
        let change = |known: &Attributes| AttributeChange {
            modified: Some(time_to_tell(known.modified, written, now)),
            ..AttributeChange::default()
        };
        let target = Target::Inode(inode);
        let name = format!("{inode:?}");
        self.change_by(&target, &name, change).await.map(drop)
    }

    /// The attributes that users have given to an inode, by their names.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when it is gone; [`ClientError::NoCoordinator`].
    pub async fn user_attributes(
        &self,
        inode: Inode,
    ) -> Result<BTreeMap<String, Vec<u8>>, ClientError> {
        Ok(self.ask(ask::UserAttributes(inode)).await?.1)
    }

    /// Sets or removes a user attribute of an inode.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when it is there or absent although the caller required the opposite
    /// ([`Cause::Exists`] and [`Cause::NotFound`]), for invalid names, for more than 64 KiB of names and values, and
    /// when the inode is gone; [`ClientError::Late`] when other clients change its attributes all the time;
    /// [`ClientError::NoCoordinator`], after which it may have changed.
    pub async fn set_user_attribute(
        &self,
        inode: Inode,
        (name, value): (&str, Option<Vec<u8>>),
        presence: Presence,
    ) -> Result<(), ClientError> {
        let mut attempts = self.attempts(format!("setting the user attribute {name}"), 0);
        let number = self.draw_change();
        let user = BTreeMap::from([(name.to_owned(), value)]);
        let change = AttributeChange {
            user,
            ..AttributeChange::default()
        };
        loop {
            let (seen, present) = self.ask(ask::UserAttributes(inode)).await?;
            let refuse = |cause, what: &str| {
                let sentence = format!("the user attribute '{name}' {what}");
                Err(ClientError::Refused(Denial::new(cause, sentence)))
            };
            match (presence, present.contains_key(name)) {
                (Presence::There, false) => return refuse(Cause::NotFound, "does not exist"),
                (Presence::Absent, true) => return refuse(Cause::Exists, "already exists"),
                _ => {}
            }
            let request = ask::SetAttributes {
                inode,
                seen,
                number,
                change: change.clone(),
            };
            match self.ask(request).await {
                Err(ClientError::Refused(denial)) if denial.cause == Cause::Stale => {
                    attempts.pause(denial).await?;
                }
                done => return done.map(drop),
            }
        }
    }

    async fn change_attributes(
        &self,
        target: &Target<'_>,
        name: &str,
        change: &AttributeChange,
    ) -> Result<Attributes, ClientError> {
        self.change_by(target, name, |_| change.clone()).await
    }

    /// The same with a change that depends on the attributes that it follows.
    async fn change_by(
        &self,
        target: &Target<'_>,
        name: &str,
        change: impl Fn(&Attributes) -> AttributeChange,
    ) -> Result<Attributes, ClientError> {
        let mut attempts = self.attempts(format!("changing the attributes of {name}"), 0);
        let number = self.draw_change();
        loop {
            let known = match *target {
                Target::Path(at) => self.inode(at.clone()).await?,
                Target::Inode(inode) => {
                    let known = self.inode_status(inode).await?;
                    known.ok_or_else(|| ClientError::FileGone(name.to_owned()))?
                }
            };
            let request = ask::SetAttributes {
                inode: known.inode,
                seen: known.attributes.version,
                number,
                change: change(&known.attributes),
            };
            match self.ask(request).await {
                Err(ClientError::Refused(denial)) if denial.cause == Cause::Stale => {
                    attempts.pause(denial).await?;
                }
                done => return done,
            }
        }
    }
}

/// The time of a file's last write that is told to a cluster which knows this one.
fn time_to_tell(known: WallTime, written: WallTime, now: WallTime) -> WallTime {
    if written > known || known > now {
        return written;
    }
    let nanoseconds = known.nanoseconds + 1;
    if nanoseconds < 1_000_000_000 {
        WallTime {
            nanoseconds,
            ..known
        }
    } else {
        WallTime {
            seconds: known.seconds + 1,
            nanoseconds: 0,
        }
    }
}

impl File {
    /// Its attributes now.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub async fn attributes(&self) -> Result<Attributes, ClientError> {
        let inode = Inode::File(self.put_id());
        let known = self.client.inode_status(inode).await?;
        let known = known.ok_or_else(|| ClientError::FileGone(self.name().to_owned()))?;
        Ok(known.attributes)
    }

    /// Changes attributes of the file, whatever its name is by now. Returns all of them.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; otherwise those of [`Client::set_attributes`].
    pub async fn set_attributes(
        &self,
        change: &AttributeChange,
    ) -> Result<Attributes, ClientError> {
        let inode = Inode::File(self.put_id());
        let target = Target::Inode(inode);
        self.client
            .change_attributes(&target, self.name(), change)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_write_shows_and_does_not_go_back() {
        let at = |seconds, nanoseconds| WallTime {
            seconds,
            nanoseconds,
        };
        let now = at(1_000, 0);
        let told = |known, written| time_to_tell(known, written, now);
        assert_eq!(told(at(850, 0), at(900, 5)), at(900, 5));
        assert_eq!(
            told(at(950, 7), at(900, 5)),
            at(950, 8),
            "another mount has written it"
        );
        assert_eq!(told(at(950, 999_999_999), at(900, 5)), at(951, 0));
        assert_eq!(
            told(at(2_000, 0), at(900, 5)),
            at(900, 5),
            "a user's choice"
        );
    }
}
