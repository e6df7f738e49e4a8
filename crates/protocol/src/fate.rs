//! The rule by which a run's fate follows from nodes' memories. The caller has made sure that the run
//! cannot begin any more, and that no update of its stripe is in progress.

use crate::message::{RunFate, RunMemory, RunQuestion};
use gabion_layout::{AppendSpec, ChunkIndex, Generation, Sequence, Topology};
use gabion_planner::update::UpdatePlanner;
use gabion_planner::{PlanError, Stripe};
use std::collections::BTreeMap;

/// The fate of a run whose update, if there was one, has a sequence after `after`. `memories` are the
/// answers of the nodes of some chunks. `would_know` says whether some of these chunks would have a record
/// of the update; it is given those whose memory reaches back to `after`.
///
/// - A node that remembers the run had a record of it that was not dropped, so the update stood.
/// - If no node remembers it, and one of them would, there was no update.
/// - Otherwise the fate is unknown.
///
/// # Errors
/// That of `would_know`.
pub fn fate<E>(
    memories: &BTreeMap<ChunkIndex, RunMemory>,
    after: Sequence,
    would_know: impl FnOnce(&[ChunkIndex]) -> Result<bool, E>,
) -> Result<RunFate, E> {
    let numbers = memories.values().filter_map(|memory| memory.sequence);
    if let Some(sequence) = numbers.max() {
        return Ok(RunFate::Stood(sequence));
    }
    let complete = memories
        .iter()
        .filter(|(_, memory)| memory.complete_after <= after);
    let complete: Vec<ChunkIndex> = complete.map(|(&chunk, _)| chunk).collect();
    Ok(if would_know(&complete)? {
        RunFate::Never
    } else {
        RunFate::Forgotten
    })
}

/// The nodes that have records of a stripe's updates.
#[derive(Clone, Copy, Debug)]
pub struct Witnesses<'a> {
    /// The stripe as it is, or as it was when it ended.
    pub stripe: Stripe<'a>,
    /// The generation of that layout.
    pub generation: Generation,
    /// The positions of its nodes.
    pub topology: &'a Topology,
    /// The pool's update scheme.
    pub scheme: &'static dyn UpdatePlanner,
    /// The pool's append phases, if it has any.
    pub append: Option<AppendSpec>,
}

impl Witnesses<'_> {
    /// Whether one of the chunks `complete` has a record of the update in question, if there was one. None
    /// of them may be stale, and each has all records that it ever got.
    ///
    /// # Errors
    /// When the stripe's layout does not fit its scheme.
    pub fn would_know(
        &self,
        complete: &[ChunkIndex],
        asked: &RunQuestion,
    ) -> Result<bool, PlanError> {
        // An update leaves out none of its chunks, except those that are stale from then on.
        if asked.chunks.iter().any(|chunk| complete.contains(chunk)) {
            return Ok(true);
        }
        let counted: Vec<usize> = complete.iter().map(|chunk| chunk.at()).collect();
        // Parity covers an update if some chunk of any set that determines the stripe has it.
        if !self.stripe.code.is_sufficient(&counted) {
            return Ok(false);
        }
        let (Some(appending), Some(spec)) = (self.scheme.appending(), &self.append) else {
            return Ok(true);
        };
        // Appended updates also have copies on parity nodes. Which ones follows from the places of the
        // chunks; in another layout it may have been any.
        let is_complete = |chunk: &ChunkIndex| complete.contains(chunk);
        let has_moved = asked.generation != self.generation;
        let geometry = self.stripe.geometry;
        let mut parity = geometry.chunks().skip(geometry.k());
        if has_moved && !parity.all(|chunk| is_complete(&chunk)) {
            return Ok(false);
        }
        for &data in &asked.chunks {
            let keepers = appending.keepers(&self.stripe, self.topology, data, spec)?;
            let mut keepers = keepers.iter();
            if keepers.any(|keeper| has_moved || is_complete(keeper)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initiate::record_holders;
    use crate::message::RunId;
    use gabion_codec::Code;
    use gabion_layout::{
        ByteRange, ChunkRange, Geometry, NodeId, NodePlace, RackId, StripeId, UpdateScheme,
    };
    use gabion_planner::update;
    use std::convert::Infallible;

    /// The fate of a run after update 4, given the memories of chunks 0, 1 and so on: the sequence of its
    /// update, and the sequence after which they remember all. None is a node without an answer. All three
    /// would know it, and no two.
    #[track_caller]
    fn check(memories: &[Option<(Option<u64>, u64)>], expected: RunFate) {
        let memory = |at: usize, (sequence, complete_after): (Option<u64>, u64)| {
            let memory = RunMemory {
                sequence: sequence.map(Sequence),
                complete_after: Sequence(complete_after),
            };
            (ChunkIndex(at as u8), memory)
        };
        let said = memories.iter().enumerate();
        let said = said
            .filter_map(|(at, said)| Some(memory(at, (*said)?)))
            .collect();
        let would_know = |complete: &[ChunkIndex]| Ok::<_, Infallible>(complete.len() == 3);
        assert_eq!(fate(&said, Sequence(4), would_know), Ok(expected));
    }

    #[test]
    fn a_run_stood_if_one_node_remembers_it_and_never_if_nodes_that_would_do_not() {
        let stood = RunFate::Stood(Sequence(5));
        check(&[None, Some((Some(5), 0)), None], stood);
        check(&[Some((None, 0)), Some((Some(5), 9)), None], stood);
        check(&[Some((None, 4)); 3], RunFate::Never);
        // One node has forgotten, or does not answer.
        let forgotten = Some((None, 5));
        let knows = Some((None, 4));
        check(&[knows, knows, forgotten], RunFate::Forgotten);
        check(&[knows, None, knows], RunFate::Forgotten);
    }

    /// Six chunks, two in each of three racks.
    fn with_stripe(scheme: UpdateScheme, test: impl FnOnce(Witnesses<'_>)) {
        let code: Code = "rs(4,2)".parse().unwrap();
        let place = |node| NodePlace {
            node: NodeId(node),
            rack: RackId(node / 2),
        };
        let topology = Topology::new((0..6).map(place)).unwrap();
        let stripe = Stripe {
            id: StripeId(1),
            code: &code,
            geometry: Geometry::new(4, 2, 1, 1 << 20).unwrap(),
            placement: &[0, 1, 2, 3, 4, 5].map(NodeId),
            lost: &[],
        };
        let scheme = update::scheme(scheme);
        let append = scheme.appending().map(|_| AppendSpec::default());
        test(Witnesses {
            stripe,
            generation: Generation(3),
            topology: &topology,
            scheme,
            append,
        });
    }

    fn asked(chunk: u8, generation: u64) -> RunQuestion {
        RunQuestion {
            stripe: StripeId(1),
            generation: Generation(generation),
            run: RunId(7),
            after: Sequence(4),
            chunks: vec![ChunkIndex(chunk)],
        }
    }

    #[test]
    fn an_update_is_recorded_at_each_chunk_that_it_changes_unless_that_is_lost() {
        let range = |chunk| ChunkRange {
            chunk: ChunkIndex(chunk),
            range: ByteRange::new(4096, 4096),
        };
        let ranges = [range(1), range(2)];
        let losses = [None, Some(1), Some(5)];
        let cases = update::SCHEMES
            .iter()
            .flat_map(|known| losses.map(|lost| (known.scheme, lost)));
        for (scheme, lost) in cases {
            with_stripe(scheme, |witnesses| {
                let lost = lost.map(ChunkIndex);
                let stripe = Stripe {
                    lost: lost.as_slice(),
                    ..witnesses.stripe
                };
                let plan = witnesses
                    .scheme
                    .plan(&stripe, witnesses.topology, &ranges, 65536);
                let holders = record_holders(&plan.unwrap());
                for chunk in [1, 2].map(ChunkIndex) {
                    let is_here = holders.contains(&chunk);
                    assert_eq!(is_here, lost != Some(chunk), "{scheme:?}, {lost:?} is lost");
                }
            });
        }
    }

    #[test]
    fn one_that_was_to_change_knows_and_so_do_as_many_as_determine_the_stripe() {
        for scheme in update::SCHEMES.map(|scheme| scheme.scheme) {
            with_stripe(scheme, |witnesses| {
                let knows = |complete: &[u8], asked: &RunQuestion| {
                    let complete: Vec<ChunkIndex> =
                        complete.iter().copied().map(ChunkIndex).collect();
                    witnesses.would_know(&complete, asked).unwrap()
                };
                assert!(knows(&[1], &asked(1, 3)), "{scheme:?}");
                assert!(!knows(&[0, 2, 3], &asked(1, 3)), "{scheme:?}");
                // These determine the stripe, and both parity chunks are among them.
                assert!(knows(&[0, 2, 4, 5], &asked(1, 3)), "{scheme:?}");
                // In another layout any parity chunk may have had the copies of appended updates.
                assert!(knows(&[0, 2, 4, 5], &asked(1, 2)), "{scheme:?}");
                let appends = witnesses.append.is_some();
                assert_eq!(knows(&[0, 2, 3, 4], &asked(1, 2)), !appends, "{scheme:?}");
            });
        }
    }
}
