//! Writes that span stripes, fill holes or change the file's size: all segments of the range are rewritten
//! beside the old ones, and the
//! coordinator swaps them in atomically. So the write is complete or absent after any crash. The
//! old stripes accept no updates from before they are read until the swap. `rewrite.rs` says which stripes.

use crate::attempts::Attempts;
use crate::client::topology;
use crate::encoder::Encoder;
use crate::error::{ClientError, passing};
use crate::extent::{Extent, geometry};
use crate::file::File;
use crate::keeper::Keeper;
use crate::layout::{Fleet, Layout};
use crate::open_runs::{Attempted, LastAttempt, OpenReplacement};
use crate::place::Place;
use crate::reading::{Reading, Trouble};
use crate::retry::AttemptError;
use crate::rewrite::{Rewrite, Slot, plan_write};
use crate::write::LAST_CLOSE_MS;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt, TryStreamExt};
use gabion_layout::{ByteRange, Geometry, StaleChunk, StripeRecord, Topology};
use gabion_protocol::message::{Cause, Denial, Refusal, Replacement, SettledStripe, Ticket, ask};
use gabion_protocol::ports::{Ask as _, CoordinatorError};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The end of [`File::rewrite`].
#[must_use]
pub(crate) struct Rewritten {
    /// Whether the file was changed: for its last layout, the plan had something to do.
    pub(crate) has_changed: bool,
}

/// A replacement with stripes reserved by the coordinator. Dropped, it is aborted.
pub(crate) struct Begun {
    layout: Arc<Layout>,
    replacement: Replacement,
    topology: Topology,
    keeper: Keeper,
}

impl Begun {
    /// The data needed to learn its outcome.
    fn open(&self) -> OpenReplacement {
        let old = self.replacement.settled.iter();
        OpenReplacement {
            put: self.replacement.put,
            displaced: old.map(|old| old.stripe.id).collect(),
            is_committed: OnceLock::new(),
        }
    }

    /// Aborts it, and waits briefly until the coordinator knows.
    pub(crate) async fn abort(mut self) {
        self.keeper.abort().await;
    }
}

impl File {
    /// Writes bytes to a range of the file, whatever it spans.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub(crate) async fn replace(
        &self,
        range: ByteRange,
        bytes: &Bytes,
        last_attempt: &LastAttempt,
    ) -> Result<(), ClientError> {
        if self.write_inline(range, bytes, last_attempt).await? {
            return Ok(());
        }
        let what = format!("writing {} at byte {}", self.name(), range.offset);
        let plan = |layout: &Layout| Some(plan_write(layout, range));
        let new = (bytes, last_attempt);
        self.rewrite(what, range, plan, new).await.map(drop)
    }

    /// Writes bytes to a range within a stripe that other files share, so that the file has a stripe of its own
    /// afterwards. Returns false if it has one already, and nothing was written.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub(crate) async fn replace_shared(
        &self,
        extent: &Extent,
        bytes: &Bytes,
        last_attempt: &LastAttempt,
    ) -> Result<bool, ClientError> {
        let range = extent.in_file();
        let what = format!("writing {} at byte {}", self.name(), range.offset);
        let plan = |layout: &Layout| {
            let stripe = layout.find(extent);
            let is_shared = stripe.is_some_and(|stripe| layout.is_shared(stripe.id));
            is_shared.then(|| plan_write(layout, range))
        };
        let new = (bytes, last_attempt);
        Ok(self.rewrite(what, range, plan, new).await?.has_changed)
    }

    /// Changes extents of the file by the plan for the present layout of a range, until that is done or there is
    /// nothing to do. `new` has the new bytes, and gets the last attempt.
    pub(crate) async fn rewrite(
        &self,
        what: String,
        range: ByteRange,
        plan: impl Fn(&Layout) -> Option<Rewrite>,
        new: (&Bytes, &LastAttempt),
    ) -> Result<Rewritten, ClientError> {
        let mut layout = self.layout_of(range).await?;
        let moving_bytes = plan(&layout).map_or(0, |rewrite| rewrite.stored_bytes(&layout));
        let mut attempts = self.client.attempts(what, moving_bytes);
        loop {
            let Some(rewrite) = plan(&layout) else {
                let has_changed = false;
                return Ok(Rewritten { has_changed });
            };
            let planned = (&layout, &rewrite);
            match self.try_replace(planned, &plan, new, &mut attempts).await {
                Ok(()) => break,
                Err(AttemptError::Retry(missing)) => {
                    attempts.pause(missing).await?;
                    layout = self.refresh(range).await?;
                }
                Err(AttemptError::Final(error)) => return Err(error),
            }
        }
        // The write is done. Without the new layout, the next operation finds that it needs one.
        let _ = self.refresh(range).await;
        let has_changed = true;
        Ok(Rewritten { has_changed })
    }

    async fn try_replace(
        &self,
        (layout, rewrite): (&Arc<Layout>, &Rewrite),
        plan: &impl Fn(&Layout) -> Option<Rewrite>,
        new: (&Bytes, &LastAttempt),
        attempts: &mut Attempts,
    ) -> Result<(), AttemptError> {
        if !rewrite.slots.is_empty() && layout.lacks_inline_bytes() {
            Box::pin(self.move_to_stripe()).await?;
            return Err(AttemptError::Retry("the file was inline".into()));
        }
        let begun = self.begin_replace(layout, rewrite, attempts).await?;
        let planned = (rewrite, plan);
        self.finish_replace(begun, planned, new, attempts).await
    }

    /// Stores the new stripes of a replacement that has begun, and swaps them in.
    pub(crate) async fn finish_replace(
        &self,
        mut begun: Begun,
        (rewrite, plan): (&Rewrite, &impl Fn(&Layout) -> Option<Rewrite>),
        (bytes, last_attempt): (&Bytes, &LastAttempt),
        attempts: &mut Attempts,
    ) -> Result<(), AttemptError> {
        let prepared = async {
            if rewrite.depends_on_end {
                // The displaced stripes take no writes from here on, so an end that another client has moved is final.
                let present = self.refresh(begun.layout.window()).await?;
                if plan(&present).as_ref() != Some(rewrite) {
                    return Err(AttemptError::Retry("the file has changed".into()));
                }
            }
            self.write_anew(&begun, rewrite, bytes, attempts).await
        };
        if let Err(error) = prepared.await {
            begun.keeper.abort().await;
            return Err(error);
        }
        let open = Arc::new(begun.open());
        last_attempt.set(Attempted::Replacement(Arc::clone(&open)));
        match self.commit_replace(&open, attempts).await {
            Ok(()) => {
                begun.keeper.release();
                Ok(())
            }
            Err(AttemptError::Final(error)) => {
                begun.keeper.abort().await;
                self.end_replace(&open, error).await
            }
            Err(error) => {
                begun.keeper.abort().await;
                Err(error)
            }
        }
    }

    /// Reserves the new stripes of a change. From here on, the displaced ones take no writes.
    pub(crate) async fn begin_replace(
        &self,
        layout: &Arc<Layout>,
        rewrite: &Rewrite,
        attempts: &Attempts,
    ) -> Result<Begun, AttemptError> {
        let request = ask::BeginReplace {
            file: layout.file.file.put,
            displaced: rewrite.displaced.clone(),
            extents: rewrite.extents().collect(),
            size: rewrite.size,
            inline: rewrite.inline,
            token: self.token().await?,
        };
        let ports = self.client.ports();
        let asked = ports.ask_coordinator(request, attempts.attempt_ms());
        let replacement = asked.await?;
        let counts = (replacement.settled.len(), replacement.stripes.len());
        let offsets = rewrite.displaced.iter().map(|(offset, _)| *offset);
        let old: BTreeMap<u64, &SettledStripe> = offsets.zip(&replacement.settled).collect();
        let mut copies = replacement.copies.iter();
        let are_copies = copies.all(|(at, copy)| {
            let old = old.get(at).map(|old| &old.stripe);
            old.is_some_and(|old| (old.pool, old.chunk_bytes) == (copy.pool, copy.chunk_bytes))
        });
        let mut named = rewrite.displaced.iter().zip(&replacement.settled);
        let are_named = named.all(|((offset, id), settled)| {
            let known = layout.stripe_from(*offset).map(|(_, stripe)| stripe);
            let same = known.filter(|known| known.id == *id && settled.stripe.id == *id);
            same.is_some_and(|known| {
                let found = &settled.stripe;
                (known.pool, known.chunk_bytes) == (found.pool, found.chunk_bytes)
            })
        });
        let has_counts = counts == (rewrite.displaced.len(), rewrite.slots.len());
        if !has_counts || !are_copies || !are_named {
            return Err(ClientError::unexpected("the coordinator").into());
        }
        ports.learn_nodes(&replacement.nodes);
        let topology = topology(&replacement.nodes)?;
        let ports = Arc::clone(&self.client.shared.ports);
        let keeper = Keeper::new(ports, replacement.put);
        Ok(Begun {
            layout: Arc::clone(layout),
            replacement,
            topology,
            keeper,
        })
    }

    /// Writes all new stripes, and copies of those that other files share, a few at a time; returns when all of their
    /// chunks are durable.
    async fn write_anew(
        &self,
        begun: &Begun,
        rewrite: &Rewrite,
        bytes: &Bytes,
        attempts: &Attempts,
    ) -> Result<(), AttemptError> {
        let new = rewrite.slots.iter().copied();
        let mut slots: Vec<_> = new.zip(&begun.replacement.stripes).collect();
        for (start, copy) in &begun.replacement.copies {
            let shape = geometry(begun.layout.spec(copy), copy)?;
            slots.push((Slot::copy(*start, shape), copy));
        }
        let largest = slots.iter().map(|(slot, _)| slot.stripe_bytes).max();
        let in_flight_count = self.client.in_flight_count(largest.unwrap_or(0));
        let mut rest = bytes.clone();
        let mut writes = Vec::with_capacity(slots.len());
        for (slot, new) in slots {
            let piece = rest.split_to(slot.range.length as usize);
            writes.push(self.write_stripe(begun, rewrite, (slot, new), piece, attempts));
        }
        stream::iter(writes)
            .buffer_unordered(in_flight_count)
            .try_collect()
            .await
    }

    /// Writes one new stripe: the new bytes, around them those of the old one or the inline ones if there are any, and
    /// zeros.
    async fn write_stripe(
        &self,
        begun: &Begun,
        rewrite: &Rewrite,
        (slot, new): (Slot, &StripeRecord),
        piece: Bytes,
        attempts: &Attempts,
    ) -> Result<(), AttemptError> {
        let spec = begun.layout.spec(new);
        let shape = geometry(spec, new)?;
        if shape.stripe_bytes() != slot.stripe_bytes {
            return Err(ClientError::unexpected("the coordinator").into());
        }
        let _held = self
            .client
            .shared
            .stripe_bytes
            .hold(slot.stripe_bytes)
            .await;
        let mut segment = BytesMut::zeroed(shape.stripe_bytes() as usize);
        let mut displaced = rewrite.displaced.iter().zip(&begun.replacement.settled);
        let old = displaced.find(|((offset, _), _)| *offset == slot.start);
        if let Some((_, old)) = old {
            let old_shape = geometry(begun.layout.spec(&old.stripe), &old.stripe)?;
            let kept_bytes = old_shape.stripe_bytes().min(slot.kept_bytes);
            for rest in around(slot.range, kept_bytes) {
                let kept = self
                    .read_settled(begun, old, old_shape, rest, attempts)
                    .await?;
                segment[rest.offset as usize..rest.end() as usize].copy_from_slice(&kept);
            }
        }
        if rewrite.inline.is_some() {
            let inline = begun.layout.inline_bytes();
            let rest = inline.get(slot.start as usize..).unwrap_or_default();
            let length = rest.len().min(segment.len());
            segment[..length].copy_from_slice(&rest[..length]);
        }
        segment[slot.range.offset as usize..slot.range.end() as usize].copy_from_slice(&piece);
        let encoder = Encoder {
            client: self.client.clone(),
            code: self.code(new).clone(),
            pool: spec.clone(),
            topology: begun.topology.clone(),
        };
        let ticket = Ticket::find(&begun.replacement.tickets, new.id);
        let stored = encoder
            .store((new, ticket), shape, segment.freeze())
            .await?;
        stored.map_err(|failed| {
            let refusal = Denial::new(Cause::from(&failed.refusal), failed.to_string());
            if matches!(failed.refusal, Refusal::Invalid(_)) {
                let what = attempts.what().to_owned();
                AttemptError::Final(ClientError::Node { what, refusal })
            } else {
                // The next attempt has other places: without a full node, and without one whose store has failed.
                AttemptError::Retry(refusal)
            }
        })
    }

    /// Reads from an old stripe, exactly as it was settled, through the code if needed.
    async fn read_settled(
        &self,
        begun: &Begun,
        old: &SettledStripe,
        shape: Geometry,
        range: ByteRange,
        attempts: &Attempts,
    ) -> Result<Vec<u8>, AttemptError> {
        let fleet = Fleet {
            nodes: &begun.replacement.nodes,
            topology: &begun.topology,
            tickets: &begun.replacement.tickets,
        };
        let mut stripe = old.stripe.clone();
        for &chunk in &old.unsettled {
            let missed_after = None;
            stripe.note_stale(StaleChunk {
                chunk,
                missed_after,
            });
        }
        let mut reading = Reading::as_of(old.epoch, old.mark);
        let place = Place::new(range.length);
        let mut missing = String::new();
        // Each attempt but the last finds a chunk to avoid.
        for _ in 0..=stripe.nodes.len() {
            let read = self
                .try_read(
                    fleet,
                    &stripe,
                    shape,
                    (range, &place),
                    &mut reading,
                    attempts,
                )
                .await?;
            match read {
                Ok(_) => return Ok(place.take().into()),
                // No other holder may advance the stripe, so its lease has been taken over.
                Err(Trouble::NeedsCut { missing, .. } | Trouble::NeedsQuorum { missing }) => {
                    return Err(AttemptError::Retry(missing.into()));
                }
                Err(Trouble::Again { missing: new, .. }) => missing = new,
            }
        }
        Err(AttemptError::Retry(missing.into()))
    }

    /// Swaps the new stripes in; if an answer was lost, a repetition gives the same one. After
    /// [`AttemptError::Retry`] they are not in the file and never will be; after [`AttemptError::Final`] that
    /// is unknown.
    async fn commit_replace(
        &self,
        open: &OpenReplacement,
        attempts: &mut Attempts,
    ) -> Result<(), AttemptError> {
        loop {
            // The new bytes are durable, however long that took.
            let deadline_ms = attempts.attempt_ms().max(LAST_CLOSE_MS);
            let missing = match self.ask_to_commit(open, deadline_ms).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(why)) => return Err(AttemptError::Retry(why.into())),
                Err(error) => passing(error)?,
            };
            attempts.pause(missing).await?;
        }
    }

    async fn ask_to_commit(
        &self,
        open: &OpenReplacement,
        deadline_ms: u64,
    ) -> Result<Result<(), String>, CoordinatorError> {
        let request = ask::CommitReplace {
            put: open.put,
            displaced: open.displaced.clone(),
        };
        let asked = self.client.ports().ask_coordinator(request, deadline_ms);
        let outcome = asked.await?;
        // It is final, so a second answer is the same.
        let _ = open.is_committed.set(outcome.is_ok());
        Ok(outcome)
    }

    /// Ends a write whose replacement was aborted with an error, unless the replacement turns out
    /// to be committed.
    async fn end_replace(
        &self,
        open: &OpenReplacement,
        error: ClientError,
    ) -> Result<(), AttemptError> {
        match self.ask_to_commit(open, LAST_CLOSE_MS).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(error.into()),
            Err(_) => Err(AttemptError::Final(ClientError::Undecided {
                source: Box::new(error),
            })),
        }
    }

    /// Whether a replacement whose write has ended with an unknown outcome is committed. It takes no effect after
    /// that.
    ///
    /// # Errors
    /// [`ClientError::Undecided`] when that cannot be determined in time; [`ClientError::Forgotten`] when the
    /// coordinator does not remember it any more.
    pub(crate) async fn decide_replacement(
        &self,
        open: &OpenReplacement,
    ) -> Result<bool, ClientError> {
        if let Some(&is_committed) = open.is_committed.get() {
            return Ok(is_committed);
        }
        let what = format!("finding the outcome of a write of {}", self.name());
        let mut attempts = self.client.attempts(what, 0);
        loop {
            let deadline_ms = attempts.attempt_ms();
            let missing = match self.ask_to_commit(open, deadline_ms).await {
                Ok(outcome) => return Ok(outcome.is_ok()),
                Err(CoordinatorError::Refused(denial)) if denial.cause == Cause::Stale => {
                    return Err(ClientError::Forgotten(self.name().to_owned()));
                }
                Err(error) => error.to_string(),
            };
            let again = attempts.pause(missing).await;
            again.map_err(|source| ClientError::Undecided {
                source: Box::new(source),
            })?;
        }
    }
}

/// The parts of a stripe's `data_bytes` bytes outside `range`, in order and without empty pieces.
fn around(range: ByteRange, data_bytes: u64) -> impl Iterator<Item = ByteRange> {
    let behind = data_bytes.saturating_sub(range.end());
    let pieces = [
        ByteRange::new(0, range.offset.min(data_bytes)),
        ByteRange::new(range.end(), behind),
    ];
    pieces.into_iter().filter(|piece| !piece.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_protocol::ports::CallError;

    #[test]
    fn all_bytes_that_are_not_overwritten_are_kept() {
        let kept = |offset, length| -> Vec<(u64, u64)> {
            let pieces = around(ByteRange::new(offset, length), 100);
            pieces.map(|piece| (piece.offset, piece.end())).collect()
        };
        assert_eq!(kept(0, 100), []);
        assert_eq!(kept(30, 70), [(0, 30)]);
        assert_eq!(kept(0, 30), [(30, 100)]);
        assert_eq!(kept(30, 20), [(0, 30), (50, 100)]);
        assert_eq!(
            kept(120, 20),
            [(0, 100)],
            "the new bytes lie behind the old ones"
        );
    }

    #[test]
    fn silence_and_overload_are_temporary_and_a_refusal_is_not() {
        let is_passing = |error| matches!(AttemptError::from(error), AttemptError::Retry(_));
        let gone = CallError {
            peer: "the coordinator".to_owned(),
            reason: "is gone".to_owned(),
        };
        assert!(is_passing(CoordinatorError::Silent(gone)));
        assert!(is_passing(CoordinatorError::Busy("wait".into())));
        let refused = AttemptError::from(CoordinatorError::Refused("no".into()));
        assert!(
            matches!(refused, AttemptError::Final(ClientError::Refused(why)) if why.sentence == "no")
        );
    }
}
