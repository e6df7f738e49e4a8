//! The recovery rule: which updates above the committed mark stand when a stripe gets a new primary.
//!
//! A participant's record of a committed update is durable everywhere, so an update stands if and
//! only if every surviving participant holds its record; otherwise nobody was told, and all drop
//! it. [`recovery_rule`] is the rule itself, a pure function; [`collect`] and [`resolve`] carry the
//! question and the answer.

use crate::message::{Holding, NodeReply, NodeRequest, Refusal};
use crate::ports::Ports;
use futures::future::join_all;
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence, StripeRecord};
use std::collections::BTreeMap;

/// How long a node may take to say what it holds.
const SETTLE_DEADLINE_MS: u64 = 5_000;

/// What the rule says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// All records up to here that are not dropped stand.
    pub mark: Sequence,
    /// Updates that nobody was told of, in order.
    pub dropped: Vec<Sequence>,
    /// Failed chunks that may have missed an update that stands: they count as lost even when
    /// their nodes return.
    pub stale: Vec<ChunkIndex>,
    /// The number of the stripe's next update: no number is used twice, not even a dropped one.
    pub next: Sequence,
}

/// Applies the rule. `survivors` are all chunks whose nodes are not declared failed and that are
/// not stale, each with what its node holds.
pub fn recovery_rule(survivors: &BTreeMap<ChunkIndex, Holding>) -> Outcome {
    let known = survivors
        .values()
        .map(|holding| holding.mark)
        .max()
        .unwrap_or_default();
    // For each undecided update: who should hold a record, and who does.
    let mut undecided: BTreeMap<Sequence, (Vec<ChunkIndex>, Vec<ChunkIndex>)> = BTreeMap::new();
    for (&chunk, holding) in survivors {
        for record in holding
            .records
            .iter()
            .filter(|record| record.sequence > known)
        {
            let entry = undecided
                .entry(record.sequence)
                .or_insert_with(|| (record.participants.clone(), Vec::new()));
            entry.1.push(chunk);
        }
    }
    let mut outcome = Outcome {
        mark: known,
        dropped: Vec::new(),
        stale: Vec::new(),
        next: known.next(),
    };
    for (sequence, (participants, holders)) in undecided {
        outcome.next = sequence.next();
        let surviving = |chunk: &&ChunkIndex| survivors.contains_key(chunk);
        if participants
            .iter()
            .filter(surviving)
            .all(|chunk| holders.contains(chunk))
        {
            outcome.mark = sequence;
            let missing = participants
                .iter()
                .filter(|chunk| !survivors.contains_key(chunk));
            outcome.stale.extend(missing);
        } else {
            outcome.dropped.push(sequence);
        }
    }
    outcome.stale.sort_unstable();
    outcome.stale.dedup();
    outcome
}

/// Nodes of the stripe that a settlement leaves out because they are declared failed. Who holds a
/// stale chunk is not asked either, but its chunk is made anew anyway.
pub fn excluded(stripe: &StripeRecord, failed: &[NodeId]) -> Vec<NodeId> {
    let excluded = |chunk: &ChunkIndex| !stripe.is_stale(*chunk);
    let nodes = stripe
        .chunks()
        .filter(excluded)
        .filter_map(|chunk| stripe.node_of(chunk));
    nodes.filter(|node| failed.contains(node)).collect()
}

/// Fences off older terms on all nodes of the stripe that are not in `failed`, and asks what they
/// hold. Stale chunks are not asked: what they hold proves nothing.
///
/// # Errors
/// [`Refusal::Unavailable`] when a node that is not declared failed does not answer: then nothing
/// can be said yet. [`Refusal::Fenced`] when there is a newer term.
pub async fn collect(
    ports: &dyn Ports,
    stripe: &StripeRecord,
    epoch: Epoch,
    failed: &[NodeId],
) -> Result<BTreeMap<ChunkIndex, Holding>, Refusal> {
    let request = NodeRequest::Collect {
        stripe: stripe.id,
        epoch,
        generation: stripe.generation,
    };
    let answers = ask_survivors(ports, stripe, failed, &request).await;
    let mut holdings = BTreeMap::new();
    for (chunk, answer) in answers {
        match answer? {
            NodeReply::Holding(holding) => holdings.insert(chunk, holding),
            other => return Err(unexpected(&other)),
        };
    }
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
    let request = NodeRequest::Resolve {
        stripe: stripe.id,
        epoch,
        mark: outcome.mark,
        dropped: outcome.dropped.clone(),
    };
    for (_, answer) in ask_survivors(ports, stripe, failed, &request).await {
        match answer? {
            NodeReply::Done => {}
            other => return Err(unexpected(&other)),
        }
    }
    Ok(())
}

fn unexpected(reply: &NodeReply) -> Refusal {
    Refusal::Failed(format!(
        "a node's reply does not fit the question: {reply:?}"
    ))
}

async fn ask_survivors(
    ports: &dyn Ports,
    stripe: &StripeRecord,
    failed: &[NodeId],
    request: &NodeRequest,
) -> Vec<(ChunkIndex, Result<NodeReply, Refusal>)> {
    let survivors = stripe.chunks().filter_map(|chunk| {
        let node = stripe.node_of(chunk)?;
        (!failed.contains(&node) && !stripe.is_stale(chunk)).then_some((chunk, node))
    });
    let calls = survivors.map(|(chunk, node)| {
        let call = ports.call_node(node, request.clone(), SETTLE_DEADLINE_MS);
        async move {
            let answer = match call.await {
                Ok(NodeReply::Refused(refusal)) => Err(refusal),
                Ok(reply) => Ok(reply),
                Err(error) => Err(Refusal::Unavailable(error.peer)),
            };
            (chunk, answer)
        }
    });
    join_all(calls).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::PendingRecord;

    fn holding(chunk: u8, mark: u64, records: &[(u64, &[u8])]) -> (ChunkIndex, Holding) {
        let records = records
            .iter()
            .map(|(sequence, participants)| PendingRecord {
                chunk: ChunkIndex(chunk),
                sequence: Sequence(*sequence),
                participants: participants.iter().map(|&p| ChunkIndex(p)).collect(),
            })
            .collect();
        (
            ChunkIndex(chunk),
            Holding {
                mark: Sequence(mark),
                records,
            },
        )
    }

    fn rule(
        survivors: impl IntoIterator<Item = (ChunkIndex, Holding)>,
    ) -> (u64, Vec<u64>, Vec<u8>, u64) {
        let outcome = recovery_rule(&survivors.into_iter().collect());
        let dropped = outcome.dropped.iter().map(|s| s.0).collect();
        let stale = outcome.stale.iter().map(|c| c.0).collect();
        (outcome.mark.0, dropped, stale, outcome.next.0)
    }

    #[test]
    fn a_record_on_all_participants_stands() {
        let on_all = [
            holding(0, 4, &[(5, &[0, 2])]),
            holding(1, 4, &[]),
            holding(2, 4, &[(5, &[0, 2])]),
        ];
        assert_eq!(rule(on_all), (5, vec![], vec![], 6));
    }

    #[test]
    fn a_record_that_a_survivor_lacks_is_dropped_and_its_number_never_used_again() {
        let torn = [
            holding(0, 4, &[(5, &[0, 2])]),
            holding(1, 4, &[]),
            holding(2, 4, &[]),
        ];
        assert_eq!(rule(torn), (4, vec![5], vec![], 6));
    }

    #[test]
    fn one_mark_is_enough_to_know_that_an_update_was_committed() {
        let marked = [holding(0, 5, &[]), holding(2, 4, &[(5, &[0, 2])])];
        assert_eq!(rule(marked), (5, vec![], vec![], 6));
    }

    #[test]
    fn what_stands_without_a_failed_participant_makes_it_stale() {
        let lost = [holding(0, 4, &[(5, &[0, 2])]), holding(1, 4, &[])];
        assert_eq!(rule(lost), (5, vec![], vec![2], 6));
    }

    #[test]
    fn a_later_update_stands_although_an_earlier_one_is_dropped() {
        let mixed = [
            holding(0, 1, &[(2, &[0, 1]), (3, &[0])]),
            holding(1, 1, &[]),
        ];
        assert_eq!(rule(mixed), (3, vec![2], vec![], 4));
    }
}
