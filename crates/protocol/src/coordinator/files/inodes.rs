//! Inodes, their attributes, and links.

use super::Files;
use super::pools::{no_pool, pool_of};
use crate::coordinator::core::Answer;
use crate::message::ask;
use gabion_meta::{Attributes, Inode, InodeStatus, KeyValue, Meta, MetaError, PutId};
use std::collections::BTreeMap;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Returns the inode of a path.
    pub(in crate::coordinator) async fn lookup_inode(
        &self,
        ask::LookupInode { at }: ask::LookupInode,
    ) -> Answer<Box<InodeStatus>> {
        let look = move |meta: &Meta<K>| meta.inode(at);
        Ok(Box::new(self.core.with_meta(look).await?))
    }

    /// A file or directory, whatever its path.
    pub(in crate::coordinator) async fn stat_inode(
        &self,
        inode: Inode,
    ) -> Answer<Option<Box<InodeStatus>>> {
        let look = move |meta: &Meta<K>| stat_inode(meta, inode);
        Ok(self.core.with_meta(look).await?)
    }

    /// Changes attributes.
    pub(in crate::coordinator) async fn set_attributes(
        &self,
        asked: ask::SetAttributes,
    ) -> Answer<Attributes> {
        let version = (asked.seen, asked.number);
        let set = move |meta: &Meta<K>| meta.set_attributes(asked.inode, version, &asked.change);
        Ok(self.core.with_meta(set).await?)
    }

    /// The attributes that users have given to an inode.
    pub(in crate::coordinator) async fn user_attributes(
        &self,
        inode: Inode,
    ) -> Answer<(u64, BTreeMap<String, Vec<u8>>)> {
        let look = move |meta: &Meta<K>| user_attributes(meta, inode);
        Ok(self.core.with_meta(look).await?)
    }

    /// Gives a file one more name.
    pub(in crate::coordinator) async fn link(&self, asked: ask::Link) -> Answer<()> {
        let version = (asked.generation, asked.number);
        let link = move |meta: &Meta<K>| meta.link(asked.file, version, asked.to);
        Ok(self.core.with_meta(link).await?)
    }

    /// Makes a symbolic link.
    pub(in crate::coordinator) async fn make_symlink(&self, asked: ask::MakeSymlink) -> Answer<()> {
        let times = (asked.number, self.core.lifetime_ms());
        let make = move |meta: &Meta<K>| {
            let Some(pool) = pool_of(meta, asked.pool.as_deref())? else {
                return Ok(Some(no_pool(meta)?));
            };
            meta.make_symlink(asked.at, &asked.target, (pool, asked.attributes), times)?;
            Ok(None)
        };
        match self.core.with_meta(make).await? {
            None => Ok(()),
            Some(refused) => Err(refused.into()),
        }
    }

    /// The path to which a symbolic link leads.
    pub(in crate::coordinator) async fn read_link(&self, file: PutId) -> Answer<Option<String>> {
        let look = move |meta: &Meta<K>| meta.target(file);
        Ok(self.core.with_meta(look).await?)
    }
}

/// A file or directory, whatever its path; none if it is gone.
pub(in crate::coordinator) fn stat_inode<K: KeyValue>(
    meta: &Meta<K>,
    inode: Inode,
) -> Result<Option<Box<InodeStatus>>, MetaError> {
    match meta.inode_status(inode) {
        Ok(status) => Ok(Some(Box::new(status))),
        Err(MetaError::FileGone(_) | MetaError::DirectoryGone(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The user attributes of a file or directory, and their version.
pub(in crate::coordinator) fn user_attributes<K: KeyValue>(
    meta: &Meta<K>,
    inode: Inode,
) -> Result<(u64, BTreeMap<String, Vec<u8>>), MetaError> {
    let (attributes, user) = meta.user_attributes(inode)?;
    Ok((attributes.version, user))
}
