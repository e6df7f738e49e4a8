//! Runs plans on stores that are all in this process: one step after another, whole values at a time.
//! It chooses nothing. Its appends become records as on a node: one for each chunk that an update
//! changes at a participant.

use gabion_codec::kernel;
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, NodeId, Sequence, Slices};
use gabion_plan::{Log, Plan, Step, ValueId};
use gabion_store::{Cut, Store, StoreError};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The pieces of one record: the data chunk whose change each is, where it goes, and its bytes.
pub(super) type Pieces = Vec<(ChunkIndex, u64, Value)>;

/// A value, which several steps may use.
pub(super) type Value = Rc<Vec<u8>>;

/// Parts of a chunk by offset.
pub(super) type Parts = Vec<(u64, Value)>;

/// The results of a plan, which the caller makes durable.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Pieces by participant, chunk, and whether they are deltas.
    pub(super) appended: BTreeMap<(NodeId, ChunkIndex, bool), Pieces>,
    /// Whole chunks or parts of them by node and chunk.
    pub(super) written: BTreeMap<(NodeId, ChunkIndex), Parts>,
    /// Bytes for the asker by chunk and offset.
    pub(super) delivered: BTreeMap<(ChunkIndex, u64), Value>,
}

/// The bytes that plans of one stripe read, each read once however often it is used.
pub(super) struct Stored<'a> {
    stores: &'a [Store],
    cut: Sequence,
    /// Joined ranges by chunk, with their bytes.
    read: BTreeMap<ChunkIndex, Vec<(ByteRange, Vec<u8>)>>,
}

impl<'a> Stored<'a> {
    /// Reads what all these plans read, as of `cut`: chunk by chunk and in the order of addresses.
    pub(super) fn of(
        stores: &'a [Store],
        plans: &[Plan],
        cut: Sequence,
    ) -> Result<Self, StoreError> {
        let mut wanted: BTreeMap<(ChunkIndex, NodeId), Vec<ByteRange>> = BTreeMap::new();
        for plan in plans {
            for step in &plan.steps {
                if let Step::Read {
                    node,
                    chunk,
                    slices,
                } = step
                {
                    wanted
                        .entry((*chunk, *node))
                        .or_default()
                        .push(slices.span());
                }
            }
        }
        let mut all = Self {
            stores,
            cut,
            read: BTreeMap::new(),
        };
        for ((chunk, node), ranges) in wanted {
            for range in ByteRange::union(ranges) {
                all.fetch(plans[0].stripe, chunk, node, range)?;
            }
        }
        Ok(all)
    }

    fn fetch(
        &mut self,
        stripe: gabion_layout::StripeId,
        index: ChunkIndex,
        node: NodeId,
        range: ByteRange,
    ) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        let chunk = ChunkId { stripe, index };
        let cut = Cut::Exactly(self.cut);
        self.stores[node.0 as usize].read(chunk, range, cut, &mut bytes)?;
        self.read.entry(index).or_default().push((range, bytes));
        Ok(())
    }

    fn bytes(&self, chunk: ChunkIndex, slices: &Slices) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(slices.bytes() as usize);
        for t in 0..slices.count {
            let slice = slices.slice(t);
            let (range, held) = self.read[&chunk]
                .iter()
                .find(|(range, _)| range.intersect(slice) == Some(slice))
                .expect("all reads of the plans were done");
            let at = (slice.offset - range.offset) as usize;
            bytes.extend_from_slice(&held[at..at + slice.length as usize]);
        }
        bytes
    }
}

/// Runs a plan. `inputs` has the new bytes of each range that an update writes, by chunk and offset.
pub(super) fn run(
    plan: &Plan,
    stored: &Stored<'_>,
    inputs: &BTreeMap<(ChunkIndex, u64), &[u8]>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut values: Vec<Value> = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        let value = |id: &ValueId| Rc::clone(&values[id.at()]);
        let made = match step {
            Step::Input { chunk, slices, .. } => Rc::new(input(inputs, *chunk, slices.span())),
            Step::Read { chunk, slices, .. } => Rc::new(stored.bytes(*chunk, slices)),
            Step::Recall { .. } => unreachable!("stores run no commits"),
            Step::Combine { terms, .. } => {
                let mut sum = vec![0; values[terms[0].value.at()].len()];
                for term in terms {
                    kernel::mul_add(term.coefficient, &values[term.value.at()], &mut sum);
                }
                Rc::new(sum)
            }
            Step::Send { value: sent, .. } => value(sent),
            Step::Write {
                node,
                chunk,
                slices,
                value: written,
            } => {
                let pieces = outcome.written.entry((*node, *chunk)).or_default();
                pieces.push((slices.offset, value(written)));
                Value::default()
            }
            Step::Append {
                node,
                log,
                chunk,
                slices,
                value: appended,
            } => {
                let (data, is_delta) = match log {
                    Log::Journal => (*chunk, false),
                    Log::Parity { data } => (*data, true),
                    Log::ParitySum | Log::Replica | Log::Original => {
                        unreachable!("stores take updates by delta alone")
                    }
                };
                let pieces = outcome
                    .appended
                    .entry((*node, *chunk, is_delta))
                    .or_default();
                pieces.push((data, slices.offset, value(appended)));
                Value::default()
            }
            Step::Deliver {
                chunk,
                slices,
                value: delivered,
                ..
            } => {
                outcome
                    .delivered
                    .insert((*chunk, slices.offset), value(delivered));
                Value::default()
            }
        };
        values.push(made);
    }
    outcome
}

/// The part of an input that a step asks for: array codes cut ranges at their rows.
fn input(
    inputs: &BTreeMap<(ChunkIndex, u64), &[u8]>,
    chunk: ChunkIndex,
    range: ByteRange,
) -> Vec<u8> {
    let before = inputs.range(..=(chunk, range.offset)).next_back();
    let (&(_, start), bytes) = before.expect("an update's inputs are those of its plan");
    let at = (range.offset - start) as usize;
    bytes[at..at + range.length as usize].to_vec()
}
