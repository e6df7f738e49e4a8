//! Updating a file in place: the new bytes are staged at their data nodes, and the stripe's primary
//! does the rest. Bytes of several stripes are for `replace.rs`.

use crate::client::check;
use crate::extent::{Extent, keepings, within_file};
use crate::file::Layout;
use crate::losses::lost_for_good;
use crate::remedy::may_ask_again;
use crate::{Client, ClientError, File};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Sequence, StripeId, StripeRecord};
use gabion_plan::Plan;
use gabion_planner::{PlanError, update};
use gabion_protocol::message::{NodeReply, NodeRequest, Purpose, Refusal, RunId};
use gabion_protocol::ports::Ports as _;
use gabion_protocol::primary::UPDATE_SLICE_BYTES;

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
    /// meanwhile: writers that overlap need an order of their own.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for bytes outside of the file; [`ClientError::Node`] when a node
    /// refused for good, among them that a chunk to be changed is lost; [`ClientError::Late`];
    /// [`ClientError::Replaced`]; [`ClientError::NoCoordinator`] and [`ClientError::Refused`] when
    /// a new layout was needed.
    pub async fn write(&self, offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        let range = ByteRange::new(offset, bytes.len() as u64);
        within_file(self.name(), self.size_bytes(), range)?;
        let extents = self.extents(range)?;
        match extents.as_slice() {
            [] => Ok(()),
            [_] => self.write_extents(&extents, &bytes).await.map(drop),
            several => self.replace(several, &bytes).await,
        }
    }

    /// Overwrites pieces of one stripe, all of them by one update, with `bytes`: the first piece's,
    /// then the next one's. Gives the stripe and the number of the update.
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
        let first = extents.first().expect("there is at least one piece");
        let same = |extent: &Extent| extent.stripe_at == first.stripe_at;
        assert!(extents.iter().all(same), "the pieces are of one stripe");
        let what = format!("writing {} at byte {}", self.name(), first.file_offset);
        let mut attempts = self.client.attempts(what, bytes.len() as u64);
        loop {
            let layout = self.layout();
            let stripe = layout.stripe(first);
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
            // This also finds out, before bytes are staged in vain, that a chunk is lost.
            let plan = self
                .plan_update_of(&layout, stripe, &ranges)
                .map_err(given_up)?;
            check(&plan, self.code())?;
            let deadline_ms = attempts.attempt_ms();
            match self
                .try_write(&layout, stripe, ranges, bytes, deadline_ms)
                .await
            {
                Ok(sequence) => {
                    self.client.count(&plan, &layout.topology, Purpose::Update);
                    return Ok((stripe.id, sequence));
                }
                Err(refusal) if may_ask_again(&refusal) => {
                    attempts.pause(&refusal.to_string()).await?;
                    self.refresh().await?;
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
        let plan = update::delta(&stripe, ranges, UPDATE_SLICE_BYTES);
        let keepings = keepings(&layout.file.pool.spec, record.chunk_bytes);
        plan.map(|plan| plan.kept(keepings)).map_err(|error| match error {
            PlanError::UpdateOfLost(chunk) => format!(
                "{chunk} of {} is lost, on {}: these bytes take no writes until it is repaired, \
                 but they can be read",
                record.id,
                stripe.node_of(chunk)
            ),
            other => other.to_string(),
        })
    }

    /// One attempt, under a run of its own: what an earlier one staged or began is not touched.
    async fn try_write(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        ranges: Vec<ChunkRange>,
        bytes: &Bytes,
        deadline_ms: u64,
    ) -> Result<Sequence, Refusal> {
        let run = self.client.draw_run();
        self.stage(stripe, run, &ranges, bytes, deadline_ms).await?;
        let (id, generation) = (stripe.id, stripe.generation);
        let request = NodeRequest::Update {
            run,
            stripe: id,
            generation,
            ranges,
        };
        match self
            .ask_primary(layout, stripe, request, deadline_ms)
            .await?
        {
            NodeReply::Updated { sequence } => Ok(sequence),
            _ => Err(Refusal::Failed(
                "the primary's reply does not fit the question".to_owned(),
            )),
        }
    }

    /// Hands new bytes to their data nodes.
    async fn stage(
        &self,
        stripe: &StripeRecord,
        run: RunId,
        ranges: &[ChunkRange],
        bytes: &Bytes,
        deadline_ms: u64,
    ) -> Result<(), Refusal> {
        let ports = &self.client.shared.ports;
        let pieces = stage_pieces(ranges)
            .into_iter()
            .map(|(chunk, offset, start, length)| {
                let bytes = bytes.slice(start as usize..(start + length) as usize);
                let request = NodeRequest::Stage {
                    run,
                    chunk,
                    offset,
                    bytes,
                };
                let node = stripe.nodes[chunk.at()];
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
        stream::iter(pieces)
            .buffer_unordered(STAGE_PARALLEL_COUNT)
            .try_collect()
            .await
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
