//! Files: puts, growth, renaming and deletion.

use super::Files;
use super::live_puts::LivePut;
use super::pools::{no_pool, pool_of};
use crate::coordinator::core::{Answer, PAGE, Rejection, lock};
use crate::coordinator::pool_facts::PoolFacts;
use crate::message::{BegunPut, Cause, Denial, Growth, OpenPut, PutPlaces, ask};
use gabion_layout::ByteRange;
use gabion_meta::{
    Existing, FILE_STRIPES_MAX, FileRecord, KeyValue, Meta, MetaError, PENDING_STRIPES_MAX,
    Placement, PoolSpec, Put, PutId,
};
use std::sync::Arc;

/// The outcome of the visit to the metadata that begins a put.
pub(super) enum Begun {
    /// The file is stored inline. It may be gone since.
    Stored {
        put: PutId,
        file: Option<Box<FileRecord>>,
        facts: Arc<PoolFacts>,
    },
    /// Places are reserved for its stripes.
    Reserved { put: Put, facts: Arc<PoolFacts> },
    /// There is no pool or no place for it.
    Rejected(Rejection),
}

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Stores a small file inline, or reserves places for a file.
    pub(in crate::coordinator) async fn begin_put(
        self: &Arc<Self>,
        asked: ask::BeginPut,
    ) -> Answer<BegunPut> {
        let Some(number) = asked.whole.as_ref().map(|whole| whole.number) else {
            return self.try_begin_put(asked).await;
        };
        match self.try_begin_put(asked.clone()).await {
            // A late copy of the request might be granted, and the client takes the answer as final.
            Err(Rejection::Refused(refused))
                if !matches!(refused.cause, Cause::NotLeading | Cause::Failure) =>
            {
                let refuse = move |meta: &Meta<K>| meta.refuse(number);
                if self.core.with_meta(refuse).await? {
                    // Another copy was faster.
                    return self.try_begin_put(asked).await;
                }
                Err(refused.into())
            }
            answer => answer,
        }
    }

    /// If too few nodes are up, chunks on failed nodes are left out. The client has a file that is stored at once
    /// open, if it asks for that.
    async fn try_begin_put(self: &Arc<Self>, asked: ask::BeginPut) -> Answer<BegunPut> {
        let number = asked.whole.as_ref().map(|whole| whole.number);
        let (Some(number), Some(opener)) = (number, asked.opener) else {
            return self.try_begin_closed_put(asked).await;
        };
        self.core.sessions.begin_making(number, opener)?;
        let mut answer = self.try_begin_closed_put(asked).await;
        let stored = match &answer {
            Ok(BegunPut::Stored { put, file, .. }) => file.as_ref().map(|_| *put),
            _ => None,
        };
        let is_held = self.core.sessions.end_making(number, stored);
        if let Ok(BegunPut::Stored { is_open, .. }) = &mut answer {
            *is_open = is_held;
        }
        answer
    }

    /// The same without noting that the file is open.
    async fn try_begin_closed_put(self: &Arc<Self>, asked: ask::BeginPut) -> Answer<BegunPut> {
        let number = asked.whole.as_ref().map(|whole| whole.number);
        let may_replace = asked.existing != Existing::Stays;
        if may_replace {
            self.check_unused(&asked.at, number, |_| true).await?;
        }
        let replaces = may_replace.then(|| (asked.at.clone(), asked.existing));
        let loss_count = self.pools.loss_count();
        let this = Arc::clone(self);
        let begin = move |meta: &Meta<K>| this.begin_in(meta, asked);
        match self.core.with_meta(begin).await? {
            Begun::Stored { put, file, facts } => {
                // The stripes of the file that it has replaced are garbage.
                self.leftovers.wake();
                let pool = Box::new(facts.record.clone());
                Ok(BegunPut::Stored {
                    put,
                    file,
                    pool,
                    is_open: false,
                })
            }
            Begun::Reserved { put, facts } => {
                let live = LivePut::new(self.core.ports.now_ms(), loss_count, replaces);
                lock(&self.puts).insert(put.id, live);
                Ok(BegunPut::Places(self.places(put.id, &facts, put.stripes)))
            }
            Begun::Rejected(rejection) => Err(rejection),
        }
    }

    /// Begins a put in one visit to the metadata. Waits for the disk.
    fn begin_in(&self, meta: &Meta<K>, asked: ask::BeginPut) -> Result<Begun, MetaError> {
        let ask::BeginPut {
            at,
            existing,
            pool,
            size_bytes,
            attributes,
            whole,
            opener: _,
        } = asked;
        let reject = |denial: Denial| Ok(Begun::Rejected(denial.into()));
        // A repeated request has its file's pool, whichever pools were made since.
        let number = whole.as_ref().map(|whole| whole.number);
        let made = number.map(|number| meta.file_made_by(number)).transpose()?;
        let made = made.flatten();
        let id = match made.map(|file| meta.file_of(file)) {
            Some(Ok(file)) => Some(file.pool),
            _ => pool_of(meta, pool.as_deref())?,
        };
        let Some(id) = id else {
            return reject(no_pool(meta)?);
        };
        if made.is_none()
            && let Err(full) = self.core.check_metadata_disk()
        {
            return reject(full);
        }
        let facts = self.pools.facts(meta, id)?;
        let new = (at, existing, attributes);
        if let Some(whole) = whole.filter(|_| facts.record.keeps_inline(size_bytes)) {
            return self.store_inline(meta, &new, facts, (size_bytes, &whole));
        }
        let encoded = self.pools.encoded_of(meta, &facts)?;
        let (reserved, placements) =
            match self.place_segments(&facts, encoded.as_deref(), size_bytes, 0) {
                Ok(placed) => placed,
                Err(rejection) => return Ok(Begun::Rejected(rejection)),
            };
        let now_ms = self.core.ports.now_ms();
        let put = meta.with_room(self.core.options.discarded_count, || {
            if reserved < size_bytes {
                meta.check_room_of_put(&new.0, id, size_bytes)?;
            }
            meta.begin_put(new.clone(), id, reserved, &placements, now_ms)
        })?;
        Ok(Begun::Reserved { put, facts })
    }

    /// Reserves more places for a put, or fewer.
    pub(in crate::coordinator) async fn extend_put(
        self: &Arc<Self>,
        asked: ask::ExtendPut,
    ) -> Answer<Box<PutPlaces>> {
        let ask::ExtendPut {
            put,
            step,
            stored_count,
            kept_count,
            size_bytes,
        } = asked;
        self.touch_put(put)?;
        let put = put.id;
        self.enter_stripes(put, stored_count).await?;
        let this = Arc::clone(self);
        let find = move |meta: &Meta<K>| {
            let pool = meta.pool_of_put(put)?;
            let facts = this.pools.facts(meta, pool)?;
            let encoded = this.pools.encoded_of(meta, &facts)?;
            Ok((facts, encoded))
        };
        let (facts, encoded) = self.core.with_meta(find).await?;
        // Blocks of one segment stay together.
        let per_segment = encoded
            .as_ref()
            .map_or(1, |encoded| encoded.record.spec.k as u64);
        let segment_count = kept_count.div_ceil(per_segment);
        let (reserved, placements) =
            self.place_segments(&facts, encoded.as_deref(), size_bytes, segment_count)?;
        if !placements.is_empty() {
            self.core.check_metadata_disk()?;
        }
        let whole_count = segment_count.saturating_mul(per_segment);
        let now_ms = self.core.ports.now_ms();
        let limit = self.core.options.discarded_count;
        let extend = move |meta: &Meta<K>| {
            let kept = (step, whole_count);
            meta.with_room(limit, || {
                meta.extend_put(put, kept, reserved, &placements, now_ms)
            })
        };
        let (entered_count, mut stripes) = self.core.with_meta(extend).await?;
        let kept = usize::try_from(kept_count.saturating_sub(entered_count)).unwrap_or(usize::MAX);
        stripes.drain(..stripes.len().min(kept));
        // Stripes that were dropped are garbage.
        self.leftovers.wake();
        Ok(self.places(put, &facts, stripes))
    }

    /// Notes that the first stripes of a put are stored.
    async fn enter_stripes(&self, put: PutId, stored_count: u64) -> Result<(), MetaError> {
        if stored_count == 0 {
            return Ok(());
        }
        let enter = move |meta: &Meta<K>| meta.enter_stripes(put, stored_count);
        let entered = self.core.with_meta(enter).await?;
        self.backlog.add(entered).await
    }

    /// Places the stripes of a new file, or the blocks that they are first, but for the first `kept_count`
    /// segments, as many as are reserved at a time. Returns the bytes up to their end, too.
    fn place_segments(
        &self,
        facts: &PoolFacts,
        encoded: Option<&PoolFacts>,
        size_bytes: u64,
        kept_count: u64,
    ) -> Answer<(u64, Vec<Placement>)> {
        let fleet = self.nodes.fleet();
        let spec = &encoded.unwrap_or(facts).record.spec;
        let per_segment = encoded.map_or(1, |encoded| encoded.record.spec.k as u64);
        let most = (self.core.options.reserved_count / per_segment).max(1);
        let sizes = chunk_sizes(spec, size_bytes, (kept_count, most))?;
        let end = kept_count.saturating_add(sizes.len() as u64);
        let reserved = size_bytes.min(end.saturating_mul(spec.segment_bytes()));
        let placements = match encoded {
            None => self.place(facts, &sizes, &fleet),
            Some(_) => self.place_blocks(facts, spec, &sizes, &fleet),
        };
        Ok((reserved, placements?))
    }

    /// Notes that a put's client is active. The note is in memory only: a new run of the coordinator gives
    /// all clients a full timeout.
    pub(in crate::coordinator) fn touch_put(&self, put: OpenPut) -> Answer<()> {
        let put = self.tickets.own(put)?;
        match lock(&self.puts).get_mut(&put) {
            Some(live) => {
                live.heard_ms = self.core.ports.now_ms();
            }
            None => return Err(MetaError::UnknownPut(put).into()),
        }
        self.core.check_may_answer()
    }

    /// Makes a file visible. A chunk whose node has failed since the write is queued for repair. If stripes are lost
    /// that were stored, the put is aborted.
    pub(in crate::coordinator) async fn commit_put(self: &Arc<Self>, put: OpenPut) -> Answer<()> {
        let put = self.tickets.own(put)?;
        let lost = self.find_lost(put).await?;
        if lost.is_none() {
            self.displace_replaced(put).await?;
        }
        let created_ms = self.core.lifetime_ms();
        let this = Arc::clone(self);
        let commit = move |meta: &Meta<K>| {
            let committed = lost.map_or_else(|| meta.commit_put(put, created_ms), Err);
            let file = match committed {
                // Other changes could make it possible again, and the client takes the answer as final.
                Err(refused) if is_final(&refused) => this.end_refused(meta, put, refused)?,
                committed => committed?,
            };
            this.timetable.enter(meta, &file)?;
            match meta.layout_within(put, last_stripes(meta, &file)?) {
                Err(MetaError::FileGone(_)) => Ok(Vec::new()),
                layout => Ok(layout?
                    .1
                    .stripes
                    .into_iter()
                    .map(|(_, stripe)| stripe)
                    .collect()),
            }
        };
        match self.core.with_meta(commit).await {
            Ok(stripes) => {
                lock(&self.puts).remove(&put);
                self.backlog.add(stripes).await?;
                // The stripes of the file that it has replaced are garbage.
                self.leftovers.wake();
            }
            // The answer to the first request was lost.
            Err(MetaError::CommittedBefore(_)) => {}
            Err(error) if is_final(&error) => {
                self.abort_put(put).await?;
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Aborts a put of which the commit is refused. Tells the reason again if another request has done so. Waits for
    /// the disk.
    fn end_refused(
        &self,
        meta: &Meta<K>,
        put: PutId,
        refused: MetaError,
    ) -> Result<FileRecord, MetaError> {
        if !matches!(
            refused,
            MetaError::UnknownPut(_) | MetaError::PutForgotten(_)
        ) {
            // Before the put is unknown.
            self.denied_puts.note(put, &refused);
        }
        if meta.abort_put(put)? {
            return Err(refused);
        }
        match meta.commit_put(put, self.core.lifetime_ms()) {
            Err(unknown @ MetaError::UnknownPut(_)) => {
                Err(self.denied_puts.reason(put).unwrap_or(unknown))
            }
            committed => committed,
        }
    }

    /// Looks at the stored stripes of a put, if a stripe of the cluster was found lost since they were stored. Returns
    /// the refusal if one of them cannot be decoded any more. A repeated request goes on where the last one was.
    async fn find_lost(&self, put: PutId) -> Result<Option<MetaError>, MetaError> {
        loop {
            let loss_count = self.pools.loss_count();
            let from = {
                let mut puts = lock(&self.puts);
                let live = puts.get_mut(&put);
                live.and_then(|live| live.unchecked_from(loss_count))
            };
            let Some(from) = from else {
                return Ok(None);
            };
            let pools = Arc::clone(&self.pools);
            let look = move |meta: &Meta<K>| {
                let page = meta.entered_stripes(put, from, PAGE)?;
                for (_, stripe) in &page {
                    if !pools.is_decodable(meta, stripe)? {
                        let (stripe, missing_count) = (stripe.id, stripe.stale.len());
                        return Ok(Err(MetaError::PutLost {
                            stripe,
                            missing_count,
                        }));
                    }
                }
                let last = page.last().map(|(last, _)| *last);
                Ok(Ok(last.map_or(u64::MAX, |last| last.saturating_add(1))))
            };
            let upto = match self.core.with_meta(look).await? {
                Ok(upto) => upto,
                Err(lost) => return Ok(Some(lost)),
            };
            if let Some(live) = lock(&self.puts).get_mut(&put) {
                live.note_checked(loss_count, upto);
            }
        }
    }

    /// Aborts a put for its client.
    pub(in crate::coordinator) async fn abort_own_put(
        self: &Arc<Self>,
        put: OpenPut,
    ) -> Answer<()> {
        Ok(self.abort_put(self.tickets.own(put)?).await?)
    }

    /// Aborts a put; a put that has ended stays as it is.
    pub(in crate::coordinator) async fn abort_put(
        self: &Arc<Self>,
        put: PutId,
    ) -> Result<(), MetaError> {
        self.core.with_meta(move |meta| meta.abort_put(put)).await?;
        let over = lock(&self.puts).remove(&put);
        if let Some(occupation) = over.and_then(|live| live.occupation) {
            self.leave(occupation).await?;
        }
        self.leftovers.wake();
        Ok(())
    }

    /// Aborts puts whose clients are silent, until the metadata store fails. It begins after most nodes have been
    /// heard. Before that, no sign of life was answered or noted, so all clients get a full timeout from now on.
    pub(in crate::coordinator) async fn expire_puts(self: Arc<Self>) {
        let options = &self.core.options;
        let period_ms = (options.put_timeout_ms / 24).max(1);
        let begun_ms = self.core.ports.now_ms();
        for live in lock(&self.puts).values_mut() {
            live.heard_ms = begun_ms;
        }
        while !self.core.is_broken() {
            let late_ms = self.core.sleep_late_ms(period_ms).await;
            if late_ms > 0 {
                for live in lock(&self.puts).values_mut() {
                    live.give_time(late_ms);
                }
                continue;
            }
            if self.core.check_leads().is_err() {
                continue;
            }
            let now_ms = self.core.ports.now_ms();
            let expired: Vec<PutId> = lock(&self.puts)
                .iter()
                .filter(|(_, live)| live.is_silent(now_ms, options))
                .map(|(&put, _)| put)
                .collect();
            for put in expired {
                // Its client may have been heard while the ones before it were aborted.
                let now_ms = self.core.ports.now_ms();
                let is_silent = |live: &LivePut| live.is_silent(now_ms, options);
                if !lock(&self.puts).get(&put).is_some_and(is_silent) {
                    continue;
                }
                // A put that cannot be aborted now stays in the list until the next period.
                let _ = self.abort_put(put).await;
            }
        }
    }

    /// Gives a file more bytes, when no node serves stripes that the file has lost.
    pub(in crate::coordinator) async fn grow(self: &Arc<Self>, asked: ask::Grow) -> Answer<Growth> {
        let ask::Grow {
            file,
            size_bytes,
            truncation_count,
            from,
            token,
        } = asked;
        let grow = move |meta: &Meta<K>| match from {
            None => meta.grow(file, size_bytes, truncation_count),
            Some((from, number)) => {
                let by = size_bytes.saturating_sub(from);
                match meta.grow_from(file, (from, by), (number, truncation_count), token) {
                    // The quota may have room when a late copy of the request arrives, and the client takes the answer
                    // as final. Another copy may have found room by now.
                    Err(full @ MetaError::Quota(_)) => match meta.refuse_growth(file, number)? {
                        Some(made) => Ok((made, true)),
                        None => Err(full),
                    },
                    grown => grown,
                }
            }
        };
        let look = move |meta: &Meta<K>| match grow(meta) {
            // With another layout, the client may succeed or learn the reason.
            Err(MetaError::Superseded { .. }) => Ok((meta.file_of(file)?, false)),
            grown => grown,
        };
        let (file, is_done) = match self.core.with_meta(look).await {
            Err(error @ MetaError::StillServed(_)) => {
                // The client that has dropped them may be gone, and a pass over all garbage takes long.
                let served = move |meta: &Meta<K>| meta.served_dropped(file);
                let served = self.core.with_meta(served).await?;
                self.withdraw(served).await?;
                return Err(Rejection::busy(error));
            }
            grown => grown?,
        };
        Ok(Growth {
            size_bytes: file.size_bytes,
            truncation_count: file.truncation_count,
            inline: file.inline,
            is_done,
        })
    }

    /// Gives a file another name.
    pub(in crate::coordinator) async fn rename(self: &Arc<Self>, asked: ask::Rename) -> Answer<()> {
        let (file, version) = (asked.file, (asked.generation, asked.number));
        if asked.existing != Existing::Stays {
            let concerns = |present: PutId| present != file;
            self.check_unused(&asked.to, Some(asked.number), concerns)
                .await?;
        }
        let rename = move |meta: &Meta<K>| {
            meta.rename((file, asked.from), version, asked.to, asked.existing)
        };
        self.core.with_meta(rename).await?;
        // The stripes of the file that had the name are garbage.
        self.leftovers.wake();
        Ok(())
    }

    /// Takes a name of a file away. The chunks of a file without names are removed from their nodes later.
    pub(in crate::coordinator) async fn remove_file(
        self: &Arc<Self>,
        asked: ask::RemoveFile,
    ) -> Answer<()> {
        let (file, version) = (asked.file, (asked.generation, asked.number));
        self.check_unused(&asked.at, Some(asked.number), |present| present == file)
            .await?;
        let remove = move |meta: &Meta<K>| meta.remove_file(asked.at, file, version);
        self.core.with_meta(remove).await?;
        self.leftovers.wake();
        Ok(())
    }
}

/// Whether a refusal to commit a put is the coordinator's decision, and not the end of the coordinator.
fn is_final(refused: &MetaError) -> bool {
    !refused.ends_the_coordinator() && !matches!(refused, MetaError::CommittedBefore(_))
}

/// The bytes of a new file in those of its stripes that its commit has brought.
fn last_stripes<K: KeyValue>(meta: &Meta<K>, file: &FileRecord) -> Result<ByteRange, MetaError> {
    let stripe_bytes = meta.pool(file.pool)?.spec.segment_bytes();
    let most = stripe_bytes
        .saturating_mul(PENDING_STRIPES_MAX)
        .min(file.size_bytes);
    Ok(ByteRange::new(file.size_bytes - most, most))
}

/// Chunk size of each stripe of a file, of at most `most` behind the first `kept_count`: the pool's, and the smallest
/// possible for the last stripe.
fn chunk_sizes(
    spec: &PoolSpec,
    size_bytes: u64,
    (kept_count, most): (u64, u64),
) -> Result<Vec<u64>, Denial> {
    let stripe_bytes = spec.segment_bytes();
    let full_count = size_bytes / stripe_bytes;
    let rest_bytes = size_bytes % stripe_bytes;
    if full_count >= FILE_STRIPES_MAX {
        return Err(Denial::new(
            Cause::TooLarge,
            format!(
                "a file in this pool has at most {} bytes ({FILE_STRIPES_MAX} stripes), but this file has {size_bytes}; \
                use a pool with larger chunks or several files",
                stripe_bytes.saturating_mul(FILE_STRIPES_MAX)
            ),
        ));
    }
    let left_count = full_count.saturating_sub(kept_count);
    let mut sizes = vec![spec.chunk_bytes; left_count.min(most) as usize];
    if rest_bytes > 0 && kept_count <= full_count && left_count < most {
        sizes.push(spec.least_chunk_bytes(rest_bytes));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{Survive, UpdateScheme};

    fn spec(sub_chunks: usize, chunk_bytes: u64) -> PoolSpec {
        PoolSpec {
            name: "p".to_owned(),
            code: "opaque".to_owned(),
            k: 4,
            m: 2,
            sub_chunks,
            chunk_bytes,
            survive: Survive::Nodes(2),
            chunks_per_rack: 6,
            update: UpdateScheme::Pl,
            reserve: None,
            append: None,
            inline_bytes: 0,
        }
    }

    #[test]
    fn the_last_stripe_is_as_small_as_pages_and_rows_allow() {
        let sizes = |spec: &PoolSpec, bytes| chunk_sizes(spec, bytes, (0, 9)).unwrap();
        let pool = spec(1, 1 << 20);
        assert_eq!(sizes(&pool, 0), [0; 0]);
        assert_eq!(sizes(&pool, 1), [4096]);
        assert_eq!(sizes(&pool, 4 * 4096 + 1), [8192]);
        assert_eq!(sizes(&pool, 4 << 20), [1 << 20]);
        assert_eq!(sizes(&pool, (4 << 20) + 1), [1 << 20, 4096]);
        assert_eq!(sizes(&pool, (8 << 20) - 1), [1 << 20, 1 << 20]);
        assert_eq!(
            sizes(&spec(6, 6 << 20), 1),
            [3 * 4096],
            "six rows in each chunk"
        );
        assert_eq!(
            sizes(&spec(6, 6 * 1000), 1),
            [6000],
            "no more than the pool's chunk"
        );
        assert!(chunk_sizes(&pool, u64::MAX, (0, 9)).is_err());
    }

    #[test]
    fn places_are_reserved_for_some_stripes_at_a_time() {
        let pool = spec(1, 1 << 20);
        let full = 1 << 20;
        for (kept_count, most, expected) in [
            (0, 2, vec![full, full]),
            (1, 2, vec![full, full]),
            (2, 2, vec![full, 4096]),
            (3, 2, vec![4096]),
            (4, 2, vec![]),
            (0, 4, vec![full, full, full, 4096]),
        ] {
            let sizes = chunk_sizes(&pool, (12 << 20) + 1, (kept_count, most));
            assert_eq!(sizes.unwrap(), expected, "{most} behind {kept_count}");
        }
    }
}
