//! The checker proves plans on symbols; here they run on bytes. A naive interpreter executes whole
//! values, step by step, and what it leaves behind must be what the code's own encoder makes.

use crate::setting::bytes::{Chunks, encoded, overwritten, random_stripe};
use crate::setting::{
    Setting, any_numbers, any_scheme, any_selection, any_setting, bearable_losses, ranges,
};
use gabion_codec::gf;
use gabion_layout::{AppendSpec, ByteRange, ChunkIndex, ChunkRange, NodeId, Slices, UpdateScheme};
use gabion_plan::{Log, Plan, Step, ValueId, check};
use gabion_planner::repair::{helpers_by_distance, read, repair};
use gabion_planner::update::{Reader, Waiting, cau, overlay_read, parix};
use gabion_planner::{PlanError, encode, update};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// The contents of logs: by node, log, chunk and position.
type Kept = BTreeMap<(NodeId, Log, ChunkIndex, u64), u8>;

/// A run of a plan: what it is given, and what it leaves behind.
struct Run<'a> {
    stored: &'a Chunks,
    new: &'a Chunks,
    /// Node and bytes of each step's value.
    values: Vec<Option<(NodeId, Vec<u8>)>>,
    /// Chunks written, byte by byte: where, which, and what is at each position.
    written: BTreeMap<(NodeId, ChunkIndex), BTreeMap<u64, u8>>,
    delivered: BTreeMap<(ChunkIndex, u64), u8>,
    /// The contents of logs, byte by byte, from earlier plans and from this one.
    kept: Kept,
    /// Stored chunks with journals applied and logged deltas added.
    merged: Chunks,
}

impl<'a> Run<'a> {
    fn of(plan: &Plan, stored: &'a Chunks, new: &'a Chunks) -> Self {
        Self::after(Kept::new(), plan, stored, new)
    }

    /// The run of a plan where logs keep what earlier plans left in them.
    fn after(kept: Kept, plan: &Plan, stored: &'a Chunks, new: &'a Chunks) -> Self {
        let mut run = Self {
            stored,
            new,
            values: Vec::new(),
            written: BTreeMap::new(),
            delivered: BTreeMap::new(),
            kept,
            merged: stored.clone(),
        };
        for step in &plan.steps {
            let value = run.step(step);
            run.values.push(value);
        }
        run
    }

    fn step(&mut self, step: &Step) -> Option<(NodeId, Vec<u8>)> {
        match step {
            Step::Input {
                node,
                chunk,
                slices,
            } => Some((*node, gather(&self.new[chunk.at()], slices))),
            Step::Read {
                node,
                chunk,
                slices,
            } => Some((*node, gather(&self.stored[chunk.at()], slices))),
            Step::Recall {
                node,
                log,
                chunk,
                slices,
            } => {
                let kept = |at| self.kept[&(*node, *log, *chunk, at)];
                Some((*node, positions(slices).map(kept).collect()))
            }
            Step::Combine { node, terms } => {
                let mut sum = vec![0; self.at(terms[0].value, *node).len()];
                for term in terms {
                    let value = self.at(term.value, *node);
                    assert_eq!(value.len(), sum.len(), "streams of one shape");
                    for (total, byte) in sum.iter_mut().zip(value) {
                        *total ^= gf::multiply(term.coefficient, *byte);
                    }
                }
                Some((*node, sum))
            }
            Step::Send { from, to, value } => Some((*to, self.at(*value, *from).to_vec())),
            Step::Write {
                node,
                chunk,
                slices,
                value,
            } => {
                let bytes = self.at(*value, *node).to_vec();
                let target = self.written.entry((*node, *chunk)).or_default();
                target.extend(positions(slices).zip(bytes));
                None
            }
            Step::Append {
                node,
                log,
                chunk,
                slices,
                value,
            } => {
                let bytes = self.at(*value, *node).to_vec();
                self.append(*node, *log, *chunk, positions(slices).zip(bytes));
                None
            }
            Step::Deliver {
                node,
                chunk,
                slices,
                value,
            } => {
                let bytes = self.at(*value, *node).to_vec();
                let targets = positions(slices).map(|at| (*chunk, at));
                self.delivered.extend(targets.zip(bytes));
                None
            }
        }
    }

    fn append(
        &mut self,
        node: NodeId,
        log: Log,
        chunk: ChunkIndex,
        bytes: impl Iterator<Item = (u64, u8)>,
    ) {
        for (at, byte) in bytes {
            self.kept.insert((node, log, chunk, at), byte);
            let merged = &mut self.merged[chunk.at()][at as usize];
            *merged = match log {
                Log::Journal => byte,
                Log::Parity { .. } | Log::ParitySum => *merged ^ byte,
                Log::Replica | Log::Original => *merged,
            };
        }
    }

    fn at(&self, value: ValueId, node: NodeId) -> &[u8] {
        let (holder, bytes) = self.values[value.at()].as_ref().expect("a value was made");
        assert_eq!(*holder, node, "a step works on what its node has");
        bytes
    }

    /// The bytes written for a chunk at a node, if the whole chunk was.
    fn whole(&self, node: NodeId, chunk: ChunkIndex) -> Option<Vec<u8>> {
        let bytes = self.written.get(&(node, chunk))?;
        let is_whole = bytes
            .keys()
            .copied()
            .eq(0..self.stored[chunk.at()].len() as u64);
        is_whole.then(|| bytes.values().copied().collect())
    }
}

/// The positions of a stream's bytes, in order.
fn positions(slices: &Slices) -> impl Iterator<Item = u64> + use<> {
    let slices = *slices;
    (0..slices.count).flat_map(move |t| slices.slice(t).offset..slices.slice(t).end())
}

fn gather(chunk: &[u8], slices: &Slices) -> Vec<u8> {
    positions(slices).map(|at| chunk[at as usize]).collect()
}

/// All bytes of both, each once.
fn union(a: &[ChunkRange], b: &[ChunkRange]) -> Vec<ChunkRange> {
    let mut parts: Vec<ChunkRange> = a.iter().chain(b).copied().collect();
    parts.sort_unstable();
    let mut union: Vec<ChunkRange> = Vec::new();
    for part in parts {
        match union.last_mut() {
            Some(last) if last.chunk == part.chunk && part.range.offset <= last.range.end() => {
                let end = last.range.end().max(part.range.end());
                last.range.length = end - last.range.offset;
            }
            _ => union.push(part),
        }
    }
    union
}

fn bytes_of(chunks: &Chunks, ranges: &[ChunkRange]) -> BTreeMap<(ChunkIndex, u64), u8> {
    let positions =
        |part: ChunkRange| (part.range.offset..part.range.end()).map(move |at| (part.chunk, at));
    let all = ranges.iter().copied().flat_map(positions);
    all.map(|(chunk, at)| ((chunk, at), chunks[chunk.at()][at as usize]))
        .collect()
}

/// Two updates that a scheme appends: the contents of the logs, what is known of them, and the newest data.
fn append_twice(
    setting: &Setting,
    (scheme, spec): (UpdateScheme, &AppendSpec),
    updates: [&[(u64, u64, u64)]; 2],
    (stored, slice): (&Chunks, u64),
    rng: &mut ChaCha8Rng,
) -> (Kept, Waiting, Chunks) {
    let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
    let appending = update::scheme(scheme).appending().expect("it appends");
    let (mut kept, mut waiting, mut newest) = (Kept::new(), Waiting::default(), stored.clone());
    for numbers in updates {
        let new = random_stripe(setting, rng);
        let ranges = ranges(setting.geometry, setting.geometry.k(), numbers);
        let phase = (&waiting, spec);
        let plan = appending.append(&stripe, topology, &ranges, phase, slice);
        let plan = plan.expect("no chunk is lost");
        kept = Run::after(kept, &plan, stored, &new).kept;
        waiting.note_plan(&plan);
        newest = overwritten(&newest, &new, &ranges);
    }
    (kept, waiting, newest)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// After any losses, the bytes are the newest ones, or the losses exceed the promise. A term that knows only of the
    /// logs that are left reads the same way.
    #[test]
    fn overlay_reads_deliver_the_newest_bytes_while_the_promise_holds(
        setting in any_setting(), first in any_numbers(), second in any_numbers(),
        losses in any_numbers(), wanted in any_numbers(), slice in 1u64..300,
        scheme in any_scheme(), seed in any::<u64>(),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stored = random_stripe(&setting, &mut rng);
        let n = setting.geometry.n();
        let mut lost: Vec<ChunkIndex> =
            losses.iter().map(|loss| ChunkIndex::new(loss.0 as usize % n)).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.truncate(setting.code.failures_survived() + seed as usize % 2);
        let replicas = seed as usize % (setting.geometry.m() + 1);
        let spec = AppendSpec { replicas: replicas as u8, ..AppendSpec::default() };
        let ranges = ranges(setting.geometry, n, &wanted);
        let stripe = setting.stripe(&lost);
        let helpers = helpers_by_distance(&stripe, NodeId::CLIENT, &setting.topology);
        let reader = Reader { asker: NodeId::CLIENT, helpers: &helpers, scheme, slice_bytes: slice };
        for name in [UpdateScheme::Parix, UpdateScheme::Cau] {
            let appended = ((name, &spec), [&*first, &*second], (&stored, slice));
            let (kept, waiting, newest) =
                append_twice(&setting, appended.0, appended.1, appended.2, &mut rng);
            let logged = waiting.logged();
            match overlay_read(&stripe, &ranges, &logged, reader) {
                Ok(plan) => {
                    prop_assert_eq!(check(&plan, &setting.code), Ok(()));
                    let run = Run::after(kept, &plan, &stored, &stored);
                    prop_assert_eq!(run.delivered, bytes_of(&newest, &ranges));
                    let is_lost = |node: &NodeId| lost.iter().any(|&c| stripe.node_of(c) == *node);
                    prop_assert!(!plan.participants().iter().any(is_lost));
                    let left = logged.into_iter().filter(|kept| !is_lost(&kept.node)).collect::<Vec<_>>();
                    let again = overlay_read(&stripe, &ranges, &left, reader).unwrap();
                    prop_assert_eq!(again.steps, plan.steps);
                }
                Err(PlanError::NoCopy(_) | PlanError::NotEnoughHelpers(_)) => {
                    let appending = update::scheme(name).appending().unwrap();
                    prop_assert!(lost.len() > appending.survives(&setting.code, &spec));
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }

    #[test]
    fn encoding_writes_what_the_encoder_makes(
        setting in any_setting(), slice in 1u64..300, seed in any::<u64>(),
    ) {
        let new = random_stripe(&setting, &mut ChaCha8Rng::seed_from_u64(seed));
        let plan = encode::direct(&setting.stripe(&[]), NodeId::CLIENT, slice).unwrap();
        let run = Run::of(&plan, &new, &new);
        for chunk in setting.geometry.chunks() {
            let written = run.whole(setting.placement[chunk.at()], chunk);
            prop_assert_eq!(written.as_ref(), Some(&new[chunk.at()]));
        }
    }

    /// Parity with all logged deltas added is the parity of the new data, whatever is lost; lost
    /// chunks stay as they were.
    #[test]
    fn updates_leave_the_parity_of_the_new_data(
        setting in any_setting(), numbers in any_numbers(), losses in any_numbers(),
        slice in 1u64..300, seed in any::<u64>(),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stored = random_stripe(&setting, &mut rng);
        let new = random_stripe(&setting, &mut rng);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let lost = bearable_losses(&setting, &losses);
        let plan = update::delta(&setting.stripe(&lost), &setting.topology, &ranges, slice).unwrap();
        let run = Run::of(&plan, &stored, &new);
        let updated = overwritten(&stored, &new, &ranges);
        let mut expected = encoded(&setting, updated);
        for chunk in lost {
            expected[chunk.at()].clone_from(&stored[chunk.at()]);
        }
        prop_assert_eq!(&run.merged, &expected);
    }

    /// So it is where deltas are brought together on the way.
    #[test]
    fn cross_rack_updates_leave_the_parity_of_the_new_data(
        setting in any_setting(), numbers in any_numbers(), slice in 1u64..300, seed in any::<u64>(),
        selection in any_selection(),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stored = random_stripe(&setting, &mut rng);
        let new = random_stripe(&setting, &mut rng);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
        let updated = overwritten(&stored, &new, &ranges);
        let expected = encoded(&setting, updated);
        for plan in [
            cau::selective(&stripe, topology, &ranges, selection, slice),
            update::rackcu(&stripe, topology, &ranges, slice),
        ] {
            prop_assert_eq!(&Run::of(&plan.unwrap(), &stored, &new).merged, &expected);
        }
    }

    /// Two updates are appended, and a commit makes parity follow both.
    #[test]
    fn commits_leave_the_parity_of_the_newest_data(
        setting in any_setting(), first in any_numbers(), second in any_numbers(),
        slice in 1u64..300, seed in any::<u64>(), selection in any_selection(),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stored = random_stripe(&setting, &mut rng);
        let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
        let replicas = seed as usize % (setting.geometry.m() + 1);
        let mut updated = stored.clone();
        let (mut cau_kept, mut parix_kept) = (Kept::new(), Kept::new());
        let mut changed: Vec<ChunkRange> = Vec::new();
        for numbers in [first, second] {
            let new = random_stripe(&setting, &mut rng);
            let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
            let plan = cau::append(&stripe, topology, &ranges, replicas, slice).unwrap();
            cau_kept = Run::after(cau_kept, &plan, &stored, &new).kept;
            let plan = parix::append(&stripe, &ranges, &changed, slice).unwrap();
            parix_kept = Run::after(parix_kept, &plan, &updated, &new).kept;
            updated = overwritten(&updated, &new, &ranges);
            changed = union(&changed, &ranges);
        }
        let parity = &encoded(&setting, updated.clone())[setting.geometry.k()..];
        let plan = cau::commit(&stripe, topology, &changed, selection, slice).unwrap();
        let run = Run::after(cau_kept.clone(), &plan, &stored, &stored);
        prop_assert_eq!(&run.merged[setting.geometry.k()..], parity);
        // PARIX writes data in place: a commit that read it would find nothing old there.
        let plan = parix::commit(&stripe, &changed, slice).unwrap();
        let run = Run::after(parix_kept, &plan, &updated, &stored);
        prop_assert_eq!(&run.merged[setting.geometry.k()..], parity);
        for (&(_, log, chunk, at), byte) in &cau_kept {
            prop_assert!(log == Log::Journal || log == Log::Replica);
            prop_assert_eq!(*byte, updated[chunk.at()][at as usize], "replicas are the newest");
        }
    }

    /// Grouping exchanges chunks and changes none.
    #[test]
    fn relocated_chunks_are_as_they_were(
        setting in any_setting(), picks in proptest::collection::vec(any::<bool>(), 14),
        seed in any::<u64>(),
    ) {
        let stored = random_stripe(&setting, &mut ChaCha8Rng::seed_from_u64(seed));
        let stripe = setting.stripe(&[]);
        let picked = setting.geometry.data_chunks().filter(|chunk| picks[chunk.at()]);
        let updated: Vec<ChunkIndex> = picked.collect();
        let rule = gabion_layout::GroupingRule::Authors;
        if let Some(grouping) = cau::group(&stripe, &setting.topology, &updated, rule) {
            let plan = cau::relocate(&stripe, &grouping, 100).unwrap();
            let run = Run::of(&plan, &stored, &stored);
            for chunk in setting.geometry.chunks() {
                let (was, is) = (setting.placement[chunk.at()], grouping.placement[chunk.at()]);
                let moved = run.whole(is, chunk);
                prop_assert_eq!(moved.as_ref(), (was != is).then_some(&stored[chunk.at()]));
            }
        }
    }

    #[test]
    fn repairs_bring_lost_bytes_back(
        setting in any_setting(), loss in any::<usize>(), slice in 1u64..300,
        scheme in any_scheme(), seed in any::<u64>(),
    ) {
        let stored = random_stripe(&setting, &mut ChaCha8Rng::seed_from_u64(seed));
        let lost = [ChunkIndex::new(loss % setting.geometry.n())];
        let stripe = setting.stripe(&lost);
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let requestor = setting.spare();
        let plan = repair(&stripe, lost[0], requestor, &helpers, scheme, slice).unwrap();
        let run = Run::of(&plan, &stored, &stored);
        let repaired = run.whole(requestor, lost[0]);
        prop_assert_eq!(repaired.as_ref(), Some(&stored[lost[0].at()]));
    }

    #[test]
    fn reads_deliver_stored_bytes_and_no_others(
        setting in any_setting(), loss in any::<usize>(), numbers in any_numbers(),
        slice in 1u64..300, scheme in any_scheme(), seed in any::<u64>(),
    ) {
        let stored = random_stripe(&setting, &mut ChaCha8Rng::seed_from_u64(seed));
        let lost = [ChunkIndex::new(loss % setting.geometry.n())];
        let stripe = setting.stripe(&lost);
        let mut ranges = ranges(setting.geometry, setting.geometry.n(), &numbers);
        ranges.retain(|part| part.chunk != lost[0]);
        ranges.push(ChunkRange {
            chunk: lost[0],
            range: ByteRange::new(seed % setting.geometry.chunk_bytes(), 1),
        });
        let helpers: Vec<ChunkIndex> = stripe.available().collect();
        let plan = read(&stripe, &ranges, NodeId::CLIENT, &helpers, scheme, slice).unwrap();
        prop_assert_eq!(Run::of(&plan, &stored, &stored).delivered, bytes_of(&stored, &ranges));
    }
}
