//! Quorum reads: the combined knowledge of a stripe's nodes is enough to read it, without its primary,
//! without the coordinator, and from nodes whose leases have expired.
//!
//! A newer term begins with a settlement, and every settlement fences nodes whose chunks determine the
//! stripe, so at least k of its n nodes. Any n-k+1 nodes include one of these. So if n-k+1 nodes, asked
//! after the read began, know no term newer than e, then no update of a newer term was acknowledged before
//! the read began. Within term e no update leaves out a chunk whose node the term's settlement has asked.
//! So nodes that are in term e together hold all acknowledged updates. If the primary of term e is among those that
//! answer, its word says which update it has acknowledged last, so that no other one is undecided. The whole argument
//! is in docs/update-protocol.md, "Reading without the coordinator".

use crate::message::{Attestation, AttestedCut, ask};
use crate::ports::{Ask as _, Ports};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, select_biased};
use gabion_layout::{ChunkIndex, NodeId, Sequence, StripeRecord};
use std::collections::BTreeMap;
use thiserror::Error;

/// A quorum's agreement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// All updates up to its mark are settled, and no later one was acknowledged when the nodes were asked.
    pub cut: AttestedCut,
    /// Chunks whose nodes are in one of the cut's terms: these can be read. Ascending.
    pub readable: Vec<ChunkIndex>,
}

/// The reason why there is no agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NoQuorum {
    /// Too few have answered.
    #[error("only {asked_count} of the {needed_count} nodes of a quorum answer")]
    TooFew {
        /// Nodes that have answered.
        asked_count: usize,
        /// Nodes that a quorum needs.
        needed_count: usize,
    },
    /// The layout is old.
    #[error("the stripe's layout has changed")]
    OldLayout,
    /// No node of the newest term has a chunk that counts.
    #[error("no node of the stripe's newest term has been asked")]
    NothingCurrent,
    /// Every node that was asked holds this update. Only a settlement can tell whether it was acknowledged.
    #[error("{0} of the stripe is not settled")]
    Undecided(Sequence),
}

/// The agreement of these nodes. `record` is the layout that the reader knows, `k` the number of its data
/// chunks; `attested` has each node's answer by its chunk, all of them asked after the read began.
///
/// # Errors
/// See [`NoQuorum`].
pub fn agree(
    record: &StripeRecord,
    k: usize,
    attested: &BTreeMap<ChunkIndex, Attestation>,
) -> Result<Agreement, NoQuorum> {
    let needed_count = record.nodes.len() + 1 - k;
    if attested.len() < needed_count {
        let asked_count = attested.len();
        return Err(NoQuorum::TooFew {
            asked_count,
            needed_count,
        });
    }
    if attested
        .values()
        .any(|known| known.generation > record.generation)
    {
        return Err(NoQuorum::OldLayout);
    }
    let newest = attested.values().map(|known| known.epoch).max();
    let until = newest.unwrap_or_default();
    let mut led = attested.values().filter_map(|known| known.led);
    let led = led.find(|led| (led.since..=led.until).contains(&until));
    let since = led.map_or(until, |led| led.since);
    let is_current = |(chunk, known): &(&ChunkIndex, &Attestation)| {
        (since..=until).contains(&known.epoch) && !record.is_stale(**chunk)
    };
    let current: BTreeMap<ChunkIndex, &Attestation> = attested
        .iter()
        .filter(is_current)
        .map(|(&chunk, known)| (chunk, known))
        .collect();
    let marks = current.values().map(|known| known.mark);
    let heard = marks.max().ok_or(NoQuorum::NothingCurrent)?;
    // A higher mark than the primary's may be of a later term, which has left out a node of an earlier one.
    let mark = led.map_or(heard, |led| led.mark);
    let undecided = current.values().flat_map(|known| &known.records);
    // The primary of these terms knows that it has acknowledged none of them.
    for update in undecided.filter(|record| led.is_none() && record.sequence > mark) {
        // An update that one of its participants does not hold was not acknowledged when that one was
        // asked.
        let lacks_it = |chunk: &ChunkIndex| {
            let holds = |known: &&Attestation| {
                let mut held = known.records.iter();
                held.any(|record| record.sequence == update.sequence)
            };
            current.get(chunk).is_some_and(|known| !holds(known))
        };
        if !update.participants.iter().any(lacks_it) {
            return Err(NoQuorum::Undecided(update.sequence));
        }
    }
    Ok(Agreement {
        cut: AttestedCut { since, until, mark },
        readable: current.into_keys().collect(),
    })
}

/// Time that nodes may still answer when enough others have, in milliseconds.
const LATECOMERS_MS: u64 = 50;

/// Asks the nodes of a stripe with `k` data chunks, except those in `without`, and returns their answers,
/// by chunk. Ends when all have answered, soon after enough have for any read, or at the time limit.
pub async fn ask_quorum(
    ports: &dyn Ports,
    record: &StripeRecord,
    k: usize,
    without: &[NodeId],
    deadline_ms: u64,
) -> BTreeMap<ChunkIndex, Attestation> {
    let enough_count = k.max(record.nodes.len() + 1 - k);
    let asked = record.chunks().filter_map(|chunk| {
        let node = record.node_of(chunk)?;
        (!without.contains(&node)).then_some((chunk, node))
    });
    let calls = asked.map(|(chunk, node)| {
        let attest = ask::Attest { stripe: record.id };
        let call = ports.ask_node(node, attest, deadline_ms);
        call.map(move |answer| (chunk, answer))
    });
    let mut calls: FuturesUnordered<_> = calls.collect();
    let mut over = ports.sleep_ms(deadline_ms).fuse();
    let mut attested = BTreeMap::new();
    loop {
        select_biased! {
            answer = calls.next() => match answer {
                Some((chunk, Ok(known))) => {
                    attested.insert(chunk, known);
                    if attested.len() == enough_count {
                        over = ports.sleep_ms(LATECOMERS_MS).fuse();
                    }
                }
                Some(_) => {}
                None => return attested,
            },
            () = over => return attested,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::PendingRecord;
    use gabion_layout::{Epoch, Generation, PoolId, StaleChunk, StripeId};

    /// Six chunks under a code with four data chunks, so that a quorum has three nodes.
    fn record() -> StripeRecord {
        StripeRecord {
            id: StripeId(1),
            pool: PoolId(1),
            chunk_bytes: 4096,
            generation: Generation(3),
            nodes: (10..16).map(NodeId).collect(),
            stale: Vec::new(),
        }
    }

    /// A node's chunk, its term, its mark, and its records above that with their participants.
    fn knows(
        chunk: u8,
        epoch: u64,
        mark: u64,
        records: &[(u64, &[u8])],
    ) -> (ChunkIndex, Attestation) {
        let records = records
            .iter()
            .map(|(sequence, participants)| PendingRecord {
                chunk: ChunkIndex(chunk),
                epoch: Epoch(epoch),
                sequence: Sequence(*sequence),
                participants: participants.iter().map(|&p| ChunkIndex(p)).collect(),
            });
        let known = Attestation {
            epoch: Epoch(epoch),
            generation: Generation(3),
            mark: Sequence(mark),
            records: records.collect(),
            led: None,
        };
        (ChunkIndex(chunk), known)
    }

    /// The same of the node whose primary knows that no update above `mark` was acknowledged in these terms.
    fn leads(
        (chunk, known): (ChunkIndex, Attestation),
        (since, until, mark): (u64, u64, u64),
    ) -> (ChunkIndex, Attestation) {
        let led = Some(AttestedCut {
            until: Epoch(until),
            ..AttestedCut::of_term(Epoch(since), Sequence(mark))
        });
        (chunk, Attestation { led, ..known })
    }

    /// Term, mark and readable chunks.
    fn agreed(
        attested: impl IntoIterator<Item = (ChunkIndex, Attestation)>,
    ) -> Result<(u64, u64, Vec<u8>), NoQuorum> {
        let agreement = agree(&record(), 4, &attested.into_iter().collect())?;
        let readable = agreement.readable.iter().map(|chunk| chunk.0).collect();
        let AttestedCut { until, mark, .. } = agreement.cut;
        Ok((until.0, mark.0, readable))
    }

    #[test]
    fn fewer_nodes_than_could_miss_a_settlement_prove_nothing() {
        let two = [knows(0, 2, 7, &[]), knows(1, 2, 7, &[])];
        let too_few = NoQuorum::TooFew {
            asked_count: 2,
            needed_count: 3,
        };
        assert_eq!(agreed(two.clone()), Err(too_few));
        let three = two.into_iter().chain([knows(5, 2, 6, &[])]);
        assert_eq!(agreed(three), Ok((2, 7, vec![0, 1, 5])));
    }

    #[test]
    fn a_node_that_a_newer_term_has_left_out_is_not_read() {
        let nodes = [
            knows(0, 1, 9, &[]),
            knows(1, 2, 7, &[]),
            knows(2, 2, 8, &[]),
        ];
        assert_eq!(agreed(nodes), Ok((2, 8, vec![1, 2])));
    }

    #[test]
    fn a_layout_that_a_node_knows_to_be_old_is_not_read_by() {
        let (chunk, mut known) = knows(4, 2, 7, &[]);
        known.generation = Generation(4);
        let nodes = [knows(0, 2, 7, &[]), knows(1, 2, 7, &[]), (chunk, known)];
        assert_eq!(agreed(nodes), Err(NoQuorum::OldLayout));
    }

    #[test]
    fn a_stale_chunk_is_never_readable() {
        let mut record = record();
        record.stale = vec![StaleChunk {
            chunk: ChunkIndex(1),
            missed_after: None,
        }];
        let nodes = (0..3).map(|chunk| knows(chunk, 2, 7, &[])).collect();
        let readable = agree(&record, 4, &nodes).unwrap().readable;
        assert_eq!(readable, [ChunkIndex(0), ChunkIndex(2)]);
    }

    #[test]
    fn the_nodes_of_stale_chunks_alone_know_no_mark() {
        let mut record = record();
        record.stale = vec![StaleChunk {
            chunk: ChunkIndex(0),
            missed_after: None,
        }];
        // The newest term has fenced the node of the stale chunk, and no other yet.
        let mut nodes: BTreeMap<_, _> = (1..4).map(|chunk| knows(chunk, 2, 7, &[])).collect();
        nodes.extend([knows(0, 3, 6, &[])]);
        let agreed = agree(&record, 4, &nodes);
        assert_eq!(agreed.unwrap_err(), NoQuorum::NothingCurrent);
    }

    #[test]
    fn an_update_that_all_hold_is_not_read_past() {
        let on = |chunk, has: bool| {
            let held: &[(u64, &[u8])] = &[(8, &[0, 4, 5])];
            knows(chunk, 2, 7, if has { held } else { &[] })
        };
        // Chunk 5 is not asked: it may have the record too.
        let nodes = [on(0, true), on(1, false), on(4, true)];
        assert_eq!(agreed(nodes), Err(NoQuorum::Undecided(Sequence(8))));
        let torn = [on(0, true), on(1, false), on(4, false)];
        assert_eq!(agreed(torn), Ok((2, 7, vec![0, 1, 4])));
        // One node knows that it is committed.
        let heard = [on(0, true), knows(1, 2, 8, &[]), on(4, true)];
        assert_eq!(agreed(heard), Ok((2, 8, vec![0, 1, 4])));
    }

    #[test]
    fn the_primary_of_the_newest_term_knows_what_it_has_not_acknowledged() {
        let held: &[(u64, &[u8])] = &[(8, &[0, 4, 5])];
        let on = |chunk, epoch| knows(chunk, epoch, 6, held);
        // It was granted term 3, which has reached two nodes, after it had committed update 7 in term 2.
        let of = |led| [leads(on(0, 3), led), on(4, 3), on(5, 2), on(1, 1)];
        assert_eq!(agreed(of((2, 3, 7))), Ok((3, 7, vec![0, 4, 5])));
        // Its word on earlier terms is no word on a newer one.
        assert_eq!(agreed(of((1, 2, 7))), Err(NoQuorum::Undecided(Sequence(8))));
        // After its word the primary has settled the stripe under term 3, without the node of chunk 5, which lacks what
        // stands. Its chunk is read as of the word.
        let settled = [
            leads(on(0, 3), (2, 3, 7)),
            knows(4, 3, 8, &[]),
            knows(5, 2, 6, &[]),
        ];
        assert_eq!(agreed(settled), Ok((3, 7, vec![0, 4, 5])));
    }
}
