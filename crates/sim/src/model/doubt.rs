//! Operations whose outcome is unknown: finds out what has become of them, or makes it known by another operation.

use super::answer::FileNumber;
use super::difference::is_between;
use super::expected::Expected;
use super::operation::{Access, AloneOperation, LockOperation, Operation};
use super::runner::Runner;
use gabion_client::TakeOver;
use std::sync::Arc;

impl Runner {
    /// Takes over what has become of an operation in doubt. The cluster is whole.
    pub(crate) async fn decide(
        &mut self,
        operation: &Operation,
        before: Expected,
    ) -> Result<(), String> {
        if let Some((file, access)) = before.accessed(operation) {
            return self.decide_access((file, access), &before).await;
        }
        match operation {
            Operation::Lock(lock) => self.decide_lock(lock, before).await,
            Operation::Alone(alone) => self.decide_session(alone, before).await,
            _ => {
                let Err(after) = self.compare_all().await else {
                    return Ok(());
                };
                self.expected = before;
                let compared = self.compare_all().await;
                compared.map_err(|before| {
                    format!("neither after it ({after}) nor before it ({before})")
                })
            }
        }
    }

    async fn decide_access(
        &mut self,
        (file, access): (FileNumber, &Access),
        before: &Expected,
    ) -> Result<(), String> {
        let path = before.paths_of(file)[0];
        let opened = self.client.client.open(&before.absolute(path)).await;
        let opened = opened.map_err(|error| error.to_string())?;
        let read = self.read_all(&opened).await?;
        let old = &before.files[&file];
        let new = self.expected.files.get_mut(&file);
        let new = Arc::make_mut(new.expect("an access removes no file"));
        is_between((&old.bytes, &new.bytes), &read, access)?;
        new.bytes = read;
        new.stored.extend(&old.stored);
        self.compare_all().await
    }

    /// Lets the holder close the file: it has no locks from then on, whatever it had.
    async fn decide_lock(&mut self, lock: &LockOperation, before: Expected) -> Result<(), String> {
        let file = before.file_at(&lock.path);
        self.expected = before;
        let Some(file) = file else {
            return self.compare_all().await;
        };
        if let Some(handle) = self.lock_handles.get(&(lock.holder.client, file)) {
            let released = handle.release(lock.holder.owner()).await;
            released.map_err(|error| format!("the release: {error}"))?;
        }
        self.expected.locks.release((file, lock.holder));
        self.compare_all().await
    }

    /// Lets a client take the file over and end its session: no client has it from then on.
    async fn decide_session(
        &mut self,
        alone: &AloneOperation,
        before: Expected,
    ) -> Result<(), String> {
        let file = match alone {
            AloneOperation::Open { path, .. } => before.file_at(path),
            AloneOperation::Use(handle, _)
            | AloneOperation::End(handle)
            | AloneOperation::Drop(handle) => before.handles.get(handle).map(|handle| handle.file),
        };
        self.expected = before;
        if let Some(file) = file.filter(|file| !self.expected.files[file].is_read_only) {
            let path = self.expected.absolute(self.expected.paths_of(file)[0]);
            let client = &self.client.client;
            let opened = client.open_exclusive(&path, TakeOver::Now).await;
            let opened = opened.map_err(|error| format!("the take-over: {error}"))?;
            let ended = opened.end_session().await;
            ended.map_err(|error| format!("the end of the session: {error}"))?;
            self.expected.sole.remove(&file);
        }
        self.compare_all().await
    }
}
