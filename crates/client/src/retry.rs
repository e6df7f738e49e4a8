//! Reactions to a refusal: pure decisions, all covered by a table of tests.

use crate::chosen_cut::ChosenCut;
use crate::error::{ClientError, passing, without_outcome};
use gabion_layout::{ChunkIndex, NodeId};
use gabion_protocol::message::{Cause, Denial, RECOVERING, Refusal, TicketFault};
use gabion_protocol::ports::CoordinatorError;

/// The reason why an attempt to write failed.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// A retry may succeed; the problem.
    Retry(Denial),
    /// A retry would not help.
    Final(ClientError),
}

impl AttemptError {
    /// The reason why an update is not tried that the coordinator of a recovery does not permit; nodes would only miss a
    /// lease. If the layout is not `is_fresh`, another coordinator may lead by now.
    pub(crate) fn of_recovery(is_fresh: bool) -> Self {
        if is_fresh {
            Self::Final(ClientError::Recovering(RECOVERING.to_owned()))
        } else {
            Self::Retry(RECOVERING.into())
        }
    }
}

impl From<ClientError> for AttemptError {
    fn from(error: ClientError) -> Self {
        Self::Final(error)
    }
}

/// The error of a request that changes no byte of a file. So a coordinator that recovers a backup leaves nothing in
/// doubt.
impl From<CoordinatorError> for AttemptError {
    fn from(error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Refused(why) if why.cause == Cause::Recovers => {
                Self::Final(without_outcome(why))
            }
            error => passing(error).map_or_else(Self::Final, Self::Retry),
        }
    }
}

/// A reader's reaction to a failed part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadRetry {
    /// Ask the primary up to which update the stripe is settled, and read exactly as of that one.
    TakeCut {
        /// The primary has to settle the stripe again first.
        settle: bool,
    },
    /// Ask a quorum of the stripe's nodes for the cut: with that, the node needs no lease.
    TakeQuorum,
    /// Count the chunk as lost for this read; its node has reported the damage.
    AvoidChunk(ChunkIndex),
    /// Count the node's chunk as lost for this read, and refresh the layout.
    AvoidNode(NodeId),
    /// Do not read the chunk from this node again, which need not be at fault: the layout may be old. Refresh
    /// it.
    LeaveOut(NodeId),
    /// Refresh the layout.
    Refresh,
    /// A retry would not help.
    Fail,
}

/// The reaction to a read part that `node` refused. `participants` took part in the plan; `cut` is
/// the read's, if it had one.
pub(crate) fn read_retry(
    node: NodeId,
    refusal: &Refusal,
    participants: &[NodeId],
    cut: Option<ChosenCut>,
) -> ReadRetry {
    let had_cut = cut.is_some();
    let is_agreed = matches!(cut, Some(ChosenCut::Agreed(..)));
    match refusal {
        // The node's term has changed since the quorum was asked, or it was behind before.
        Refusal::Fenced { .. } | Refusal::Unsettled if is_agreed => {
            ReadRetry::TakeCut { settle: false }
        }
        Refusal::NoLease if !is_agreed => ReadRetry::TakeQuorum,
        // The cut's term is over: only the new primary, once settled, can give a newer one.
        Refusal::Fenced { .. } => ReadRetry::TakeCut { settle: true },
        // With a cut, unsettled records are of an older term, which the mark does not cover.
        Refusal::Unsettled => ReadRetry::TakeCut { settle: had_cut },
        Refusal::CutPassed { .. } => ReadRetry::TakeCut { settle: false },
        Refusal::Damaged(damage) => ReadRetry::AvoidChunk(damage.chunk.index),
        // A participant may report another one: the name is that of the silent node. If it names
        // none, an unknown node was late.
        Refusal::Unavailable(name) => participants
            .iter()
            .find(|participant| participant.to_string() == *name)
            .map_or(ReadRetry::Refresh, |&silent| ReadRetry::AvoidNode(silent)),
        // A node that does not hear the coordinator does not get to know new keys.
        Refusal::NoSuchChunk(_)
        | Refusal::NoSuchStripe(_)
        | Refusal::Ticket(TicketFault::UnknownKey) => ReadRetry::LeaveOut(node),
        Refusal::NoLease | Refusal::StoreFailed(_) | Refusal::NoSpace | Refusal::Failed(_) => {
            ReadRetry::AvoidNode(node)
        }
        // The node itself is slow.
        Refusal::Stalled(awaited) if awaited.is_empty() => ReadRetry::AvoidNode(node),
        // Reads do not check for stalls; a node that reports one blames others.
        Refusal::StaleGeneration { .. }
        | Refusal::NotPrimary(_)
        | Refusal::Stalled(_)
        | Refusal::Busy(_)
        | Refusal::Superseded { .. }
        // A new layout has new tickets.
        | Refusal::Ticket(_)
        | Refusal::Interrupted(_) => ReadRetry::Refresh,
        Refusal::TooFewLeft { .. }
        | Refusal::StageAt(_)
        | Refusal::Invalid(_)
        | Refusal::Unsupported(_) => ReadRetry::Fail,
    }
}

/// Whether a retry may succeed, of a request to a stripe's primary or of staging bytes for it.
///
/// A primary may not know yet that a node is back; if too few chunks are left, the refreshed layout
/// shows it. Damaged chunks are left out of later plans as soon as the node has reported them.
pub(crate) const fn may_ask_again(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Fenced { .. }
        | Refusal::StaleGeneration { .. }
        | Refusal::Unsettled
        | Refusal::CutPassed { .. }
        | Refusal::Damaged(_)
        | Refusal::NoSuchChunk(_)
        | Refusal::NoSuchStripe(_)
        | Refusal::NotPrimary(_)
        | Refusal::TooFewLeft { .. }
        | Refusal::StageAt(_)
        | Refusal::Unavailable(_)
        | Refusal::Stalled(_)
        | Refusal::StoreFailed(_)
        | Refusal::Busy(_)
        // A new layout tells whether this client may write at all.
        | Refusal::Superseded { .. }
        | Refusal::Ticket(_)
        | Refusal::Interrupted(_)
        | Refusal::NoLease => true,
        Refusal::NoSpace
        | Refusal::Failed(_)
        | Refusal::Invalid(_)
        | Refusal::Unsupported(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReadRetry::{AvoidChunk, AvoidNode, Fail, LeaveOut, Refresh, TakeCut, TakeQuorum};
    use gabion_layout::{ByteRange, ChunkId, Epoch, Generation, Sequence, StripeId};
    use gabion_meta::FencingToken;
    use gabion_protocol::message::{AttestedCut, Damage};

    const CHUNK: ChunkId = ChunkId {
        stripe: StripeId(9),
        index: ChunkIndex(2),
    };

    fn every_refusal() -> Vec<Refusal> {
        vec![
            Refusal::Fenced { current: Epoch(3) },
            Refusal::StaleGeneration {
                current: Generation(3),
            },
            Refusal::Unsettled,
            Refusal::CutPassed { asked: Sequence(3) },
            Refusal::Damaged(Damage {
                chunk: CHUNK,
                generation: Generation(1),
                range: ByteRange::new(0, 1),
            }),
            Refusal::NoSuchChunk(CHUNK),
            Refusal::NoSuchStripe(CHUNK.stripe),
            Refusal::NotPrimary(NodeId(8)),
            Refusal::TooFewLeft {
                left_count: 4,
                chunk_count: 6,
            },
            Refusal::StageAt(vec![(CHUNK.index, NodeId(1))]),
            Refusal::Unavailable("node 5".to_owned()),
            Refusal::Unavailable("a peer of run 7".to_owned()),
            Refusal::NoLease,
            Refusal::StoreFailed("cannot sync".to_owned()),
            Refusal::Busy("too many open files".to_owned()),
            Refusal::NoSpace,
            Refusal::Failed("the disk is gone".to_owned()),
            Refusal::Invalid("nonsense".to_owned()),
            Refusal::Interrupted("run 7 is over here".to_owned()),
            Refusal::Superseded {
                current: FencingToken(3),
            },
            Refusal::Ticket(TicketFault::Expired),
            Refusal::Ticket(TicketFault::UnknownKey),
            Refusal::Unsupported("node 1 is too old".to_owned()),
        ]
    }

    #[test]
    fn a_recovery_ends_a_write_of_which_nothing_is_in_doubt() {
        let error = |cause| {
            let why = Denial::new(cause, "it changes nothing");
            AttemptError::from(CoordinatorError::Refused(why))
        };
        let recovers = error(Cause::Recovers);
        assert!(
            matches!(recovers, AttemptError::Final(ClientError::Recovering(_))),
            "{recovers:?}"
        );
        let changes = error(Cause::NotLeading);
        assert!(matches!(changes, AttemptError::Retry(_)), "{changes:?}");
    }

    #[test]
    fn the_table_of_read_retries() {
        let cut = AttestedCut::of_term(Epoch(1), Sequence(1));
        let agreed = Some(ChosenCut::Agreed(cut));
        let vouched = Some(ChosenCut::Vouched(Epoch(1), Sequence(1)));
        let of_agreed = |refusal| read_retry(NodeId(1), &refusal, &[NodeId(1)], agreed);
        let current = Epoch(3);
        assert_eq!(
            of_agreed(Refusal::Fenced { current }),
            TakeCut { settle: false }
        );
        assert_eq!(of_agreed(Refusal::Unsettled), TakeCut { settle: false });
        assert_eq!(of_agreed(Refusal::NoLease), AvoidNode(NodeId(1)));
        let expected = [
            (TakeCut { settle: true }, TakeCut { settle: true }),
            (Refresh, Refresh),
            (TakeCut { settle: false }, TakeCut { settle: true }),
            (TakeCut { settle: false }, TakeCut { settle: false }),
            (AvoidChunk(CHUNK.index), AvoidChunk(CHUNK.index)),
            (LeaveOut(NodeId(1)), LeaveOut(NodeId(1))),
            (LeaveOut(NodeId(1)), LeaveOut(NodeId(1))),
            (Refresh, Refresh),
            (Fail, Fail),
            (Fail, Fail),
            (AvoidNode(NodeId(5)), AvoidNode(NodeId(5))),
            (Refresh, Refresh),
            (TakeQuorum, TakeQuorum),
            (AvoidNode(NodeId(1)), AvoidNode(NodeId(1))),
            (Refresh, Refresh),
            (AvoidNode(NodeId(1)), AvoidNode(NodeId(1))),
            (AvoidNode(NodeId(1)), AvoidNode(NodeId(1))),
            (Fail, Fail),
            (Refresh, Refresh),
            (Refresh, Refresh),
            (Refresh, Refresh),
            (LeaveOut(NodeId(1)), LeaveOut(NodeId(1))),
            (Fail, Fail),
        ];
        let refusals = every_refusal();
        assert_eq!(refusals.len(), expected.len());
        let participants = [NodeId(1), NodeId(5), NodeId::CLIENT];
        for (refusal, (plain, with_cut)) in refusals.iter().zip(expected) {
            let retry = |cut| read_retry(NodeId(1), refusal, &participants, cut);
            assert_eq!(retry(None), plain, "{refusal} of a plain read");
            assert_eq!(retry(vouched), with_cut, "{refusal} of a read as of a cut");
        }
    }

    #[test]
    fn only_problems_for_an_operator_or_a_repair_are_final() {
        let is_final = |refusal: &&Refusal| !may_ask_again(refusal);
        let refusals = every_refusal();
        let last: Vec<String> = refusals
            .iter()
            .filter(is_final)
            .map(ToString::to_string)
            .collect();
        assert_eq!(last.len(), 4, "{last:?}");
        assert!(last[0].contains("full"), "{last:?}");
        assert_eq!(
            last[1..],
            ["the disk is gone", "nonsense", "node 1 is too old"]
        );
    }
}
