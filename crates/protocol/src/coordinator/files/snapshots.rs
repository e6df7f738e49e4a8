//! Snapshots and clones. The file is frozen first: no node updates it in place any more, and no update of it runs. Then
//! one transaction makes its stripes shared ones. From then on, a primary that asks for the file's token is told that
//! these are not updated in place.
//!
//! A file that an ended run of the coordinator has frozen is not frozen any more, and that run makes no snapshot any
//! more.

use super::Files;
use crate::coordinator::core::{Answer, lock};
use crate::message::{CoordinatorReply, Denial, ask};
use gabion_meta::{FencingToken, KeyValue, Meta, MetaError, PutId};
use std::sync::Arc;

/// Time limit of a node's answer while a file is frozen.
const FROZEN_TELL_MS: u64 = 2_000;
/// A file that has been frozen for this long without success is thawed.
const FROZEN_MS: u64 = 2_000;
/// Pause between two attempts to end the writes of a frozen file.
const PAUSE_MS: u64 = 20;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Makes a file that has the bytes of another one.
    pub(in crate::coordinator) async fn snapshot(self: &Arc<Self>, asked: ask::Snapshot) -> Answer {
        let file = asked.file;
        if !lock(&self.frozen).insert(file) {
            let why = "another snapshot of the file is being taken; try again";
            return Ok(CoordinatorReply::Busy(why.into()));
        }
        let answer = self.snapshot_alone(asked).await;
        lock(&self.frozen).remove(&file);
        answer
    }

    /// The same while no other snapshot of the file is made.
    async fn snapshot_alone(self: &Arc<Self>, asked: ask::Snapshot) -> Answer {
        let (file, number, to) = (asked.file, asked.number, asked.to.clone());
        let limit = self.core.options.discarded_count;
        let check = move |meta: &Meta<K>| {
            meta.with_room(limit, || meta.check_snapshot(file, to.clone(), number))
        };
        let Some(present) = self.core.with_meta(check).await? else {
            return Ok(CoordinatorReply::Done);
        };
        self.core.check_metadata_disk()?;
        // Before writers have to wait, stripes are settled for which no primary vouches, and nodes that cannot answer
        // are found.
        if let Some(why) = self.raise(file, present).await? {
            return Ok(CoordinatorReply::Busy(why));
        }
        let ports = &self.core.ports;
        let begun_ms = ports.now_ms();
        let answer = self.snapshot_frozen(asked).await;
        self.core.with_meta(move |meta| meta.thaw(file)).await?;
        if matches!(answer, Ok(CoordinatorReply::Busy(_))) {
            // The client asks again at once, and writers need their time.
            let frozen_ms = ports.now_ms().saturating_sub(begun_ms);
            ports.sleep_ms(frozen_ms).await;
        }
        answer
    }

    async fn snapshot_frozen(self: &Arc<Self>, asked: ask::Snapshot) -> Answer {
        let ask::Snapshot {
            file,
            to,
            is_read_only,
            number,
        } = asked;
        let token = self.core.with_meta(move |meta| meta.freeze(file)).await?;
        if let Some(why) = self.end_writes(file, token).await? {
            return Ok(CoordinatorReply::Busy(why));
        }
        let times = (number, self.core.lifetime_ms());
        let limit = self.core.options.discarded_count;
        let make = move |meta: &Meta<K>| {
            meta.with_room(limit, || {
                meta.snapshot((file, token), to.clone(), is_read_only, times)
            })
        };
        match self.core.with_meta(make).await {
            Ok(()) => Ok(CoordinatorReply::Done),
            // Locks of the file were lost meanwhile, which raises its token too.
            Err(error @ MetaError::Superseded { .. }) => Ok(CoordinatorReply::Busy(error.into())),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until no write of a frozen file runs. Returns the reason why that takes too long. Replacements end by
    /// themselves: none is committed, and none begins.
    async fn end_writes(
        self: &Arc<Self>,
        file: PutId,
        token: FencingToken,
    ) -> Result<Option<Denial>, Denial> {
        let ports = &self.core.ports;
        let begun_ms = ports.now_ms();
        loop {
            let in_the_way = self.raise_within(file, token, FROZEN_TELL_MS).await?;
            if in_the_way.is_none() || ports.now_ms() >= begun_ms + FROZEN_MS {
                return Ok(in_the_way);
            }
            ports.sleep_ms(PAUSE_MS).await;
        }
    }
}
