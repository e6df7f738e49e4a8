//! A node's answers as a participant, outside any plan, where they need more than the participant's own
//! work.

use super::{Node, Pinned, lock};
use crate::holdings::latest;
use crate::message::{Refusal, ask};
use crate::ports::{lives, run_blocking};
use futures::{FutureExt, select_biased};
use gabion_layout::{ByteRange, ChunkIndex, Sequence, StripeId};
use std::sync::Arc;

impl Node {
    pub(super) async fn committed(&self, told: ask::Committed) -> Result<(), Refusal> {
        if let Some((primary, progress)) = told.from {
            self.heard.note(primary, progress);
        }
        self.participant.committed(told.marks).await
    }

    pub(super) async fn pin(&self, pin: ask::Pin) -> Result<(), Refusal> {
        let ask::Pin {
            stripe,
            cut,
            hold_ms,
        } = pin;
        let until_ms = self.participant.ports.now_ms().saturating_add(hold_ms);
        self.participant
            .with_store(move |store| store.pin(stripe, cut))
            .await?;
        lock(&self.pins).push(Pinned {
            stripe,
            cut,
            until_ms,
        });
        Ok(())
    }

    /// Forgets some of the pins. If the disk hangs, this returns before the store has forgotten them.
    pub(super) async fn unpin(&self, which: impl Fn(&Pinned) -> bool) {
        let gone: Vec<Pinned> = lock(&self.pins)
            .extract_if(.., |pinned| which(pinned))
            .collect();
        if gone.is_empty() {
            return;
        }
        // Not refused while the disk hangs: the store counts its pins.
        let store = Arc::clone(&self.participant.store);
        let ports = &self.participant.ports;
        let unpinned = run_blocking(&**ports, move || {
            for Pinned { stripe, cut, .. } in gone {
                store.unpin(stripe, cut);
            }
        });
        select_biased! {
            () = unpinned.fuse() => {}
            () = ports.disk_hang().fuse() => {}
        }
    }

    pub(super) async fn missed(
        &self,
        asked: ask::Missed,
    ) -> Result<Option<Vec<(ChunkIndex, ByteRange)>>, Refusal> {
        let missed = self
            .participant
            .with_store(move |store| store.missed_since(asked.chunk, asked.after));
        missed.await
    }

    pub(super) async fn latest(
        &self,
        asked: ask::Latest,
    ) -> Result<Vec<(StripeId, Sequence)>, Refusal> {
        let latest = self
            .participant
            .with_store(move |store| latest(store, asked.stripes));
        latest.await
    }

    pub(super) async fn reach(&self, asked: ask::Reach) -> Result<(), Refusal> {
        let reached = lives(&*self.participant.ports, asked.node).await;
        reached.map_err(|error| Refusal::Unavailable(error.peer))?;
        Ok(())
    }
}
