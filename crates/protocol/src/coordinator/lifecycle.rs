//! When blocks that are replicated at first become stripes, and when they become blocks again: what the
//! pool says, and what users want of a file. All of it is found out from the metadata again and again, so a
//! restart forgets nothing but how long blocks have been idle.
//!
//! Conversions give way to repairs: none begins while a stripe could be repaired. They keep to the
//! same limits, make way for the same foreground, and are paused with them.

use super::conversion::Conversion;
use super::pools::PoolFacts;
use super::survey::Setback;
use super::{Answer, Coordinator, PAGE, lock};
use crate::message::{CoordinatorReply, FormOrder, NodeReply, NodeRequest};
use futures::stream::{self, StreamExt};
use futures::{FutureExt, select_biased};
use gabion_layout::{
    EncodeAfter, Lifecycle, NodeId, ReplicaPlacement, Sequence, StripeId, StripeRecord, Topology,
};
use gabion_meta::{FileRecord, KeyValue, Meta, MetaError, Placement, PoolSpec, Wish};
use gabion_planner::PlanError;
use gabion_planner::placement::{
    EncodingAware, ParityPlaces, RackTable, StripeRules, random_replication,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often it is noted for how long coordinators have run.
const LIFETIME_EVERY_MS: u64 = 60_000;
/// How long a node may take to say which updates are the newest.
const LATEST_DEADLINE_MS: u64 = 5_000;

/// How long a block is as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quiet {
    latest: Sequence,
    since_ms: u64,
}

/// A form of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Replicated,
    Encoded,
}

/// A segment as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Segment {
    stripes: Vec<StripeId>,
    form: Form,
    /// Whether its chunks are as large as the pool's.
    is_full: bool,
}

/// A file whose blocks are replicated at first.
struct Candidate {
    file: FileRecord,
    wish: Option<Wish>,
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

    /// The form that a segment is to have; none if it may stay as it is.
    fn wanted(&self, segment: &Segment, now_ms: u64, quiet_since_ms: Option<u64>) -> Option<Form> {
        let condition = Condition {
            is_full: segment.is_full,
            created_ms: self.file.created_ms,
            quiet_since_ms,
            now_ms,
        };
        wanted(self.lifecycle.after, self.wish, condition)
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

/// What counts of a segment's condition; times are milliseconds that coordinators had run.
#[derive(Clone, Copy, Debug)]
struct Condition {
    is_full: bool,
    created_ms: u64,
    /// Since when all of it is known to be as it is.
    quiet_since_ms: Option<u64>,
    now_ms: u64,
}

/// The form that a segment is to have; none if it may stay as it is.
fn wanted(after: EncodeAfter, wish: Option<Wish>, condition: Condition) -> Option<Form> {
    let since_ms = match wish {
        Some(Wish::Encoded) => return Some(Form::Encoded),
        Some(Wish::Replicated { since_ms }) => since_ms,
        None => condition.created_ms,
    };
    let is_old = |since_ms: u64, seconds: u64| {
        condition.now_ms.saturating_sub(since_ms) >= seconds.saturating_mul(1000)
    };
    let is_due = match after {
        EncodeAfter::Age(seconds) => is_old(since_ms, seconds),
        EncodeAfter::Idle(seconds) => {
            let is_quiet = condition
                .quiet_since_ms
                .is_some_and(|since_ms| is_old(since_ms, seconds));
            is_quiet && is_old(since_ms, seconds)
        }
        EncodeAfter::Full => wish.is_none() && condition.is_full,
        EncodeAfter::Asked => false,
    };
    match wish {
        _ if is_due => Some(Form::Encoded),
        Some(_) => Some(Form::Replicated),
        None => None,
    }
}

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Converts what is due, until the metadata store fails.
    pub(super) async fn keep_lifecycles(self: Arc<Self>) {
        let mut noted_ms = 0;
        while !self.is_broken() {
            let mut later = self
                .ports
                .sleep_ms(self.options.lifecycle_scan_ms.max(1))
                .fuse();
            select_biased! {
                () = self.lifecycle_bell.heard().fuse() => {}
                () = later => {}
            }
            match self.convert_due().await {
                // Without such files, nobody asks how old they are.
                Ok(false) => {}
                Ok(true) => {
                    let lifetime_ms = self.lifetime_ms();
                    if lifetime_ms >= noted_ms + LIFETIME_EVERY_MS || noted_ms == 0 {
                        noted_ms = lifetime_ms;
                        let note = move |meta: &Meta<K>| meta.note_lifetime(lifetime_ms);
                        let _ = self.with_meta(note).await;
                    }
                }
                Err(Setback(sentence)) => lock(&self.converted).last_error = Some(sentence),
            }
        }
    }

    /// For how many milliseconds coordinators of this cluster have run, as far as it was noted.
    pub(super) fn lifetime_ms(&self) -> u64 {
        let (before_ms, at_ms) = self.began;
        before_ms + self.ports.now_ms().saturating_sub(at_ms)
    }

    /// Notes what users want of files.
    pub(super) async fn order_form(&self, order: FormOrder) -> Answer {
        let since_ms = self.lifetime_ms();
        let wish = if order.is_encoded {
            Wish::Encoded
        } else {
            Wish::Replicated { since_ms }
        };
        let note = move |meta: &Meta<K>| {
            meta.note_lifetime(since_ms)?;
            let pool = meta.pool_named(&order.pool)?;
            if pool.lifecycle.is_none() {
                return Err(MetaError::Pool(format!(
                    "what {} has stored was never replicated first; make a pool with --write replicate:3",
                    order.pool
                )));
            }
            if let Some(name) = order.file {
                let file = meta.file(&name)?;
                return if file.pool == pool.id {
                    meta.wish(&name, wish)
                } else {
                    Err(MetaError::UnknownFile(name))
                };
            }
            let mut after: Option<String> = None;
            loop {
                let page = meta.files("", after.as_deref(), PAGE)?;
                let Some(last) = page.last() else {
                    return Ok(());
                };
                after = Some(last.name.clone());
                for file in page.iter().filter(|file| file.pool == pool.id) {
                    match meta.wish(&file.name, wish) {
                        Ok(()) | Err(MetaError::UnknownFile(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        };
        self.with_meta(note).await?;
        self.lifecycle_bell.ring();
        Ok(CoordinatorReply::Done)
    }

    /// Goes over all files once. Whether there are any whose blocks are replicated at first.
    async fn convert_due(self: &Arc<Self>) -> Result<bool, Setback> {
        let mut after: Option<String> = None;
        let mut idle: BTreeMap<StripeId, Quiet> = BTreeMap::new();
        let mut due = Vec::new();
        let mut has_any = false;
        loop {
            let this = Arc::clone(self);
            let look = move |meta: &Meta<K>| this.candidates(meta, after.as_deref());
            let (page, last) = self.with_meta(look).await?;
            has_any |= !page.is_empty();
            self.note_quiet(&page, &mut idle).await;
            let now_ms = self.lifetime_ms();
            for candidate in &page {
                for segment in candidate.segments() {
                    let since_ms = |id: &StripeId| Some(idle.get(id)?.since_ms);
                    let quiet: Option<Vec<u64>> = segment.stripes.iter().map(since_ms).collect();
                    let quiet_since_ms = quiet.and_then(|all| all.into_iter().max());
                    let wanted = candidate.wanted(&segment, now_ms, quiet_since_ms);
                    if wanted.is_some_and(|wanted| wanted != segment.form) {
                        due.push(candidate.conversion(&segment));
                    }
                }
            }
            after = last;
            if after.is_none() {
                break;
            }
        }
        *lock(&self.quiet) = idle;
        lock(&self.converted).waiting_count = due.len() as u64;
        let conversions = due
            .into_iter()
            .map(|conversion| self.convert_one(conversion));
        let parallel = self.options.convert_parallel.max(1);
        stream::iter(conversions)
            .buffer_unordered(parallel)
            .collect::<()>()
            .await;
        Ok(has_any)
    }

    /// Converts a segment when repairs leave time for it.
    async fn convert_one(self: &Arc<Self>, conversion: Conversion) {
        if self.is_broken() || self.has_repairs() {
            // It is found again.
            return;
        }
        lock(&self.converted).running_count += 1;
        let done = self.convert(&conversion).await;
        let mut converted = lock(&self.converted);
        converted.running_count -= 1;
        converted.waiting_count = converted.waiting_count.saturating_sub(1);
        if let Err(Setback(sentence)) = done {
            converted.last_error = Some(format!("{}: {sentence}", conversion.name));
        }
    }

    /// Whether a stripe is being repaired, or could be.
    fn has_repairs(&self) -> bool {
        let queue = lock(&self.queue);
        queue.running_count() > 0 || queue.ready().next().is_some()
    }

    /// The files of a page whose blocks are replicated at first, and where the next page begins.
    fn candidates(
        &self,
        meta: &Meta<K>,
        after: Option<&str>,
    ) -> Result<(Vec<Candidate>, Option<String>), MetaError> {
        if !meta.pools()?.iter().any(|pool| pool.lifecycle.is_some()) {
            return Ok((Vec::new(), None));
        }
        let page = meta.files("", after, PAGE)?;
        let last = page.last().map(|file| file.name.clone());
        let mut candidates = Vec::new();
        for file in page {
            let blocks = self.pool_facts(meta, file.pool)?;
            let Some((lifecycle, encoded)) =
                blocks.record.lifecycle.zip(self.encoded_of(meta, &blocks)?)
            else {
                continue;
            };
            // A file that has gone, or whose stripes change now, is looked at the next time.
            let stripes = match meta.stripes_of(&file.name) {
                Ok(stripes) => stripes,
                Err(MetaError::UnknownFile(_)) => continue,
                Err(error) => return Err(error),
            };
            if !stripes
                .iter()
                .map(|stripe| stripe.id)
                .eq(file.segments.iter().copied())
            {
                continue;
            }
            let wish = match meta.wish_of(&file.name) {
                Ok(wish) => wish,
                Err(MetaError::UnknownFile(_)) => continue,
                Err(error) => return Err(error),
            };
            candidates.push(Candidate {
                file,
                wish,
                blocks,
                encoded,
                lifecycle,
                stripes,
            });
        }
        Ok((candidates, last))
    }

    /// Finds out since when blocks are as they are, where that says when they are encoded.
    async fn note_quiet(&self, page: &[Candidate], idle: &mut BTreeMap<StripeId, Quiet>) {
        let fleet = self.fleet();
        let mut asked: BTreeMap<NodeId, Vec<StripeId>> = BTreeMap::new();
        let is_asked =
            |candidate: &&Candidate| matches!(candidate.lifecycle.after, EncodeAfter::Idle(_));
        for candidate in page.iter().filter(is_asked) {
            let blocks = candidate.stripes.iter();
            for block in blocks.filter(|stripe| stripe.pool == candidate.file.pool) {
                let lost = fleet.unreadable(block);
                let here = block.chunks().find(|chunk| !lost.contains(chunk));
                if let Some(node) = here.and_then(|chunk| block.node_of(chunk)) {
                    asked.entry(node).or_default().push(block.id);
                }
            }
        }
        for (node, stripes) in asked {
            for stripes in stripes.chunks(PAGE) {
                let request = NodeRequest::Latest {
                    stripes: stripes.to_vec(),
                };
                let answer = self
                    .ports
                    .call_node(node, request, LATEST_DEADLINE_MS)
                    .await;
                let Ok(NodeReply::Latest(latest)) = answer else {
                    continue;
                };
                let now_ms = self.lifetime_ms();
                let known = lock(&self.quiet);
                for (stripe, latest) in latest {
                    let same = known.get(&stripe).filter(|quiet| quiet.latest == latest);
                    let since_ms = same.map_or(now_ms, |quiet| quiet.since_ms);
                    idle.insert(stripe, Quiet { latest, since_ms });
                }
            }
        }
    }

    /// Where the replicas of a file's blocks go: `encoded.k` blocks for each segment, of whose chunks these
    /// are the sizes. Where encoding-aware replication finds no layout, replicas are placed at random: the
    /// promise of the pool does not depend on where its stripes are to be.
    pub(super) fn place_blocks(
        &self,
        facts: &PoolFacts,
        encoded: &PoolSpec,
        sizes: &[u64],
        topology: &Topology,
    ) -> Result<Vec<Placement>, PlanError> {
        let spec = &facts.record.spec;
        let (racks, replica_count) = (RackTable::new(topology), spec.k + spec.m);
        let is_ear = facts
            .record
            .lifecycle
            .is_some_and(|l| l.placement == ReplicaPlacement::Ear);
        let rules = StripeRules {
            data_count: encoded.k,
            parity_count: encoded.m,
            replica_count,
            per_rack: encoded.chunks_per_rack,
            target_rack_count: None,
            parity_places: ParityPlaces::CoreFirst,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(self.ports.random());
        let mut placements = Vec::with_capacity(sizes.len() * encoded.k);
        for &chunk_bytes in sizes {
            let aware = is_ear.then(|| EncodingAware::new(&racks, rules)?.place_stripe(&mut rng));
            let aware = aware.and_then(Result::ok).map(|stripe| stripe.replicas);
            let aware = aware.filter(|blocks| {
                let mut blocks = blocks.iter();
                blocks.all(|nodes| is_within(nodes, spec.chunks_per_rack, topology))
            });
            let blocks = match aware {
                Some(blocks) => blocks,
                None => (0..encoded.k)
                    .map(|_| random_replication(&racks, replica_count, &mut rng))
                    .collect::<Result<_, _>>()?,
            };
            placements.extend(
                blocks
                    .into_iter()
                    .map(|nodes| Placement { chunk_bytes, nodes }),
            );
        }
        Ok(placements)
    }
}

/// Whether no rack has more than `per_rack` of the nodes.
fn is_within(nodes: &[NodeId], per_rack: usize, topology: &Topology) -> bool {
    let mut counts = BTreeMap::new();
    for &node in nodes {
        *counts.entry(topology.rack_of(node)).or_insert(0) += 1;
    }
    counts.values().all(|&count| count <= per_rack)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wanted 100 s after the file came, of which nothing was written for 30 s.
    fn at_100(after: EncodeAfter, wish: Option<Wish>, is_full: bool) -> Option<Form> {
        let condition = Condition {
            is_full,
            created_ms: 0,
            quiet_since_ms: Some(70_000),
            now_ms: 100_000,
        };
        wanted(after, wish, condition)
    }

    #[test]
    fn pools_say_when_and_users_overrule_them() {
        use EncodeAfter::{Age, Asked, Full, Idle};
        use Form::{Encoded, Replicated};
        let hot = |since_ms| Some(Wish::Replicated { since_ms });
        for (after, wish, is_full, expected) in [
            (Age(100), None, true, Some(Encoded)),
            (Age(101), None, true, None),
            (Age(60), hot(39_000), true, Some(Encoded)),
            (Age(60), hot(41_000), true, Some(Replicated)),
            (Idle(30), None, false, Some(Encoded)),
            (Idle(31), None, false, None),
            (Idle(10), hot(95_000), true, Some(Replicated)),
            (Full, None, true, Some(Encoded)),
            (Full, None, false, None),
            (Full, hot(0), true, Some(Replicated)),
            (Asked, None, true, None),
            (Asked, Some(Wish::Encoded), false, Some(Encoded)),
        ] {
            let found = at_100(after, wish, is_full);
            assert_eq!(found, expected, "{after}, {wish:?}, full: {is_full}");
        }
    }

    #[test]
    fn what_nobody_has_looked_at_is_not_idle() {
        let condition = Condition {
            is_full: true,
            created_ms: 0,
            quiet_since_ms: None,
            now_ms: 100_000,
        };
        assert_eq!(wanted(EncodeAfter::Idle(1), None, condition), None);
    }
}
