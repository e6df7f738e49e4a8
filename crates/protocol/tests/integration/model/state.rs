//! One state of the modelled stripe: what four nodes hold, what primaries of all terms know, what
//! the coordinator has made durable, and what is under way.
//!
//! Bytes are symbols. A data chunk is wholly overwritten by every update that touches it, so its
//! content is one of a few versions, each a bit; sums over GF(2^8) become exclusive ors of those
//! bits, one sum for each data chunk that a parity chunk covers. A parity chunk is right exactly if
//! its sums are the bits of the data chunks' versions.

use std::array;

/// Chunks of the stripe, each on the node of the same number: 0 and 1 are data, 2 and 3 parity.
pub(crate) const CHUNK_COUNT: usize = 4;
/// Data chunks, which are as many as it takes to read the stripe.
pub(crate) const DATA_COUNT: usize = 2;
/// Updates that the client makes, each of which should be made once.
pub(crate) const UPDATE_COUNT: usize = 2;

/// A set of chunks, of nodes, of runs, of sequences or of versions: a bit each.
pub(crate) type Set = u8;

/// The set with one member.
pub(crate) const fn only(member: usize) -> Set {
    1 << member
}

/// Whether a set has a member.
pub(crate) const fn has(set: Set, member: usize) -> bool {
    set & only(member) != 0
}

/// Whether a chunk is a data chunk.
pub(crate) const fn is_data(chunk: usize) -> bool {
    chunk < DATA_COUNT
}

/// Data chunks that an update writes: the first writes both, the second one.
pub(crate) const fn written(update: usize) -> Set {
    if update == 0 { 0b0011 } else { 0b0010 }
}

/// Chunks whose nodes must hold a record of an update: those written, and all parities.
pub(crate) const fn participants(update: usize) -> Set {
    written(update) | 0b1100
}

/// The version that every data chunk has at first.
pub(crate) const FIRST_VERSION: Set = 1;

/// The version that an update writes.
pub(crate) const fn version(update: usize) -> Set {
    only(update + 1)
}

/// Whether a node takes part in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Presence {
    /// Its membership lease runs: it answers.
    Serving,
    /// Declared failed. The process may live and finish what it has begun; it answers nothing new.
    Away,
    /// It has told the coordinator what it holds, and waits for an answer.
    Returning(Report),
    /// The coordinator counts it as a member again, but it has not heard so yet.
    Judged(Fate),
    /// Its disk is lost.
    Gone,
}

/// The report of a node that asks to join.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Report {
    pub(crate) fence: u8,
    pub(crate) mark: u8,
    /// Runs whose record it holds above the mark.
    pub(crate) undecided: Set,
}

/// The coordinator's answer to a returning node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Fate {
    /// It refuses older terms, and drops its records of them but those that stand.
    pub(crate) epoch: u8,
    /// Runs whose record stands.
    pub(crate) stands: Set,
}

/// A settlement that left nodes out, as the coordinator remembers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Note {
    pub(crate) epoch: u8,
    /// The nodes that were not asked.
    pub(crate) without: Set,
    /// The highest mark of those that were.
    pub(crate) known: u8,
    /// Runs above it that stand.
    pub(crate) stood: Set,
}

/// A node's part of the stripe. All of it is durable but `mark`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node {
    pub(crate) presence: Presence,
    /// Older terms are refused.
    pub(crate) fence: u8,
    /// Updates up to here are settled, as far as the node knows.
    pub(crate) mark: u8,
    /// The part of the mark that survives a crash; records up to here are part of `base`.
    pub(crate) applied: u8,
    /// The chunk's own bytes: its version, or a parity's sum for each data chunk.
    pub(crate) base: [Set; DATA_COUNT],
    /// Runs whose record it holds apart from its base.
    pub(crate) records: Set,
    /// Runs of records that were not dropped, while clients may still ask after them.
    pub(crate) remembered: Set,
}

/// The progress of a part of an update at one participant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Part {
    /// Its message is under way, perhaps for ever.
    Sent,
    /// A data node has read its old bytes and sent the delta; its record is not durable.
    Read,
    /// The record is durable, and the reply is under way, perhaps for ever.
    Recorded,
    /// Its process has crashed.
    Dead,
}

/// The client's knowledge of a run whose answer it does not wait for any more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Closing {
    /// It still waits, or knows that the update is done.
    No,
    /// A node where its bytes were staged has withdrawn it: what has not begun there never will.
    Shut,
    /// The client was told that the update stands.
    Stood,
    /// The client takes it for not made, and makes the update anew.
    Never,
}

/// One try to run an update.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Run {
    pub(crate) update: usize,
    pub(crate) epoch: u8,
    pub(crate) sequence: u8,
    /// As of which update old bytes are read.
    pub(crate) cut: u8,
    pub(crate) parts: [Part; CHUNK_COUNT],
    /// The deltas that data nodes have sent to the parities.
    pub(crate) deltas: [Option<Set>; DATA_COUNT],
    /// Whether the client was told that the update is done, be it that the answer was lost.
    pub(crate) is_acknowledged: bool,
    pub(crate) closing: Closing,
}

/// A node's answer to a settler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) mark: u8,
    /// Runs whose records it holds above the mark.
    pub(crate) records: Set,
}

/// The decision of a settlement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Decision {
    pub(crate) mark: u8,
    /// Sequences.
    pub(crate) dropped: Set,
    /// The highest mark of a survivor.
    pub(crate) known: u8,
    /// Runs above it that stand.
    pub(crate) stood: Set,
    pub(crate) next: u8,
}

/// The progress of a term's holder. It may stop anywhere, and go on much later.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Term {
    /// The lease is granted and it is known who is failed; the stripe's record is not read yet.
    Granted { failed: Set },
    /// Asking the survivors.
    Collecting {
        stale: Set,
        asked: Set,
        answered: Set,
        answers: [Answer; CHUNK_COUNT],
    },
    /// Having the coordinator note who was left out.
    Noting {
        stale: Set,
        asked: Set,
        decision: Decision,
    },
    /// Telling the survivors.
    Resolving {
        stale: Set,
        asked: Set,
        told: Set,
        decision: Decision,
    },
    /// Running updates.
    Serving { stale: Set, mark: u8, next: u8 },
}

/// The durable knowledge of the coordinator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Coordinator {
    /// Nodes declared failed.
    pub(crate) failed: Set,
    /// Chunks that count as lost until they are repaired.
    pub(crate) stale: Set,
    /// Settlements that left nodes out, in the order of their terms.
    pub(crate) notes: Vec<Note>,
}

/// Faults that may still happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(clippy::struct_field_names, reason = "names of counts end so")]
pub(crate) struct Faults {
    /// Crashes with a restart in time.
    pub(crate) crash_count: u8,
    /// Disks lost.
    pub(crate) loss_count: u8,
    /// Nodes declared failed, rightly or not.
    pub(crate) failure_count: u8,
    /// Marks that nodes hear of; all others are lost.
    pub(crate) hint_count: u8,
    /// Terms granted.
    pub(crate) lease_count: u8,
    /// Runs that the client gives up before it makes their updates anew.
    pub(crate) retry_count: u8,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State {
    pub(crate) nodes: [Node; CHUNK_COUNT],
    /// The term of epoch e is at e - 1.
    pub(crate) terms: Vec<Term>,
    pub(crate) runs: Vec<Run>,
    pub(crate) coordinator: Coordinator,
    /// Updates whose client has given an attempt up before it got a number; its request is still under way.
    pub(crate) late: Set,
    pub(crate) faults: Faults,
}

impl State {
    /// A settled stripe under its first term, before any update.
    pub(crate) fn first(faults: Faults) -> Self {
        let node = |chunk: usize| Node {
            presence: Presence::Serving,
            fence: 1,
            mark: 0,
            applied: 0,
            base: match chunk {
                0 => [FIRST_VERSION, 0],
                1 => [0, FIRST_VERSION],
                _ => [FIRST_VERSION; DATA_COUNT],
            },
            records: 0,
            remembered: 0,
        };
        Self {
            nodes: array::from_fn(node),
            terms: vec![Term::Serving {
                stale: 0,
                mark: 0,
                next: 1,
            }],
            runs: Vec::new(),
            coordinator: Coordinator {
                failed: 0,
                stale: 0,
                notes: Vec::new(),
            },
            late: 0,
            faults,
        }
    }

    /// The last term granted.
    pub(crate) fn epoch(&self) -> u8 {
        self.terms.len() as u8
    }

    /// Runs of a set, in the order of their sequences.
    pub(crate) fn runs_of(&self, set: Set) -> Vec<usize> {
        let mut runs: Vec<usize> = (0..self.runs.len()).filter(|&run| has(set, run)).collect();
        runs.sort_by_key(|&run| self.runs[run].sequence);
        runs
    }

    /// Runs whose record a node holds above its mark.
    pub(crate) fn undecided(&self, node: usize) -> Set {
        let above = |&run: &usize| self.runs[run].sequence > self.nodes[node].mark;
        let held = self.runs_of(self.nodes[node].records);
        held.into_iter().filter(above).map(only).sum()
    }

    /// Whether a mark of a term says anything about what a node holds.
    pub(crate) fn vouches(&self, node: usize, epoch: u8, mark: u8) -> bool {
        let foreign =
            |&run: &usize| self.runs[run].sequence <= mark && self.runs[run].epoch != epoch;
        !self.runs_of(self.undecided(node)).iter().any(foreign)
    }

    /// A node's chunk as of an update: its base, and over it its records in their order.
    pub(crate) fn content(&self, node: usize, cut: u8) -> [Set; DATA_COUNT] {
        let mut content = self.nodes[node].base;
        for run in self.runs_of(self.nodes[node].records) {
            if self.runs[run].sequence <= cut {
                self.lay_over(&mut content, node, run);
            }
        }
        content
    }

    /// Lays a record over a chunk: new bytes replace, deltas are added.
    pub(crate) fn lay_over(&self, content: &mut [Set; DATA_COUNT], node: usize, run: usize) {
        let run = &self.runs[run];
        if is_data(node) {
            content[node] = version(run.update);
            return;
        }
        for (sum, delta) in content.iter_mut().zip(run.deltas) {
            *sum ^= delta.unwrap_or(0);
        }
    }

    /// The state with its two parity chunks exchanged if that makes it smaller: nothing tells them
    /// apart, so one of each pair is enough.
    pub(crate) fn representative(self) -> Self {
        let mirrored = self.mirrored();
        if mirrored < self { mirrored } else { self }
    }

    fn mirrored(&self) -> Self {
        let mut other = self.clone();
        other.nodes.swap(2, 3);
        for run in &mut other.runs {
            run.parts.swap(2, 3);
        }
        let Coordinator {
            failed,
            stale,
            notes,
        } = &mut other.coordinator;
        let without = notes.iter_mut().map(|note| &mut note.without);
        for set in [failed, stale].into_iter().chain(without) {
            *set = mirror(*set);
        }
        for term in &mut other.terms {
            match term {
                Term::Granted { failed: set } | Term::Serving { stale: set, .. } => {
                    *set = mirror(*set);
                }
                Term::Collecting {
                    stale,
                    asked,
                    answered,
                    answers,
                } => {
                    answers.swap(2, 3);
                    for set in [stale, asked, answered] {
                        *set = mirror(*set);
                    }
                }
                Term::Noting { stale, asked, .. } => {
                    [*stale, *asked] = [mirror(*stale), mirror(*asked)];
                }
                Term::Resolving {
                    stale, asked, told, ..
                } => {
                    [*stale, *asked, *told] = [mirror(*stale), mirror(*asked), mirror(*told)];
                }
            }
        }
        other
    }
}

/// A set of chunks with the two parity chunks exchanged.
const fn mirror(set: Set) -> Set {
    set & 0b0011 | (set & 0b0100) << 1 | (set & 0b1000) >> 1
}
