//! Random operations, made concrete against the current state.

use crate::model::expected::Expected;
use gabion_layout::{ChunkIndex, Epoch, Generation, NodeId, StripeId, StripeRecord};
use gabion_meta::{
    Displaced, Existing, FencingToken, FileRecord, Holder, InlineWrite, KeyValue, Lease,
    Membership, Meta, MetaError, NewAttributes, NodeRecord, Placement, Put, PutId, Rewrite,
    SizeChange, Timing,
};
use proptest::prelude::*;

/// Nodes of the test's cluster, three a rack.
pub(crate) const NODES: u32 = 12;
/// Data bytes of a full stripe of the test's pool: `rs(4,2)` with chunks of 1024 bytes.
pub(crate) const STRIPE_BYTES: u64 = 4 * 1024;
/// The limit of its inline files.
pub(crate) const INLINE_BYTES: u64 = 3000;
/// The least number of a put and of a write of inline bytes. Other changes have lower ones.
const PUT_NUMBERS: u64 = 1 << 40;
const WRITE_NUMBERS: u64 = 1 << 41;
/// The timing of the test's membership.
pub(crate) const TIMING: Timing = Timing {
    lease_ms: 100,
    margin_ms: 10,
    grace_ms: 1000,
};

/// The drawn operations. Numbers pick among existing items, and sometimes miss on purpose.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Restart {
        killed: bool,
    },
    Begin {
        name: u8,
        existing: u8,
        size_bytes: u64,
        place: u32,
    },
    PutInline {
        name: u8,
        existing: u8,
        length: usize,
        number: u64,
    },
    WriteInline {
        name: u8,
        offset: u64,
        length: usize,
        behind: bool,
        number: u64,
    },
    Commit {
        pick: usize,
    },
    Lead {
        name: u8,
    },
    Extend {
        pick: usize,
        behind: bool,
        kept_count: u64,
        size_bytes: u64,
        place: u32,
    },
    Enter {
        pick: usize,
        stored_count: u64,
    },
    Grow {
        name: u8,
        to: u64,
    },
    Replace {
        name: u8,
        first: usize,
        shape: u8,
        behind: bool,
        place: u32,
    },
    CommitReplacement {
        pick: usize,
    },
    Abort {
        pick: usize,
    },
    Remove {
        name: u8,
    },
    Discard {
        limit: usize,
    },
    Rename {
        name: u8,
        to: u8,
        existing: u8,
        behind: bool,
    },
    Reclaim {
        pick: usize,
    },
    Relocate {
        pick: usize,
        chunk: usize,
        node: u32,
        behind: bool,
    },
    Stale {
        pick: usize,
        chunk: usize,
    },
    Declare {
        node: u32,
        failed: bool,
    },
    Silence {
        node: u32,
    },
    Rerun {
        node: u32,
    },
    Acquire {
        pick: usize,
        node: Option<u32>,
    },
    Release {
        pick: usize,
        behind: bool,
    },
}

pub(crate) fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let name = 0u8..4;
    let (pick, chunk, node) = (0usize..8, 0usize..7, 0u32..NODES + 1);
    let one = prop_oneof![
        1 => any::<bool>().prop_map(|killed| Operation::Restart { killed }),
        4 => (name.clone(), 0u8..4, 0..3 * STRIPE_BYTES, 0..NODES).prop_map(
            |(name, existing, size_bytes, place)| Operation::Begin { name, existing, size_bytes, place }
        ),
        // A number is drawn again from time to time: its request is a repetition then.
        3 => (name.clone(), 0u8..4, 0..3500usize, 0..40u64).prop_map(
            |(name, existing, length, number)| Operation::PutInline { name, existing, length, number }
        ),
        3 => (name.clone(), 0..3000u64, 0..500usize, prop::bool::weighted(0.2), 0..40u64).prop_map(
            |(name, offset, length, behind, number)| Operation::WriteInline {
                name, offset, length, behind, number,
            }
        ),
        2 => (name.clone(), name.clone(), 0u8..4, prop::bool::weighted(0.2)).prop_map(
            |(name, to, existing, behind)| Operation::Rename { name, to, existing, behind }
        ),
        4 => (0usize..3).prop_map(|pick| Operation::Commit { pick }),
        3 => name.clone().prop_map(|name| Operation::Lead { name }),
        3 => (name.clone(), 0usize..2, 0..6u8, prop::bool::weighted(0.2), 0..NODES).prop_map(
            |(name, first, shape, behind, place)| Operation::Replace {
                name, first, shape, behind, place,
            }
        ),
        1 => (name.clone(), 0..5 * STRIPE_BYTES).prop_map(|(name, to)| Operation::Grow { name, to }),
        2 => (0usize..3, prop::bool::weighted(0.3), 0..3u64, 0..3 * STRIPE_BYTES, 0..NODES).prop_map(
            |(pick, behind, kept_count, size_bytes, place)| Operation::Extend {
                pick, behind, kept_count, size_bytes, place,
            }
        ),
        2 => (0usize..3, 0..4u64).prop_map(
            |(pick, stored_count)| Operation::Enter { pick, stored_count }
        ),
        3 => (0usize..3).prop_map(|pick| Operation::CommitReplacement { pick }),
        1 => (0usize..3).prop_map(|pick| Operation::Abort { pick }),
        1 => name.prop_map(|name| Operation::Remove { name }),
        3 => (1usize..3).prop_map(|limit| Operation::Discard { limit }),
        1 => pick.clone().prop_map(|pick| Operation::Reclaim { pick }),
        4 => (pick.clone(), chunk.clone(), node.clone(), prop::bool::weighted(0.2))
            .prop_map(|(pick, chunk, node, behind)| Operation::Relocate { pick, chunk, node, behind }),
        2 => (pick.clone(), chunk).prop_map(|(pick, chunk)| Operation::Stale { pick, chunk }),
        1 => (node.clone(), prop::bool::weighted(0.4))
            .prop_map(|(node, failed)| Operation::Declare { node, failed }),
        1 => (0..4u32).prop_map(|node| Operation::Silence { node }),
        1 => (0..4u32).prop_map(|node| Operation::Rerun { node }),
        6 => (pick.clone(), prop::option::weighted(0.8, 0..4u32))
            .prop_map(|(pick, node)| Operation::Acquire { pick, node }),
        2 => (pick, prop::bool::weighted(0.3))
            .prop_map(|(pick, behind)| Operation::Release { pick, behind }),
    ];
    prop::collection::vec(one, 1..most)
}

/// An operation with its arguments.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Begin {
        name: String,
        existing: Existing,
        size_bytes: u64,
        placements: Vec<Placement>,
    },
    PutInline(InlinePut),
    WriteInline(InlineChange),
    Commit(PutId),
    /// The coordinator takes the leases of these stripes.
    Lead(Vec<StripeId>),
    Extend(Extension),
    Enter(PutId, u64),
    Grow(PutId, u64, u64),
    Replace(Replacement),
    CommitReplacement(PutId),
    Abort(PutId),
    Remove(String),
    Discard(usize),
    Rename {
        file: PutId,
        generation: u64,
        to: String,
        existing: Existing,
    },
    Reclaim(StripeId),
    Relocate(StripeId, Generation, ChunkIndex, NodeId),
    Stale(StripeId, ChunkIndex),
    Declare(NodeId, bool),
    Acquire(StripeId, Holder),
    Release(StripeId, Epoch),
}

/// The answer to an operation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Answer {
    Put(Put),
    Stored(PutId),
    File(FileRecord),
    Stripe(StripeRecord),
    Stripes(Vec<StripeRecord>),
    Node(NodeRecord),
    Lease(Lease),
    Leases(Vec<Lease>),
    Whether(bool),
    Done,
}

/// More stripes, or fewer, for a put.
#[derive(Clone, Debug)]
pub(crate) struct Extension {
    pub(crate) put: PutId,
    pub(crate) step: u64,
    pub(crate) kept_count: u64,
    pub(crate) size_bytes: u64,
    pub(crate) placements: Vec<Placement>,
}

impl Extension {
    fn apply<K: KeyValue>(&self, meta: &Meta<K>, now_ms: u64) -> Result<Answer, MetaError> {
        let at = (self.step, self.kept_count);
        meta.extend_put(self.put, at, self.size_bytes, &self.placements, now_ms)
            .map(|(_, stripes)| Answer::Stripes(stripes))
    }

    /// That of the put with this number, or a late one.
    fn of(expected: &Expected, put: PutId, operation: &Operation) -> Option<Self> {
        let &Operation::Extend {
            behind,
            kept_count,
            size_bytes,
            place,
            ..
        } = operation
        else {
            return None;
        };
        let step = expected.puts.get(&put).map_or(0, |(put, _)| put.step);
        let kept_bytes = kept_count * STRIPE_BYTES;
        let rest = size_bytes.saturating_sub(kept_bytes);
        Some(Self {
            put,
            step: step.saturating_sub(u64::from(behind)),
            kept_count,
            size_bytes: kept_bytes + rest,
            placements: placements(rest, place),
        })
    }
}

/// An inline file.
#[derive(Clone, Debug)]
pub(crate) struct InlinePut {
    pub(crate) name: String,
    pub(crate) existing: Existing,
    pub(crate) bytes: Vec<u8>,
    pub(crate) number: u64,
}

impl InlinePut {
    fn apply<K: KeyValue>(&self, meta: &Meta<K>, world: &World) -> Result<Answer, MetaError> {
        let new = (self.name.as_str(), self.existing, NewAttributes::FILE);
        let at = (self.number, world.now_ms);
        let stored = meta.put_inline(new, world.pool, &self.bytes, at);
        stored.map(|(put, _)| Answer::Stored(put))
    }

    fn of(expected: &Expected, name: String, now_ms: u64, operation: &Operation) -> Option<Self> {
        let &Operation::PutInline {
            existing,
            length,
            number,
            ..
        } = operation
        else {
            return None;
        };
        Some(Self {
            existing: expected.existing(&name, existing),
            name,
            bytes: bytes(now_ms, length),
            number: PUT_NUMBERS + number,
        })
    }
}

/// A change of inline bytes.
#[derive(Clone, Debug)]
pub(crate) struct InlineChange {
    pub(crate) file: PutId,
    pub(crate) version: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) number: u64,
}

impl InlineChange {
    fn apply<K: KeyValue>(&self, meta: &Meta<K>) -> Result<Answer, MetaError> {
        let write = InlineWrite {
            version: self.version,
            offset: self.offset,
            bytes: &self.bytes,
            token: FencingToken::default(),
            number: self.number,
        };
        let written = meta.write_inline(self.file, &write)?;
        Ok(written.map_or(Answer::Done, Answer::File))
    }

    /// That of the present version, or of the one before.
    fn of(file: &FileRecord, now_ms: u64, operation: &Operation) -> Option<Self> {
        let &Operation::WriteInline {
            offset,
            length,
            behind,
            number,
            ..
        } = operation
        else {
            return None;
        };
        let version = file.inline.map_or(1, |inline| inline.version);
        Some(Self {
            file: file.put,
            version: version - u64::from(behind),
            offset,
            bytes: bytes(now_ms, length),
            number: WRITE_NUMBERS + number,
        })
    }
}

/// A change of a file's extents.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    pub(crate) file: PutId,
    pub(crate) rewrite: Rewrite,
    pub(crate) placements: Vec<Placement>,
}

impl Replacement {
    fn apply<K: KeyValue>(&self, meta: &Meta<K>, now_ms: u64) -> Result<Answer, MetaError> {
        meta.begin_replacement(self.file, &self.rewrite, &self.placements, now_ms)
            .map(Answer::Put)
    }
}

impl Action {
    /// Carries it out.
    pub(crate) fn apply<K: KeyValue>(
        &self,
        meta: &Meta<K>,
        world: &World,
    ) -> Result<Answer, MetaError> {
        let now_ms = world.now_ms;
        match self {
            Self::Begin {
                name,
                existing,
                size_bytes,
                placements,
            } => meta
                .begin_put(
                    (name, *existing, NewAttributes::FILE),
                    world.pool,
                    *size_bytes,
                    placements,
                    now_ms,
                )
                .map(Answer::Put),
            Self::PutInline(put) => put.apply(meta, world),
            Self::WriteInline(change) => change.apply(meta),
            Self::Commit(put) => meta.commit_put(*put, now_ms).map(Answer::File),
            Self::Lead(stripes) => lead(meta, stripes, world),
            Self::Extend(extension) => extension.apply(meta, now_ms),
            Self::Enter(put, stored_count) => {
                meta.enter_stripes(*put, *stored_count).map(Answer::Stripes)
            }
            Self::Grow(file, to, known) => Ok(Answer::File(meta.grow(*file, *to, *known)?.0)),
            Self::Replace(replacement) => replacement.apply(meta, now_ms),
            Self::CommitReplacement(put) => meta.commit_replacement(*put).map(Answer::Stripes),
            Self::Abort(put) => meta.abort_put(*put).map(Answer::Whether),
            Self::Remove(name) => {
                let file = meta.file(name)?;
                meta.remove_file(name, file.put, (file.generation, meta.change_count()))?;
                Ok(Answer::Done)
            }
            Self::Discard(limit) => meta.discard_removed(*limit).map(Answer::Whether),
            Self::Rename {
                file,
                generation,
                to,
                existing,
            } => {
                let from = meta.file_of(*file).map(|file| file.name)?;
                let version = (*generation, meta.change_count());
                meta.rename((*file, from), version, to, *existing)?;
                Ok(Answer::Done)
            }
            Self::Reclaim(stripe) => meta.reclaimed(*stripe).map(Answer::Whether),
            Self::Relocate(stripe, generation, chunk, node) => meta
                .relocate(*stripe, *generation, *chunk, (*node, None))
                .map(Answer::Stripe),
            Self::Stale(stripe, chunk) => meta.mark_stale(*stripe, *chunk).map(Answer::Stripe),
            Self::Declare(node, true) => meta.declare_failed(*node).map(Answer::Node),
            Self::Declare(node, false) => meta
                .declare_returned(*node, gabion_layout::Start::default(), 0)
                .map(Answer::Node),
            Self::Acquire(stripe, holder) => meta
                .acquire(*stripe, *holder, &world.membership, now_ms)
                .map(Answer::Lease),
            Self::Release(stripe, epoch) => meta.release(*stripe, *epoch).map(Answer::Whether),
        }
    }
}

/// The coordinator takes leases.
fn lead<K: KeyValue>(
    meta: &Meta<K>,
    stripes: &[StripeId],
    world: &World,
) -> Result<Answer, MetaError> {
    let incarnation = meta.incarnation();
    let holder = Holder::Coordinator { incarnation };
    let leases = meta.acquire_all(stripes, holder, &world.membership, world.now_ms)?;
    let leases = leases.into_iter().collect::<Result<_, _>>()?;
    Ok(Answer::Leases(leases))
}

/// The world outside the metadata: time, and which runs of which nodes send heartbeats.
pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) pool: gabion_layout::PoolId,
    pub(crate) membership: Membership,
    /// The run of each of the first nodes, and whether it is known within its lease.
    pub(crate) runs: Vec<(u64, bool)>,
}

impl World {
    pub(crate) fn new(pool: gabion_layout::PoolId) -> Self {
        let mut world = Self {
            now_ms: 1000,
            pool,
            membership: Membership::new(TIMING),
            runs: vec![(1, true); 4],
        };
        world.beat();
        world
    }

    /// Heartbeats of all nodes that are not silent.
    fn beat(&mut self) {
        for (node, &(run, up)) in self.runs.iter().enumerate() {
            if up {
                self.membership
                    .heartbeat(NodeId(node as u32), run, self.now_ms);
            }
        }
    }

    /// A new coordinator hears from all nodes again; the silent ones stay silent beyond their first
    /// lease.
    pub(crate) fn restart(&mut self) {
        self.membership = Membership::new(TIMING);
        for node in 0..self.runs.len() {
            self.membership
                .expect(NodeId(node as u32), false, self.now_ms);
        }
        self.now_ms += TIMING.lease_ms + TIMING.margin_ms;
        self.beat();
    }

    /// The effect of an operation outside of the metadata.
    fn happen(&mut self, operation: &Operation) {
        match *operation {
            Operation::Silence { node } => {
                self.runs[node as usize].1 = false;
                self.now_ms += TIMING.lease_ms + TIMING.margin_ms;
            }
            Operation::Rerun { node } => {
                let run = &mut self.runs[node as usize];
                *run = (run.0 + 1, true);
            }
            _ => {}
        }
    }

    /// The current run of a node, or of the coordinator.
    fn holder(&self, node: Option<u32>, coordinator: u64) -> Holder {
        match node {
            Some(node) => Holder::Node {
                node: NodeId(node),
                incarnation: self.runs[node as usize].0,
            },
            None => Holder::Coordinator {
                incarnation: coordinator,
            },
        }
    }

    /// The concrete action; none for an event outside of the metadata.
    pub(crate) fn action(&mut self, operation: &Operation, expected: &Expected) -> Option<Action> {
        self.now_ms += 1;
        self.happen(operation);
        self.beat();
        let name = |name: u8| format!("file/{name}");
        let put = |pick| *expected.puts.keys().nth(pick).unwrap_or(&PutId(999));
        let stripe = |pick| *expected.live.keys().nth(pick).unwrap_or(&StripeId(9999));
        let garbage = |pick| *expected.garbage.keys().nth(pick).unwrap_or(&stripe(pick));
        Some(match *operation {
            Operation::Restart { .. } | Operation::Silence { .. } | Operation::Rerun { .. } => {
                return None;
            }
            Operation::Begin {
                name: n,
                existing,
                size_bytes,
                place,
            } => Action::Begin {
                name: name(n),
                existing: expected.existing(&name(n), existing),
                size_bytes,
                placements: placements(size_bytes, place),
            },
            Operation::PutInline { name: n, .. } | Operation::WriteInline { name: n, .. } => {
                inline_action(expected, name(n), self.now_ms, operation)?
            }
            Operation::Commit { pick } => Action::Commit(put(pick)),
            Operation::Lead { name: n } => {
                let put = expected.files.get(&name(n))?.put;
                Action::Lead(expected.segments[&put].values().copied().collect())
            }
            Operation::Extend { pick, .. } => {
                Action::Extend(Extension::of(expected, put(pick), operation)?)
            }
            Operation::Enter { pick, stored_count } => Action::Enter(put(pick), stored_count),
            Operation::Grow { name: n, to } => growth(expected, &name(n), to)?,
            Operation::Replace { name: n, .. } => {
                Action::Replace(replacement(expected, &name(n), operation)?)
            }
            Operation::CommitReplacement { pick } => Action::CommitReplacement(put(pick)),
            Operation::Abort { pick } => Action::Abort(put(pick)),
            Operation::Remove { name: n } => Action::Remove(name(n)),
            Operation::Discard { limit } => Action::Discard(limit),
            Operation::Rename { name: n, to, .. } => {
                rename(expected, &name(n), name(to), operation)?
            }
            Operation::Reclaim { pick } => Action::Reclaim(garbage(pick)),
            Operation::Relocate {
                pick,
                chunk,
                node,
                behind,
            } => {
                let (id, chunk) = (stripe(pick), ChunkIndex::new(chunk));
                let generation = generation(expected, id, behind);
                Action::Relocate(id, generation, chunk, NodeId(node))
            }
            Operation::Stale { pick, chunk } => Action::Stale(stripe(pick), ChunkIndex::new(chunk)),
            Operation::Declare { node, failed } => Action::Declare(NodeId(node), failed),
            Operation::Acquire { pick, node } => {
                let holder = self.holder(node, expected.incarnation);
                Action::Acquire(stripe(pick), holder)
            }
            Operation::Release { pick, behind } => release(expected, stripe(pick), behind),
        })
    }
}

/// The end of a lease in its epoch, or in the one before.
fn release(expected: &Expected, stripe: StripeId, behind: bool) -> Action {
    let epoch = expected.leases.get(&stripe).map_or(1, |(epoch, _)| epoch.0);
    Action::Release(stripe, Epoch(epoch - u64::from(behind)))
}

/// The rename of a file in its generation, or in the one before.
fn rename(expected: &Expected, name: &str, to: String, operation: &Operation) -> Option<Action> {
    let &Operation::Rename {
        existing, behind, ..
    } = operation
    else {
        return None;
    };
    let file = expected.files.get(name)?;
    Some(Action::Rename {
        file: file.put,
        generation: file.generation.saturating_sub(u64::from(behind)),
        existing: expected.existing(&to, existing),
        to,
    })
}

/// A change of a file's stripes from the `first` on, under their current leases: others in their places, holes,
/// others for some of them, more of them, or an end of the file.
fn replacement(expected: &Expected, name: &str, operation: &Operation) -> Option<Replacement> {
    let &Operation::Replace {
        first,
        shape,
        behind,
        place,
        ..
    } = operation
    else {
        return None;
    };
    let file = expected.files.get(name)?;
    let epoch = |stripe: &StripeId| {
        expected
            .leases
            .get(stripe)
            .map_or(Epoch(1), |lease| lease.0)
    };
    let displaced = |(&offset, stripe): (&u64, &StripeId)| {
        let epoch = epoch(stripe);
        let stripe = *stripe;
        (offset, Displaced { stripe, epoch })
    };
    let segments = expected.segments[&file.put].iter();
    let mut displaced: Vec<_> = segments.skip(first).map(displaced).collect();
    let mut offsets: Vec<u64> = displaced.iter().map(|(offset, _)| *offset).collect();
    let at = first as u64 * STRIPE_BYTES;
    let mut size = SizeChange::AtLeast(0);
    match shape {
        0 => {}
        1 => offsets.clear(),
        2 => offsets.truncate(1),
        3 => {
            displaced.clear();
            offsets = vec![at + STRIPE_BYTES, at + 3 * STRIPE_BYTES];
            size = SizeChange::AtLeast(at + 4 * STRIPE_BYTES - 5);
        }
        4 => {
            offsets.clear();
            size = SizeChange::Exactly(at);
        }
        _ => {
            displaced.retain(|(offset, _)| *offset >= at);
            offsets = vec![at];
            size = SizeChange::Exactly(at + 7);
        }
    }
    let placement = |_: &u64| Placement {
        chunk_bytes: 1024,
        nodes: spread(place),
    };
    let placements = offsets.iter().map(placement).collect();
    let inline = file.inline.filter(|inline| inline.length_bytes > 0);
    Some(Replacement {
        file: file.put,
        rewrite: Rewrite {
            displaced,
            offsets,
            copied: Vec::new(),
            size,
            inline: inline.map(|inline| inline.version - u64::from(behind)),
            token: FencingToken::default(),
        },
        placements,
    })
}

/// The put of an inline file, or a change of its bytes.
fn inline_action(
    expected: &Expected,
    name: String,
    now_ms: u64,
    operation: &Operation,
) -> Option<Action> {
    if let Operation::PutInline { .. } = operation {
        return InlinePut::of(expected, name, now_ms, operation).map(Action::PutInline);
    }
    let file = expected.files.get(&name)?;
    InlineChange::of(file, now_ms, operation).map(Action::WriteInline)
}

/// Bytes that differ from those of other moments.
fn bytes(now_ms: u64, length: usize) -> Vec<u8> {
    let byte = |at: usize| (now_ms as usize * 31 + at * 7) as u8;
    (0..length).map(byte).collect()
}

/// The growth of a file, sometimes of before its last truncation.
fn growth(expected: &Expected, name: &str, to: u64) -> Option<Action> {
    let file = expected.files.get(name)?;
    let known = file.truncation_count.saturating_sub(to % 3 / 2);
    Some(Action::Grow(file.put, to, known))
}

/// The generation of a stripe, or the one before it.
fn generation(expected: &Expected, stripe: StripeId, behind: bool) -> Generation {
    let now = expected.live.get(&stripe).map_or(1, |s| s.generation.0);
    Generation(now - u64::from(behind))
}

/// Six nodes from `place` on.
fn spread(place: u32) -> Vec<NodeId> {
    (0..6).map(|i| NodeId((place + i) % NODES)).collect()
}

/// Places for a file's segments on six nodes from `place` on; never more than three in a rack.
fn placements(size_bytes: u64, place: u32) -> Vec<Placement> {
    let segments = size_bytes.div_ceil(STRIPE_BYTES);
    let placement = |segment: u64| {
        let rest = size_bytes - segment * STRIPE_BYTES;
        Placement {
            chunk_bytes: rest.min(STRIPE_BYTES).div_ceil(4),
            nodes: spread(place),
        }
    };
    (0..segments).map(placement).collect()
}
