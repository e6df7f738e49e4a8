//! Operations with quotas and with snapshots of directories on the cluster, by the real client.

use super::answer::Answer;
use super::files::Sizes;
use super::operation::WithinOperation;
use super::perform::{Outcome, done, existing};
use super::runner::Runner;
use super::within::{POOL, WITHIN_POOL};
use crate::names::SNAPSHOTS;
use gabion_client::NewFile;
use gabion_meta::{Inode, Limit, QuotaChange};

/// The path of a file of the pool with limited bytes.
pub(crate) fn path_within(name: &str) -> String {
    format!("{SNAPSHOTS}within/{name}")
}

/// The limit of the pool's bytes.
pub(crate) fn byte_limit(stripes: Option<u64>, sizes: Sizes) -> Limit {
    match stripes {
        None => Limit::Unlimited,
        Some(count) => Limit::AtMost(count * sizes.stripe_bytes),
    }
}

impl Runner {
    /// Makes a snapshot or a clone of a directory.
    pub(crate) async fn share_tree(&self, (path, to): (&str, &str), is_read_only: bool) -> Outcome {
        let client = &self.client.client;
        let found = client.inode(self.expected.absolute(path)).await?;
        match found.inode {
            Inode::File(_) => Ok(Answer::Done),
            tree @ Inode::Directory(_) => {
                let to = self.expected.absolute(to);
                client.snapshot(tree, to, is_read_only).await.map(done)
            }
        }
    }

    /// Changes or ends the quota of a directory.
    pub(crate) async fn set_quota(&self, path: &str, change: Option<QuotaChange>) -> Outcome {
        let client = &self.client.client;
        let found = client.inode(self.expected.absolute(path)).await?;
        match found.inode {
            Inode::File(_) => Ok(Answer::Done),
            Inode::Directory(id) => client.set_directory_quota(id, change).await.map(done),
        }
    }

    /// Limits the files of the pool.
    pub(crate) async fn limit_files(&self, limit: Limit) -> Outcome {
        let change = QuotaChange {
            files: Some(limit),
            bytes: None,
        };
        self.client.client.set_quota(POOL, change).await.map(done)
    }

    /// Carries out an operation in the pool with limited bytes.
    pub(crate) async fn use_within(&self, operation: &WithinOperation) -> Outcome {
        let client = &self.client.client;
        match operation {
            WithinOperation::Limit(limit) => {
                let limit = byte_limit(*limit, self.expected.sizes);
                let change = QuotaChange {
                    bytes: Some(limit),
                    files: None,
                };
                client.set_quota(WITHIN_POOL, change).await.map(done)
            }
            WithinOperation::Put {
                name,
                content,
                replaces,
            } => {
                let path = path_within(name);
                let new = NewFile {
                    existing: existing(*replaces),
                    pool: Some(WITHIN_POOL),
                    ..NewFile::named(&path)
                };
                let bytes = content.bytes();
                let put = client.put_over(new, bytes.as_slice(), content.length, &());
                put.await.map(|_| Answer::Done)
            }
            WithinOperation::File { name, access } => {
                let file = client.open(&path_within(name)).await?;
                self.access(&file, None, access).await
            }
            WithinOperation::Remove(name) => client.rm(path_within(name)).await.map(done),
        }
    }
}
