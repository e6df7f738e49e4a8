//! Questions to a stripe's primary, wherever it is.

use crate::File;
use crate::file::Layout;
use gabion_layout::{Epoch, Sequence, StripeRecord};
use gabion_protocol::message::{NodeReply, NodeRequest, Refusal};
use gabion_protocol::ports::Ports as _;

/// How many times in a row one node may name another as the primary. A lease moves rarely; nodes
/// that name each other need time to find out.
const REDIRECTS_MAX: u32 = 3;

impl File {
    /// Asks a stripe's primary, following those who name another one.
    ///
    /// # Errors
    /// The last refusal. [`Refusal::Unavailable`] when a node did not answer: whether it did what
    /// it was asked is not known then.
    pub(crate) async fn ask_primary(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        request: NodeRequest,
        deadline_ms: u64,
    ) -> Result<NodeReply, Refusal> {
        let mut redirect_count = 0;
        loop {
            let guess = self.with_primary(stripe.id, |p| p.next(stripe, &layout.file.nodes));
            let nobody = || Refusal::Unavailable(format!("any node of {}", stripe.id));
            let node = guess.ok_or_else(nobody)?;
            let asked = self
                .client
                .shared
                .ports
                .call_node(node, request.clone(), deadline_ms)
                .await;
            match asked {
                Ok(NodeReply::Refused(Refusal::NotPrimary(other))) => {
                    self.with_primary(stripe.id, |p| p.name(other));
                    redirect_count += 1;
                    if redirect_count > REDIRECTS_MAX {
                        return Err(Refusal::NotPrimary(other));
                    }
                }
                Ok(NodeReply::Refused(Refusal::NoLease)) => {
                    self.with_primary(stripe.id, |p| p.pass_over(node));
                    return Err(Refusal::NoLease);
                }
                Ok(NodeReply::Refused(refusal)) => return Err(refusal),
                Ok(reply) => {
                    self.with_primary(stripe.id, |p| p.name(node));
                    return Ok(reply);
                }
                Err(error) => {
                    self.with_primary(stripe.id, |p| p.pass_over(node));
                    return Err(Refusal::Unavailable(error.peer));
                }
            }
        }
    }

    /// Up to which update a stripe is settled, and the term that vouches for it; never before an
    /// update that was acknowledged when this was called. `settle` has it settled anew, and with
    /// `reconstruct` parity has everything up to it.
    pub(crate) async fn ask_mark(
        &self,
        layout: &Layout,
        stripe: &StripeRecord,
        (settle, reconstruct): (bool, bool),
        deadline_ms: u64,
    ) -> Result<(Epoch, Sequence), Refusal> {
        let request = NodeRequest::Mark {
            stripe: stripe.id,
            settle,
            reconstruct,
        };
        match self
            .ask_primary(layout, stripe, request, deadline_ms)
            .await?
        {
            NodeReply::Mark { epoch, sequence } => Ok((epoch, sequence)),
            _ => Err(Refusal::Failed(
                "the primary's reply does not fit the question".to_owned(),
            )),
        }
    }
}
