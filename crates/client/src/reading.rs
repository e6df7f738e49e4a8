//! The state of a read of one stripe across its attempts: its cut, the chunks to leave out, and the
//! delivered bytes.

use crate::chosen_cut::ChosenCut;
use crate::losses::{lost_for_good, lost_for_now};
use crate::memory::ReadBuffer;
use crate::retry::ReadRetry;
use gabion_layout::{ChunkIndex, Epoch, NodeId, Sequence, StripeRecord};
use gabion_plan::Logged;
use gabion_protocol::message::NodeStatus;
use gabion_protocol::quorum::Agreement;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state of a read of one stripe.
#[derive(Default)]
pub(crate) struct Reading {
    /// Its exact cut; none if each node may choose.
    pub(crate) cut: Option<ChosenCut>,
    /// Whether it has to go through the code, which does not include appended updates: a primary must give the cut.
    pub(crate) reconstructs: bool,
    /// Its ranges' bytes in logs as of a primary's cut, beyond the code.
    pub(crate) appended: Vec<Logged>,
    /// Whether the layout was refreshed because it did not match these logs.
    has_doubted_layout: bool,
    /// Chunks that failed this read.
    pub(crate) avoided: BTreeSet<ChunkIndex>,
    /// Chunks that a quorum's cut does not cover: their nodes may lack updates up to it.
    unreadable: Vec<ChunkIndex>,
    /// Whether all helping nodes send to the client itself, since one may not reach another.
    pub(crate) is_direct: bool,
    /// Deliveries of the current attempt.
    pub(crate) delivered: Arc<Delivered>,
}

/// Deliveries of a read's latest attempt, for observers.
#[derive(Default)]
pub(crate) struct Delivered(Mutex<Attempted>);

#[derive(Default)]
enum Attempted {
    /// No attempt has begun, or its nodes send everything directly to the client.
    #[default]
    Nothing,
    /// It reads chunks directly.
    Chunks(Arc<ReadBuffer>),
    /// It goes through the code, and nodes send to each other: the slow node is unknown.
    Chain,
}

impl Delivered {
    /// The chunks that the attempt reads directly and that are incomplete.
    pub(crate) fn awaited(&self) -> Vec<ChunkIndex> {
        match &*self.lock() {
            Attempted::Chunks(buffer) => buffer.awaited(),
            Attempted::Nothing | Attempted::Chain => Vec::new(),
        }
    }

    /// The reading of a second source, which avoids the attempt's slow part; none if there is
    /// nothing to avoid.
    pub(crate) fn second_source(&self) -> Option<Reading> {
        match &*self.lock() {
            Attempted::Nothing => None,
            Attempted::Chunks(buffer) => {
                let avoided: BTreeSet<ChunkIndex> = buffer.awaited().into_iter().collect();
                (!avoided.is_empty()).then(|| Reading {
                    avoided,
                    ..Reading::default()
                })
            }
            Attempted::Chain => Some(Reading {
                is_direct: true,
                ..Reading::default()
            }),
        }
    }

    pub(crate) fn begin(&self, buffer: &Arc<ReadBuffer>, (is_degraded, is_direct): (bool, bool)) {
        *self.lock() = match (is_degraded, is_direct) {
            (false, _) => Attempted::Chunks(Arc::clone(buffer)),
            (true, false) => Attempted::Chain,
            (true, true) => Attempted::Nothing,
        };
    }

    fn lock(&self) -> MutexGuard<'_, Attempted> {
        // It is written at once and whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why an attempt failed.
pub(crate) enum Trouble {
    /// The primary must give a cut first.
    NeedsCut { settle: bool, missing: String },
    /// A node has no lease: a quorum must give a cut first.
    NeedsQuorum { missing: String },
    /// A part of the plan failed, or there is no plan without some chunks; all possible measures
    /// are taken.
    Again { is_refresh: bool, missing: String },
}

impl Reading {
    /// Starts the read of another stripe in this one's place, without the state of this one.
    pub(crate) fn anew(&self) -> Self {
        Self {
            delivered: Arc::clone(&self.delivered),
            ..Self::default()
        }
    }

    /// A read exactly as of this update of this term.
    pub(crate) fn as_of(epoch: Epoch, mark: Sequence) -> Self {
        Self {
            cut: Some(ChosenCut::Vouched(epoch, mark)),
            // Nothing waits for a commit when stripes are about to be replaced, so no log has anything.
            reconstructs: true,
            ..Self::default()
        }
    }

    /// Takes the cut of a primary, and what logs have of the ranges to decode as of it.
    pub(crate) fn rely_on(&mut self, (epoch, mark): (Epoch, Sequence), appended: Vec<Logged>) {
        self.cut = Some(ChosenCut::Vouched(epoch, mark));
        self.appended = appended;
    }

    /// Takes the cut of a quorum. Nodes that are not in its term cannot be read as of it.
    pub(crate) fn agree_on(&mut self, agreement: &Agreement, stripe: &StripeRecord) {
        self.cut = Some(ChosenCut::Agreed(agreement.cut));
        self.appended.clear();
        let is_readable = |chunk: &ChunkIndex| agreement.readable.contains(chunk);
        self.unreadable = stripe.chunks().filter(|c| !is_readable(c)).collect();
    }

    /// Takes the measure for a cut that covers too few chunks. A quorum's covers only chunks whose
    /// nodes answered in time, so a later one may cover more.
    pub(crate) fn lack_chunks(&mut self, missing: String) -> Trouble {
        if let Some(ChosenCut::Agreed(..)) = self.cut {
            self.cut = None;
            self.unreadable.clear();
        }
        Trouble::Again {
            is_refresh: true,
            missing,
        }
    }

    /// Takes the measure for logs that are lost, or not where the layout has them: the layout is old, or else the
    /// primary's term is over, or began without nodes that have returned since and have the bytes too.
    pub(crate) fn doubt_logs(&mut self, missing: String) -> Trouble {
        self.has_doubted_layout = !self.has_doubted_layout;
        if self.has_doubted_layout {
            let is_refresh = true;
            return Trouble::Again {
                is_refresh,
                missing,
            };
        }
        let settle = true;
        Trouble::NeedsCut { settle, missing }
    }

    /// The chunks that must never be read as of its cut.
    pub(crate) fn forbidden(&self) -> &[ChunkIndex] {
        match self.cut {
            Some(ChosenCut::Agreed(..)) => &self.unreadable,
            Some(ChosenCut::Vouched(..)) | None => &[],
        }
    }

    /// The sets of chunks to leave out, in order of preference: those that are lost now, avoided or on
    /// ailing nodes; those that are lost now or avoided; those that are lost for good. Chunks that must
    /// never be read are in all of them.
    pub(crate) fn left_out(
        &self,
        stripe: &StripeRecord,
        nodes: &[NodeStatus],
        ailing: &[NodeId],
    ) -> [Vec<ChunkIndex>; 3] {
        let lost_now = lost_for_now(stripe, nodes, &self.avoided);
        let mut lost_or_ailing = lost_now.clone();
        lost_or_ailing.extend(ailing.iter().filter_map(|&node| stripe.chunk_on(node)));
        let mut choices = [lost_or_ailing, lost_now, lost_for_good(stripe, nodes)];
        for lost in &mut choices {
            lost.extend(self.forbidden());
            lost.sort_unstable();
            lost.dedup();
        }
        choices
    }

    /// The nodes of the chunks that failed it.
    pub(crate) fn avoided_nodes(&self, stripe: &StripeRecord) -> impl Iterator<Item = NodeId> {
        let chunks = self.avoided.iter();
        chunks.filter_map(|&chunk| stripe.node_of(chunk))
    }

    /// Notes whether the next attempt reconstructs. With a cut for direct reads of chunks it is unknown which bytes
    /// only logs have.
    pub(crate) fn goes_through_code(&mut self, is_degraded: bool) {
        if is_degraded && !self.reconstructs {
            self.reconstructs = true;
            self.cut = None;
        }
    }

    /// Takes the immediate measure for a failed part; none if none helps.
    pub(crate) fn apply(
        &mut self,
        retry: ReadRetry,
        stripe: &StripeRecord,
        missing: String,
    ) -> Option<Trouble> {
        let is_refresh = match retry {
            ReadRetry::TakeCut { settle } => return Some(Trouble::NeedsCut { settle, missing }),
            ReadRetry::TakeQuorum => return Some(Trouble::NeedsQuorum { missing }),
            ReadRetry::Fail => return None,
            ReadRetry::AvoidChunk(chunk) => {
                self.avoided.insert(chunk);
                false
            }
            ReadRetry::AvoidNode(node) | ReadRetry::LeaveOut(node) => {
                self.avoided.extend(stripe.chunk_on(node));
                true
            }
            ReadRetry::Refresh => true,
        };
        Some(Trouble::Again {
            is_refresh,
            missing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;
    use gabion_layout::{ByteRange, ChunkRange, StripeId};
    use gabion_protocol::message::AttestedCut;

    /// A node outside of the quorum may lack acknowledged updates.
    #[test]
    fn chunks_outside_a_quorum_are_left_out_in_every_choice() {
        let stripe = StripeRecord {
            id: StripeId(1),
            pool: gabion_layout::PoolId(0),
            chunk_bytes: 4096,
            generation: gabion_layout::Generation(1),
            nodes: (0..4).map(NodeId).collect(),
            stale: Vec::new(),
        };
        let up = |at: u32| NodeStatus {
            node: NodeId(at),
            rack: gabion_layout::RackId(at),
            address: format!("127.0.0.1:{at}"),
            liveness: gabion_protocol::message::Liveness::Up,
            departure: gabion_meta::Departure::None,
        };
        let nodes: Vec<NodeStatus> = (0..4).map(up).collect();
        let agreement = Agreement {
            cut: AttestedCut::of_term(Epoch(3), Sequence(7)),
            readable: [0, 2, 3].map(ChunkIndex).to_vec(),
        };
        let mut reading = Reading::default();
        reading.agree_on(&agreement, &stripe);
        let choices = reading.left_out(&stripe, &nodes, &[NodeId(0)]);
        let [ailing, only] = [[0, 1].map(ChunkIndex).to_vec(), vec![ChunkIndex(1)]];
        assert_eq!(choices, [ailing, only.clone(), only]);
        // A later quorum may cover more than one that covers too little.
        let trouble = reading.lack_chunks("one chunk".to_owned());
        assert!(matches!(trouble, Trouble::Again { .. }));
        assert!(reading.cut.is_none());
        let choices = reading.left_out(&stripe, &nodes, &[]);
        assert_eq!(choices, [const { Vec::new() }; 3]);
        // A primary's cut is good for every chunk.
        let vouched = Reading::as_of(Epoch(3), Sequence(7));
        let choices = vouched.left_out(&stripe, &nodes, &[]);
        assert_eq!(choices, [const { Vec::new() }; 3]);
    }

    #[test]
    fn a_second_source_avoids_late_nodes_or_the_chain() {
        let parts = [1, 2].map(|chunk| ChunkRange {
            chunk: ChunkIndex(chunk),
            range: ByteRange::new(0, 8),
        });
        let buffer = Arc::new(ReadBuffer::new(parts.to_vec(), &Place::new(16)));
        let delivered = Delivered::default();
        assert!(delivered.second_source().is_none(), "nothing has begun");
        delivered.begin(&buffer, (false, false));
        let second = delivered.second_source().unwrap();
        let late: Vec<ChunkIndex> = second.avoided.iter().copied().collect();
        assert_eq!((late, second.is_direct), (delivered.awaited(), false));
        assert_eq!(delivered.awaited(), [1, 2].map(ChunkIndex));
        delivered.begin(&buffer, (true, false));
        let second = delivered.second_source().unwrap();
        assert!(second.is_direct && second.avoided.is_empty());
        delivered.begin(&buffer, (true, true));
        assert!(delivered.second_source().is_none(), "all send directly");
    }

    /// A new layout is the cheaper measure; if it does not help, the list is of a term that is over.
    #[test]
    fn logs_at_other_places_than_the_layouts_cost_a_look_up_and_then_a_new_list() {
        let mut reading = Reading::as_of(Epoch(3), Sequence(7));
        let mut doubt = || reading.doubt_logs("elsewhere".to_owned());
        for _ in 0..2 {
            let first = doubt();
            assert!(matches!(
                first,
                Trouble::Again {
                    is_refresh: true,
                    ..
                }
            ));
            assert!(matches!(doubt(), Trouble::NeedsCut { settle: true, .. }));
        }
    }
}
