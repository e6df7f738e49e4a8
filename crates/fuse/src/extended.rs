//! Extended attributes: the user's own, and three that show where and how safely a file is stored.
//!
//! Names outside of `user.` are refused without a look-up: the kernel asks for `security.capability` before every
//! write.

use crate::errno::Errno;
use crate::gateway::Gateway;
use fuser::INodeNo;
use gabion_client::{Cause, Presence};
use gabion_meta::Inode;
use std::ffi::OsStr;

/// The names of attributes that users may set begin with this.
const USER: &str = "user.";
/// The names of attributes that show the cluster's own facts begin with this.
const OWN: &str = "user.gabion.";
const POOL: &str = "user.gabion.pool";
const LAYOUT: &str = "user.gabion.layout";
const FAILURES_LEFT: &str = "user.gabion.failures_left";

/// Linux's numbers of the flags of `setxattr`.
const CREATE: i32 = 1;
const REPLACE: i32 = 2;

impl Gateway {
    /// The value of an attribute.
    pub(crate) async fn attribute(&self, number: INodeNo, name: &str) -> Result<Vec<u8>, Errno> {
        let inode = self.numbers.inode(number);
        if name.starts_with(OWN) {
            return self.own_attribute(inode, name).await;
        }
        let mut all = self.client.user_attributes(inode).await?;
        all.remove(in_cluster(name)).ok_or(Errno::NoData)
    }

    /// The names of the attributes that users have given, each with a zero byte behind it. The gateway's own are not
    /// listed: programs that copy attributes could not set them.
    pub(crate) async fn attribute_names(&self, number: INodeNo) -> Result<Vec<u8>, Errno> {
        let inode = self.numbers.inode(number);
        let users = self.client.user_attributes(inode).await?;
        let mut all = String::new();
        for name in users.keys() {
            all += USER;
            all += name;
            all += "\0";
        }
        Ok(all.into_bytes())
    }

    /// Sets an attribute.
    pub(crate) async fn set_attribute(
        &self,
        number: INodeNo,
        name: &str,
        (value, flags): (Vec<u8>, i32),
    ) -> Result<(), Errno> {
        let name = self.settable(name)?;
        let inode = self.numbers.inode(number);
        let presence = match flags {
            0 => Presence::Any,
            CREATE => Presence::Absent,
            REPLACE => Presence::There,
            _ => return Err(Errno::Invalid),
        };
        self.store_attribute(inode, (name, Some(value)), presence)
            .await
    }

    /// Removes an attribute.
    pub(crate) async fn remove_attribute(&self, number: INodeNo, name: &str) -> Result<(), Errno> {
        let name = self.settable(name)?;
        let inode = self.numbers.inode(number);
        self.store_attribute(inode, (name, None), Presence::There)
            .await
    }

    async fn store_attribute(
        &self,
        inode: Inode,
        (name, value): (&str, Option<Vec<u8>>),
        presence: Presence,
    ) -> Result<(), Errno> {
        let stored = self
            .client
            .set_user_attribute(inode, (in_cluster(name), value), presence)
            .await;
        match stored {
            Err(error) if error.cause() == Cause::NotFound => Err(Errno::NoData),
            Err(error) if error.cause() == Cause::TooLarge => Err(Errno::NoSpace),
            stored => Ok(stored?),
        }
    }

    fn settable<'a>(&self, name: &'a str) -> Result<&'a str, Errno> {
        self.check_writable()?;
        if name.starts_with(OWN) {
            return Err(Errno::NotPermitted);
        }
        Ok(name)
    }

    /// An attribute that shows where and how safely a file is stored.
    async fn own_attribute(&self, inode: Inode, name: &str) -> Result<Vec<u8>, Errno> {
        let status = self.status(inode).await?;
        let (Inode::File(put), Some(pool)) = (inode, status.pool) else {
            return Err(Errno::NoData);
        };
        let pool = self.pools.get(&self.client, pool).await?;
        let spec = &pool.as_ref().ok_or(Errno::NoData)?.spec;
        let value = match name {
            POOL => spec.name.clone(),
            LAYOUT => format!(
                "code={} chunk_bytes={} stripes={} inline_bytes={}",
                spec.code, spec.chunk_bytes, status.stripe_count, status.inline_bytes
            ),
            FAILURES_LEFT => {
                let left = self.client.open_inode(put).await?.failures_left().await?;
                left.ok_or(Errno::NoData)?.to_string()
            }
            _ => return Err(Errno::NoData),
        };
        Ok(value.into_bytes())
    }
}

/// The name of a user's attribute in the cluster, where all attributes are users'.
fn in_cluster(name: &str) -> &str {
    name.strip_prefix(USER).unwrap_or(name)
}

/// The name of an attribute that is read or listed.
pub(crate) fn readable(name: &OsStr) -> Result<String, Errno> {
    checked(name, Errno::NoData)
}

/// The name of an attribute that is set or removed.
pub(crate) fn writable(name: &OsStr) -> Result<String, Errno> {
    checked(name, Errno::NotSupported)
}

fn checked(name: &OsStr, of_others: Errno) -> Result<String, Errno> {
    let name = name.to_str().filter(|name| name.starts_with(USER));
    match name {
        Some(USER) => Err(Errno::Invalid),
        Some(name) => Ok(name.to_owned()),
        None => Err(of_others),
    }
}

/// The contents of a reply of values or names.
pub(crate) enum Fitted {
    /// Only the size was asked for.
    Size(u32),
    /// All of it.
    Bytes(Vec<u8>),
}

/// Fits bytes into the caller's buffer.
pub(crate) fn fit(bytes: Vec<u8>, room: u32) -> Result<Fitted, Errno> {
    let length = u32::try_from(bytes.len()).map_err(|_| Errno::OutOfRange)?;
    match room {
        0 => Ok(Fitted::Size(length)),
        room if length > room => Err(Errno::OutOfRange),
        _ => Ok(Fitted::Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_users_are_known() {
        assert_eq!(readable(OsStr::new("user.a")), Ok("user.a".to_owned()));
        assert_eq!(
            readable(OsStr::new("security.capability")),
            Err(Errno::NoData)
        );
        assert_eq!(
            writable(OsStr::new("system.posix_acl_access")),
            Err(Errno::NotSupported)
        );
        assert_eq!(writable(OsStr::new("user.")), Err(Errno::Invalid));
    }

    #[test]
    fn a_value_fits_or_is_refused() {
        assert!(matches!(fit(vec![0; 5], 0), Ok(Fitted::Size(5))));
        assert!(matches!(fit(vec![0; 5], 5), Ok(Fitted::Bytes(_))));
        assert!(matches!(fit(vec![0; 5], 4), Err(Errno::OutOfRange)));
    }
}
