//! Updates a file in place: the new bytes are staged at their data nodes, and the stripe's primary
//! does the rest. Bytes of a lost chunk are staged at its substitute node. `replace.rs` handles
//! bytes of several stripes.

use crate::attempts::Attempts;
use crate::client::{Client, check};
use crate::error::ClientError;
use crate::extent::{Extent, extents, keepings};
use crate::file::File;
use crate::layout::Layout;
use crate::losses::lost_for_good;
use crate::moment::Version;
use crate::open_runs::{Attempted, LastAttempt, OpenRun, Sent};
use crate::primary::NotDone;
use crate::retry::{AttemptError, may_ask_again};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::stream::{self, StreamExt, TryStreamExt};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, Sequence, StripeId, StripeRecord};
use gabion_meta::{FILE_BYTES_MAX, FencingToken};
use gabion_plan::Plan;
use gabion_planner::PlanError;
use gabion_planner::update::{self, UPDATE_SLICE_BYTES};
use gabion_protocol::initiate::{fits_records, substitutes};
use gabion_protocol::message::{Denial, Refusal, RunFate, RunId, RunQuestion, Ticket, ask};
use gabion_protocol::ports::{Ask as _, ask_living};
use std::sync::{Arc, OnceLock};

/// Most bytes staged by one request.
const STAGE_BYTES: u64 = 1 << 20;
/// Requests to stage bytes in flight at a time.
const STAGE_PARALLEL_COUNT: usize = 4;
/// Shortest time, at the end of a failed write, for determining the outcome of its last attempt.
pub(crate) const LAST_CLOSE_MS: u64 = 2_000;

impl Client {
    /// Overwrites bytes of a file. See [`File::write`].
    ///
    /// # Errors
    /// Those of [`Client::open`] and [`File::write`].
    pub async fn write(&self, name: &str, offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        self.open(name).await?.write(offset, bytes).await
    }
}

impl File {
    /// Writes bytes from `offset` on. Behind its end, the file grows; what lies between its old end and the
    /// bytes is a hole. When this returns
    /// without an error, the new bytes survive every failure that the pool survives.
    ///
    /// A write is atomic whatever it spans: after an error, or a crash of any process at any
    /// instant, all of it is there or none. Within one stripe it is an update in place. Across
    /// borders of stripes, in holes and behind the end of the file, all segments of the range are rewritten
    /// elsewhere and swapped in
    /// atomically. This costs as much as storing them again: less than an update where most of a
    /// stripe changes, more where little of it does; [`File::write_pieces`] and [`File::append`] cost less and
    /// promise less. During that time, others' writes to these stripes wait.
    ///
    /// For readers of one stripe the write is atomic. A read across a border may see it in one
    /// stripe and not in the next while it goes on. Until the write is acknowledged, a reader with
    /// an old layout may see the old bytes after another has seen the new ones.
    ///
    /// A write takes effect at most once. If an answer is lost, the stripe's nodes determine
    /// whether the write took effect before it is retried, so it never replaces later bytes of
    /// another writer. Once this has returned, without an error or with one that does not state
    /// otherwise, the write takes no further effect. After [`ClientError::Undecided`] the write may
    /// still take effect, for a minute, but not after the next write of this client to the same
    /// stripe.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for bytes behind the end of a file whose blocks are replicated at first;
    /// [`ClientError::TooLarge`] for bytes past 2^63 - 1; [`ClientError::Node`] when a node refuses permanently, for
    /// instance because the loss of one more chunk of the stripe could cost data; [`ClientError::Late`];
    /// [`ClientError::Undecided`] and [`ClientError::Forgotten`] when the outcome of the write is unknown;
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`] and [`ClientError::Refused`] when a new layout was
    /// needed.
    pub async fn write(&self, offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        self.write_noted(offset, bytes, &LastAttempt::default())
            .await
    }

    /// The same; `last_attempt` gets the last attempt.
    pub(crate) async fn write_noted(
        &self,
        offset: u64,
        bytes: Bytes,
        last_attempt: &LastAttempt,
    ) -> Result<(), ClientError> {
        let range = self.range_to_write(offset, &bytes)?;
        if range.is_empty() || self.write_inline(range, &bytes, last_attempt).await? {
            return Ok(());
        }
        let layout = self.present_layout(range).await?;
        let extents = extents(layout.spans(), range);
        if extents.len() == 1 && layout.stores(range) {
            let written = self.write_extents(&extents, &bytes, last_attempt);
            return written.await.map(drop);
        }
        self.replace(range, &bytes, last_attempt).await
    }

    /// The range of the file that bytes to be written cover.
    ///
    /// # Errors
    /// [`ClientError::TooLarge`]; [`ClientError::Usage`] for a file that does not grow.
    pub(crate) fn range_to_write(
        &self,
        offset: u64,
        bytes: &Bytes,
    ) -> Result<ByteRange, ClientError> {
        let range = ByteRange::new(offset, bytes.len() as u64);
        check_size(offset.checked_add(range.length))?;
        if self.changes_form() && self.size_bytes() < range.end() {
            return Err(ClientError::Usage(format!(
                "{} has {} bytes, and files of a pool whose blocks are replicated at first do not grow; write \
                 within them, or store the file again",
                self.name(),
                self.size_bytes()
            )));
        }
        Ok(range)
    }

    /// Overwrites pieces of one stripe, all of them by one update, with `bytes`: the first piece's,
    /// then the next one's. Returns the stripe and the number of the update. `last_attempt` gets the last
    /// attempt.
    ///
    /// A single piece is written in any case: if it is too large for the nodes' journals, or other files share the
    /// stripe, the stripe is replaced, and if other stripes have replaced the stripe in between, it goes to these. If
    /// that is the case for several pieces, none is written, and the result is none: after an error, the caller must
    /// know which of them are written.
    ///
    /// # Errors
    /// Those of [`File::write`].
    ///
    /// # Panics
    /// If there is no piece, or the pieces are of several stripes.
    pub(crate) async fn write_extents(
        &self,
        extents: &[Extent],
        bytes: &Bytes,
        last_attempt: &LastAttempt,
    ) -> Result<Option<(StripeId, Sequence)>, ClientError> {
        let has_moved = loop {
            match self.update_extents(extents, bytes, last_attempt).await? {
                Updated::Done(stripe, sequence) => return Ok(Some((stripe, sequence))),
                Updated::TooLarge => break false,
                Updated::Moved => break true,
                Updated::Shared => {}
            }
            let [extent] = extents else {
                return Ok(None);
            };
            if self.replace_shared(extent, bytes, last_attempt).await? {
                return Ok(Some((Version::NONE.stripe, Version::NONE.sequence)));
            }
        };
        let [extent] = extents else {
            return Ok(None);
        };
        if has_moved {
            // The outcome of attempts in the old stripe is final, since it has ended.
            Box::pin(self.write_noted(extent.file_offset, bytes.clone(), last_attempt)).await?;
            return Ok(Some((Version::NONE.stripe, Version::NONE.sequence)));
        }
        // Another client may have replaced the new stripe before a look-up.
        self.replace(extent.in_file(), bytes, last_attempt).await?;
        Ok(Some((Version::NONE.stripe, Version::NONE.sequence)))
    }

    /// Overwrites pieces of one stripe by one update, unless that is too large for records or other files share the
    /// stripe.
    pub(crate) async fn update_extents(
        &self,
        extents: &[Extent],
        bytes: &Bytes,
        last_attempt: &LastAttempt,
    ) -> Result<Updated, ClientError> {
        let first = extents.first().expect("there is at least one piece");
        let same = |extent: &Extent| extent.start == first.start;
        assert!(extents.iter().all(same), "the pieces are of one stripe");
        let what = format!("writing {} at byte {}", self.name(), first.file_offset);
        // Nodes get the new bytes, and parity nodes as many deltas or copies.
        let m = |stripe| self.code(stripe).m() as u64;
        let layout = self.known_layout(first.in_file());
        let stripe = layout.as_ref().and_then(|layout| layout.find(first));
        let copies = stripe.map_or(1, |stripe| m(stripe) + 1);
        let moving_bytes = copies * bytes.len() as u64;
        let moving = self.client.shared.updating_bytes.begin(moving_bytes);
        let mut attempts = self.client.patient_attempts(what, moving.all_bytes());
        let mut update = Update {
            file: self,
            extents,
            bytes,
            layout: None,
            is_fresh: false,
            named: None,
            sent: None,
            last_attempt,
        };
        loop {
            let missing = match update.attempt(&attempts).await {
                Ok(updated) => return Ok(updated),
                Err(AttemptError::Retry(missing)) => missing,
                Err(AttemptError::Final(error)) => return update.end(error, &attempts).await,
            };
            let mut again = attempts.pause(missing).await;
            if again.is_ok() {
                again = self.refresh(update.range()).await.map(drop);
            }
            if let Err(error) = again {
                return update.end(error, &attempts).await;
            }
            update.is_fresh = true;
        }
    }

    /// Asks for the repair of a stripe that takes no updates before it is repaired.
    async fn hasten_repair(
        &self,
        stripe: &StripeRecord,
        deadline_ms: u64,
    ) -> Result<(), AttemptError> {
        let request = ask::Hasten { stripe: stripe.id };
        let asked = self.client.ports().ask_coordinator(request, deadline_ms);
        Ok(asked.await.map(drop)?)
    }

    /// The plan that the stripe's primary makes of the same layout, or a sentence why there is
    /// none.
    pub(crate) fn plan_update_of(
        &self,
        layout: &Layout,
        record: &StripeRecord,
        ranges: &[ChunkRange],
    ) -> Result<Plan, NoPlan> {
        let invalid = |error: ClientError| NoPlan::Invalid(error.to_string());
        let geometry = layout.geometry(record).map_err(invalid)?;
        let lost = lost_for_good(record, &layout.file.nodes);
        let stripe = self.stripe(record, geometry, &lost);
        let pool = layout.spec(record);
        let scheme = update::scheme(pool.update);
        let plan = scheme.plan(&stripe, &layout.topology, ranges, UPDATE_SLICE_BYTES);
        let keepings = keepings(pool, record.chunk_bytes);
        plan.map(|plan| plan.kept(keepings))
            .map_err(|error| match error {
                PlanError::TooFewLeft { .. } => NoPlan::TooFewLeft(error.to_string()),
                other => NoPlan::Invalid(other.to_string()),
            })
    }

    /// Stages new bytes at their data nodes, or at the substitutes of these. Returns the last
    /// update of the stripe that these know: the update of these bytes will have a larger number.
    async fn stage(
        &self,
        (stripe, ticket): (&StripeRecord, Option<Ticket>),
        run: RunId,
        pieces: &Pieces<'_>,
        deadline_ms: u64,
    ) -> Result<Sequence, Refusal> {
        let ports = &self.client.shared.ports;
        let staged =
            stage_pieces(&pieces.ranges)
                .into_iter()
                .map(|(chunk, offset, start, length)| {
                    let bytes = pieces
                        .bytes
                        .slice(start as usize..(start + length) as usize);
                    let request = ask::Stage {
                        run,
                        stripe: stripe.id,
                        chunk,
                        offset,
                        bytes,
                        ticket,
                    };
                    let node = pieces.node_of(stripe, chunk);
                    let staged = ask_living(&**ports, node, request, deadline_ms);
                    async move { Ok(staged.await?) }
                });
        stream::iter(staged)
            .buffer_unordered(STAGE_PARALLEL_COUNT)
            .try_fold(Sequence(0), async |known, newest| Ok(known.max(newest)))
            .await
    }
}

/// Causes for which an update has no plan.
#[derive(Debug)]
pub(crate) enum NoPlan {
    /// Too few chunks are left, until the stripe is repaired.
    TooFewLeft(String),
    /// The request, or what is known of the stripe, is invalid.
    Invalid(String),
}

impl NoPlan {
    /// The reason, as one sentence.
    pub(crate) fn sentence(self) -> String {
        let (Self::TooFewLeft(sentence) | Self::Invalid(sentence)) = self;
        sentence
    }
}

/// Checks that a file may have this size; none is more than a number can tell.
///
/// # Errors
/// [`ClientError::TooLarge`].
pub(crate) fn check_size(size_bytes: Option<u64>) -> Result<(), ClientError> {
    if size_bytes.is_some_and(|size| size <= FILE_BYTES_MAX) {
        return Ok(());
    }
    Err(ClientError::TooLarge {
        limit_bytes: FILE_BYTES_MAX,
    })
}

/// An update that is retried until its outcome is known.
struct Update<'a> {
    file: &'a File,
    extents: &'a [Extent],
    bytes: &'a Bytes,
    /// The layout of the last attempt.
    layout: Option<Arc<Layout>>,
    /// Whether the layout was looked up since the write began.
    is_fresh: bool,
    /// The nodes that the primary has named for bytes of lost chunks since the last attempt.
    named: Option<Vec<(ChunkIndex, NodeId)>>,
    /// The last attempt, while its outcome is unknown.
    sent: Option<Sent>,
    /// The same for the caller of the write, also after its end.
    last_attempt: &'a LastAttempt,
}

impl Update<'_> {
    /// From the first piece to the last one, all in one stripe.
    fn range(&self) -> ByteRange {
        let ranges = self.extents.iter().map(Extent::in_file);
        let whole = ranges.reduce(|whole, part| {
            let start = whole.offset.min(part.offset);
            ByteRange::new(start, whole.end().max(part.end()) - start)
        });
        whole.expect("there is at least one piece")
    }

    /// One attempt, under a run of its own, once all earlier ones are known to have had no effect.
    async fn attempt(&mut self, attempts: &Attempts) -> Result<Updated, AttemptError> {
        let (file, deadline_ms) = (self.file, attempts.attempt_ms());
        let layout = file.layout_of(self.range()).await?;
        self.layout = Some(Arc::clone(&layout));
        let found = layout.find_all(self.extents);
        if let Some(updated) = self.close(&layout, found, deadline_ms).await? {
            return Ok(updated);
        }
        let Some(stripe) = found else {
            return Ok(Updated::Moved);
        };
        if layout.is_shared(stripe.id) {
            return Ok(Updated::Shared);
        }
        if layout.forbids_updates(stripe.id) {
            return Err(AttemptError::of_recovery(self.is_fresh));
        }
        let again = |refusal: Refusal| AttemptError::Retry(refusal.into());
        let closed = file.close_left(&layout, stripe, deadline_ms).await;
        closed.map_err(again)?;
        let geometry = layout.geometry(stripe)?;
        let mut ranges = Vec::with_capacity(self.extents.len());
        for extent in self.extents {
            let split = geometry.split(extent.range);
            ranges.extend(split.map_err(|error| ClientError::Broken(error.to_string()))?);
        }
        let last = |refusal: Denial| {
            let what = attempts.what().to_owned();
            AttemptError::Final(ClientError::Node { what, refusal })
        };
        // This also finds too many lost chunks before bytes are staged.
        let plan = match file.plan_update_of(&layout, stripe, &ranges) {
            Ok(plan) => plan,
            Err(no_plan) if !self.is_fresh => {
                return Err(AttemptError::Retry(no_plan.sentence().into()));
            }
            Err(NoPlan::Invalid(sentence)) => return Err(last(sentence.into())),
            Err(NoPlan::TooFewLeft(refusal)) => {
                // Even if no node has a place for the chunks, their own ones may return.
                file.hasten_repair(stripe, deadline_ms).await?;
                return Err(AttemptError::Retry(refusal.into()));
            }
        };
        check(&plan, file.code(stripe))?;
        if !fits_records(&plan) {
            return Ok(Updated::TooLarge);
        }
        let named = self.named.take();
        let pieces = Pieces {
            ranges,
            bytes: self.bytes,
            substitutes: named.unwrap_or_else(|| substitutes(&plan)),
        };
        let token = file.token().await?;
        let sent = self.send(&layout, stripe, (&pieces, token), deadline_ms);
        match sent.await {
            Ok(sequence) => Ok(Updated::Done(stripe.id, sequence)),
            Err(refusal @ Refusal::Superseded { .. }) => {
                file.note_superseded().await;
                Err(again(refusal))
            }
            Err(Refusal::StageAt(places)) => {
                let missing = Refusal::StageAt(Vec::new());
                self.named = Some(places);
                Err(again(missing))
            }
            Err(refusal) if may_ask_again(&refusal) => Err(again(refusal)),
            Err(refusal) => Err(last(refusal.into())),
        }
    }

    /// Stages the bytes and asks the primary. The run stays open unless the answer gives its
    /// outcome.
    async fn send(
        &mut self,
        layout: &Layout,
        stripe: &StripeRecord,
        (pieces, token): (&Pieces<'_>, FencingToken),
        deadline_ms: u64,
    ) -> Result<Sequence, Refusal> {
        let (file, shared) = (self.file, &self.file.client.shared);
        let run = file.client.draw_run();
        let (id, generation) = (stripe.id, stripe.generation);
        let ticket = layout.ticket(id);
        let staged = file.stage((stripe, ticket), run, pieces, deadline_ms);
        let after = staged.await?;
        let open = OpenRun {
            question: RunQuestion {
                stripe: id,
                generation,
                run,
                after,
                chunks: pieces.ranges.iter().map(|part| part.chunk).collect(),
            },
            range: self.range(),
            staged_at: pieces.nodes(stripe),
            holders: stripe.nodes.clone(),
            fate: OnceLock::new(),
        };
        let request = ask::Update {
            run,
            stripe: id,
            generation,
            ranges: pieces.ranges.clone(),
            substitutes: pieces.substitutes.clone(),
            file: file.put_id(),
            token,
            ticket,
        };
        // From here on the run is open, even if the caller stops waiting.
        let sent = shared.open_runs.send(open);
        let run = Arc::clone(&sent.run);
        self.last_attempt.set(Attempted::Update(run));
        match file.ask_primary(layout, stripe, request, deadline_ms).await {
            Ok(sequence) => {
                sent.close(RunFate::Stood(sequence));
                Ok(sequence)
            }
            Err(NotDone {
                refusal,
                may_have_begun: false,
            }) => {
                // The bytes will not be used, and their space is needed for the next attempt.
                let withdrawn = file.withdraw(&sent.run, deadline_ms).map(drop);
                shared.ports.spawn(withdrawn.boxed());
                sent.close(RunFate::Never);
                Err(refusal)
            }
            Err(not_done) => {
                self.sent = Some(sent);
                Err(not_done.refusal)
            }
        }
    }

    /// Closes the last attempt if it is open. If it took effect, the write is done.
    async fn close(
        &mut self,
        layout: &Layout,
        found: Option<&StripeRecord>,
        deadline_ms: u64,
    ) -> Result<Option<Updated>, AttemptError> {
        let Some(sent) = &self.sent else {
            return Ok(None);
        };
        let closed = self.file.close_run(layout, found, &sent.run, deadline_ms);
        let fate = closed
            .await
            .map_err(|refusal| AttemptError::Retry(refusal.into()))?;
        let stripe = sent.run.question.stripe;
        if let Some(sent) = self.sent.take() {
            sent.close(fate);
        }
        match fate {
            RunFate::Stood(sequence) => Ok(Some(Updated::Done(stripe, sequence))),
            RunFate::Never => Ok(None),
            RunFate::Forgotten => {
                let name = self.file.name().to_owned();
                Err(AttemptError::Final(ClientError::Forgotten(name)))
            }
        }
    }

    /// Ends the write with an error, unless its last attempt turns out to have taken effect. If
    /// that cannot be determined now, this client's next write to the stripe does so first.
    async fn end(
        mut self,
        error: ClientError,
        attempts: &Attempts,
    ) -> Result<Updated, ClientError> {
        let known = self.file.known_layout(self.range());
        let Some(layout) = known.or_else(|| self.layout.clone()) else {
            // Nothing was sent.
            return Err(error);
        };
        let found = layout.find_all(self.extents);
        let deadline_ms = attempts.attempt_ms().max(LAST_CLOSE_MS);
        match self.close(&layout, found, deadline_ms).await {
            Ok(Some(updated)) => Ok(updated),
            Ok(None) => Err(error),
            Err(AttemptError::Final(forgotten)) => Err(forgotten),
            Err(AttemptError::Retry(_)) => Err(ClientError::Undecided {
                source: Box::new(error),
            }),
        }
    }
}

/// The result of an update.
pub(crate) enum Updated {
    /// The stripe, and the number of the update.
    Done(StripeId, Sequence),
    /// None: it is too large for records. The stripe is to be replaced.
    TooLarge,
    /// None: other files may have the stripe too. It is to be replaced.
    Shared,
    /// None: the file's stripes now have other borders, or the file is smaller.
    Moved,
}

/// The bytes of an update and their destinations.
struct Pieces<'a> {
    ranges: Vec<ChunkRange>,
    /// The bytes of all ranges, concatenated.
    bytes: &'a Bytes,
    /// The substitutes for lost chunks.
    substitutes: Vec<(ChunkIndex, NodeId)>,
}

impl Pieces<'_> {
    /// All nodes where bytes are staged.
    fn nodes(&self, stripe: &StripeRecord) -> Vec<NodeId> {
        let nodes = self
            .ranges
            .iter()
            .map(|part| self.node_of(stripe, part.chunk));
        let mut nodes: Vec<NodeId> = nodes.collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The node where new bytes of a chunk are staged.
    fn node_of(&self, stripe: &StripeRecord, chunk: ChunkIndex) -> NodeId {
        let substitute = self.substitutes.iter().find(|(lost, _)| *lost == chunk);
        substitute.map_or_else(|| stripe.nodes[chunk.at()], |&(_, node)| node)
    }
}

/// Splits an update's bytes into requests: the chunk, the offset in it, the offset in the update,
/// and the length.
fn stage_pieces(ranges: &[ChunkRange]) -> Vec<(ChunkIndex, u64, u64, u64)> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for part in ranges {
        let mut offset = part.range.offset;
        while offset < part.range.end() {
            let length = STAGE_BYTES.min(part.range.end() - offset);
            pieces.push((part.chunk, offset, start, length));
            offset += length;
            start += length;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_small_and_consecutive() {
        let part = |chunk, offset, length| ChunkRange {
            chunk: ChunkIndex(chunk),
            range: ByteRange::new(offset, length),
        };
        let pieces = stage_pieces(&[part(1, 100, 2 * STAGE_BYTES + 5), part(2, 0, 7)]);
        let expected = [
            (ChunkIndex(1), 100, 0, STAGE_BYTES),
            (ChunkIndex(1), 100 + STAGE_BYTES, STAGE_BYTES, STAGE_BYTES),
            (ChunkIndex(1), 100 + 2 * STAGE_BYTES, 2 * STAGE_BYTES, 5),
            (ChunkIndex(2), 0, 2 * STAGE_BYTES + 5, 7),
        ];
        assert_eq!(pieces, expected);
    }
}
