//! The rule by which a run's fate follows from what nodes remember. Whoever asks has seen to it before that the
//! run cannot begin any more, and that no update of its stripe is half made.

use crate::message::{RunFate, RunMemory};
use gabion_layout::{ChunkIndex, Sequence};
use std::collections::BTreeMap;

/// What has become of a run whose update, if it was made, has a number after `after`. `memories` are what the nodes
/// of some chunks say. `would_know` says whether some of these chunks would have a record of the update if it was
/// made; it is given those whose memory reaches back to `after`.
///
/// - A node that remembers the run had a record of it that was not dropped, so the update stood.
/// - If nobody does, and somebody would, it was not made.
/// - Else nobody can tell any more.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The fate of a run after update 4, of what chunks 0, 1 and so on remember: the number of its update, and after
    /// which they remember all. A node that says nothing is none. All three would know it, and no two.
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
    fn a_run_stood_if_one_remembers_it_and_not_if_somebody_would() {
        let stood = RunFate::Stood(Sequence(5));
        check(&[None, Some((Some(5), 0)), None], stood);
        check(&[Some((None, 0)), Some((Some(5), 9)), None], stood);
        check(&[Some((None, 4)); 3], RunFate::Never);
        // One has forgotten, or says nothing.
        let forgotten = Some((None, 5));
        let knows = Some((None, 4));
        check(&[knows, knows, forgotten], RunFate::Forgotten);
        check(&[knows, None, knows], RunFate::Forgotten);
    }
}
