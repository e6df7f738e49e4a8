//! Requests to a stripe's primary, wherever it is.

use crate::file::File;
use crate::layout::Layout;
use futures::{FutureExt, select_biased};
use gabion_layout::{ChunkRange, Epoch, NodeId, Sequence, StripeId, StripeRecord};
use gabion_plan::Logged;
use gabion_protocol::message::{NodeCall, Refusal, ask};
use gabion_protocol::ports::{Ask as _, NodeError, until_hung};
use std::pin::pin;

/// Most times in a row that a node may name another as the primary. A lease moves rarely; nodes
/// that name each other need time to find the holder.
const REDIRECTS_MAX: u32 = 3;

/// The reason why a stripe's primary has not carried out a request, as far as known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NotDone {
    pub(crate) refusal: Refusal,
    /// For an update: whether a part of it may have begun, or may yet begin.
    pub(crate) may_have_begun: bool,
}

impl From<NotDone> for Refusal {
    fn from(not_done: NotDone) -> Self {
        not_done.refusal
    }
}

impl NotDone {
    /// Nothing has begun, and nothing will.
    const fn unbegun(refusal: Refusal) -> Self {
        let may_have_begun = false;
        Self {
            refusal,
            may_have_begun,
        }
    }
}

/// The reason why a node has not executed a request, or could not be asked.
fn not_done(error: NodeError, is_sent: bool) -> NotDone {
    let may_have_begun = match error {
        // It has refused before it did anything.
        NodeError::NotBegun(_) => false,
        NodeError::Silent(_) => is_sent,
        // This may be the refusal of a part of it.
        NodeError::Refused(_) | NodeError::Misfit(_) => true,
    };
    NotDone {
        refusal: error.into(),
        may_have_begun,
    }
}

impl File {
    /// Asks a stripe's primary, and follows replies that name another one.
    ///
    /// # Errors
    /// The last refusal. [`Refusal::Unavailable`] when a node did not answer: then it is unknown
    /// whether it carried out the request, unless it could not be reached.
    pub(crate) async fn ask_primary<C: NodeCall>(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        call: C,
        deadline_ms: u64,
    ) -> Result<C::Reply, NotDone> {
        let mut redirect_count = 0;
        loop {
            let guess = self.with_primary(stripe.id, |p| p.next(stripe, &layout.file.nodes));
            let no_answer = || Refusal::Unavailable(format!("any node of {}", stripe.id));
            let node = guess.ok_or_else(|| NotDone::unbegun(no_answer()))?;
            let not_done = match self
                .ask_once((stripe.id, node), call.clone(), deadline_ms)
                .await
            {
                Ok(reply) => {
                    self.with_primary(stripe.id, |p| p.name(node));
                    return Ok(reply);
                }
                Err(not_done) => not_done,
            };
            match not_done.refusal {
                Refusal::NotPrimary(other) => {
                    self.with_primary(stripe.id, |p| p.name(other));
                    redirect_count += 1;
                    if redirect_count > REDIRECTS_MAX {
                        return Err(not_done);
                    }
                }
                Refusal::NoLease | Refusal::StoreFailed(_) => {
                    self.with_primary(stripe.id, |p| p.pass_over(node));
                    return Err(not_done);
                }
                _ => return Err(not_done),
            }
        }
    }

    /// Asks one node. If it does not answer, others are asked from now on.
    async fn ask_once<C: NodeCall>(
        &self,
        (stripe, node): (StripeId, NodeId),
        call: C,
        deadline_ms: u64,
    ) -> Result<C::Reply, NotDone> {
        let (ports, asked) = (self.client.ports(), [node]);
        let mut is_sent = false;
        let call = async {
            let began_ms = ports.now_ms();
            let reached = ports.reach_node(node, deadline_ms).await;
            reached.map_err(NodeError::Silent)?;
            is_sent = true;
            let left_ms = deadline_ms.saturating_sub(ports.now_ms().saturating_sub(began_ms));
            ports.ask_node(node, call, left_ms).await
        };
        let answer = select_biased! {
            answer = pin!(call.fuse()) => answer,
            (_, hung) = pin!(until_hung(ports, &asked).fuse()) => Err(NodeError::Silent(hung)),
        };
        if let Err(NodeError::Silent(_)) = answer {
            self.client.suspect(node);
            self.with_primary(stripe, |p| p.pass_over(node));
        }
        answer.map_err(|error| not_done(error, is_sent))
    }

    /// The update up to which a stripe is settled, and the term that guarantees it; never before an
    /// update that was acknowledged when this was called. With `settle` it is settled again. The last part of the
    /// reply is what logs have of the ranges to `decode` as of that update, beyond the code.
    pub(crate) async fn ask_mark(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        (settle, decode): (bool, Vec<ChunkRange>),
        deadline_ms: u64,
    ) -> Result<(Epoch, Sequence, Vec<Logged>), Refusal> {
        let mark = ask::Mark {
            stripe: stripe.id,
            settle,
            decode,
            ticket: layout.ticket(stripe.id),
        };
        Ok(self.ask_primary(layout, stripe, mark, deadline_ms).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_protocol::ports::CallError;

    #[test]
    fn an_update_may_have_begun_unless_the_reply_says_that_it_has_not() {
        let refusal = || Refusal::Unavailable("node 3".to_owned());
        let silence = || CallError {
            peer: "node 3".to_owned(),
            reason: "is gone".to_owned(),
        };
        let may_have_begun = |error, is_sent| not_done(error, is_sent).may_have_begun;
        assert!(!may_have_begun(NodeError::NotBegun(refusal()), true));
        assert!(may_have_begun(NodeError::Refused(refusal()), true));
        assert!(may_have_begun(NodeError::Silent(silence()), true));
        assert!(!may_have_begun(NodeError::Silent(silence()), false));
    }
}
