//! Lets nodes of the bed join, step by step.

use crate::coordinator::bed::Bed;
use gabion_layout::StripeId;
use gabion_protocol::message::{
    Applicant, CoordinatorReply, CoordinatorRequest, HeldChunk, InventoryDigest, InventoryPage,
    JoinEnd, JoinSession, PageAnswer, Scope, ask,
};

impl Bed {
    /// Asks for a node to be let in, which remembers this start if it is.
    #[expect(clippy::needless_pass_by_value, reason = "callers have them to give")]
    pub(crate) fn let_in(
        &mut self,
        applicant: Applicant,
        chunks: Vec<HeldChunk>,
    ) -> CoordinatorReply {
        let start = applicant.start;
        let (session, answer) = match self.tell(applicant, &chunks) {
            Ok(told) => told,
            Err(refused) => return refused,
        };
        let reply = self.end_join(session, &chunks);
        match reply {
            CoordinatorReply::Joined(mut joined) => {
                self.admitted.insert(joined.node, start);
                // As if all had been one message.
                joined.answer = answer;
                let unknown = joined.answer.unknown.clone();
                joined.answer.obsolete.extend(unknown);
                CoordinatorReply::Joined(joined)
            }
            other => other,
        }
    }

    /// Begins a node's join, and tells all that it holds in one page. What the coordinator says to that.
    #[expect(clippy::result_large_err, reason = "a test stops at it")]
    pub(crate) fn tell(
        &mut self,
        applicant: Applicant,
        chunks: &[HeldChunk],
    ) -> Result<(JoinSession, PageAnswer), CoordinatorReply> {
        let chunk_count = chunks.len() as u64;
        let session = self.begin_join(applicant, chunk_count)?;
        match self.tell_range(session, (None, None), chunks) {
            CoordinatorReply::PageTold(answer) => Ok((session, answer)),
            other => Err(other),
        }
    }

    /// Begins a node's join.
    #[expect(clippy::result_large_err, reason = "a test stops at it")]
    pub(crate) fn begin_join(
        &mut self,
        applicant: Applicant,
        chunk_count: u64,
    ) -> Result<JoinSession, CoordinatorReply> {
        let node = Box::new(applicant);
        match self.ask(ask::BeginJoin { node, chunk_count }) {
            CoordinatorReply::JoinBegun(begun) => Ok(begun.session),
            other => Err(other),
        }
    }

    /// Tells what a joining node holds of the stripes behind one and up to another.
    pub(crate) fn tell_range(
        &mut self,
        session: JoinSession,
        (after, upto): (Option<StripeId>, Option<StripeId>),
        chunks: &[HeldChunk],
    ) -> CoordinatorReply {
        let mut chunks = chunks.to_vec();
        chunks.sort_by_key(|held| held.chunk);
        self.ask(CoordinatorRequest::TellChunks(InventoryPage {
            session,
            scope: Scope::Range { after, upto },
            chunks,
        }))
    }

    /// Ends the join of a node that has told of all these, in one page.
    pub(crate) fn end_join(
        &mut self,
        session: JoinSession,
        told: &[HeldChunk],
    ) -> CoordinatorReply {
        self.end_join_again(session, told, vec![])
    }

    /// The same for a node that was asked again about stripes of which it holds these chunks.
    pub(crate) fn end_join_again(
        &mut self,
        session: JoinSession,
        told: &[HeldChunk],
        changed: Vec<HeldChunk>,
    ) -> CoordinatorReply {
        let mut told = told.to_vec();
        told.sort_by_key(|held| held.chunk);
        let mut digest = InventoryDigest::default();
        digest.add(&told);
        let stripes = changed.iter().map(|held| held.chunk.stripe).collect();
        let changed = InventoryPage {
            session,
            scope: Scope::Stripes(stripes),
            chunks: changed,
        };
        self.ask(CoordinatorRequest::EndJoin(Box::new(JoinEnd {
            session,
            digest,
            changed,
        })))
    }
}
