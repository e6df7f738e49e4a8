//! The table of requests: the role that answers each one. Its answer has the type of the request's reply.

use super::Node;
use crate::locks::lock;
use crate::message::{NodeCall, NodeReply, NodeRequest, ask, routes};
use crate::ports::Address;
use crate::primary::NotDone;

impl Node {
    routes! {
        /// Routes a request to the role that it is for: primary, participant, or plain information.
        pub(super) async fn route(
            &self,
            request: NodeRequest,
            origin: Address
        ) -> Result<NodeReply, NotDone>;
        request: NodeRequest, NodeCall;

        Update(update) => self.primaries.update(&update, &self.nodes()).await,
        Fate(asked) => Ok(self.primaries.fate(&asked.question, &self.nodes()).await?),
        Mark(asked) => Ok(self.primaries.mark(asked, &self.nodes()).await?),
        Commit(asked) => Ok(self.primaries.commit(asked.stripe, &self.nodes()).await?),
        RaiseTokens(asked) => Ok(self.primaries.raise_tokens(&asked.tokens).await),
        Stage(asked) => Ok(self.stage(asked, origin).await?),
        Unstage(asked) => {
            let now_ms = self.participant.ports.now_ms();
            Ok(lock(&self.staging).withdraw(asked.run, origin, now_ms)?)
        },
        RunPart(part) => Ok(self.run_part(*part, origin).await?),
        Collect(asked) => Ok(self.participant.collect(asked).await?),
        Recollect(asked) => Ok(self.participant.recollect(asked).await?),
        Fence(asked) => Ok(self.participant.fence(asked).await?),
        Resolve(outcome) => Ok(self.participant.resolve(outcome).await?),
        Remove(asked) => Ok(self.participant.remove(asked.chunks).await?),
        Discard(asked) => Ok(self.participant.discard(asked).await?),
        Committed(told) => Ok(self.committed(told).await?),
        Pin(pin) => Ok(self.pin(pin).await?),
        Unpin(asked) => {
            self.unpin(|pinned| (pinned.stripe, pinned.cut) == (asked.stripe, asked.cut)).await;
            Ok(())
        },
        Attest(asked) => {
            let mut known = self.participant.attest(asked.stripe).await?;
            known.led = self.primaries.last_committed(asked.stripe);
            Ok(known)
        },
        Missed(asked) => Ok(self.missed(asked).await?),
        Latest(asked) => Ok(self.latest(asked).await?),
        Written(asked) => Ok(lock(&self.participant.unfinished).written(asked.chunk, asked.base)),
        Scrub(asked) => Ok(self.scrub(asked.chunks).await?),
        ReservedBytes(asked) => Ok(self.reserved_bytes(asked.stripes).await?),
        StoreCounts => Ok(self.participant.store.counts()),
        Meter => Ok((self.participant.ports.meter(), self.primaries.planned())),
        Progress(asked) => Ok(self.heard.of(asked.node)),
        Reach(asked) => Ok(self.reach(asked).await?),
        Renew => {
            self.hasten_heartbeat();
            Ok(())
        },
        Probe(_) => Ok(()),
        Cluster => Ok(Box::new(self.known_cluster())),
        Held(asked) => Ok(self.held(asked.scope).await?),
    }
}
