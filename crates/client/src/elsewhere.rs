//! Places stripes of a put again if a node does not take its chunk, and stores them elsewhere while
//! their bytes are in memory.
//!
//! Once the coordinator was asked to place a stripe again, the client counts the old one as not
//! stored, whatever the answer: the request may have been carried out without an answer, or may be
//! later. Only if each such request was refused does the old one keep its place. So a put always
//! commits the stripe that was stored last.

use crate::attempts::Attempts;
use crate::client::{COORDINATOR_DEADLINE_MS, Client, topology};
use crate::encoder::{Encoder, place};
use crate::error::ClientError;
use bytes::Bytes;
use gabion_layout::{Geometry, NodeId, StripeId, StripeRecord};
use gabion_protocol::initiate::PartFailed;
use gabion_protocol::message::{Cause, Denial, OpenPut, Refusal, Ticket, ask};
use gabion_protocol::ports::{Ask as _, CoordinatorError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Time for which a node gets no chunks of a put after it did not take one. By then the coordinator
/// knows if a node has died or is full; another may only have been busy.
const AVOIDED_FOR_MS: u64 = 5_000;

/// The nodes that did not take chunks of a put, with the time by the client's clock.
#[derive(Debug, Default)]
pub(crate) struct AvoidedNodes(Mutex<BTreeMap<NodeId, u64>>);

impl AvoidedNodes {
    fn note(&self, nodes: &[NodeId], now_ms: u64) {
        self.lock().extend(nodes.iter().map(|&node| (node, now_ms)));
    }

    fn at(&self, now_ms: u64) -> Vec<NodeId> {
        let mut avoided = self.lock();
        avoided.retain(|_, since_ms| now_ms.saturating_sub(*since_ms) < AVOIDED_FOR_MS);
        avoided.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, u64>> {
        // The map is consistent after every step, even if a caller panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stripe of a put being stored.
pub(crate) struct Storing {
    pub(crate) put: OpenPut,
    pub(crate) encoder: Arc<Encoder>,
    pub(crate) avoided: Arc<AvoidedNodes>,
    pub(crate) record: StripeRecord,
    /// The ticket to store it.
    pub(crate) ticket: Option<Ticket>,
}

impl Storing {
    /// Stores a segment where its stripe was placed, or elsewhere until the client's deadline.
    /// Returns the stripe as it is stored.
    ///
    /// # Errors
    /// [`ClientError::Node`] when there is no other place; [`ClientError::Late`];
    /// [`ClientError::Refused`] when the put is over.
    pub(crate) async fn store(
        mut self,
        shape: Geometry,
        segment: Bytes,
    ) -> Result<StripeRecord, ClientError> {
        let first = self.record.id;
        let client = self.encoder.client.clone();
        let bytes = shape.chunk_bytes() * shape.n() as u64;
        let mut attempts = client.patient_attempts(format!("storing {first}"), bytes);
        loop {
            let mut is_ticket = false;
            let missing = if self.has_avoided_node() {
                format!("a node of {} refused another chunk", self.record.id).into()
            } else {
                let (record, segment) = (&self.record, segment.clone());
                let stored = self.encoder.store((record, self.ticket), shape, segment);
                let failed = match stored.await? {
                    Ok(()) => return Ok(self.record),
                    Err(failed) => failed,
                };
                let blamed = blamed(&failed);
                // No node is at fault if the ticket has expired; the stripe gets another one with another place.
                is_ticket = matches!(failed.refusal, Refusal::Ticket(_));
                let is_final = blamed.is_empty() && !is_ticket;
                if is_final || matches!(failed.refusal, Refusal::Invalid(_)) {
                    return Err(ClientError::Node {
                        what: format!("storing {} at {}", record.id, place(failed.node)),
                        refusal: failed.refusal.into(),
                    });
                }
                self.avoided.note(&blamed, client.ports().now_ms());
                let refusal = &failed.refusal;
                let sentence = format!("{} did not take its chunk: {refusal}", place(failed.node));
                Denial::new(Cause::from(refusal), sentence)
            };
            self.place_anew(&client, (first, is_ticket), &missing, &mut attempts)
                .await?;
        }
    }

    fn has_avoided_node(&self) -> bool {
        let avoided = self.avoided.at(self.encoder.client.ports().now_ms());
        let mut nodes = self.record.nodes.iter().zip(self.record.chunks());
        nodes.any(|(node, chunk)| avoided.contains(node) && !self.record.is_stale(chunk))
    }

    /// Asks the coordinator to place the stripe again; `missing` is the reason. If only its ticket is missing and
    /// there is no other place, the stripe gets another ticket for its own, unless an earlier request may replace it
    /// yet: a node that has stored its chunk already refuses it then.
    async fn place_anew(
        &mut self,
        client: &Client,
        (first, is_ticket): (StripeId, bool),
        missing: &Denial,
        attempts: &mut Attempts,
    ) -> Result<(), ClientError> {
        let mut asking = Asking::new(self.record.id, is_ticket);
        loop {
            attempts.pause(missing.clone()).await?;
            let request = ask::PlaceAnew {
                put: self.put,
                first,
                failed: asking.failed,
                avoid: self.avoided.at(self.encoder.client.ports().now_ms()),
            };
            let deadline_ms = COORDINATOR_DEADLINE_MS.min(attempts.left_ms());
            let asked = client.ports().ask_coordinator(request, deadline_ms);
            let mut placed = match asked.await {
                Ok(placed) => placed,
                Err(error) => match asking.note(error) {
                    Ok(()) => continue,
                    Err(CoordinatorError::Refused(why)) => {
                        return Err(ClientError::Node {
                            what: format!("storing {}", self.record.id),
                            refusal: Denial::new(
                                why.cause,
                                format!("{missing}, and there is no other place: {why}"),
                            ),
                        });
                    }
                    Err(misfit) => return Err(misfit.into()),
                },
            };
            let (failed, present) = (asking.failed, &self.record);
            let shape = |stripe: &StripeRecord| (stripe.chunk_bytes, stripe.nodes.len());
            let fits = |new: &StripeRecord| Some(new.id) != failed && shape(new) == shape(present);
            self.ticket = placed
                .stripes
                .last()
                .and_then(|new| Ticket::find(&placed.tickets, new.id));
            let Some(new) = placed.stripes.pop().filter(fits) else {
                return Err(ClientError::unexpected("the coordinator"));
            };
            client.ports().learn_nodes(&placed.nodes);
            self.encoder = Arc::new(Encoder {
                client: client.clone(),
                code: self.encoder.code.clone(),
                pool: self.encoder.pool.clone(),
                topology: topology(&placed.nodes)?,
            });
            self.record = new;
            return Ok(());
        }
    }
}

/// Requests for another place of a stripe, until one is granted.
struct Asking {
    /// The stripe to be replaced; none to keep its place and get another ticket.
    failed: Option<StripeId>,
    /// Whether only a ticket is missing.
    is_ticket: bool,
    /// Whether a request to replace the stripe may be carried out yet, or was without an answer.
    in_doubt: bool,
}

impl Asking {
    const fn new(failed: StripeId, is_ticket: bool) -> Self {
        Self {
            failed: Some(failed),
            is_ticket,
            in_doubt: false,
        }
    }

    /// Notes that a request was not granted. The next one may be.
    ///
    /// # Errors
    /// The given one, if none can be.
    fn note(&mut self, error: CoordinatorError) -> Result<(), CoordinatorError> {
        match error {
            CoordinatorError::Busy(_) | CoordinatorError::Silent(_) => {}
            // Another one leads soon.
            CoordinatorError::Refused(ref why) if why.cause.leaves_doubt() => {}
            CoordinatorError::Refused(_)
                if self.is_ticket && self.failed.is_some() && !self.in_doubt =>
            {
                self.failed = None;
            }
            error => return Err(error),
        }
        self.in_doubt |= self.failed.is_some();
        Ok(())
    }
}

/// The nodes that prevented a stripe from being stored, as far as known.
fn blamed(failed: &PartFailed) -> Vec<NodeId> {
    let mut blamed = match &failed.refusal {
        Refusal::Ticket(_) => Vec::new(),
        // It waited for these nodes.
        Refusal::Stalled(awaited) if !awaited.is_empty() => awaited.clone(),
        Refusal::Unavailable(_) if !failed.suspects.is_empty() => Vec::new(),
        _ => vec![failed.node],
    };
    blamed.extend(&failed.suspects);
    blamed.retain(|&node| node != NodeId::CLIENT);
    blamed.sort_unstable();
    blamed.dedup();
    blamed
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_protocol::ports::CallError;

    #[test]
    fn a_node_that_refused_a_stripe_is_distinguished_from_one_that_waited() {
        let blamed = |node, refusal, suspects: &[u32]| {
            let suspects = suspects.iter().map(|&node| NodeId(node)).collect();
            let done = Vec::new();
            let failed = PartFailed {
                node,
                refusal,
                suspects,
                done,
            };
            let blamed = blamed(&failed).into_iter().map(|node| node.0);
            blamed.collect::<Vec<_>>()
        };
        let silent = || Refusal::Unavailable("node 5".to_owned());
        assert_eq!(blamed(NodeId(3), Refusal::NoSpace, &[]), [3]);
        assert_eq!(blamed(NodeId(3), silent(), &[5]), [5], "node 3 waited");
        assert_eq!(blamed(NodeId::CLIENT, silent(), &[5]), [5]);
        assert_eq!(blamed(NodeId(5), silent(), &[]), [5]);
        let stalled = Refusal::Stalled(vec![NodeId(4), NodeId::CLIENT]);
        assert_eq!(blamed(NodeId(3), stalled, &[4]), [4]);
        assert_eq!(
            blamed(NodeId::CLIENT, Refusal::Failed(String::new()), &[]),
            [],
            "a client cannot avoid itself"
        );
    }

    #[test]
    fn a_stripe_keeps_its_place_only_if_no_late_request_can_replace_it() {
        let refused = |cause| CoordinatorError::Refused(Denial::new(cause, "no"));
        let silent = || {
            CoordinatorError::Silent(CallError {
                peer: "the coordinator".to_owned(),
                reason: "is silent".to_owned(),
            })
        };
        let place = StripeId(7);
        let mut asking = Asking::new(place, true);
        assert!(asking.note(refused(Cause::NoSpace)).is_ok());
        assert_eq!(asking.failed, None, "it keeps its place");
        assert!(asking.note(silent()).is_ok());
        assert!(asking.note(refused(Cause::NoSpace)).is_err());
        for without_outcome in [
            silent(),
            CoordinatorError::Busy(Denial::from("wait")),
            refused(Cause::NotLeading),
            refused(Cause::Recovers),
        ] {
            let mut asking = Asking::new(place, true);
            assert!(asking.note(without_outcome).is_ok());
            assert!(asking.note(refused(Cause::NoSpace)).is_err());
            assert_eq!(asking.failed, Some(place));
        }
        let mut asking = Asking::new(place, false);
        assert!(asking.note(refused(Cause::NoSpace)).is_err());
    }

    #[test]
    fn a_node_is_avoided_for_a_while() {
        let (avoided, now) = (AvoidedNodes::default(), 1_000);
        avoided.note(&[NodeId(3)], now);
        assert_eq!(avoided.at(now), [NodeId(3)]);
        assert_eq!(avoided.at(now + AVOIDED_FOR_MS), []);
    }
}
