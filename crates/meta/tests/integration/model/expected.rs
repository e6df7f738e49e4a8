//! The model: the expected metadata of a cluster, as maps and lists.

mod inline;
mod replacements;

use crate::model::operation::{Action, Answer, Extension, STRIPE_BYTES, World};
use gabion_layout::{
    ChunkIndex, Epoch, Generation, NodeId, PoolId, StaleChunk, Start, StripeId, StripeRecord,
};
use gabion_meta::{
    Attributes, DirectoryId, Existing, FileRecord, Holder, Lease, MapId, MetaError, NewAttributes,
    NodeRecord, Placement, Put, PutId, PutRecord, PutTarget, Rewrite, StripeRun, WallClock,
    WallTime,
};
use std::collections::{BTreeMap, BTreeSet};

/// The time of the model's clock.
const STOPPED: WallTime = WallTime {
    seconds: 0,
    nanoseconds: 0,
};

/// The model's clock.
pub(crate) fn stopped_clock() -> WallClock {
    WallClock::stopped(STOPPED)
}

/// The name of an error's variant.
pub(crate) fn kind(error: &MetaError) -> String {
    let text = format!("{error:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

/// The expected state.
pub(crate) struct Expected {
    pub(crate) incarnation: u64,
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) files: BTreeMap<String, FileRecord>,
    /// The stripes of each file, by their offsets.
    pub(crate) segments: BTreeMap<PutId, BTreeMap<u64, StripeId>>,
    /// The same of removed files.
    removed: BTreeMap<PutId, BTreeMap<u64, StripeId>>,
    /// Stripes that have left a hole.
    dropped: BTreeMap<PutId, BTreeSet<StripeId>>,
    pub(crate) puts: BTreeMap<PutId, (PutRecord, Vec<StripeRecord>)>,
    /// The stripes of open puts that are stored, by their offsets.
    entered: BTreeMap<PutId, BTreeMap<u64, StripeId>>,
    /// For those puts that replace: the file's put, and the change.
    replacements: BTreeMap<PutId, (PutId, Rewrite)>,
    /// The stripe that each has replaced.
    replaced: BTreeMap<StripeId, StripeId>,
    pub(crate) live: BTreeMap<StripeId, StripeRecord>,
    pub(crate) garbage: BTreeMap<StripeId, StripeRecord>,
    pub(crate) leases: BTreeMap<StripeId, (Epoch, Option<Holder>)>,
    /// The bytes of those inline files that have any.
    pub(crate) inline: BTreeMap<PutId, Vec<u8>>,
    /// The inline puts and writes that were made, by their numbers, with the file of a put.
    numbers: BTreeMap<u64, Option<PutId>>,
    /// Puts and replacements that were committed; a model begins too few to forget one.
    committed: BTreeSet<PutId>,
    put_count: u64,
    stripe_count: u64,
}

type Outcome = Result<Answer, &'static str>;

impl Expected {
    pub(crate) fn new(incarnation: u64, nodes: Vec<NodeRecord>) -> Self {
        Self {
            incarnation,
            nodes,
            files: BTreeMap::new(),
            segments: BTreeMap::new(),
            removed: BTreeMap::new(),
            dropped: BTreeMap::new(),
            puts: BTreeMap::new(),
            entered: BTreeMap::new(),
            replacements: BTreeMap::new(),
            replaced: BTreeMap::new(),
            live: BTreeMap::new(),
            garbage: BTreeMap::new(),
            leases: BTreeMap::new(),
            inline: BTreeMap::new(),
            numbers: BTreeMap::new(),
            committed: BTreeSet::new(),
            put_count: 0,
            stripe_count: 0,
        }
    }

    pub(crate) fn apply(&mut self, action: &Action, world: &World) -> Outcome {
        match action {
            Action::Begin {
                name,
                existing,
                size_bytes,
                placements,
            } => self.begin((name, *existing), *size_bytes, placements, world),
            Action::PutInline(put) => self.put_inline(put, world),
            Action::WriteInline(change) => self.write_inline(change),
            Action::Commit(put) => self.commit(*put, world.now_ms),
            Action::Lead(stripes) => {
                let incarnation = self.incarnation;
                let holder = Holder::Coordinator { incarnation };
                let lease = |stripe: &StripeId| match self.acquire(*stripe, holder, world)? {
                    Answer::Lease(lease) => Ok(lease),
                    other => unreachable!("{other:?} is not a lease"),
                };
                let leases: Result<_, _> = stripes.iter().map(lease).collect();
                leases.map(Answer::Leases)
            }
            Action::Extend(extension) => self.extend(extension, world),
            Action::Enter(put, stored_count) => self.enter(*put, *stored_count),
            Action::Grow(file, to, known) => self.grow(*file, *to, *known),
            Action::Replace(replacement) => self.replace(replacement, world),
            Action::CommitReplacement(put) => self.commit_replacement(*put),
            Action::Abort(put) => Ok(Answer::Whether(self.abort(*put))),
            Action::Remove(name) => self.remove(name),
            Action::Discard(limit) => Ok(self.discard(*limit)),
            Action::Rename {
                file,
                generation,
                to,
                existing,
            } => self.rename(*file, *generation, to, *existing),
            Action::Reclaim(stripe) => Ok(Answer::Whether(self.garbage.remove(stripe).is_some())),
            Action::Declare(node, failed) => {
                let node = self.nodes.get_mut(node.0 as usize).ok_or("UnknownNode")?;
                node.failed = *failed;
                node.admitted = node.admitted.or((!failed).then(Start::default));
                Ok(Answer::Node(node.clone()))
            }
            Action::Relocate(id, generation, chunk, node) => {
                self.relocate(*id, *generation, *chunk, *node)
            }
            Action::Stale(id, chunk) => self.mark_stale(*id, *chunk),
            Action::Acquire(stripe, holder) => self.acquire(*stripe, *holder, world),
            Action::Release(stripe, epoch) => {
                let held = self
                    .leases
                    .get_mut(stripe)
                    .filter(|(current, holder)| current == epoch && holder.is_some());
                Ok(Answer::Whether(
                    held.is_some_and(|(_, holder)| holder.take().is_some()),
                ))
            }
        }
    }

    /// Takes over which ids an operation has got. Ids may be left out, but none is below those of earlier operations.
    pub(crate) fn note_ids(&mut self, answer: &Answer) {
        let (put, stripes) = match answer {
            Answer::Put(put) => (Some(put.id), put.stripes.as_slice()),
            Answer::Stored(put) => (Some(*put), &[][..]),
            Answer::Stripes(stripes) => (None, stripes.as_slice()),
            _ => return,
        };
        self.put_count = put.map_or(self.put_count, |put| self.put_count.max(put.0));
        let new = stripes
            .iter()
            .find(|stripe| stripe.id.0 >= self.stripe_count);
        self.stripe_count = new.map_or(self.stripe_count, |new| new.id.0);
    }

    /// Whether the put was open.
    fn abort(&mut self, put: PutId) -> bool {
        let replacement = self.replacements.remove(&put);
        let displaced = replacement.map_or(Vec::new(), |(_, rewrite)| rewrite.displaced);
        for (_, old) in displaced {
            if self.holds(old) {
                self.leases.insert(old.stripe, (old.epoch, None));
            }
        }
        let aborted = self.puts.remove(&put);
        self.removed.extend(self.entered.remove_entry(&put));
        let there = aborted.is_some();
        let stripes = aborted.into_iter().flat_map(|(_, stripes)| stripes);
        self.garbage
            .extend(stripes.map(|stripe| (stripe.id, stripe)));
        there
    }

    fn begin(
        &mut self,
        (name, existing): (&str, Existing),
        size_bytes: u64,
        placements: &[Placement],
        world: &World,
    ) -> Outcome {
        self.check_name(name, existing)?;
        if placements.iter().any(|place| self.is_short(&place.nodes)) {
            return Err("NodeFailed");
        }
        let target = PutTarget::New {
            at: name.into(),
            existing,
            pool: world.pool,
            size_bytes,
            attributes: NewAttributes::FILE,
        };
        let put = self.reserve(target, placements, world);
        Ok(Answer::Put(put))
    }

    /// Returns the rule for an existing file of this name that a drawn number stands for.
    pub(crate) fn existing(&self, name: &str, drawn: u8) -> Existing {
        match drawn {
            0 => Existing::IsReplaced,
            1 => Existing::IsReplacedIf(PutId(999)),
            2 => Existing::IsReplacedIf(self.files.get(name).map_or(PutId(0), |file| file.put)),
            _ => Existing::Stays,
        }
    }

    /// Whether the name may be given to another file.
    fn check_name(&self, name: &str, existing: Existing) -> Result<(), &'static str> {
        match (self.files.get(name), existing) {
            (None, _) | (_, Existing::IsReplaced) => Ok(()),
            (Some(_), Existing::Stays) => Err("FileExists"),
            (Some(file), Existing::IsReplacedIf(put)) if file.put == put => Ok(()),
            (Some(_), Existing::IsReplacedIf(_)) => Err("FileReplaced"),
        }
    }

    fn rename(&mut self, put: PutId, generation: u64, to: &str, existing: Existing) -> Outcome {
        let mut files = self.files.values();
        let file = files.find(|file| file.put == put).ok_or("FileGone")?;
        if file.generation != generation {
            return Err("FileRenamed");
        }
        if file.name == to {
            return Ok(Answer::Done);
        }
        let from = file.name.clone();
        self.check_name(to, existing)?;
        let mut file = self.files.remove(&from).expect("it was just there");
        file.generation += 1;
        let _ = self.remove(to);
        to.clone_into(&mut file.name);
        self.files.insert(to.to_owned(), file);
        Ok(Answer::Done)
    }

    fn has_failed(&self, node: NodeId) -> bool {
        self.nodes[node.0 as usize].failed
    }

    /// Whether a new stripe of `rs(4,2)` on these nodes would not survive one more loss.
    fn is_short(&self, nodes: &[NodeId]) -> bool {
        let failed = nodes.iter().filter(|node| self.has_failed(**node));
        failed.count() > 1
    }

    fn reserve(&mut self, target: PutTarget, placements: &[Placement], world: &World) -> Put {
        let id = PutId(self.put_count);
        let (run, stripes) = self.stripes(placements, world);
        self.put_count += 1;
        let record = PutRecord {
            id,
            target,
            runs: run.into_iter().collect(),
            entered_count: 0,
            entered_bytes: 0,
            step: 0,
            touched_ms: world.now_ms,
        };
        self.puts.insert(id, (record, stripes.clone()));
        Put { id, stripes }
    }

    fn stripes(
        &mut self,
        placements: &[Placement],
        world: &World,
    ) -> (Option<StripeRun>, Vec<StripeRecord>) {
        let first = StripeId(self.stripe_count);
        let stripe = |(place, id): (&Placement, u64)| StripeRecord {
            id: StripeId(id),
            pool: world.pool,
            chunk_bytes: place.chunk_bytes,
            generation: Generation(1),
            nodes: place.nodes.clone(),
            stale: (0..)
                .zip(&place.nodes)
                .filter(|(_, node)| self.has_failed(**node))
                .map(|(chunk, _)| StaleChunk {
                    chunk: ChunkIndex(chunk),
                    missed_after: None,
                })
                .collect(),
        };
        let numbered = placements.iter().zip(self.stripe_count..);
        let stripes: Vec<_> = numbered.map(stripe).collect();
        let count = stripes.len() as u64;
        self.stripe_count += count;
        let run = StripeRun { first, count };
        (Some(run).filter(|run| run.count > 0), stripes)
    }

    fn extend(&mut self, extension: &Extension, world: &World) -> Outcome {
        let &Extension {
            put,
            step,
            kept_count,
            size_bytes: size,
            ref placements,
        } = extension;
        let (mut record, mut stripes) = self.puts.get(&put).cloned().ok_or("UnknownPut")?;
        let PutTarget::New { size_bytes, .. } = &mut record.target else {
            return Err("UnknownPut");
        };
        *size_bytes = size;
        if step + 1 == record.step {
            return Ok(Answer::Stripes(stripes));
        }
        let kept_count = kept_count.checked_sub(record.entered_count);
        let kept_count = kept_count.ok_or("PutStep")? as usize;
        let kept_count = stripes.len().min(kept_count);
        let rest = stripes.split_off(kept_count);
        if step != record.step {
            return Err("PutStep");
        }
        let size = size.checked_sub(record.entered_bytes);
        let size = size.filter(|_| record.entered_bytes.is_multiple_of(STRIPE_BYTES));
        let size = size.ok_or("Placement")?;
        let full_count = stripes
            .iter()
            .take_while(|stripe| stripe.chunk_bytes == 1024)
            .count();
        let may_follow = full_count == kept_count || placements.is_empty();
        let fits =
            may_follow && (kept_count + placements.len()) as u64 == size.div_ceil(STRIPE_BYTES);
        let is_short_last = full_count < kept_count
            && stripes.last().is_some_and(|last| {
                last.chunk_bytes * 4 < size - (kept_count as u64 - 1) * STRIPE_BYTES
            });
        if !fits || is_short_last {
            return Err("Placement");
        }
        if placements.iter().any(|place| self.is_short(&place.nodes)) {
            return Err("NodeFailed");
        }
        self.garbage
            .extend(rest.into_iter().map(|stripe| (stripe.id, stripe)));
        let mut left = kept_count as u64;
        for run in &mut record.runs {
            run.count = run.count.min(left);
            left -= run.count;
        }
        record.runs.retain(|run| run.count > 0);
        let (run, new) = self.stripes(placements, world);
        record.runs.extend(run);
        record.step += 1;
        record.touched_ms = record.touched_ms.max(world.now_ms);
        stripes.extend(new);
        self.puts.insert(put, (record, stripes.clone()));
        Ok(Answer::Stripes(stripes))
    }

    fn enter(&mut self, put: PutId, stored_count: u64) -> Outcome {
        let (record, stripes) = self.puts.get_mut(&put).ok_or("UnknownPut")?;
        let PutTarget::New { .. } = record.target else {
            return Err("UnknownPut");
        };
        let more = stored_count.saturating_sub(record.entered_count);
        let more = stripes.len().min(more as usize);
        let entered: Vec<StripeRecord> = stripes.drain(..more).collect();
        let mut left = more as u64;
        for run in &mut record.runs {
            let gone = run.count.min(left);
            (run.first.0, run.count, left) = (run.first.0 + gone, run.count - gone, left - gone);
        }
        record.runs.retain(|run| run.count > 0);
        record.entered_count += more as u64;
        for stripe in &entered {
            let own = self.entered.entry(put).or_default();
            own.insert(record.entered_bytes, stripe.id);
            record.entered_bytes += 4 * stripe.chunk_bytes;
            self.live.insert(stripe.id, stripe.clone());
        }
        Ok(Answer::Stripes(entered))
    }

    fn grow(&mut self, put: PutId, to: u64, known: u64) -> Outcome {
        let is_served = self.serves_lost_stripe(put);
        let file = self.files.values_mut().find(|file| file.put == put);
        let file = file.ok_or("FileGone")?;
        if is_served {
            return Err("StillServed");
        }
        if file.truncation_count == known && file.size_bytes < to {
            file.size_bytes = to;
            if let Some(inline) = &mut file.inline {
                inline.version += 1;
            }
        }
        Ok(Answer::File(file.clone()))
    }

    fn remove(&mut self, name: &str) -> Outcome {
        let file = self.files.remove(name).ok_or("UnknownFile")?;
        let segments = self
            .segments
            .remove(&file.put)
            .expect("each file has a list");
        self.removed.insert(file.put, segments);
        self.inline.remove(&file.put);
        Ok(Answer::Done)
    }

    fn discard(&mut self, limit: usize) -> Answer {
        if let Some(mut first) = self.removed.first_entry() {
            let segments = first.get_mut();
            let rest = segments.keys().nth(limit).copied().unwrap_or(u64::MAX);
            let left = segments.split_off(&rest);
            for id in std::mem::replace(segments, left).into_values() {
                let stripe = self.live.remove(&id).expect("files have stripes");
                self.leases.remove(&id);
                self.garbage.insert(id, stripe);
            }
            if segments.is_empty() {
                first.remove();
            }
        }
        Answer::Whether(!self.removed.is_empty())
    }

    fn mark_stale(&mut self, id: StripeId, chunk: ChunkIndex) -> Outcome {
        let stripe = self.live.get_mut(&id).ok_or("UnknownStripe")?;
        if chunk.at() >= stripe.nodes.len() {
            return Err("UnknownChunk");
        }
        if stripe.stale.iter().all(|stale| stale.chunk != chunk) {
            let missed_after = None;
            stripe.stale.push(StaleChunk {
                chunk,
                missed_after,
            });
            stripe.stale.sort_by_key(|stale| stale.chunk);
            stripe.generation.0 += 1;
        }
        Ok(Answer::Stripe(stripe.clone()))
    }

    fn commit(&mut self, put: PutId, now_ms: u64) -> Outcome {
        if self.committed.contains(&put) {
            return Err("CommittedBefore");
        }
        let (record, _) = self.puts.get(&put).ok_or("UnknownPut")?;
        let PutTarget::New {
            at,
            existing,
            pool,
            size_bytes,
            ..
        } = record.target.clone()
        else {
            return Err("UnknownPut");
        };
        let name = at.path;
        self.check_name(&name, existing)?;
        let _ = self.remove(&name);
        let (record, stripes) = self.puts.remove(&put).expect("it was just there");
        let mut file = new_file((&name, put), pool, size_bytes, now_ms);
        let mut segments = self.entered.remove(&put).unwrap_or_default();
        let offsets = (record.entered_bytes..).step_by(STRIPE_BYTES as usize);
        segments.extend(offsets.zip(stripes.iter().map(|stripe| stripe.id)));
        file.stripe_count = segments.len() as u64;
        self.segments.insert(put, segments);
        self.live
            .extend(stripes.into_iter().map(|stripe| (stripe.id, stripe)));
        self.files.insert(name, file.clone());
        self.committed.insert(put);
        Ok(Answer::File(file))
    }

    fn relocate(
        &mut self,
        id: StripeId,
        expected: Generation,
        chunk: ChunkIndex,
        node: NodeId,
    ) -> Outcome {
        let stripe = self.live.get_mut(&id).ok_or("UnknownStripe")?;
        if stripe.generation != expected {
            return Err("GenerationChanged");
        }
        let old = *stripe.nodes.get(chunk.at()).ok_or("UnknownChunk")?;
        let target = self.nodes.get(node.0 as usize).ok_or("UnknownNode")?;
        if target.failed {
            return Err("NodeFailed");
        }
        if old != node && stripe.nodes.contains(&node) {
            return Err("NodeInStripe");
        }
        stripe.nodes[chunk.at()] = node;
        stripe.stale.retain(|stale| stale.chunk != chunk);
        stripe.generation.0 += 1;
        Ok(Answer::Stripe(stripe.clone()))
    }

    /// Written from the rules and not from the code: by the world's knowledge of running processes,
    /// not by the membership's.
    fn acquire(&mut self, stripe: StripeId, asker: Holder, world: &World) -> Outcome {
        let runs = |holder: Holder| match holder {
            Holder::Node { node, incarnation } => {
                world.runs[node.0 as usize] == (incarnation, true)
            }
            Holder::Coordinator { incarnation } => incarnation == self.incarnation,
        };
        if !runs(asker) {
            return Err("NodeNotLive");
        }
        let generation = self.live.get(&stripe).ok_or("UnknownStripe")?.generation;
        if matches!(asker, Holder::Node { .. }) && !self.is_alone(stripe) {
            return Err("Held");
        }
        let (epoch, holder) = self.leases.get(&stripe).copied().unwrap_or_default();
        let is_coordinator = matches!(asker, Holder::Coordinator { .. });
        let other = holder.filter(|&holder| holder != asker && runs(holder));
        if other.is_some() && !is_coordinator {
            return Err("Held");
        }
        let epoch = Epoch(epoch.0 + 1);
        self.leases.insert(stripe, (epoch, Some(asker)));
        Ok(Answer::Lease(Lease {
            stripe,
            epoch,
            generation,
            holder: asker,
        }))
    }
}

/// A file without stripes.
fn new_file(
    (name, put): (&str, PutId),
    pool: PoolId,
    size_bytes: u64,
    created_ms: u64,
) -> FileRecord {
    FileRecord {
        directory: DirectoryId(1),
        name: name.to_owned(),
        pool,
        size_bytes,
        stripe_count: 0,
        put,
        created_ms,
        generation: 0,
        truncation_count: 0,
        link_count: 1,
        symlink: None,
        map: MapId(put.0),
        shared_stripe_count: 0,
        shared_below: StripeId(0),
        is_read_only: false,
        inline: None,
        quota: None,
        attributes: Attributes::new(NewAttributes::FILE, STOPPED),
    }
}
