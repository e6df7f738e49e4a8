//! Snapshots and clones. The file is frozen first: no node updates it in place any more, and no update of it runs. Then
//! one transaction makes its stripes shared ones. From then on, a primary that asks for the file's token is told that
//! these are not updated in place.
//!
//! A file that an ended run of the coordinator has frozen is not frozen any more, and that run makes no snapshot any
//! more.

use super::Files;
use crate::coordinator::core::{Answer, lock};
use crate::message::{CoordinatorReply, ask};
use gabion_meta::{KeyValue, Meta};
use std::sync::Arc;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Makes a file that has the bytes of another one.
    pub(in crate::coordinator) async fn snapshot(self: &Arc<Self>, asked: ask::Snapshot) -> Answer {
        let (file, number, to) = (asked.file, asked.number, asked.to.clone());
        let check = move |meta: &Meta<K>| {
            let is_done = meta.is_change_done(number)?;
            if !is_done {
                meta.check_snapshot(file, to.clone())?;
            }
            Ok(is_done)
        };
        if self.core.with_meta(check).await? {
            return Ok(CoordinatorReply::Done);
        }
        if !lock(&self.frozen).insert(file) {
            let why = "another snapshot of the file is being taken; try again";
            return Ok(CoordinatorReply::Busy(why.into()));
        }
        let answer = self.snapshot_frozen(asked).await;
        let thawed = self.core.with_meta(move |meta| meta.thaw(file)).await;
        lock(&self.frozen).remove(&file);
        thawed?;
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
        let raised = self.raise(file, token).await?;
        if !matches!(raised, CoordinatorReply::Exclusive(_)) {
            return Ok(raised);
        }
        let times = (number, self.core.lifetime_ms());
        let make =
            move |meta: &Meta<K>| meta.snapshot((file, token), to.clone(), is_read_only, times);
        self.core.with_meta(make).await?;
        Ok(CoordinatorReply::Done)
    }
}
