//! Comparisons of the cluster with the model.

use super::answer::{Answer, FileNumber};
use super::difference::{difference, first_difference};
use super::entry::Entry;
use super::perform::{list, put_id, status_of, stored};
use super::runner::Runner;
use crate::verify::verify_file_of;
use gabion_client::File;
use gabion_layout::ByteRange;
use gabion_meta::{Inode, PutId};
use std::collections::BTreeMap;

impl Runner {
    /// All bytes of a file.
    pub(crate) async fn read_all(&self, file: &File) -> Result<Vec<u8>, String> {
        let all = ByteRange::new(0, file.size_bytes());
        file.read(all).await.map_err(|error| error.to_string())
    }

    /// Compares names, attributes, sizes, bytes and holes. Returns the ids of the files.
    pub(crate) async fn look_at_all(&self) -> Result<BTreeMap<FileNumber, PutId>, String> {
        let client = &self.client.client;
        let mut directories = vec![String::new()];
        for (path, entry) in &self.expected.entries {
            if matches!(entry, Entry::Directory(_)) {
                directories.push(format!("{path}/"));
            }
        }
        // First the whole list of files, then that of each directory.
        let whole = std::iter::once((String::new(), false));
        let each = directories.into_iter().map(|path| (path, true));
        for (prefix, is_directory) in whole.chain(each) {
            let absolute = self.expected.absolute(&prefix);
            let page = (&*absolute, None);
            let listed = list(client, page, u64::MAX, is_directory).await;
            let listed = listed.map_err(|error| error.to_string())?;
            let expected = self.expected.list((&prefix, None), u64::MAX, is_directory);
            if let Some(what) = difference(&expected, &listed) {
                return Err(format!("the list of {absolute}: {what}"));
            }
        }
        let mut found = BTreeMap::new();
        for (path, entry) in &self.expected.entries {
            let absolute = self.expected.absolute(path);
            let looked = self.look_at((&absolute, entry), &mut found).await;
            looked.map_err(|what| format!("{absolute}: {what}"))?;
        }
        Ok(found)
    }

    async fn look_at(
        &self,
        (path, entry): (&str, &Entry),
        found: &mut BTreeMap<FileNumber, PutId>,
    ) -> Result<(), String> {
        let client = &self.client.client;
        let status = client
            .inode(path)
            .await
            .map_err(|error| error.to_string())?;
        let expected = self.expected.status(entry);
        if let Some(what) = difference(&expected, &Answer::Status(status_of(&status))) {
            return Err(what);
        }
        let user = client.user_attributes(status.inode).await;
        let (user, known) = (
            user.map_err(|error| error.to_string())?,
            self.expected.known(entry).user,
        );
        if user != known {
            return Err(format!("expected {known:?}, and it was {user:?}"));
        }
        let (Entry::File(number), Some(put)) = (entry, put_id(status.inode)) else {
            return Ok(());
        };
        let known = self.puts.get(number).or_else(|| found.get(number));
        if known.is_some_and(|known| *known != put) {
            return Err(format!("expected {known:?}, and it was {put:?}"));
        }
        if found.insert(*number, put).is_some() {
            // It was compared by another name.
            return Ok(());
        }
        self.look_into((path, *number), status.inode).await
    }

    /// Compares the bytes of a file, or the target of a symbolic link.
    async fn look_into(
        &self,
        (path, number): (&str, FileNumber),
        inode: Inode,
    ) -> Result<(), String> {
        let (client, expected) = (&self.client.client, &self.expected.files[&number]);
        if let (Some(target), Some(put)) = (&expected.target, put_id(inode)) {
            let found = client
                .read_link(put)
                .await
                .map_err(|error| error.to_string())?;
            return if found == *target {
                Ok(())
            } else {
                Err(format!("expected {target}, and it was {found}"))
            };
        }
        let file = client.open(path).await.map_err(|error| error.to_string())?;
        let read = self.read_all(&file).await?;
        if let Some(what) = first_difference(&expected.bytes, &read) {
            return Err(what);
        }
        let ranges = stored(&file).await.map_err(|error| error.to_string())?;
        match expected.check_stored(&ranges, self.expected.sizes) {
            None => Ok(()),
            Some(what) => Err(what),
        }
    }

    /// Checks the chunks of all files, the metadata, and that a scrub finds nothing.
    pub(crate) async fn check_chunks(&self) -> Result<(), String> {
        let scrubbed = self
            .client
            .client
            .scrub()
            .await
            .map_err(|error| error.to_string())?;
        if !scrubbed.damage.is_empty() || !scrubbed.unreachable.is_empty() {
            return Err(format!("a scrub finds {scrubbed:?}"));
        }
        for number in self.expected.files.keys() {
            let paths = self.expected.paths_of(*number);
            let path = paths
                .into_iter()
                .find(|path| self.expected.file_at(path).is_some());
            if let Some(path) = path {
                let path = self.expected.absolute(path);
                let verified = verify_file_of(&self.cluster, &self.client, &path).await;
                verified.map_err(|why| format!("{path}: {why}"))?;
            }
        }
        let contradictions = self.cluster.observer.check();
        let contradictions = contradictions.map_err(|error| error.to_string())?;
        if contradictions.is_empty() {
            Ok(())
        } else {
            Err(format!("the metadata: {}", contradictions.join("; ")))
        }
    }
}
