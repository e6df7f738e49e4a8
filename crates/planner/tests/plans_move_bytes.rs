//! The checker proves plans on symbols; here they run on bytes. A naive interpreter executes whole
//! values, step by step, and what it leaves behind must be what the code's own encoder makes.

mod setting;

use gabion_codec::gf;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, NodeId, Slices};
use gabion_plan::{Log, Plan, Step, ValueId};
use gabion_planner::repair::{read, repair};
use gabion_planner::{encode, update};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use setting::{Setting, any_numbers, any_scheme, any_setting, ranges};
use std::collections::BTreeMap;

/// All chunks of a stripe, one after another.
type Chunks = Vec<Vec<u8>>;

/// A stripe of random data with its parity.
fn random_stripe(setting: &Setting, rng: &mut ChaCha8Rng) -> Chunks {
    let mut data = vec![vec![0; setting.geometry.chunk_bytes() as usize]; setting.geometry.k()];
    for chunk in &mut data {
        rng.fill_bytes(chunk);
    }
    encoded(setting, data)
}

/// Data chunks with the parity chunks that belong to them.
fn encoded(setting: &Setting, mut chunks: Chunks) -> Chunks {
    chunks.truncate(setting.geometry.k());
    let mut parity = vec![vec![0; setting.geometry.chunk_bytes() as usize]; setting.geometry.m()];
    let sources: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    setting
        .code
        .encode(&sources, &mut outputs)
        .expect("k and m chunks of one length");
    chunks.extend(parity);
    chunks
}

/// A run of a plan: what it is given, and what it leaves behind.
struct Run<'a> {
    stored: &'a Chunks,
    new: &'a Chunks,
    /// Node and bytes of each step's value.
    values: Vec<Option<(NodeId, Vec<u8>)>>,
    /// Chunks written, byte by byte: where, which, and what is at each position.
    written: BTreeMap<(NodeId, ChunkIndex), BTreeMap<u64, u8>>,
    delivered: BTreeMap<(ChunkIndex, u64), u8>,
    /// Stored chunks with journals applied and logged deltas added.
    merged: Chunks,
}

impl<'a> Run<'a> {
    fn of(plan: &Plan, stored: &'a Chunks, new: &'a Chunks) -> Self {
        let mut run = Self {
            stored,
            new,
            values: Vec::new(),
            written: BTreeMap::new(),
            delivered: BTreeMap::new(),
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
                for (at, byte) in positions(slices).zip(bytes) {
                    let merged = &mut self.merged[chunk.at()][at as usize];
                    *merged = match log {
                        Log::Journal => byte,
                        Log::Parity { .. } => *merged ^ byte,
                    };
                }
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

fn bytes_of(chunks: &Chunks, ranges: &[ChunkRange]) -> BTreeMap<(ChunkIndex, u64), u8> {
    let positions =
        |part: ChunkRange| (part.range.offset..part.range.end()).map(move |at| (part.chunk, at));
    let all = ranges.iter().copied().flat_map(positions);
    all.map(|(chunk, at)| ((chunk, at), chunks[chunk.at()][at as usize]))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

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

    /// Parity with all logged deltas added is the parity of the new data.
    #[test]
    fn updates_leave_the_parity_of_the_new_data(
        setting in any_setting(), numbers in any_numbers(), slice in 1u64..300, seed in any::<u64>(),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let stored = random_stripe(&setting, &mut rng);
        let new = random_stripe(&setting, &mut rng);
        let ranges = ranges(setting.geometry, setting.geometry.k(), &numbers);
        let plan = update::delta(&setting.stripe(&[]), &ranges, slice).unwrap();
        let run = Run::of(&plan, &stored, &new);
        let mut updated = stored.clone();
        for part in &ranges {
            let range = part.range.offset as usize..part.range.end() as usize;
            updated[part.chunk.at()][range.clone()].copy_from_slice(&new[part.chunk.at()][range]);
        }
        prop_assert_eq!(&run.merged, &encoded(&setting, updated));
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
