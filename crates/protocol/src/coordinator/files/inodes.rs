//! Inodes, their attributes, and links.

use super::Files;
use super::pools::{no_pool, pool_of};
use crate::coordinator::core::Answer;
use crate::message::{CoordinatorReply, ask};
use gabion_meta::{Inode, KeyValue, Meta, MetaError, PutId};

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Returns the inode of a path.
    pub(in crate::coordinator) async fn lookup_inode(
        &self,
        ask::LookupInode { at }: ask::LookupInode,
    ) -> Answer {
        let look = move |meta: &Meta<K>| meta.inode(at.clone());
        let status = self.core.with_meta(look).await?;
        Ok(CoordinatorReply::Inode(Box::new(status)))
    }

    /// A file or directory, whatever its path.
    pub(in crate::coordinator) async fn stat_inode(&self, inode: Inode) -> Answer {
        let look = move |meta: &Meta<K>| meta.inode_status(inode);
        match self.core.with_meta(look).await {
            Ok(status) => Ok(CoordinatorReply::Inode(Box::new(status))),
            Err(MetaError::FileGone(_) | MetaError::DirectoryGone(_)) => Ok(CoordinatorReply::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes attributes.
    pub(in crate::coordinator) async fn set_attributes(&self, asked: ask::SetAttributes) -> Answer {
        let ask::SetAttributes {
            inode,
            seen,
            number,
            change,
        } = asked;
        let set = move |meta: &Meta<K>| meta.set_attributes(inode, (seen, number), &change);
        let attributes = self.core.with_meta(set).await?;
        Ok(CoordinatorReply::Attributes(attributes))
    }

    /// The attributes that users have given to an inode.
    pub(in crate::coordinator) async fn user_attributes(&self, inode: Inode) -> Answer {
        let look = move |meta: &Meta<K>| meta.user_attributes(inode);
        let (attributes, user) = self.core.with_meta(look).await?;
        let version = attributes.version;
        Ok(CoordinatorReply::UserAttributes { version, user })
    }

    /// Gives a file one more name.
    pub(in crate::coordinator) async fn link(&self, asked: ask::Link) -> Answer {
        let ask::Link {
            file,
            generation,
            number,
            to,
        } = asked;
        let link = move |meta: &Meta<K>| meta.link(file, (generation, number), to.clone());
        self.core.with_meta(link).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Makes a symbolic link.
    pub(in crate::coordinator) async fn make_symlink(&self, asked: ask::MakeSymlink) -> Answer {
        let ask::MakeSymlink {
            at,
            target,
            pool,
            attributes,
            number,
        } = asked;
        let created_ms = self.core.lifetime_ms();
        let make = move |meta: &Meta<K>| {
            let Some(pool) = pool_of(meta, pool.as_deref())? else {
                return Ok(false);
            };
            let new = (pool, attributes);
            meta.make_symlink(at.clone(), &target, new, (number, created_ms))?;
            Ok(true)
        };
        if self.core.with_meta(make).await? {
            Ok(CoordinatorReply::Done)
        } else {
            Err(no_pool())
        }
    }

    /// The path to which a symbolic link leads.
    pub(in crate::coordinator) async fn read_link(&self, file: PutId) -> Answer {
        let look = move |meta: &Meta<K>| meta.target(file);
        Ok(CoordinatorReply::Target(self.core.with_meta(look).await?))
    }
}
