//! Directories.

use super::Files;
use crate::coordinator::core::Answer;
use crate::message::ask;
use gabion_meta::{DirectoryEntry, Inode, KeyValue, Meta, MetaError, QuotaStatus};

/// Most entries of a page of a directory: one message holds them, whatever their names.
const ENTRIES_MAX: u64 = 1_000;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// A page of the names in a directory.
    pub(in crate::coordinator) async fn read_directory(
        &self,
        page: ask::ReadDirectory,
    ) -> Answer<(Vec<DirectoryEntry>, bool)> {
        let read = move |meta: &Meta<K>| read_directory(meta, &page);
        Ok(self.core.with_meta(read).await?)
    }

    /// Makes a directory.
    pub(in crate::coordinator) async fn make_directory(
        &self,
        asked: ask::MakeDirectory,
    ) -> Answer<()> {
        let make =
            move |meta: &Meta<K>| meta.make_directory(asked.at, asked.attributes, asked.number);
        Ok(self.core.with_meta(make).await?)
    }

    /// Removes an empty directory.
    pub(in crate::coordinator) async fn remove_directory(
        &self,
        asked: ask::RemoveDirectory,
    ) -> Answer<()> {
        let version = (asked.generation, asked.number);
        let remove = move |meta: &Meta<K>| meta.remove_directory(asked.directory, version);
        Ok(self.core.with_meta(remove).await?)
    }

    /// Gives a directory another path.
    pub(in crate::coordinator) async fn rename_directory(
        &self,
        asked: ask::RenameDirectory,
    ) -> Answer<()> {
        let version = (asked.generation, asked.number);
        let rename = move |meta: &Meta<K>| {
            meta.rename_directory(asked.directory, version, asked.to, asked.existing)
        };
        Ok(self.core.with_meta(rename).await?)
    }

    /// Gives two files or directories each other's name.
    pub(in crate::coordinator) async fn exchange_names(
        &self,
        asked: ask::ExchangeNames,
    ) -> Answer<()> {
        let exchange = move |meta: &Meta<K>| meta.exchange_names(&asked.names, asked.number);
        Ok(self.core.with_meta(exchange).await?)
    }

    /// Changes or removes the quota of a directory.
    pub(in crate::coordinator) async fn set_directory_quota(
        &self,
        asked: ask::SetDirectoryQuota,
    ) -> Answer<()> {
        let set = move |meta: &Meta<K>| match asked.change {
            Some(change) => meta.set_directory_quota(asked.directory, change),
            None => meta.remove_directory_quota(asked.directory),
        };
        Ok(self.core.with_meta(set).await?)
    }

    /// The quota of a directory that counts an inode.
    pub(in crate::coordinator) async fn directory_quota(
        &self,
        inode: Inode,
    ) -> Answer<Option<Box<QuotaStatus>>> {
        let find = move |meta: &Meta<K>| meta.directory_quota(inode);
        let status = self.core.with_meta(find).await?;
        Ok(status.map(Box::new))
    }
}

/// A page of the names in a directory, and whether more follow.
pub(in crate::coordinator) fn read_directory<K: KeyValue>(
    meta: &Meta<K>,
    page: &ask::ReadDirectory,
) -> Result<(Vec<DirectoryEntry>, bool), MetaError> {
    let limit = page.limit.clamp(1, ENTRIES_MAX) as usize;
    meta.read_directory(page.directory, page.after.as_deref(), limit)
}
