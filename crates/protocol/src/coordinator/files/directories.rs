//! Directories.

use super::Files;
use crate::coordinator::core::Answer;
use crate::message::{CoordinatorReply, ask};
use gabion_meta::{KeyValue, Meta};

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// The directory with a path.
    pub(in crate::coordinator) async fn lookup_directory(
        &self,
        ask::LookupDirectory { path }: ask::LookupDirectory,
    ) -> Answer {
        let look = move |meta: &Meta<K>| meta.directory(&path);
        let (directory, generation) = self.core.with_meta(look).await?;
        Ok(CoordinatorReply::Directory {
            directory,
            generation,
        })
    }

    /// Makes a directory.
    pub(in crate::coordinator) async fn make_directory(
        &self,
        ask::MakeDirectory { path, attributes }: ask::MakeDirectory,
    ) -> Answer {
        let make = move |meta: &Meta<K>| meta.make_directory(&path, attributes);
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
        } = asked;
        let remove = move |meta: &Meta<K>| meta.remove_directory(directory, generation);
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
            to,
        } = asked;
        let rename = move |meta: &Meta<K>| meta.rename_directory(directory, generation, &to);
        self.core.with_meta(rename).await?;
        Ok(CoordinatorReply::Done)
    }
}
