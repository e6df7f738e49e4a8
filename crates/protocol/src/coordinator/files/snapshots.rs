//! Snapshots and clones, of a file or of all files below a directory. The files are frozen first, all of them together:
//! no node updates them in place any more, and no update of them runs. Then one transaction makes their stripes shared
//! ones. From then on, a primary that asks for a file's token is told that these are not updated in place.
//!
//! A file that an ended run of the coordinator has frozen is not frozen any more, and that run makes no snapshot any
//! more.

use super::Files;
use super::exclusive::TELL_DEADLINE_MS;
use crate::coordinator::core::{Answer, Rejection, lock};
use crate::message::ask;
use gabion_meta::{FencingToken, KeyValue, Meta, MetaError, PutId, SnapshotError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time limit of a node's answer while files are frozen.
const FROZEN_TELL_MS: u64 = 2_000;
/// Files that have been frozen for this long without success are thawed.
const FROZEN_MS: u64 = 2_000;
/// Pause between two attempts to end the writes of frozen files.
const PAUSE_MS: u64 = 20;

/// Files with their tokens.
type Tokens = BTreeMap<PutId, FencingToken>;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Makes a file or a directory that has what another one has.
    pub(in crate::coordinator) async fn snapshot(
        self: &Arc<Self>,
        asked: ask::Snapshot,
    ) -> Answer<()> {
        let Some(present) = self.check_snapshot(&asked).await? else {
            return Ok(());
        };
        self.core.check_metadata_disk()?;
        // Before writers have to wait, stripes are settled for which no primary vouches, and nodes that cannot answer
        // are found.
        self.raise_all(&present, (TELL_DEADLINE_MS, None)).await?;
        let ports = &self.core.ports;
        let (begun_ms, mut frozen) = (ports.now_ms(), Tokens::new());
        let answer = self.snapshot_frozen(&asked, present, &mut frozen).await;
        self.thaw(frozen.into_keys().collect()).await?;
        if matches!(answer, Err(Rejection::Busy(_))) {
            // The client asks again at once, and writers need their time.
            let frozen_ms = ports.now_ms().saturating_sub(begun_ms);
            ports.sleep_ms(frozen_ms).await;
        }
        answer
    }

    /// The files that clients may write in place, of those of which a snapshot is to be made; none if it is made.
    async fn check_snapshot(&self, asked: &ask::Snapshot) -> Result<Option<Tokens>, MetaError> {
        let (inode, to, number) = (asked.inode, asked.to.clone(), asked.number);
        let limit = self.core.options.discarded_count;
        let check = move |meta: &Meta<K>| {
            meta.with_room(limit, || meta.check_snapshot(inode, to.clone(), number))
        };
        self.core.with_meta(check).await
    }

    /// Freezes these files and, in a directory, those that others make writable before all are frozen. Makes the
    /// snapshot when no write of them runs.
    async fn snapshot_frozen(
        self: &Arc<Self>,
        asked: &ask::Snapshot,
        mut found: Tokens,
        frozen: &mut Tokens,
    ) -> Answer<()> {
        let begun_ms = self.core.ports.now_ms();
        loop {
            found.retain(|file, _| !frozen.contains_key(file));
            let files: Vec<PutId> = found.into_keys().collect();
            let Some(tokens) = self.freeze(files).await? else {
                let why = "another snapshot of these files is being taken; try again";
                return Err(Rejection::busy(why));
            };
            frozen.extend(&tokens);
            self.end_writes(&tokens, begun_ms).await?;
            let why = match self.share(asked, frozen.clone()).await {
                Ok(()) => return Ok(()),
                Err(error @ MetaError::Snapshot(SnapshotError::NotFrozen(_))) => error,
                // Locks of a file were lost during the attempt, which raises its token too.
                Err(error @ MetaError::Superseded { .. }) => return Err(Rejection::busy(error)),
                Err(error) => return Err(error.into()),
            };
            if self.core.ports.now_ms() >= begun_ms + FROZEN_MS {
                return Err(Rejection::busy(why));
            }
            let Some(present) = self.check_snapshot(asked).await? else {
                return Ok(());
            };
            found = present;
        }
    }

    /// Freezes files; none if another snapshot has frozen one of them.
    async fn freeze(&self, files: Vec<PutId>) -> Result<Option<Tokens>, MetaError> {
        if files.is_empty() {
            return Ok(Some(Tokens::new()));
        }
        {
            let mut frozen = lock(&self.frozen);
            if files.iter().any(|file| frozen.contains(file)) {
                return Ok(None);
            }
            frozen.extend(&files);
        }
        let asked = files.clone();
        let tokens = self.core.with_meta(move |meta| meta.freeze(&asked)).await;
        let mut frozen = lock(&self.frozen);
        for file in files {
            // Others are gone.
            if !tokens
                .as_ref()
                .is_ok_and(|tokens| tokens.contains_key(&file))
            {
                frozen.remove(&file);
            }
        }
        tokens.map(Some)
    }

    async fn thaw(&self, files: Vec<PutId>) -> Result<(), MetaError> {
        if files.is_empty() {
            return Ok(());
        }
        let asked = files.clone();
        self.core.with_meta(move |meta| meta.thaw(&asked)).await?;
        let mut frozen = lock(&self.frozen);
        for file in files {
            frozen.remove(&file);
        }
        Ok(())
    }

    async fn share(&self, asked: &ask::Snapshot, frozen: Tokens) -> Result<(), MetaError> {
        let ask::Snapshot {
            inode,
            to,
            is_read_only,
            number,
        } = asked.clone();
        let times = (number, self.core.lifetime_ms());
        let limit = self.core.options.discarded_count;
        let make = move |meta: &Meta<K>| {
            meta.with_room(limit, || {
                meta.snapshot((inode, &frozen), to.clone(), is_read_only, times)
            })
        };
        self.core.with_meta(make).await
    }

    /// Waits until no write of frozen files runs. The settlement of a stripe may end after the time limit, and none
    /// begins after it. Replacements end by themselves: none is committed, and none begins.
    ///
    /// # Errors
    /// A rejection for now if that takes too long.
    async fn end_writes(self: &Arc<Self>, tokens: &Tokens, begun_ms: u64) -> Answer<()> {
        let ports = &self.core.ports;
        let end_ms = begun_ms + FROZEN_MS;
        let limits = (FROZEN_TELL_MS, Some(end_ms));
        loop {
            match self.raise_all(tokens, limits).await {
                Err(Rejection::Busy(_)) if ports.now_ms() < end_ms => {
                    ports.sleep_ms(PAUSE_MS).await;
                }
                ended => return ended,
            }
        }
    }
}
