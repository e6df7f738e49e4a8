//! Updating a file in place: the new bytes are staged at their data nodes, and the stripe's primary
//! does the rest. Bytes of a lost chunk are staged at the node that acts for it. Bytes of several
//! stripes are for `replace.rs`.

use crate::client::check;
use crate::extent::{Extent, keepings, within_file};
use crate::file::Layout;
use crate::losses::lost_for_good;
use crate::remedy::may_ask_again;
use crate::{Client, ClientError, File};
use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, Sequence, StripeId, StripeRecord};
use gabion_plan::Plan;
use gabion_planner::update;
use gabion_protocol::initiate::{fits_records, substitutes};
use gabion_protocol::message::{NodeReply, NodeRequest, Refusal, RunId};
use gabion_protocol::ports::Ports as _;
use gabion_protocol::primary::{UPDATE_SLICE_BYTES, failed_nodes};

/// The most bytes that are staged by one request.
const STAGE_BYTES: u64 = 1 << 20;
/// How many requests to stage bytes are under way at a time.
const STAGE_PARALLEL_COUNT: usize = 4;

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
    /// Overwrites bytes of the file from `offset` on; all of them must lie within it. When this
    /// returns without an error, the new bytes survive whatever the pool survives.
    ///
    /// A write is atomic whatever it spans: after an error, or a crash of anybody at any instant, all
    /// of it is there or none. Within one stripe it is an update in place. Across borders of stripes
    /// all stripes that it touches are rewritten elsewhere and swapped in at once, which costs what
    /// storing them anew costs: less than an update where most of a stripe changes, more where
    /// little of it does. While that goes on, others' writes to these stripes wait.
    ///
    /// Readers of one stripe see the write wholly or not at all; a read across a border may see it
    /// in one stripe and not in the next while it goes on, and until it is acknowledged, a reader
    /// with an old layout may see the old bytes after another has seen the new. While a write is
    /// tried again after an answer was lost, its bytes may replace what another writer put there
    /// meanwhile: writers that overlap need an order of their own. Once it has returned without an
    /// error, none of its attempts changes anything any more; after an error one may, for a minute.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for bytes outside of the file; [`ClientError::Node`] when a node
    /// refused for good, among them that so many chunks of a stripe are lost that one more could
    /// cost data; [`ClientError::Late`];
    /// [`ClientError::Replaced`]; [`ClientError::NoCoordinator`] and [`ClientError::Refused`] when
    /// a new layout was needed.
    pub async fn write(&self, offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        let range = ByteRange::new(offset, bytes.len() as u64);
        within_file(self.name(), self.size_bytes(), range)?;
        let extents = self.extents(range);
        match extents.as_slice() {
            [] => Ok(()),
            [_] => self.write_extents(&extents, &bytes).await.map(drop),
            several => self.replace(several, &bytes).await,
        }
    }

    /// Overwrites pieces of one stripe, all of them by one update, with `bytes`: the first piece's,
    /// then the next one's. Gives the stripe and the number of the update.
    ///
    /// What is too large for the nodes' journals is not updated but replaced, stripe and all; of
    /// several pieces each is atomic then, not all of them together.
    ///
    /// If the stripe becomes others meanwhile, each piece is written as if it came alone, and the answer
    /// says nothing.
    ///
    /// # Errors
    /// Those of [`File::write`].
    ///
    /// # Panics
    /// When there is no piece, or the pieces are of several stripes.
    pub(crate) async fn write_extents(
        &self,
        extents: &[Extent],
        bytes: &Bytes,
    ) -> Result<(StripeId, Sequence), ClientError> {
        let has_moved = match self.update_extents(extents, bytes).await? {
            Updated::Done(stripe, sequence) => return Ok((stripe, sequence)),
            Updated::TooLarge => false,
            Updated::Moved => true,
        };
        if let ([extent], false) = (extents, has_moved) {
            self.replace(extents, bytes).await?;
            let layout = self.layout();
            // Nobody has updated the new stripe before this looked it up, or its mark says so.
            let stripe = layout.find(extent).map_or(StripeId(0), |stripe| stripe.id);
            return Ok((stripe, Sequence(0)));
        }
        let mut rest = bytes.clone();
        let mut last = None;
        for extent in extents {
            let piece = rest.split_to(extent.range.length as usize);
            if has_moved {
                // What was tried in the old stripe is there or never will be: it has ended.
                Box::pin(self.write(extent.file_offset, piece)).await?;
                last = Some((StripeId(0), Sequence(0)));
            } else {
                last = Some(Box::pin(self.write_extents(&[*extent], &piece)).await?);
            }
        }
        Ok(last.expect("there is at least one piece"))
    }

    /// Overwrites pieces of one stripe by one update, unless that is too large for records.
    async fn update_extents(
        &self,
        extents: &[Extent],
        bytes: &Bytes,
    ) -> Result<Updated, ClientError> {
        let first = extents.first().expect("there is at least one piece");
        let same = |extent: &Extent| extent.stripe_at == first.stripe_at;
        assert!(extents.iter().all(same), "the pieces are of one stripe");
        let what = format!("writing {} at byte {}", self.name(), first.file_offset);
        // Nodes get the new bytes, and parity nodes as many deltas or copies.
        let m = |stripe| self.code(stripe).m() as u64;
        let copies = self.layout().find(first).map_or(1, |stripe| m(stripe) + 1);
        let moving_bytes = copies * bytes.len() as u64;
        let moving = self.client.shared.updating_bytes.begin(moving_bytes);
        let mut attempts = self.client.patient_attempts(what, moving.all_bytes());
        let mut is_fresh = false;
        // Where the primary wants bytes of lost chunks, if it has said so since the last attempt.
        let mut named = None;
        let mut open = None;
        loop {
            let layout = self.layout();
            let Some(stripe) = layout.find(first) else {
                return Ok(Updated::Moved);
            };
            let geometry = layout.geometry(stripe)?;
            let mut ranges = Vec::with_capacity(extents.len());
            for extent in extents {
                let split = geometry.split(extent.range);
                ranges.extend(split.map_err(|error| ClientError::Broken(error.to_string()))?);
            }
            let given_up = |refusal: String| ClientError::Node {
                what: attempts.what().to_owned(),
                refusal,
            };
            // This also finds out, before bytes are staged in vain, that too many chunks are lost.
            let plan = match self.plan_update_of(&layout, stripe, &ranges) {
                Ok(plan) => plan,
                Err(_) if !is_fresh => {
                    self.refresh().await?;
                    is_fresh = true;
                    continue;
                }
                Err(refusal) => return Err(given_up(refusal)),
            };
            check(&plan, self.code(stripe))?;
            if !fits_records(&plan) {
                return Ok(Updated::TooLarge);
            }
            let pieces = Pieces {
                ranges,
                bytes,
                substitutes: named.take().unwrap_or_else(|| substitutes(&plan)),
            };
            let deadline_ms = attempts.attempt_ms();
            let tried = self.try_write(&layout, stripe, &pieces, &mut open, deadline_ms);
            match tried.await {
                Ok(sequence) => return Ok(Updated::Done(stripe.id, sequence)),
                Err(refusal) if may_ask_again(&refusal) => {
                    attempts.pause(&refusal.to_string()).await?;
                    self.refresh().await?;
                    is_fresh = true;
                    if let Refusal::StageAt(places) = refusal {
                        named = Some(places);
                    }
                }
                Err(refusal) => return Err(given_up(refusal.to_string())),
            }
        }
    }

    /// The plan that the stripe's primary makes of the same layout, or in words why there is none.
    pub(crate) fn plan_update_of(
        &self,
        layout: &Layout,
        record: &StripeRecord,
        ranges: &[ChunkRange],
    ) -> Result<Plan, String> {
        let geometry = layout.geometry(record).map_err(|error| error.to_string())?;
        let lost = lost_for_good(record, &layout.file.nodes);
        let stripe = self.stripe(record, geometry, &lost);
        let pool = layout.spec(record);
        let scheme = update::scheme(pool.update);
        let plan = scheme.plan(&stripe, &layout.topology, ranges, UPDATE_SLICE_BYTES);
        let keepings = keepings(pool, record.chunk_bytes);
        plan.map(|plan| plan.kept(keepings))
            .map_err(|error| error.to_string())
    }

    /// One attempt, under a run of its own. An earlier one that is `open` is closed first, and this
    /// one is left open when its primary does not say what became of it.
    async fn try_write(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        pieces: &Pieces<'_>,
        open: &mut Option<OpenRun>,
        deadline_ms: u64,
    ) -> Result<Sequence, Refusal> {
        if let Some(earlier) = open {
            self.close_run(layout, stripe, earlier, deadline_ms).await?;
            *open = None;
        }
        let run = self.client.draw_run();
        self.stage(stripe, run, pieces, deadline_ms).await?;
        let (id, generation) = (stripe.id, stripe.generation);
        let request = NodeRequest::Update {
            run,
            stripe: id,
            generation,
            ranges: pieces.ranges.clone(),
            substitutes: pieces.substitutes.clone(),
        };
        let answer = self.ask_primary(layout, stripe, request, deadline_ms).await;
        if matches!(answer, Err(Refusal::Unavailable(_))) {
            let staged_at = pieces.nodes(stripe);
            *open = Some(OpenRun { run, staged_at });
        }
        match answer? {
            NodeReply::Updated { sequence } => Ok(sequence),
            _ => Err(Refusal::Failed(
                "the primary's reply does not fit the question".to_owned(),
            )),
        }
    }

    /// Sees to it that an earlier attempt is over, whatever is still on its way to its primary: it
    /// cannot begin any more, and if it has begun, the recovery rule has decided about it.
    ///
    /// The update takes new bytes at each node where some were staged. So it is enough that one of
    /// them has withdrawn the run, or was declared failed since, which makes it withdraw all runs
    /// before it serves again. `layout` was looked up after the attempt.
    async fn close_run(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        open: &OpenRun,
        deadline_ms: u64,
    ) -> Result<(), Refusal> {
        let ports = &self.client.shared.ports;
        let ask = |&node: &NodeId| {
            let request = NodeRequest::Unstage { run: open.run };
            ports.call_node(node, request, deadline_ms)
        };
        let answers = join_all(open.staged_at.iter().map(ask)).await;
        let mut is_shut = false;
        for answer in answers {
            match answer {
                // It has not begun, and never will.
                Ok(NodeReply::Unstaged { was_waiting: true }) => return Ok(()),
                Ok(NodeReply::Unstaged { was_waiting: false }) => is_shut = true,
                Ok(_) | Err(_) => {}
            }
        }
        let failed = failed_nodes(&layout.file.nodes);
        if !is_shut && !open.staged_at.iter().any(|node| failed.contains(node)) {
            let silent = open.staged_at.first().map(ToString::to_string);
            return Err(Refusal::Unavailable(silent.unwrap_or_default()));
        }
        // It may have begun: no participant takes part in it any more once the stripe is settled.
        self.ask_mark(layout, stripe, (true, false), deadline_ms)
            .await
            .map(drop)
    }

    /// Hands new bytes to their data nodes, or to those that act for them.
    async fn stage(
        &self,
        stripe: &StripeRecord,
        run: RunId,
        pieces: &Pieces<'_>,
        deadline_ms: u64,
    ) -> Result<(), Refusal> {
        let ports = &self.client.shared.ports;
        let staged =
            stage_pieces(&pieces.ranges)
                .into_iter()
                .map(|(chunk, offset, start, length)| {
                    let bytes = pieces
                        .bytes
                        .slice(start as usize..(start + length) as usize);
                    let request = NodeRequest::Stage {
                        run,
                        chunk,
                        offset,
                        bytes,
                    };
                    let node = pieces.node_of(stripe, chunk);
                    let staged = ports.call_node(node, request, deadline_ms);
                    async move {
                        match staged.await {
                            Ok(NodeReply::Done) => Ok(()),
                            Ok(NodeReply::Refused(refusal)) => Err(refusal),
                            Ok(_) => Err(Refusal::Failed(format!(
                                "the reply of {node} does not fit the question"
                            ))),
                            Err(error) => Err(Refusal::Unavailable(error.peer)),
                        }
                    }
                });
        stream::iter(staged)
            .buffer_unordered(STAGE_PARALLEL_COUNT)
            .try_collect()
            .await
    }
}

/// What has become of an update.
enum Updated {
    /// The stripe, and the number of the update.
    Done(StripeId, Sequence),
    /// Nothing: it is too large for records.
    TooLarge,
    /// Nothing more: the file's stripes have other borders by now.
    Moved,
}

/// The bytes of an update and where they go.
struct Pieces<'a> {
    ranges: Vec<ChunkRange>,
    /// Those of all ranges, one after another.
    bytes: &'a Bytes,
    /// Who acts for lost chunks.
    substitutes: Vec<(ChunkIndex, NodeId)>,
}

/// A run of which it is not known whether its update was, is or will be made.
struct OpenRun {
    run: RunId,
    /// Where its bytes were staged.
    staged_at: Vec<NodeId>,
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

    /// Where new bytes of a chunk are staged.
    fn node_of(&self, stripe: &StripeRecord, chunk: ChunkIndex) -> NodeId {
        let substitute = self.substitutes.iter().find(|(lost, _)| *lost == chunk);
        substitute.map_or_else(|| stripe.nodes[chunk.at()], |&(_, node)| node)
    }
}

/// Cuts an update's bytes into what one request may carry: the chunk, where in it the piece goes,
/// where in the update it starts, and its length.
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
    fn pieces_are_small_and_follow_each_other() {
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
