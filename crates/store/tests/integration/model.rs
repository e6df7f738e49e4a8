//! A model of the states that a store may have after any crash.
//!
//! The model runs operations on a store as a correct primary would, remembers which were reported
//! durable, and after a crash accepts exactly the allowed states: acknowledged operations are
//! there, those in doubt are there wholly or not at all.

use crate::crashes::CrashDisk;
use crate::{OPTIONS, Random, append, chunk, pattern, spec, stamp};
use gabion_layout::{ByteRange, ChunkId, Epoch, Generation, Keeping, Sequence, StripeId};
use gabion_store::{
    ApplySummary, ChunkSpec, Cut, RecordKind, RecoveryReport, SimDisk, Store, StoreError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) const CHUNK_BYTES: u64 = 10_000;
/// A data chunk and a parity chunk of each stripe.
pub(crate) const INDICES: [u8; 2] = [0, 4];

/// Room for a few records.
pub(crate) const RESERVE_BYTES: u64 = 12_288;

/// The keepings of the data chunks and the parity chunks of each update scheme: FO, FL, PL, PLR.
/// The last is no scheme; there data chunks too have a reserve.
pub(crate) const SCHEMES: [[Keeping; 2]; 5] = [
    [Keeping::AtOnce, Keeping::AtOnce],
    [Keeping::Log, Keeping::Log],
    [Keeping::InPlace, Keeping::Log],
    [Keeping::InPlace, RESERVE],
    [RESERVE, RESERVE],
];

const RESERVE: Keeping = Keeping::Reserve {
    bytes: RESERVE_BYTES,
};

/// One operation. Numbers that stand for choices are taken modulo the number of choices.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Write the chunk as of the mark, whether or not it is there.
    Write { stripe: u64, index: u8 },
    /// One update, to both chunks of the stripe; synced or left to a later sync.
    Update {
        stripe: u64,
        salt: u64,
        is_synced: bool,
    },
    /// Make everything durable.
    Sync,
    /// Log witnesses.
    LogWitnesses,
    /// Raise the mark as far as allowed.
    Commit { stripe: u64 },
    /// A new primary: fence, keep the first of the unsettled updates, drop the others.
    Resolve { stripe: u64 },
    /// Apply one stripe.
    Apply { stripe: u64 },
    /// Apply the oldest records.
    ApplyPending,
    /// Remove a chunk.
    Remove { stripe: u64, index: u8 },
    /// Pin the stripe at its mark if it is not pinned, else unpin it.
    Pin { stripe: u64 },
    /// Merge one chunk.
    Merge { stripe: u64, index: u8 },
    /// Resize a chunk's reserve, if it has one, to about `bytes`.
    Resize { stripe: u64, index: u8, bytes: u64 },
}

impl Op {
    pub(crate) fn random(random: &mut Random) -> Self {
        let stripe = random.below(2) + 1;
        let index = INDICES[random.below(2) as usize];
        match random.below(20) {
            0 => Self::Write { stripe, index },
            1..=6 => Self::Update {
                stripe,
                salt: random.next(),
                is_synced: random.below(2) == 0,
            },
            7 => Self::Sync,
            8..=10 => Self::Commit { stripe },
            11 => Self::Resolve { stripe },
            12..=13 => Self::Apply { stripe },
            14 => Self::ApplyPending,
            15 => Self::Pin { stripe },
            16 => Self::Merge { stripe, index },
            17 => Self::Resize {
                stripe,
                index,
                bytes: random.below(5) * 4096,
            },
            18 => Self::LogWitnesses,
            _ => Self::Remove { stripe, index },
        }
    }
}

#[derive(Clone, Debug)]
struct Update {
    epoch: u64,
    offset: u64,
    bytes: Vec<u8>,
    /// Reported durable.
    is_acknowledged: bool,
}

#[derive(Clone, Debug)]
struct Chunk {
    initial: Vec<u8>,
    /// Records that may be there, by sequence.
    updates: BTreeMap<u64, Update>,
    /// Whether its removal, or its first creation, was begun and not acknowledged.
    is_in_doubt: bool,
}

#[derive(Clone, Debug, Default)]
struct Stripe {
    chunks: BTreeMap<u8, Chunk>,
    epoch: u64,
    /// The epoch in which a present chunk was made, or to which the stripe was fenced since.
    promised_epoch: u64,
    /// An epoch that was requested and not acknowledged.
    epoch_in_doubt: u64,
    mark: u64,
    next_sequence: u64,
    /// A resolution that was begun and not acknowledged: the mark, and the dropped updates.
    resolution_in_doubt: Option<(u64, BTreeSet<u64>)>,
}

pub(crate) struct Model<D: CrashDisk = SimDisk> {
    pub(crate) disk: D,
    pub(crate) store: Store,
    stripes: BTreeMap<u64, Stripe>,
    /// Of data chunks and of parity chunks.
    keepings: [Keeping; 2],
    /// The pinned cuts, by stripe.
    pins: BTreeMap<u64, u64>,
}

impl<D: CrashDisk> Model<D> {
    /// Two stripes with their chunks written.
    pub(crate) fn new(seed: u64, keepings: [Keeping; 2]) -> Self {
        let disk = D::fresh(seed);
        let (store, report) = Store::open(Arc::new(disk.clone()), OPTIONS).unwrap();
        assert!(report.is_new);
        let mut model = Self {
            disk,
            store,
            stripes: BTreeMap::new(),
            keepings,
            pins: BTreeMap::new(),
        };
        for stripe in 1..=2 {
            let fresh = Stripe {
                epoch: 1,
                next_sequence: 1,
                ..Stripe::default()
            };
            model.stripes.insert(stripe, fresh);
            for index in INDICES {
                model.run(Op::Write { stripe, index }).unwrap();
            }
        }
        model
    }

    /// Runs one operation. After an error, its outcome is in doubt.
    pub(crate) fn run(&mut self, op: Op) -> Result<(), StoreError> {
        match op {
            Op::Write { stripe, index } => self.write(stripe, index),
            Op::Update {
                stripe,
                salt,
                is_synced,
            } => self.update(stripe, salt, is_synced),
            Op::Sync => self.sync(),
            Op::LogWitnesses => self.store.log_witnesses(),
            Op::Commit { stripe } => self.commit(stripe),
            Op::Resolve { stripe } => self.resolve(stripe),
            Op::Apply { stripe } => self.apply(stripe),
            Op::ApplyPending => {
                let summary = self.store.apply_pending(10_000)?;
                self.check_applied(&summary);
                Ok(())
            }
            Op::Remove { stripe, index } => self.remove(stripe, index),
            Op::Pin { stripe } => self.pin(stripe),
            Op::Merge { stripe, index } => {
                let summary = self.store.merge(chunk(stripe, index))?;
                self.check_applied(&summary);
                Ok(())
            }
            Op::Resize {
                stripe,
                index,
                bytes,
            } => self.resize(chunk(stripe, index), bytes),
        }
    }

    fn write(&mut self, stripe: u64, index: u8) -> Result<(), StoreError> {
        let id = chunk(stripe, index);
        let held = self.stripes.get_mut(&stripe).unwrap();
        let initial = pattern(stripe * 16 + u64::from(index), CHUNK_BYTES as usize);
        let is_new = !held.chunks.contains_key(&index);
        let mark = held.mark;
        let kind = kind_of(index);
        let entry = held.chunks.entry(index).or_insert_with(|| Chunk {
            initial,
            updates: BTreeMap::new(),
            is_in_doubt: true,
        });
        if is_new {
            // The updates that it missed are part of its base.
            entry.initial = content(entry, kind, mark);
            entry.updates.clear();
        }
        let bytes = content(entry, kind, mark);
        let keeping = self.keepings[usize::from(index != 0)];
        let spec = ChunkSpec {
            keeping,
            ..spec(1, CHUNK_BYTES, mark)
        };
        let mut writer = self.store.create(id, spec)?;
        writer.write_at(0, &bytes)?;
        writer.finish_in(Epoch(held.epoch))?;
        entry.is_in_doubt = false;
        held.promised_epoch = held.epoch;
        // The new file is as of the mark, so the cut may be gone from it.
        if let Some(cut) = self.pins.remove(&stripe) {
            self.store.unpin(StripeId(stripe), Sequence(cut));
        }
        Ok(())
    }

    fn update(&mut self, stripe: u64, salt: u64, is_synced: bool) -> Result<(), StoreError> {
        let held = self.stripes.get_mut(&stripe).unwrap();
        let sequence = held.next_sequence;
        held.next_sequence += 1;
        let mut random = Random(salt);
        let offset = random.below(CHUNK_BYTES);
        let length = 1 + random.below((CHUNK_BYTES - offset).min(5000));
        let bytes = pattern(salt, length as usize);
        for (&index, entry) in &mut held.chunks {
            let update = Update {
                epoch: held.epoch,
                offset,
                bytes: bytes.clone(),
                is_acknowledged: false,
            };
            entry.updates.insert(sequence, update);
            let stamp = stamp(held.epoch, sequence);
            let id = chunk(stripe, index);
            append(&self.store, id, stamp, kind_of(index), offset, &bytes)?;
        }
        if is_synced { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.store.sync_all()?;
        let stripes = self.stripes.values_mut();
        for entry in stripes.flat_map(|held| held.chunks.values_mut()) {
            for update in entry.updates.values_mut() {
                update.is_acknowledged = true;
            }
        }
        Ok(())
    }

    fn commit(&mut self, stripe: u64) -> Result<(), StoreError> {
        // Only updates that are durable everywhere may be settled.
        self.sync()?;
        let held = self.stripes.get_mut(&stripe).unwrap();
        if held.chunks.is_empty() {
            return Ok(());
        }
        held.mark = held.next_sequence - 1;
        self.store.commit(StripeId(stripe), Sequence(held.mark))
    }

    fn resolve(&mut self, stripe: u64) -> Result<(), StoreError> {
        let id = StripeId(stripe);
        let held = self.stripes.get_mut(&stripe).unwrap();
        if held.chunks.is_empty() {
            return Ok(());
        }
        held.epoch_in_doubt = held.epoch + 1;
        let epoch = Epoch(held.epoch_in_doubt);
        self.store.fence(id, epoch, Generation(1))?;
        held.epoch = epoch.0;
        held.promised_epoch = epoch.0;
        let state = self.store.collect(id)?;
        // A crash may lose the mark, but never raise it.
        assert!(state.epoch == epoch && state.mark.0 <= held.mark);
        let above = |entry: &Chunk| entry.updates.range(held.mark + 1..).map(|u| *u.0).collect();
        let unsettled: BTreeSet<u64> = held
            .chunks
            .values()
            .flat_map(|e| -> Vec<u64> { above(e) })
            .collect();
        let collected: BTreeSet<u64> = state
            .records
            .iter()
            .map(|record| record.stamp.sequence.0)
            .filter(|sequence| *sequence > held.mark)
            .collect();
        assert_eq!(collected, unsettled);
        for entry in held.chunks.values_mut() {
            for update in entry.updates.values_mut() {
                update.is_acknowledged = true;
            }
        }
        let kept = unsettled.first().copied().unwrap_or(held.mark);
        let dropped: BTreeSet<u64> = unsettled.into_iter().skip(1).collect();
        let listed: Vec<Sequence> = dropped.iter().map(|s| Sequence(*s)).collect();
        held.resolution_in_doubt = Some((kept, dropped));
        self.store.resolve(id, epoch, Sequence(kept), &listed)?;
        held.settle_resolution();
        Ok(())
    }

    fn apply(&mut self, stripe: u64) -> Result<(), StoreError> {
        if self.stripes[&stripe].chunks.is_empty() {
            return Ok(());
        }
        let summary = self.store.apply(StripeId(stripe))?;
        self.check_applied(&summary);
        Ok(())
    }

    /// Checks that nothing is damaged; a disk without power may report damage.
    fn check_applied(&self, summary: &ApplySummary) {
        if !self.disk.has_lost_power() {
            assert_eq!(summary.damage, []);
        }
    }

    fn resize(&mut self, id: ChunkId, bytes: u64) -> Result<(), StoreError> {
        let held = &self.stripes[&id.stripe.0];
        if !held.chunks.contains_key(&id.index.0) {
            return Ok(());
        }
        let Some(reserve) = self.store.reserve(id)? else {
            return Ok(());
        };
        if reserve.is_new && reserve.backed_bytes == 0 && bytes > 8192 {
            return self.store.plan_reserves(&[(id, bytes)]);
        }
        if bytes < reserve.reserved_bytes {
            let given_bytes = self.store.shrink(id, bytes, 4096)?;
            assert_eq!(given_bytes, reserve.reserved_bytes - bytes);
        } else {
            self.store.grow(id, bytes)?;
        }
        let reserve = self.store.reserve(id)?.unwrap();
        assert_eq!(reserve.reserved_bytes, bytes);
        assert!(reserve.used_bytes <= bytes);
        Ok(())
    }

    fn pin(&mut self, stripe: u64) -> Result<(), StoreError> {
        if let Some(cut) = self.pins.remove(&stripe) {
            self.store.unpin(StripeId(stripe), Sequence(cut));
        } else if !self.stripes[&stripe].chunks.is_empty() {
            let cut = self.stripes[&stripe].mark;
            self.store.pin(StripeId(stripe), Sequence(cut))?;
            self.pins.insert(stripe, cut);
        }
        Ok(())
    }

    fn remove(&mut self, stripe: u64, index: u8) -> Result<(), StoreError> {
        let held = self.stripes.get_mut(&stripe).unwrap();
        if let Some(entry) = held.chunks.get_mut(&index) {
            entry.is_in_doubt = true;
        }
        let id = chunk(stripe, index);
        if held.chunks.contains_key(&index) && held.promised_epoch > 0 {
            let late = self.store.discard(id, Epoch(held.promised_epoch - 1));
            assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
        }
        self.store.discard(id, Epoch(held.epoch))?;
        held.chunks.remove(&index);
        if held.chunks.is_empty() {
            held.promised_epoch = 0;
        }
        Ok(())
    }

    /// Opens the store after a crash, checks that its state is allowed, and updates the model to
    /// it.
    pub(crate) fn reopen(&mut self, disk: D) -> RecoveryReport {
        let (store, report) = Store::open(Arc::new(disk.clone()), OPTIONS).unwrap();
        assert_eq!((&report.damage, &report.journal_damage), (&vec![], &vec![]));
        self.disk = disk;
        self.store = store;
        self.pins.clear();
        let present: BTreeSet<ChunkId> = self
            .store
            .chunks()
            .unwrap()
            .into_iter()
            .map(|info| info.chunk)
            .collect();
        for (&stripe, held) in &mut self.stripes {
            held.adopt(&self.store, stripe, &present);
        }
        self.check();
        report
    }

    /// Reads every chunk at every readable update.
    pub(crate) fn check(&self) {
        for (&stripe, held) in &self.stripes {
            for (&index, entry) in &held.chunks {
                let pin = self.pins.get(&stripe).copied();
                check_chunk(&self.store, chunk(stripe, index), held, entry, pin);
            }
        }
    }
}

fn check_chunk(store: &Store, id: ChunkId, held: &Stripe, entry: &Chunk, pin: Option<u64>) {
    let kind = kind_of(id.index.0);
    let base = store.chunk_info(id).unwrap().spec.unwrap().base.0;
    assert!(base <= held.mark, "{id}: base {base} above {}", held.mark);
    assert!(
        pin.is_none_or(|cut| base <= cut),
        "{id}: base {base} above the pin"
    );
    check_missed(store, id, held, entry, base);
    let mut bytes = Vec::new();
    for sequence in 0..held.next_sequence {
        let whole = ByteRange::new(0, CHUNK_BYTES);
        let part = ByteRange::new(4000 + sequence * 7, 700);
        for range in [whole, part] {
            let cut = Cut::Exactly(Sequence(sequence));
            match store.read(id, range, cut, &mut bytes) {
                Ok(as_of) => {
                    assert_eq!(as_of.0, sequence);
                    let expected = content(entry, kind, sequence);
                    let expected = &expected[range.offset as usize..range.end() as usize];
                    assert!(bytes == expected, "{id} as of {sequence}: wrong bytes");
                    if let Some(as_of) = store.read_now(id, range, cut, &mut bytes) {
                        assert_eq!(as_of.0, sequence);
                        assert!(bytes == expected, "{id} as of {sequence}: wrong at once");
                    }
                }
                Err(StoreError::CutPassed { applied, .. }) => {
                    assert!(sequence < base && applied.0 == base);
                }
                Err(error) => panic!("{id} as of {sequence}: {error}"),
            }
        }
    }
}

/// Checks the reported missed ranges since every update against the model.
fn check_missed(store: &Store, id: ChunkId, held: &Stripe, entry: &Chunk, base: u64) {
    let state = store.collect(id.stripe).unwrap();
    for from in 0..held.next_sequence {
        let missed = store.missed_since(id, Sequence(from)).unwrap();
        let Some(missed) = missed else {
            assert!(from < base, "{id}: nothing known since {from}");
            continue;
        };
        assert!(from >= base, "{id}: records before {base} are gone");
        let mut is_missed = vec![false; CHUNK_BYTES as usize];
        for (sequence, update) in entry.updates.range(from + 1..) {
            if *sequence <= state.mark.0 {
                let start = update.offset as usize;
                is_missed[start..start + update.bytes.len()].fill(true);
            }
        }
        let mut is_named = vec![false; CHUNK_BYTES as usize];
        for (_, range) in missed {
            is_named[range.offset as usize..range.end() as usize].fill(true);
        }
        assert!(is_named == is_missed, "{id}: wrong ranges since {from}");
    }
}

impl Stripe {
    fn settle_resolution(&mut self) {
        let Some((mark, dropped)) = self.resolution_in_doubt.take() else {
            return;
        };
        self.mark = self.mark.max(mark);
        for entry in self.chunks.values_mut() {
            entry
                .updates
                .retain(|sequence, _| !dropped.contains(sequence));
        }
    }

    /// Takes over the state of a stripe after a crash, if it is allowed.
    fn adopt(&mut self, store: &Store, stripe: u64, present: &BTreeSet<ChunkId>) {
        self.chunks.retain(|&index, entry| {
            let is_present = present.contains(&chunk(stripe, index));
            assert!(is_present || entry.is_in_doubt, "chunk {index} is lost");
            entry.is_in_doubt = false;
            is_present
        });
        let extra = |id: &&ChunkId| id.stripe.0 == stripe && !self.chunks.contains_key(&id.index.0);
        assert_eq!(present.iter().find(extra), None, "a chunk came back");
        if self.chunks.is_empty() {
            self.resolution_in_doubt = None;
            self.promised_epoch = 0;
            return;
        }
        let state = store.collect(StripeId(stripe)).unwrap();
        assert!(state.epoch.0 >= self.promised_epoch, "a promise is broken");
        self.adopt_epoch(state.epoch.0);
        let found: BTreeSet<(u8, u64, u64)> = state
            .records
            .iter()
            .map(|r| (r.chunk.index.0, r.stamp.sequence.0, r.stamp.epoch.0))
            .collect();
        if self
            .resolution_in_doubt
            .as_ref()
            .is_some_and(|(mark, dropped)| {
                state.mark.0 >= *mark && !dropped.iter().any(|s| found.iter().any(|f| f.1 == *s))
            })
        {
            self.settle_resolution();
        }
        // Dropped records leave a reserve before the outcome takes effect.
        let in_doubt = self.resolution_in_doubt.take();
        let may_be_gone = in_doubt.map_or(BTreeSet::new(), |(_, dropped)| dropped);
        assert!(state.mark.0 <= self.mark, "the mark was never set");
        let mark = state.mark.0;
        for (&index, entry) in &mut self.chunks {
            entry.updates.retain(|&sequence, update| {
                let is_held = sequence <= mark || found.contains(&(index, sequence, update.epoch));
                assert!(
                    is_held || !update.is_acknowledged || may_be_gone.contains(&sequence),
                    "update {sequence} of chunk {index} of stripe {stripe} is lost"
                );
                // A start makes durable whatever it found.
                update.is_acknowledged = true;
                is_held
            });
        }
        for (index, sequence, _) in found {
            assert!(
                self.chunks[&index].updates.contains_key(&sequence),
                "update {sequence} of chunk {index} came back"
            );
        }
    }

    fn adopt_epoch(&mut self, epoch: u64) {
        assert!(
            epoch == self.epoch_in_doubt || epoch <= self.epoch,
            "epoch {epoch} was never requested"
        );
        self.epoch = self.epoch.max(epoch);
        self.epoch_in_doubt = self.epoch;
    }
}

fn kind_of(index: u8) -> RecordKind {
    if index == 0 {
        RecordKind::NewBytes
    } else {
        RecordKind::ParityDelta
    }
}

/// The chunk's bytes as of an update.
fn content(entry: &Chunk, kind: RecordKind, sequence: u64) -> Vec<u8> {
    let mut bytes = entry.initial.clone();
    for update in entry.updates.range(..=sequence).map(|(_, update)| update) {
        let start = update.offset as usize;
        let target = &mut bytes[start..start + update.bytes.len()];
        for (old, new) in target.iter_mut().zip(&update.bytes) {
            match kind {
                RecordKind::NewBytes => *old = *new,
                RecordKind::ParityDelta => *old ^= new,
                RecordKind::Appended { .. } => unreachable!("the model makes none"),
            }
        }
    }
    bytes
}
