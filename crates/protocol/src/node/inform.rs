//! Questions to a node that promise nothing and change nothing.

use super::{Node, lock};
use crate::message::{NodeReply, NodeRequest, Refusal};
use crate::ports::lives;

impl Node {
    pub(super) async fn inform(&self, request: NodeRequest) -> Result<NodeReply, Refusal> {
        match request {
            NodeRequest::Attest { stripe } => {
                let attested = self.participant.attest(stripe).await?;
                Ok(NodeReply::Attested(attested))
            }
            NodeRequest::Reach { node } => match lives(&*self.participant.ports, node).await {
                Ok(()) => Ok(NodeReply::Done),
                Err(error) => Err(Refusal::Unavailable(error.peer)),
            },
            NodeRequest::Progress { node } => Ok(NodeReply::Progress(self.heard.of(node))),
            NodeRequest::Written { chunk, base } => {
                let written = lock(&self.participant.unfinished).written(chunk, base);
                Ok(NodeReply::Written(written))
            }
            NodeRequest::Probe { .. } => Ok(NodeReply::Done),
            NodeRequest::StoreCounts => Ok(NodeReply::StoreCounts(self.participant.store.counts())),
            NodeRequest::Meter => Err(Refusal::Invalid(
                "the meter is the transport's to read".to_owned(),
            )),
            other => Err(Refusal::Invalid(format!("{other:?} is no mere question"))),
        }
    }
}
