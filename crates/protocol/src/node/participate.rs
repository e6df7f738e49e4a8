//! What a node answers as a participant, outside any plan.

use super::{Node, Pinned, lock};
use crate::holdings::latest;
use crate::message::{NodeReply, NodeRequest, Refusal};

impl Node {
    /// Answers whoever settles a stripe or has settled it.
    pub(super) async fn take_terms(&self, request: NodeRequest) -> Result<NodeReply, Refusal> {
        let participant = &self.participant;
        match request {
            NodeRequest::Collect {
                stripe,
                epoch,
                generation,
            } => {
                let holding = participant.collect(stripe, epoch, generation).await?;
                return Ok(NodeReply::Holding(holding));
            }
            NodeRequest::Recollect { chunk, epoch, run } => {
                let memory = participant.recollect(chunk, epoch, run).await?;
                return Ok(NodeReply::Recollection(memory));
            }
            NodeRequest::Fence {
                stripe,
                epoch,
                generation,
            } => participant.fence(stripe, epoch, generation).await?,
            NodeRequest::Resolve {
                stripe,
                epoch,
                mark,
                dropped,
            } => participant.resolve(stripe, epoch, mark, dropped).await?,
            NodeRequest::Committed { marks, from } => {
                if let Some((primary, progress)) = from {
                    self.heard.note(primary, progress);
                }
                participant.committed(marks).await?;
            }
            other => {
                let sentence = format!("{other:?} is not about a term");
                return Err(Refusal::Invalid(sentence));
            }
        }
        Ok(NodeReply::Done)
    }

    /// Answers as a participant, outside any plan and any term.
    pub(super) async fn participate(&self, request: NodeRequest) -> Result<NodeReply, Refusal> {
        match request {
            NodeRequest::Pin {
                stripe,
                cut,
                hold_ms,
            } => {
                let until_ms = self.participant.ports.now_ms().saturating_add(hold_ms);
                self.participant
                    .with_store(move |store| store.pin(stripe, cut))
                    .await?;
                lock(&self.pins).push(Pinned {
                    stripe,
                    cut,
                    until_ms,
                });
                Ok(NodeReply::Done)
            }
            NodeRequest::Unpin { stripe, cut } => {
                self.unpin(|pinned| (pinned.stripe, pinned.cut) == (stripe, cut));
                Ok(NodeReply::Done)
            }
            NodeRequest::Missed { chunk, after } => {
                let missed = self
                    .participant
                    .with_store(move |store| store.missed_since(chunk, after));
                Ok(NodeReply::Missed(missed.await?))
            }
            NodeRequest::Latest { stripes } => {
                let latest = self
                    .participant
                    .with_store(move |store| latest(store, stripes));
                Ok(NodeReply::Latest(latest.await?))
            }
            NodeRequest::Remove { chunks } => done(self.participant.remove(chunks).await),
            NodeRequest::Discard { chunk, epoch } => {
                done(self.participant.discard(chunk, epoch).await)
            }
            other => Err(Refusal::Invalid(format!(
                "{other:?} is no participant's request"
            ))),
        }
    }
}

fn done(work: Result<(), Refusal>) -> Result<NodeReply, Refusal> {
    work.map(|()| NodeReply::Done)
}
