//! Directories.

use super::Files;
use crate::coordinator::core::Answer;
use crate::message::{CoordinatorReply, CoordinatorRequest as Ask, ask};
use gabion_meta::{Inode, KeyValue, Meta};
use std::sync::Arc;

/// Most entries of a page of a directory: one message holds them, whatever their names.
const ENTRIES_MAX: u64 = 1_000;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Answers a request about directories.
    pub(in crate::coordinator) async fn answer_on_directories(
        self: &Arc<Self>,
        request: Ask,
    ) -> Answer {
        match request {
            Ask::ReadDirectory(page) => self.read_directory(page).await,
            Ask::MakeDirectory(asked) => self.make_directory(asked).await,
            Ask::RemoveDirectory(asked) => self.remove_directory(asked).await,
            Ask::RenameDirectory(asked) => self.rename_directory(asked).await,
            Ask::ExchangeNames(asked) => self.exchange_names(asked).await,
            Ask::SetDirectoryQuota(asked) => self.set_directory_quota(asked).await,
            Ask::DirectoryQuota(inode) => self.directory_quota(inode).await,
            other => Err(format!("{} is no request about directories", other.name()).into()),
        }
    }

    /// A page of the names in a directory.
    async fn read_directory(&self, page: ask::ReadDirectory) -> Answer {
        let ask::ReadDirectory {
            directory,
            after,
            limit,
        } = page;
        let limit = limit.clamp(1, ENTRIES_MAX) as usize;
        let read = move |meta: &Meta<K>| meta.read_directory(directory, after.as_deref(), limit);
        let (entries, is_cut) = self.core.with_meta(read).await?;
        Ok(CoordinatorReply::Entries { entries, is_cut })
    }

    /// Makes a directory.
    async fn make_directory(&self, asked: ask::MakeDirectory) -> Answer {
        let ask::MakeDirectory {
            at,
            attributes,
            number,
        } = asked;
        let make = move |meta: &Meta<K>| meta.make_directory(at.clone(), attributes, number);
        self.core.with_meta(make).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Removes an empty directory.
    async fn remove_directory(&self, asked: ask::RemoveDirectory) -> Answer {
        let ask::RemoveDirectory {
            directory,
            generation,
            number,
        } = asked;
        let remove = move |meta: &Meta<K>| meta.remove_directory(directory, (generation, number));
        self.core.with_meta(remove).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Gives a directory another path.
    async fn rename_directory(&self, asked: ask::RenameDirectory) -> Answer {
        let ask::RenameDirectory {
            directory,
            generation,
            number,
            to,
            existing,
        } = asked;
        let rename = move |meta: &Meta<K>| {
            meta.rename_directory(directory, (generation, number), to.clone(), existing)
        };
        self.core.with_meta(rename).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Gives two files or directories each other's name.
    async fn exchange_names(&self, asked: ask::ExchangeNames) -> Answer {
        let ask::ExchangeNames { names, number } = asked;
        let exchange = move |meta: &Meta<K>| meta.exchange_names(&names, number);
        self.core.with_meta(exchange).await?;
        Ok(CoordinatorReply::Done)
    }

    /// Changes or removes the quota of a directory.
    async fn set_directory_quota(&self, asked: ask::SetDirectoryQuota) -> Answer {
        let ask::SetDirectoryQuota { directory, change } = asked;
        let set = move |meta: &Meta<K>| match change {
            Some(change) => meta.set_directory_quota(directory, change),
            None => meta.remove_directory_quota(directory),
        };
        self.core.with_meta(set).await?;
        Ok(CoordinatorReply::Done)
    }

    /// The quota of a directory that counts an inode.
    async fn directory_quota(&self, inode: Inode) -> Answer {
        let find = move |meta: &Meta<K>| meta.directory_quota(inode);
        let status = self.core.with_meta(find).await?;
        Ok(CoordinatorReply::DirectoryQuota(status.map(Box::new)))
    }
}
