//! When replicated blocks become stripes, and when stripes become blocks again: the pool's rule and users'
//! requests decide. Both follow from the metadata: of all files when the coordinator starts, and of each
//! file when a conversion may be due. So a restart loses only how long blocks have been idle.
//!
//! Repairs take precedence over conversions: no conversion begins while a stripe could be repaired.
//! Conversions share the repairs' limits, yield to foreground traffic like repairs, and pause with them.

use super::Lifecycles;
use super::conversion::Conversion;
use super::forms::{Condition, Form, next_look_ms, wanted};
use super::timetable::Quiet;
use crate::coordinator::core::{Answer, PAGE, each_file, lock};
use crate::coordinator::pool_facts::PoolFacts;
use crate::coordinator::repair::survey::TaskError;
use crate::message::{FormOrder, ask};
use crate::ports::Ask as _;
use futures::stream::{self, StreamExt};
use futures::{FutureExt, select_biased};
use gabion_layout::{EncodeAfter, Lifecycle, NodeId, PoolId, StripeId, StripeRecord};
use gabion_meta::{FileRecord, KeyValue, Meta, MetaError, PutId, RequestedForm};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Period of noting durably how long coordinators have run.
const LIFETIME_EVERY_MS: u64 = 60_000;
/// Time limit of a node's answer about its newest updates.
const LATEST_DEADLINE_MS: u64 = 5_000;

/// The present state of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Segment {
    stripes: Vec<StripeId>,
    form: Form,
    /// Whether its chunks are as large as the pool's.
    is_full: bool,
}

/// A file whose blocks are replicated first.
struct Candidate {
    file: FileRecord,
    requested: Option<RequestedForm>,
    blocks: Arc<PoolFacts>,
    encoded: Arc<PoolFacts>,
    lifecycle: Lifecycle,
    stripes: Vec<StripeRecord>,
}

impl Candidate {
    /// The segments in order: an encoded stripe is one, and so are as many blocks as it has data chunks.
    fn segments(&self) -> Vec<Segment> {
        let mut rest = &self.stripes[..];
        let mut segments = Vec::new();
        while let Some(first) = rest.first() {
            let (form, count) = if first.pool == self.file.pool {
                (Form::Replicated, self.encoded.record.spec.k)
            } else {
                (Form::Encoded, 1)
            };
            let (stripes, others) = rest.split_at(count.min(rest.len()));
            segments.push(Segment {
                stripes: stripes.iter().map(|stripe| stripe.id).collect(),
                form,
                is_full: first.chunk_bytes == self.encoded.record.spec.chunk_bytes,
            });
            rest = others;
        }
        segments
    }

    fn condition(&self, segment: &Segment, now_ms: u64, quiet: &QuietBlocks) -> Condition {
        let since_ms = |id: &StripeId| Some(quiet.get(id)?.since_ms);
        let all: Option<Vec<u64>> = segment.stripes.iter().map(since_ms).collect();
        Condition {
            is_full: segment.is_full,
            created_ms: self.file.created_ms,
            quiet_since_ms: all.and_then(|all| all.into_iter().max()),
            now_ms,
        }
    }

    /// The conversions that are due, and the time of the next check.
    fn due(&self, now_ms: u64, quiet: &QuietBlocks) -> (Vec<Conversion>, Option<u64>) {
        let (mut due, mut next_ms) = (Vec::new(), None);
        for segment in self.segments() {
            let (after, condition) = (
                self.lifecycle.after,
                self.condition(&segment, now_ms, quiet),
            );
            let form = wanted(after, self.requested, condition).unwrap_or(segment.form);
            let look_ms = if form != segment.form {
                due.push(self.conversion(&segment));
                // The conversion may turn out to be unnecessary.
                Some(now_ms)
            } else if form == Form::Replicated {
                next_look_ms(after, self.requested, condition)
            } else {
                None
            };
            next_ms = [next_ms, look_ms].into_iter().flatten().min();
        }
        (due, next_ms)
    }

    fn conversion(&self, segment: &Segment) -> Conversion {
        let into = match segment.form {
            Form::Replicated => &self.encoded,
            Form::Encoded => &self.blocks,
        };
        Conversion {
            name: self.file.name.clone(),
            file: self.file.put,
            sources: segment.stripes.clone(),
            data_count: self.encoded.record.spec.k,
            into: Arc::clone(into),
        }
    }
}

/// The age of each block of a file.
type QuietBlocks = BTreeMap<StripeId, Quiet>;

impl<K: KeyValue + Send + Sync + 'static> Lifecycles<K> {
    /// Converts what is due, until the metadata store fails.
    pub(in crate::coordinator) async fn run(self: Arc<Self>) {
        let (mut noted_ms, mut knows_all) = (0, false);
        while !self.core.is_broken() {
            let mut later = self
                .core
                .ports
                .sleep_ms(self.core.options.lifecycle_scan_ms.max(1))
                .fuse();
            select_biased! {
                () = self.timetable.woken().fuse() => {}
                () = later => {}
            }
            if !knows_all {
                knows_all = self.enter_all().await.is_ok();
            }
            if let Err(TaskError(sentence)) = self.convert_due().await {
                lock(&self.converted).last_error = Some(sentence);
            }
            let lifetime_ms = self.core.lifetime_ms();
            let is_late = lifetime_ms >= noted_ms + LIFETIME_EVERY_MS || noted_ms == 0;
            if is_late && self.timetable.times().is_used() {
                noted_ms = lifetime_ms;
                let note = move |meta: &Meta<K>| meta.note_lifetime(lifetime_ms);
                let _ = self.core.with_meta(note).await;
            }
        }
    }

    /// Schedules a check of all files whose blocks are replicated first: the coordinator keeps no durable
    /// note of the conversions that were due when its last run ended.
    async fn enter_all(&self) -> Result<(), MetaError> {
        let mut after = None;
        loop {
            let look = move |meta: &Meta<K>| {
                let pools = meta.pools()?.into_iter();
                let pools = pools.filter(|pool| pool.lifecycle.is_some());
                let pools: BTreeSet<PoolId> = pools.map(|pool| pool.id).collect();
                if pools.is_empty() {
                    return Ok((pools, Vec::new()));
                }
                Ok((pools, meta.files_by_put(after, PAGE)?))
            };
            let (pools, page) = self.core.with_meta(look).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.put);
            let mut times = self.timetable.times();
            for file in page.iter().filter(|file| pools.contains(&file.pool)) {
                times.look_at(file.put, 0);
            }
        }
    }

    /// Notes users' requests for files.
    pub(in crate::coordinator) async fn order(self: &Arc<Self>, order: FormOrder) -> Answer<()> {
        let since_ms = self.core.lifetime_ms();
        let requested = if order.is_encoded {
            RequestedForm::Encoded
        } else {
            RequestedForm::Replicated { since_ms }
        };
        let this = Arc::clone(self);
        let note = move |meta: &Meta<K>| {
            meta.note_lifetime(since_ms)?;
            let pool = meta.pool_named(&order.pool)?;
            if pool.lifecycle.is_none() {
                let what = if order.is_encoded {
                    "encoded"
                } else {
                    "replicated again"
                };
                let pool = order.pool;
                return Err(MetaError::NotReplicated { pool, what });
            }
            if let Some(name) = order.file {
                let file = meta.file(&name)?;
                if let Some(gabion_meta::Symlink { target }) = file.symlink {
                    return Err(MetaError::IsASymlink { name, target });
                }
                if file.pool != pool.id {
                    return Err(MetaError::Pool(format!(
                        "{name} is a file of another pool than {}; name its pool",
                        order.pool
                    )));
                }
                meta.request_form(file.put, requested)?;
                return this.timetable.enter(meta, &file);
            }
            each_file(meta, |file| {
                if file.pool != pool.id {
                    return Ok(());
                }
                match meta.request_form(file.put, requested) {
                    Ok(()) => this.timetable.enter(meta, file),
                    Err(MetaError::FileGone(_)) => Ok(()),
                    Err(error) => Err(error),
                }
            })
        };
        Ok(self.core.with_meta(note).await?)
    }

    /// Checks all files that are due, and converts their segments, unless repairs are waiting.
    async fn convert_due(self: &Arc<Self>) -> Result<(), TaskError> {
        let now_ms = self.core.lifetime_ms();
        let mut due = Vec::new();
        while !self.backlog.is_busy() {
            let files = self.timetable.times().take_due(now_ms, PAGE);
            if files.is_empty() {
                break;
            }
            match self.look_at(&files).await {
                Ok(more) => due.extend(more),
                Err(error) => {
                    let mut times = self.timetable.times();
                    for &file in &files {
                        times.look_at(file, now_ms + self.core.options.lifecycle_scan_ms);
                    }
                    return Err(error.into());
                }
            }
        }
        let conversions = due
            .into_iter()
            .map(|conversion| self.convert_one(conversion));
        let parallel = self.core.options.convert_parallel.max(1);
        stream::iter(conversions)
            .buffer_unordered(parallel)
            .collect::<()>()
            .await;
        Ok(())
    }

    /// Finds the due conversions of files, and schedules the next check of each file.
    async fn look_at(self: &Arc<Self>, files: &[PutId]) -> Result<Vec<Conversion>, MetaError> {
        let (this, wanted) = (Arc::clone(self), files.to_vec());
        let find = move |meta: &Meta<K>| {
            let found = wanted.iter().map(|&file| this.candidate(meta, file));
            found.collect::<Result<Vec<Option<Candidate>>, _>>()
        };
        let found = self.core.with_meta(find).await?;
        let quiet = self.quiet_blocks(&found).await;
        let now_ms = self.core.lifetime_ms();
        let soonest_ms = now_ms + self.core.options.lifecycle_scan_ms.max(1);
        let mut all_due = Vec::new();
        let mut times = self.timetable.times();
        for (&file, found) in files.iter().zip(found) {
            let (due, quiet, next_ms) = match found {
                None => (Vec::new(), QuietBlocks::new(), None),
                Some(candidate) => {
                    let blocks = candidate.stripes.iter();
                    let known = |stripe: &StripeRecord| Some((stripe.id, *quiet.get(&stripe.id)?));
                    let quiet: QuietBlocks = blocks.filter_map(known).collect();
                    let (due, next_ms) = candidate.due(now_ms, &quiet);
                    (due, quiet, next_ms)
                }
            };
            times.note(file, due.len() as u64, quiet);
            if let Some(next_ms) = next_ms {
                times.look_at(file, next_ms.max(soonest_ms));
            }
            all_due.extend(due);
        }
        Ok(all_due)
    }

    /// Converts a segment when no repair is waiting.
    async fn convert_one(self: &Arc<Self>, conversion: Conversion) {
        if self.core.is_broken() || self.backlog.is_busy() {
            // The next check finds it again.
            return;
        }
        lock(&self.converted).running_count += 1;
        let done = self.convert(&conversion).await;
        lock(&self.converted).running_count -= 1;
        match done {
            Ok(()) => self.timetable.times().converted(conversion.file),
            Err(TaskError(sentence)) => {
                let error = format!("{}: {sentence}", conversion.name);
                lock(&self.converted).last_error = Some(error);
            }
        }
    }

    /// A file, if it is there and its blocks are replicated first.
    fn candidate(&self, meta: &Meta<K>, file: PutId) -> Result<Option<Candidate>, MetaError> {
        let (file, stripes) = match meta.layout_of(file) {
            Err(MetaError::FileGone(_)) => return Ok(None),
            layout => layout?,
        };
        let blocks = self.pools.facts(meta, file.pool)?;
        let encoded = self.pools.encoded_of(meta, &blocks)?;
        let Some((lifecycle, encoded)) = blocks.record.lifecycle.zip(encoded) else {
            return Ok(None);
        };
        Ok(Some(Candidate {
            requested: meta.requested_form(file.put)?,
            file,
            blocks,
            encoded,
            lifecycle,
            stripes: stripes.into_iter().map(|(_, stripe)| stripe).collect(),
        }))
    }

    /// Finds how long blocks have not changed, where that decides when they are encoded.
    async fn quiet_blocks(&self, found: &[Option<Candidate>]) -> QuietBlocks {
        let fleet = self.nodes.fleet();
        let mut asked: BTreeMap<NodeId, Vec<StripeId>> = BTreeMap::new();
        let mut before: QuietBlocks = BTreeMap::new();
        for candidate in found.iter().flatten() {
            if !matches!(candidate.lifecycle.after, EncodeAfter::Idle(_)) {
                continue;
            }
            let blocks = candidate.stripes.iter();
            for block in blocks.filter(|stripe| stripe.pool == candidate.file.pool) {
                let lost = fleet.unreadable(block);
                let here = block.chunks().find(|chunk| !lost.contains(chunk));
                if let Some(node) = here.and_then(|chunk| block.node_of(chunk)) {
                    asked.entry(node).or_default().push(block.id);
                }
                let known = self.timetable.times().quiet(candidate.file.put, block.id);
                before.extend(known.map(|known| (block.id, known)));
            }
        }
        let mut quiet = QuietBlocks::new();
        for (node, stripes) in asked {
            for stripes in stripes.chunks(PAGE) {
                let request = ask::Latest {
                    stripes: stripes.to_vec(),
                };
                let answer = self
                    .core
                    .ports
                    .ask_node(node, request, LATEST_DEADLINE_MS)
                    .await;
                let Ok(latest) = answer else {
                    continue;
                };
                let now_ms = self.core.lifetime_ms();
                for (stripe, latest) in latest {
                    let same = before.get(&stripe).filter(|quiet| quiet.latest == latest);
                    let since_ms = same.map_or(now_ms, |quiet| quiet.since_ms);
                    quiet.insert(stripe, Quiet { latest, since_ms });
                }
            }
        }
        quiet
    }
}
