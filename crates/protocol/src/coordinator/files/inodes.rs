//! Attributes of files and directories.

use super::Files;
use crate::coordinator::core::Answer;
use crate::message::{CoordinatorReply, ask};
use gabion_meta::{KeyValue, Meta};

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// What a path belongs to.
    pub(in crate::coordinator) async fn lookup_inode(
        &self,
        ask::LookupInode { path }: ask::LookupInode,
    ) -> Answer {
        let look = move |meta: &Meta<K>| meta.inode(&path);
        let (inode, attributes) = self.core.with_meta(look).await?;
        Ok(CoordinatorReply::Inode { inode, attributes })
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
        Ok(CoordinatorReply::Inode { inode, attributes })
    }
}
