//! Files that clients open in their sessions, and the end of those that have no name any more when no client has them
//! open.

use super::Files;
use crate::coordinator::client_sessions::{Claim, Found, Grant};
use crate::coordinator::core::Answer;
use crate::message::{Opening, ask};
use gabion_meta::{KeyValue, Meta, MetaError, PutId};
use std::sync::Arc;

/// Most orphans that end in one transaction.
const FREED_COUNT: usize = 256;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Opens a file in a client's session. It counts as open before it is looked up: a removal either sees that, or is
    /// seen.
    pub(in crate::coordinator) async fn open_file(
        self: &Arc<Self>,
        ask::OpenFile { file, opener }: ask::OpenFile,
    ) -> Answer<Opening> {
        let sessions = &self.core.sessions;
        if sessions.open(opener, file)? == Claim::Over {
            return Ok(Opening::Over);
        }
        let answer = self.lookup_file(ask::LookupFile { file, offset: 0 }).await;
        let found = match &answer {
            Ok(Some(layout)) if layout.file.link_count == 0 => Found::Orphan,
            Ok(Some(_)) => Found::Named,
            _ => Found::Nothing,
        };
        match sessions.settle_open(opener, file, found)? {
            Grant::Denied if found == Found::Orphan => Ok(Opening::Gone),
            Grant::Granted | Grant::Denied => Ok(answer?.map_or(Opening::Gone, Opening::Open)),
            Grant::Over => Ok(Opening::Over),
        }
    }

    /// Ends orphans that no client has open any more, until the metadata store fails.
    pub(in crate::coordinator) async fn free_orphans(self: Arc<Self>) {
        let core = &self.core;
        while !core.is_broken() {
            let idle = core.sessions.take_idle(FREED_COUNT);
            if idle.is_empty() {
                core.sessions.orphans_are_idle().await;
                continue;
            }
            let Err(error) = self.free(idle.clone()).await else {
                continue;
            };
            core.note_error(format!("removed files are not freed yet: {error}"));
            core.ports.sleep_ms(core.options.retry_ms).await;
            // One that cannot be freed does not keep the others.
            for file in idle {
                if self.free(vec![file]).await.is_err() {
                    core.sessions.give_back(vec![file]);
                }
            }
        }
    }

    async fn free(&self, files: Vec<PutId>) -> Result<(), MetaError> {
        let free = move |meta: &Meta<K>| meta.free_orphans(&files);
        if self.core.with_meta(free).await? > 0 {
            self.leftovers.wake();
        }
        Ok(())
    }
}
