//! Settlements that left nodes out. A node that was declared failed may return with records of
//! updates that the others have decided without it, and whose numbers they may have reused. No
//! later settlement could determine the outcome of these records. So each settlement that leaves
//! nodes out is noted here, with the updates that stand by it, until those nodes hold nothing of
//! the stripe. When such a node returns, its chunk is judged by the notes ([`Meta::judge`]).
//!
//! A note is made before its settlement takes effect; a settlement that never took effect may be
//! followed by another that asks other nodes. The updates that stand by a note still stand for
//! ever: every valid chunk that took part holds their records from then on, because a node that
//! returns without one has a stale chunk. An update that does not stand by one note may still stand
//! by a later one.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::leases::check_term;
use crate::meta::Meta;
use crate::schema::{EXCLUSIONS, LEASES};
use crate::stripe_rows::live_stripe;
use crate::verdicts::{Exclusion, Held, KEPT_COUNT_MAX, Verdict};
use gabion_layout::{ChunkId, ChunkIndex, Epoch, Sequence, StripeId, StripeRecord};

impl<K: KeyValue> Meta<K> {
    /// Notes the nodes that a settlement leaves out, if any. The note must be durable before the
    /// settlement takes effect.
    ///
    /// # Errors
    /// [`MetaError::UnknownStripe`]; [`MetaError::TermOver`] unless the settlement is of the
    /// current term.
    pub fn note_settlement(
        &self,
        stripe: StripeId,
        exclusion: &Exclusion,
    ) -> Result<(), MetaError> {
        self.change(|txn| {
            check_term(txn, stripe, exclusion.epoch)?;
            keep(txn, stripe, exclusion)
        })
    }

    /// Whether, by the remembered notes, a settlement that left the chunk's node out may have let
    /// an update after `after` stand in which the chunk takes part.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn may_have_missed(&self, chunk: ChunkId, after: Sequence) -> Result<bool, MetaError> {
        let all = self
            .store
            .read(|txn| EXCLUSIONS.get(txn, &chunk.stripe))?
            .unwrap_or_default();
        let mut stood = all.kept.iter().flat_map(|note| &note.stood);
        let missed = stood
            .any(|update| update.sequence > after && update.participants.contains(&chunk.index));
        Ok(missed || all.forgotten > Epoch(0))
    }

    /// Judges the chunk of a returning node by the settlements that left the node out.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn judge(&self, held: &Held<'_>) -> Result<Verdict, MetaError> {
        let stripe = held.chunk.stripe;
        self.store.read(|txn| {
            let all = EXCLUSIONS.get(txn, &stripe)?.unwrap_or_default();
            let last = LEASES.get(txn, &stripe)?;
            let verdict = all.judge(held);
            Ok(Verdict {
                last_epoch: last.map_or(Epoch(0), |last| last.epoch),
                ..verdict
            })
        })
    }
}

/// Adds a settlement to a stripe's notes, if it leaves nodes out.
fn keep(txn: &mut dyn WriteTxn, stripe: StripeId, exclusion: &Exclusion) -> Result<(), MetaError> {
    let record = live_stripe(txn, stripe)?;
    if exclusion.nodes.is_empty() {
        return Ok(());
    }
    let mut all = EXCLUSIONS.get(txn, &stripe)?.unwrap_or_default();
    all.kept
        .retain(|old| old.nodes.iter().any(|node| record.nodes.contains(node)));
    all.kept.push(exclusion.clone());
    if all.kept.len() > KEPT_COUNT_MAX {
        all.forgotten = all.kept.remove(0).epoch;
    }
    EXCLUSIONS.put(txn, &stripe, &all)
}

/// The chunks of a stripe whose nodes a remembered settlement has left out.
pub(crate) fn left_out(
    txn: &dyn ReadTxn,
    stripe: &StripeRecord,
) -> Result<Vec<ChunkIndex>, MetaError> {
    let all = EXCLUSIONS.get(txn, &stripe.id)?.unwrap_or_default();
    let is_out = |chunk: &ChunkIndex| {
        let node = stripe.node_of(*chunk);
        let mut without = all.kept.iter().flat_map(|note| &note.nodes);
        all.forgotten > Epoch(0) || without.any(|out| Some(*out) == node)
    };
    Ok(stripe.chunks().filter(is_out).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdicts::StoodUpdate;
    use crate::{ClusterId, MemoryStore, Placement, PoolSpec};
    use gabion_layout::{NodeId, RackId, UpdateScheme};

    fn stripe_on_three_nodes() -> (Meta<MemoryStore>, StripeId) {
        let meta = Meta::create(
            MemoryStore::new(),
            ClusterId(1),
            crate::WallClock::stopped(crate::WallTime::default()),
        )
        .unwrap();
        let join = |n: u32| {
            meta.join(None, RackId(n), &format!("host:{}", 7000 + n), 1 << 40, 0)
                .unwrap()
        };
        let nodes: Vec<NodeId> = (0..3).map(join).collect();
        let spec = PoolSpec {
            name: "p".to_owned(),
            code: "rs(2,1)".to_owned(),
            k: 2,
            m: 1,
            sub_chunks: 1,
            chunk_bytes: 4096,
            survive: "1-node".parse().unwrap(),
            chunks_per_rack: 3,
            update: UpdateScheme::Pl,
            reserve: None,
            append: None,
            inline_bytes: 0,
        };
        let pool = meta.create_pool(&spec).unwrap().id;
        let chunk_bytes = 4096;
        let place = Placement { chunk_bytes, nodes };
        let put = meta
            .begin_put(
                ("f", crate::Existing::Stays, crate::NewAttributes::FILE),
                pool,
                8192,
                &[place],
                0,
            )
            .unwrap();
        meta.commit_put(put.id, 0).unwrap();
        (meta, put.stripes[0].id)
    }

    const AWAY: NodeId = NodeId(1);

    /// Updates by term and number.
    type Stamps<'a> = &'a [(u64, u64)];

    /// A settlement without node 1 that knew `known` and let the given updates stand, each with its
    /// term and in chunks 0 and 1.
    fn exclusion(epoch: u64, known: u64, stood: &[(u64, u64)]) -> Exclusion {
        let stood_update = |&(epoch, sequence): &(u64, u64)| StoodUpdate {
            epoch: Epoch(epoch),
            sequence: Sequence(sequence),
            participants: vec![ChunkIndex(0), ChunkIndex(1)],
        };
        Exclusion {
            epoch: Epoch(epoch),
            nodes: vec![AWAY],
            known: Sequence(known),
            stood: stood.iter().map(stood_update).collect(),
        }
    }

    /// Checks the verdict on chunk 1 of node 1 that knows term `epoch` and the mark: the term of
    /// the newest note, the standing records, the open ones, and the update after which one is
    /// missing.
    #[track_caller]
    fn check(
        notes: &[Exclusion],
        (epoch, mark, undecided): (u64, u64, Stamps<'_>),
        expected: (Option<u64>, Stamps<'_>, Stamps<'_>, Option<u64>),
    ) {
        let (meta, stripe) = stripe_on_three_nodes();
        for note in notes {
            meta.store.write(|txn| keep(txn, stripe, note)).unwrap();
        }
        let stamps = |stamps: &[(u64, u64)]| -> Vec<(Epoch, Sequence)> {
            let stamp = |&(epoch, sequence)| (Epoch(epoch), Sequence(sequence));
            stamps.iter().map(stamp).collect()
        };
        let held = Held {
            node: AWAY,
            chunk: ChunkId {
                stripe,
                index: ChunkIndex(1),
            },
            epoch: Epoch(epoch),
            mark: Sequence(mark),
            undecided: &stamps(undecided),
        };
        let verdict = Verdict {
            excluded_by: expected.0.map(Epoch),
            stands: stamps(expected.1),
            open: stamps(expected.2),
            missed_after: expected.3.map(Sequence),
            last_epoch: Epoch(0),
        };
        assert_eq!(meta.judge(&held), Ok(verdict));
    }

    #[test]
    fn without_notes_all_records_of_the_node_are_open() {
        check(&[], (1, 4, &[(1, 5)]), (None, &[], &[(1, 5)], None));
        let other = Exclusion {
            nodes: vec![NodeId(2)],
            ..exclusion(2, 4, &[(1, 5)])
        };
        check(&[other], (1, 4, &[(1, 5)]), (None, &[], &[(1, 5)], None));
    }

    #[test]
    fn an_update_that_stood_without_the_node_stands_or_is_missed() {
        let notes = [exclusion(2, 4, &[(1, 5), (1, 6)])];
        let all = [(1, 5), (1, 6)];
        check(&notes, (1, 4, &all), (Some(2), &all, &[], None));
        check(&notes, (1, 4, &[(1, 6)]), (Some(2), &[], &[], Some(4)));
        check(
            &notes,
            (1, 4, &[(1, 5)]),
            (Some(2), &[(1, 5)], &[], Some(5)),
        );
        check(&notes, (1, 6, &[]), (Some(2), &[], &[], None));
    }

    #[test]
    fn settled_records_stand_and_records_on_no_other_node_do_not() {
        let notes = [exclusion(2, 5, &[])];
        let held = [(1, 5), (1, 6)];
        check(&notes, (1, 4, &held), (Some(2), &[(1, 5)], &[], None));
    }

    #[test]
    fn a_reused_number_is_another_update() {
        // Update 5 of term 1 was dropped; that of term 2 stands. The first note decides by its
        // mark; that of the later note is of the new history.
        let notes = [exclusion(2, 4, &[]), exclusion(3, 5, &[])];
        check(&notes, (1, 4, &[(1, 5)]), (Some(3), &[], &[], None));
        let used_again = [exclusion(2, 4, &[]), exclusion(3, 4, &[(2, 5)])];
        check(&used_again, (1, 4, &[(1, 5)]), (Some(3), &[], &[], Some(4)));
    }

    #[test]
    fn one_note_that_lets_it_stand_is_enough() {
        // The first settlement found a chunk without the record, and had no effect before that
        // chunk's node failed too.
        let notes = [exclusion(2, 4, &[]), exclusion(3, 4, &[(1, 5)])];
        check(&notes, (1, 4, &[(1, 5)]), (Some(3), &[(1, 5)], &[], None));
    }

    #[test]
    fn records_of_a_term_after_its_return_are_open() {
        let notes = [exclusion(2, 4, &[])];
        let held = [(1, 5), (2, 6)];
        check(&notes, (2, 4, &held), (Some(2), &[], &[(2, 6)], None));
    }

    #[test]
    fn updates_of_other_chunks_are_not_missed() {
        let mut note = exclusion(2, 4, &[(1, 5)]);
        note.stood[0].participants = vec![ChunkIndex(0), ChunkIndex(2)];
        check(&[note], (1, 4, &[]), (Some(2), &[], &[], None));
    }

    #[test]
    fn after_too_many_notes_nothing_is_known() {
        let count = KEPT_COUNT_MAX as u64 + 1;
        let notes: Vec<Exclusion> = (2..2 + count).map(|at| exclusion(at, 4, &[])).collect();
        let newest = Some(count + 1);
        check(&notes, (1, 4, &[(1, 5)]), (newest, &[], &[], Some(4)));
        check(&notes, (2, 4, &[]), (newest, &[], &[], None));
    }

    #[test]
    fn a_removed_stripe_is_not_noted() {
        let (meta, _) = stripe_on_three_nodes();
        assert_eq!(
            meta.note_settlement(StripeId(99), &exclusion(2, 4, &[])),
            Err(MetaError::UnknownStripe(StripeId(99)))
        );
    }
}
