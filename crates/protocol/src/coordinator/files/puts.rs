//! Files: puts, growth, renaming and deletion.

use super::Files;
use super::live_puts::LivePut;
use super::pools::{no_pool, pool_of};
use super::rejection::Rejection;
use crate::coordinator::core::{Answer, lock, refused_for_now};
use crate::coordinator::pool_facts::PoolFacts;
use crate::message::{Cause, CoordinatorReply, Denial, Growth, OpenPut, ask};
use gabion_meta::{
    Existing, FileRecord, KeyValue, Meta, MetaError, PUT_STRIPES_MAX, Placement, PoolSpec, Put,
    PutId,
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
    ) -> Answer {
        let Some(number) = asked.whole.as_ref().map(|whole| whole.number) else {
            return self.try_begin_put(asked).await;
        };
        match self.try_begin_put(asked.clone()).await {
            // A late copy of the request might be granted, and the client takes the answer as final.
            Err(refused) if !matches!(refused.cause, Cause::NotLeading | Cause::Failure) => {
                let refuse = move |meta: &Meta<K>| meta.refuse(number);
                if self.core.with_meta(refuse).await? {
                    // Another copy was faster.
                    return self.try_begin_put(asked).await;
                }
                Err(refused)
            }
            answer => answer,
        }
    }

    /// If too few nodes are up, chunks on failed nodes are left out.
    async fn try_begin_put(self: &Arc<Self>, asked: ask::BeginPut) -> Answer {
        let number = asked.whole.as_ref().map(|whole| whole.number);
        if asked.existing != Existing::Stays {
            self.check_unused(&asked.at, number, |_| true).await?;
        }
        let this = Arc::clone(self);
        let begin = move |meta: &Meta<K>| this.begin_in(meta, asked);
        match self.core.with_meta(begin).await? {
            Begun::Stored { put, file, facts } => {
                // The stripes of the file that it has replaced are garbage.
                self.leftovers.wake();
                let pool = Box::new(facts.record.clone());
                Ok(CoordinatorReply::Stored { put, file, pool })
            }
            Begun::Reserved { put, facts } => {
                let live = LivePut {
                    heard_ms: self.core.ports.now_ms(),
                    occupation: None,
                };
                lock(&self.puts).insert(put.id, live);
                Ok(self.places(put.id, &facts, put.stripes))
            }
            Begun::Rejected(rejection) => rejection.answer(),
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
        } = asked;
        let reject = |denial| Ok(Begun::Rejected(Rejection::Final(denial)));
        // A repeated request has its file's pool, whichever pools were made since.
        let number = whole.as_ref().map(|whole| whole.number);
        let made = number.map(|number| meta.file_made_by(number)).transpose()?;
        let made = made.flatten();
        let id = match made.map(|file| meta.file_of(file)) {
            Some(Ok(file)) => Some(file.pool),
            _ => pool_of(meta, pool.as_deref())?,
        };
        let Some(id) = id else {
            return reject(no_pool());
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
        let placements = match self.place_segments(&facts, encoded.as_deref(), size_bytes, 0) {
            Ok(placements) => placements,
            Err(rejection) => return Ok(Begun::Rejected(rejection)),
        };
        let now_ms = self.core.ports.now_ms();
        let put = meta.with_room(self.core.options.discarded_count, || {
            meta.begin_put(new.clone(), id, size_bytes, &placements, now_ms)
        })?;
        Ok(Begun::Reserved { put, facts })
    }

    /// Reserves more places for a put, or fewer.
    pub(in crate::coordinator) async fn extend_put(
        self: &Arc<Self>,
        asked: ask::ExtendPut,
    ) -> Answer {
        let ask::ExtendPut {
            put,
            step,
            kept_count,
            size_bytes,
        } = asked;
        self.touch_put(put)?;
        let put = put.id;
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
        let placed = self.place_segments(&facts, encoded.as_deref(), size_bytes, segment_count);
        let placements = match placed {
            Ok(placements) => placements,
            Err(rejection) => return rejection.answer(),
        };
        let whole_count = segment_count.saturating_mul(per_segment);
        let now_ms = self.core.ports.now_ms();
        let limit = self.core.options.discarded_count;
        let extend = move |meta: &Meta<K>| {
            let kept = (step, whole_count);
            meta.with_room(limit, || {
                meta.extend_put(put, kept, size_bytes, &placements, now_ms)
            })
        };
        let mut stripes = self.core.with_meta(extend).await?;
        stripes.drain(..stripes.len().min(kept_count as usize));
        // Stripes that were dropped are garbage.
        self.leftovers.wake();
        Ok(self.places(put, &facts, stripes))
    }

    /// Places the stripes of a new file, or the blocks that they are first, but for the first `kept_count`
    /// segments.
    fn place_segments(
        &self,
        facts: &PoolFacts,
        encoded: Option<&PoolFacts>,
        size_bytes: u64,
        kept_count: u64,
    ) -> Result<Vec<Placement>, Rejection> {
        let fleet = self.nodes.fleet();
        let spec = &encoded.unwrap_or(facts).record.spec;
        let mut sizes = chunk_sizes(spec, size_bytes).map_err(Rejection::Final)?;
        let kept = usize::try_from(kept_count).unwrap_or(usize::MAX);
        sizes.drain(..kept.min(sizes.len()));
        match encoded {
            None => self.place(facts, &sizes, &fleet),
            Some(_) => self.place_blocks(facts, spec, &sizes, &fleet),
        }
    }

    /// Notes that a put's client is active. The note is in memory only: a new run of the coordinator gives
    /// all clients a full timeout.
    pub(in crate::coordinator) fn touch_put(&self, put: OpenPut) -> Answer {
        let put = self.tickets.own(put)?;
        match lock(&self.puts).get_mut(&put) {
            Some(live) => {
                live.heard_ms = self.core.ports.now_ms();
            }
            None => return Err(MetaError::UnknownPut(put).into()),
        }
        match self.core.check_leads() {
            Ok(()) => Ok(CoordinatorReply::Done),
            Err(error) => refused_for_now(error),
        }
    }

    /// Makes a file visible. A chunk whose node has failed since the write is queued for repair.
    pub(in crate::coordinator) async fn commit_put(self: &Arc<Self>, put: OpenPut) -> Answer {
        let put = self.tickets.own(put)?;
        let created_ms = self.core.lifetime_ms();
        let this = Arc::clone(self);
        let commit = move |meta: &Meta<K>| {
            let file = match meta.commit_put(put, created_ms) {
                // Other changes could make it possible again, and the client takes the answer as final.
                Err(refused) if is_final(&refused) && meta.abort_put(put)? => return Err(refused),
                Err(refused) if is_final(&refused) => meta.commit_put(put, created_ms),
                committed => committed,
            }?;
            this.timetable.enter(meta, &file)?;
            match meta.layout_of(put) {
                Err(MetaError::FileGone(_)) => Ok(Vec::new()),
                layout => Ok(layout?.1.into_iter().map(|(_, stripe)| stripe).collect()),
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
        Ok(CoordinatorReply::Done)
    }

    /// Aborts a put for its client.
    pub(in crate::coordinator) async fn abort_own_put(self: &Arc<Self>, put: OpenPut) -> Answer {
        self.abort_put(self.tickets.own(put)?).await
    }

    /// Aborts a put; a put that has ended stays as it is.
    pub(in crate::coordinator) async fn abort_put(self: &Arc<Self>, put: PutId) -> Answer {
        self.core.with_meta(move |meta| meta.abort_put(put)).await?;
        let over = lock(&self.puts).remove(&put);
        if let Some(occupation) = over.and_then(|live| live.occupation) {
            self.leave(occupation).await?;
        }
        self.leftovers.wake();
        Ok(CoordinatorReply::Done)
    }

    /// Aborts puts whose clients are silent, until the metadata store fails.
    pub(in crate::coordinator) async fn expire_puts(self: Arc<Self>) {
        let timeout_ms = self.core.options.put_timeout_ms;
        while !self.core.is_broken() {
            // The timeout of replacements is shorter, so this period serves them too.
            self.core.ports.sleep_ms((timeout_ms / 24).max(1)).await;
            if self.core.check_leads().is_err() {
                continue;
            }
            let now_ms = self.core.ports.now_ms();
            let is_silent = |live: &LivePut| {
                now_ms.saturating_sub(live.heard_ms) >= live.timeout_ms(timeout_ms)
            };
            let expired: Vec<PutId> = lock(&self.puts)
                .iter()
                .filter(|(_, live)| is_silent(live))
                .map(|(&put, _)| put)
                .collect();
            for put in expired {
                // A put that cannot be aborted now stays in the list until the next period.
                let _ = self.abort_put(put).await;
            }
        }
    }

    /// Gives a file more bytes, when no node serves stripes that the file has lost.
    pub(in crate::coordinator) async fn grow(self: &Arc<Self>, asked: ask::Grow) -> Answer {
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
                meta.grow_from(file, (from, by), (number, truncation_count), token)
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
                return Ok(CoordinatorReply::Busy(error.into()));
            }
            grown => grown?,
        };
        Ok(CoordinatorReply::Grown(Growth {
            size_bytes: file.size_bytes,
            truncation_count: file.truncation_count,
            inline: file.inline,
            is_done,
        }))
    }

    /// Gives a file another name.
    pub(in crate::coordinator) async fn rename(self: &Arc<Self>, asked: ask::Rename) -> Answer {
        let ask::Rename {
            file,
            from,
            generation,
            number,
            to,
            existing,
        } = asked;
        if existing != Existing::Stays {
            self.check_unused(&to, Some(number), |present| present != file)
                .await?;
        }
        let rename = move |meta: &Meta<K>| {
            let (named, version) = ((file, from.clone()), (generation, number));
            meta.rename(named, version, to.clone(), existing)
        };
        self.core.with_meta(rename).await?;
        // The stripes of the file that had the name are garbage.
        self.leftovers.wake();
        Ok(CoordinatorReply::Done)
    }

    /// Takes a name of a file away. The chunks of a file without names are removed from their nodes later.
    pub(in crate::coordinator) async fn remove_file(
        self: &Arc<Self>,
        asked: ask::RemoveFile,
    ) -> Answer {
        let ask::RemoveFile {
            at,
            file,
            generation,
            number,
        } = asked;
        self.check_unused(&at, Some(number), |present| present == file)
            .await?;
        let remove = move |meta: &Meta<K>| meta.remove_file(at.clone(), file, (generation, number));
        self.core.with_meta(remove).await?;
        self.leftovers.wake();
        Ok(CoordinatorReply::Done)
    }
}

/// Whether a refusal to commit a put is the coordinator's decision, and not the end of the coordinator.
fn is_final(refused: &MetaError) -> bool {
    !refused.ends_the_coordinator() && !matches!(refused, MetaError::CommittedBefore(_))
}

/// Chunk size of each stripe of a file: the pool's, and the smallest possible for the last stripe.
fn chunk_sizes(spec: &PoolSpec, size_bytes: u64) -> Result<Vec<u64>, Denial> {
    let stripe_bytes = spec.segment_bytes();
    let full_count = size_bytes / stripe_bytes;
    let rest_bytes = size_bytes % stripe_bytes;
    if full_count >= PUT_STRIPES_MAX {
        return Err(Denial::new(
            Cause::TooLarge,
            format!(
                "a file in this pool has at most {} bytes ({PUT_STRIPES_MAX} stripes), but this file has {size_bytes}; \
                use a pool with larger chunks or several files",
                stripe_bytes.saturating_mul(PUT_STRIPES_MAX)
            ),
        ));
    }
    let mut sizes = vec![spec.chunk_bytes; full_count as usize];
    if rest_bytes > 0 {
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
        let sizes = |spec: &PoolSpec, bytes| chunk_sizes(spec, bytes).unwrap();
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
        assert!(chunk_sizes(&pool, u64::MAX).is_err());
    }
}
