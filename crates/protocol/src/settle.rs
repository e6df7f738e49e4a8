//! The recovery rule: which updates above the committed mark stand when a stripe gets a new primary.
//!
//! A participant's record of a committed update is durable everywhere, so an update stands if and only if
//! every surviving participant holds its record; otherwise it was not acknowledged, and all drop it.
//! [`recovery_rule`] is the rule itself, a pure function; [`collect`] and [`resolve`] carry the question
//! and the answer.

use crate::fence::{SETTLE_DEADLINE_MS, fence, left_out};
use crate::message::{Holding, NodeCall, PendingRecord, Refusal, ask};
use crate::ports::{NodeError, Ports, ask_living};
use futures::future::{join, join_all};
use gabion_codec::Code;
use gabion_layout::{
    AppendSpec, ChunkId, ChunkIndex, ChunkRange, Epoch, NodeId, Sequence, StripeRecord, Topology,
};
use gabion_meta::{Exclusion, StoodUpdate};
use gabion_plan::{Log, Logged};
use gabion_planner::Stripe;
use gabion_planner::update::{UpdatePlanner, Waiting};
use gabion_store::AppendedPiece;
use std::collections::BTreeMap;

/// The assumed slowest rate of reading a whole chunk, in bytes a millisecond. The stripe waits during the
/// read.
const VERIFY_BYTES_PER_MS: u64 = 4_096;

/// The rule's result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The highest mark that a survivor knew: remaining updates up to it stood already.
    pub known: Sequence,
    /// All records up to here that are not dropped stand.
    pub mark: Sequence,
    /// Updates above the known mark that stand, in order.
    pub stood: Vec<StoodUpdate>,
    /// Updates that were not acknowledged, in order.
    pub dropped: Vec<Sequence>,
    /// The sequence of the stripe's next update: no sequence is used twice, not even a dropped one.
    pub next: Sequence,
    /// The appended updates that stand since the last commit that stands: each record's pieces, under the
    /// survivor's chunk that holds it.
    pub appended: Vec<(ChunkIndex, AppendedPiece)>,
}

impl Outcome {
    /// The updates that wait for a commit, for a planner.
    pub fn waiting(&self, stripe: &StripeRecord) -> Waiting {
        let mut waiting = Waiting::default();
        for &(
            holder,
            AppendedPiece {
                data,
                is_original,
                range,
            },
        ) in &self.appended
        {
            let Some(node) = stripe.node_of(holder) else {
                continue;
            };
            let log = match is_original {
                true => Log::Original,
                false if holder == data => Log::Journal,
                false => Log::Replica,
            };
            let part = ChunkRange { chunk: data, range };
            waiting.note(Logged { node, log, part });
        }
        waiting
    }
}

/// Applies the rule. `survivors` are all chunks that are not stale and whose nodes are not declared failed,
/// each with its node's records.
pub fn recovery_rule(survivors: &BTreeMap<ChunkIndex, Holding>) -> Outcome {
    let known = survivors
        .values()
        .map(|holding| holding.mark)
        .max()
        .unwrap_or_default();
    // For each undecided update: its record, and the chunks that hold it.
    let mut undecided: BTreeMap<Sequence, (StoodUpdate, Vec<ChunkIndex>)> = BTreeMap::new();
    for (&chunk, holding) in survivors {
        for record in holding
            .records
            .iter()
            .filter(|record| record.sequence > known)
        {
            let entry = undecided
                .entry(record.sequence)
                .or_insert_with(|| (update_of(record), Vec::new()));
            entry.1.push(chunk);
        }
    }
    let mut outcome = Outcome {
        known,
        mark: known,
        stood: Vec::new(),
        dropped: Vec::new(),
        next: known.next(),
        appended: Vec::new(),
    };
    for (sequence, (update, holders)) in undecided {
        outcome.next = sequence.next();
        let surviving = |chunk: &&ChunkIndex| survivors.contains_key(chunk);
        let mut asked = update.participants.iter().filter(surviving);
        if asked.all(|chunk| holders.contains(chunk)) {
            outcome.mark = sequence;
            outcome.stood.push(update);
        } else {
            outcome.dropped.push(sequence);
        }
    }
    outcome.appended = appended(survivors, &outcome);
    outcome
}

/// The updates that stand and wait for a commit. An update that is not appended is made only when
/// everything appended before it is in it or in another one; so the last such update that stands covers all
/// earlier ones. Some survivor knows it: it takes part, or its chunk has the update in its own bytes.
fn appended(
    survivors: &BTreeMap<ChunkIndex, Holding>,
    outcome: &Outcome,
) -> Vec<(ChunkIndex, AppendedPiece)> {
    let stands =
        |sequence| sequence <= outcome.mark && outcome.dropped.binary_search(&sequence).is_err();
    let records = || {
        survivors
            .values()
            .flat_map(|holding| &holding.appended.records)
    };
    let is_appended =
        |sequence: &Sequence| records().any(|record| record.stamp.sequence == *sequence);
    let covered = survivors.values().map(|holding| holding.appended.covered);
    let undecided = survivors.values().flat_map(|holding| &holding.records);
    let undecided = undecided.map(|record| record.sequence);
    let coding = undecided.filter(|sequence| stands(*sequence) && !is_appended(sequence));
    let covered = covered.chain(coding).max().unwrap_or_default();
    let mut appended = Vec::new();
    for (&chunk, holding) in survivors {
        let held = holding.appended.records.iter();
        let waiting =
            held.filter(|record| record.stamp.sequence > covered && stands(record.stamp.sequence));
        appended.extend(
            waiting
                .flat_map(|record| &record.pieces)
                .map(|&piece| (chunk, piece)),
        );
    }
    appended
}

fn update_of(record: &PendingRecord) -> StoodUpdate {
    StoodUpdate {
        epoch: record.epoch,
        sequence: record.sequence,
        participants: record.participants.clone(),
    }
}

/// Whether these survivors' records prove which updates were committed. If the survivors determine the
/// stripe, each data chunk's updates have a participant among them; fewer survivors may have none.
pub fn is_proof(code: &Code, survivors: &BTreeMap<ChunkIndex, Holding>) -> bool {
    let chunks: Vec<usize> = survivors.keys().map(|chunk| chunk.at()).collect();
    code.is_sufficient(&chunks)
}

/// Refuses to settle a stripe in its append phase when a data chunk has lost its node and all nodes with
/// copies of the updates appended to it: acknowledged updates may exist only there, so the stripe waits for
/// one of them.
///
/// # Errors
/// [`Refusal::Unavailable`].
pub(crate) fn check_copies(
    stripe: &Stripe<'_>,
    topology: &Topology,
    (scheme, spec): (&dyn UpdatePlanner, Option<&AppendSpec>),
) -> Result<(), Refusal> {
    let (Some(appending), Some(spec)) = (scheme.appending(), spec) else {
        return Ok(());
    };
    let is_lost = |chunk: &ChunkIndex| stripe.lost.contains(chunk);
    for data in stripe.geometry.data_chunks().filter(is_lost) {
        let keepers = appending.keepers(stripe, topology, data, spec);
        let keepers = keepers.map_err(|error| Refusal::Failed(error.to_string()))?;
        if keepers.iter().all(is_lost) {
            let last = format!(
                "every node that has the last updates of {data} of {}",
                stripe.id
            );
            return Err(Refusal::Unavailable(last));
        }
    }
    Ok(())
}

/// Makes survivors read all of their chunks that no other chunk can replace, before an update stands
/// without nodes that may return. Such a node may have missed the update and does not count then. If damage
/// in a survivor's chunk were found afterwards, too few chunks would be left; before, there are enough.
///
/// # Errors
/// [`Refusal::Damaged`] when one is; as [`collect`] otherwise.
pub async fn verify_survivors(
    ports: &dyn Ports,
    code: &Code,
    stripe: &StripeRecord,
    exclusion: &Exclusion,
    survivors: &BTreeMap<ChunkIndex, Holding>,
) -> Result<(), Refusal> {
    if exclusion.stood.is_empty() {
        return Ok(());
    }
    let survivors: Vec<ChunkIndex> = survivors.keys().copied().collect();
    verify_irreplaceable(ports, code, stripe, &survivors).await
}

/// Returns the time that a node may take to read these bytes of chunks, in milliseconds.
pub(crate) fn verify_deadline_ms(bytes: u64) -> u64 {
    SETTLE_DEADLINE_MS.saturating_add(bytes / VERIFY_BYTES_PER_MS)
}

/// Makes the nodes of these chunks read all of them, if one of the chunks could not be rebuilt from the
/// others.
///
/// # Errors
/// As [`verify_survivors`].
pub(crate) async fn verify_irreplaceable(
    ports: &dyn Ports,
    code: &Code,
    stripe: &StripeRecord,
    left: &[ChunkIndex],
) -> Result<(), Refusal> {
    let has_stand_in = |chunk: &ChunkIndex| {
        let others = left.iter().filter(|other| *other != chunk);
        let others: Vec<usize> = others.map(|other| other.at()).collect();
        code.is_sufficient(&others)
    };
    if left.iter().all(has_stand_in) {
        return Ok(());
    }
    let deadline_ms = verify_deadline_ms(stripe.chunk_bytes);
    let scrubs = left.iter().map(|&index| {
        let node = stripe.nodes[index.at()];
        let stripe = stripe.id;
        let chunks = vec![ChunkId { stripe, index }];
        ask_living(ports, node, ask::Scrub { chunks }, deadline_ms)
    });
    for scrubbed in join_all(scrubs).await {
        if let Some(damage) = scrubbed?.damage.into_iter().next() {
            return Err(Refusal::Damaged(damage));
        }
    }
    Ok(())
}

/// The note of a settlement at the coordinator, for the case that one of the failed nodes returns.
pub fn exclusion(
    stripe: &StripeRecord,
    failed: &[NodeId],
    epoch: Epoch,
    outcome: &Outcome,
) -> Exclusion {
    let nodes = excluded(stripe, failed);
    let is_out = |chunk: &ChunkIndex| stripe.node_of(*chunk).is_some_and(|n| nodes.contains(&n));
    let concerns_them = |update: &&StoodUpdate| update.participants.iter().any(is_out);
    let stood = outcome.stood.iter().filter(concerns_them);
    Exclusion {
        epoch,
        known: outcome.known,
        stood: stood.cloned().collect(),
        nodes,
    }
}

/// Nodes of the stripe that a settlement leaves out because they are declared failed. The holder of a stale
/// chunk is not asked either, but its chunk is rebuilt anyway.
fn excluded(stripe: &StripeRecord, failed: &[NodeId]) -> Vec<NodeId> {
    let excluded = |chunk: &ChunkIndex| !stripe.is_stale(*chunk);
    let nodes = stripe
        .chunks()
        .filter(excluded)
        .filter_map(|chunk| stripe.node_of(chunk));
    nodes.filter(|node| failed.contains(node)).collect()
}

/// Fences older terms and layouts on all nodes that may serve chunks of the stripe and are not in `failed`,
/// and collects the survivors' records. The nodes of stale chunks and the `former` holders are only fenced:
/// their records prove nothing, but a reader with an old layout would use their chunks.
///
/// # Errors
/// [`Refusal::Unavailable`] when a node that is not declared failed does not answer: the outcome is then
/// undecided. [`Refusal::Fenced`] when there is a newer term.
pub async fn collect(
    ports: &dyn Ports,
    stripe: &StripeRecord,
    former: &[NodeId],
    epoch: Epoch,
    failed: &[NodeId],
) -> Result<BTreeMap<ChunkIndex, Holding>, Refusal> {
    let (id, generation) = (stripe.id, stripe.generation);
    let request = ask::Collect {
        stripe: id,
        epoch,
        generation,
    };
    let fences = left_out(stripe, former, failed)
        .into_iter()
        .map(|node| fence(ports, node, (id, epoch, generation)));
    let asked = ask_survivors(ports, stripe, failed, &request);
    let (answers, fences) = join(asked, join_all(fences)).await;
    let mut holdings = BTreeMap::new();
    for (chunk, answer) in answers {
        holdings.insert(chunk, answer?);
    }
    fences.into_iter().collect::<Result<(), Refusal>>()?;
    Ok(holdings)
}

/// Tells all survivors the outcome, and waits until it is durable on each.
///
/// # Errors
/// As [`collect`].
pub async fn resolve(
    ports: &dyn Ports,
    stripe: &StripeRecord,
    epoch: Epoch,
    failed: &[NodeId],
    outcome: &Outcome,
) -> Result<(), Refusal> {
    let request = ask::Resolve {
        stripe: stripe.id,
        epoch,
        mark: outcome.mark,
        dropped: outcome.dropped.clone(),
    };
    for (_, answer) in ask_survivors(ports, stripe, failed, &request).await {
        answer?;
    }
    Ok(())
}

async fn ask_survivors<C: NodeCall>(
    ports: &dyn Ports,
    stripe: &StripeRecord,
    failed: &[NodeId],
    request: &C,
) -> Vec<(ChunkIndex, Result<C::Reply, NodeError>)> {
    let survivors = stripe.chunks().filter_map(|chunk| {
        let node = stripe.node_of(chunk)?;
        (!failed.contains(&node) && !stripe.is_stale(chunk)).then_some((chunk, node))
    });
    let calls = survivors.map(|(chunk, node)| {
        let call = ask_living(ports, node, request.clone(), SETTLE_DEADLINE_MS);
        async move { (chunk, call.await) }
    });
    join_all(calls).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::{ByteRange, Generation, PoolId, StripeId};
    use gabion_store::{AppendedState, AppendedSummary, UpdateStamp};

    fn holding(chunk: u8, mark: u64, records: &[(u64, &[u8])]) -> (ChunkIndex, Holding) {
        let records = records
            .iter()
            .map(|(sequence, participants)| PendingRecord {
                chunk: ChunkIndex(chunk),
                epoch: Epoch(1),
                sequence: Sequence(*sequence),
                participants: participants.iter().map(|&p| ChunkIndex(p)).collect(),
            })
            .collect();
        (
            ChunkIndex(chunk),
            Holding {
                mark: Sequence(mark),
                records,
                appended: AppendedState::default(),
            },
        )
    }

    fn rule(
        survivors: impl IntoIterator<Item = (ChunkIndex, Holding)>,
    ) -> (u64, Vec<u64>, Vec<u64>, u64) {
        let outcome = recovery_rule(&survivors.into_iter().collect());
        let dropped = outcome.dropped.iter().map(|s| s.0).collect();
        let stood = outcome
            .stood
            .iter()
            .map(|update| update.sequence.0)
            .collect();
        (outcome.mark.0, stood, dropped, outcome.next.0)
    }

    #[test]
    fn a_record_on_all_participants_stands() {
        let on_all = [
            holding(0, 4, &[(5, &[0, 2])]),
            holding(1, 4, &[]),
            holding(2, 4, &[(5, &[0, 2])]),
        ];
        assert_eq!(rule(on_all), (5, vec![5], vec![], 6));
    }

    #[test]
    fn a_record_that_a_survivor_lacks_is_dropped_and_its_number_never_used_again() {
        let torn = [
            holding(0, 4, &[(5, &[0, 2])]),
            holding(1, 4, &[]),
            holding(2, 4, &[]),
        ];
        assert_eq!(rule(torn), (4, vec![], vec![5], 6));
    }

    #[test]
    fn one_mark_is_enough_to_know_that_an_update_was_committed() {
        let marked = [holding(0, 5, &[]), holding(2, 4, &[(5, &[0, 2])])];
        assert_eq!(rule(marked), (5, vec![], vec![], 6));
    }

    #[test]
    fn what_stands_without_a_failed_participant_is_noted_for_its_return() {
        let holdings = [
            holding(0, 4, &[(5, &[0, 2]), (6, &[0])]),
            holding(1, 4, &[]),
        ];
        assert_eq!(rule(holdings.clone()), (6, vec![5, 6], vec![], 7));
        let stripe = StripeRecord {
            id: StripeId(1),
            pool: PoolId(1),
            chunk_bytes: 64,
            generation: Generation(1),
            nodes: [7, 8, 9].map(NodeId).to_vec(),
            stale: vec![],
        };
        let outcome = recovery_rule(&holdings.into_iter().collect());
        let noted = exclusion(&stripe, &[NodeId(9), NodeId(3)], Epoch(2), &outcome);
        assert_eq!(
            (&noted.nodes[..], noted.known),
            (&[NodeId(9)][..], Sequence(4))
        );
        let stood: Vec<u64> = noted.stood.iter().map(|update| update.sequence.0).collect();
        assert_eq!(stood, [5], "the chunk on node 9 takes no part in 6");
    }

    /// The records that a chunk's node has appended under these sequences, one byte of the data chunk that
    /// the sequence selects; `covered` is the last update that it knows to be covered by parity.
    fn appended(chunk: u8, covered: u64, numbers: &[u64]) -> AppendedState {
        let record = |&number: &u64| AppendedSummary {
            chunk: ChunkId {
                stripe: StripeId(1),
                index: ChunkIndex(chunk),
            },
            stamp: UpdateStamp {
                epoch: Epoch(1),
                sequence: Sequence(number),
            },
            pieces: vec![AppendedPiece {
                data: ChunkIndex(0),
                is_original: false,
                range: ByteRange::new(number, 1),
            }],
        };
        AppendedState {
            covered: Sequence(covered),
            records: numbers.iter().map(record).collect(),
        }
    }

    /// The sequences that wait for a commit, by the chunk that holds them.
    fn waits(
        survivors: impl IntoIterator<Item = ((ChunkIndex, Holding), AppendedState)>,
    ) -> Vec<(u8, u64)> {
        let with = |((chunk, holding), appended)| {
            (
                chunk,
                Holding {
                    appended,
                    ..holding
                },
            )
        };
        let outcome = recovery_rule(&survivors.into_iter().map(with).collect());
        let waits = outcome.appended.iter();
        waits
            .map(|(chunk, piece)| (chunk.0, piece.range.offset))
            .collect()
    }

    #[test]
    fn what_was_appended_waits_until_an_update_of_the_code_stands() {
        let settled = |chunk| holding(chunk, 4, &[]);
        let phase = [
            (settled(0), appended(0, 1, &[2, 3])),
            (settled(1), appended(1, 0, &[])),
            (settled(2), appended(2, 1, &[2, 3, 4])),
        ];
        assert_eq!(
            waits(phase.clone()),
            [(0, 2), (0, 3), (2, 2), (2, 3), (2, 4)]
        );
        let mut known = phase.clone();
        known[1].1.covered = Sequence(3);
        assert_eq!(waits(known), [(2, 4)], "chunk 1 has the commit");
        let undecided = |numbers: &[u8]| {
            let mut undecided = phase.clone();
            for &chunk in numbers {
                undecided[usize::from(chunk)].0 = holding(chunk, 4, &[(5, &[0, 1, 2])]);
            }
            waits(undecided)
        };
        assert_eq!(undecided(&[0, 1, 2]), [], "a commit that all hold stands");
        assert_eq!(
            undecided(&[0, 1]).len(),
            5,
            "one that a survivor lacks does not"
        );
    }

    #[test]
    fn what_was_appended_and_dropped_does_not_wait() {
        let torn = [
            (
                holding(0, 1, &[(2, &[0, 2]), (3, &[0, 2])]),
                appended(0, 1, &[2, 3]),
            ),
            (holding(2, 1, &[(2, &[0, 2])]), appended(2, 1, &[2])),
        ];
        assert_eq!(waits(torn), [(0, 2), (2, 2)]);
    }

    #[test]
    fn a_later_update_stands_although_an_earlier_one_is_dropped() {
        let mixed = [
            holding(0, 1, &[(2, &[0, 1]), (3, &[0])]),
            holding(1, 1, &[]),
        ];
        assert_eq!(rule(mixed), (3, vec![3], vec![2], 4));
    }
}
