//! Directories.

use super::Files;
use crate::coordinator::core::Answer;
use crate::message::{CoordinatorReply, ask};
use gabion_meta::{KeyValue, Meta};

/// Most entries of a page of a directory: one message holds them, whatever their names.
const ENTRIES_MAX: u64 = 1_000;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// A page of the names in a directory.
    pub(in crate::coordinator) async fn read_directory(&self, page: ask::ReadDirectory) -> Answer {
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
    pub(in crate::coordinator) async fn make_directory(&self, asked: ask::MakeDirectory) -> Answer {
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
    pub(in crate::coordinator) async fn remove_directory(
        &self,
        asked: ask::RemoveDirectory,
    ) -> Answer {
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
    pub(in crate::coordinator) async fn rename_directory(
        &self,
        asked: ask::RenameDirectory,
    ) -> Answer {
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
    pub(in crate::coordinator) async fn exchange_names(&self, asked: ask::ExchangeNames) -> Answer {
        let ask::ExchangeNames { names, number } = asked;
        let exchange = move |meta: &Meta<K>| meta.exchange_names(&names, number);
        self.core.with_meta(exchange).await?;
        Ok(CoordinatorReply::Done)
    }
}
