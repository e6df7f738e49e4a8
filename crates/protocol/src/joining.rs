//! How a node asks to be let in: what it says of itself and of its chunks, and what it makes durable of
//! the answer.

use crate::holdings::{accept, begin, held_chunks, set_aside};
use crate::message::{Applicant, CoordinatorReply, CoordinatorRequest, NodeStatus, Refusal};
use crate::node::{JoinError, MEMBERSHIP_DEADLINE_MS, NodeOptions};
use crate::participant::Participant;
use gabion_layout::NodeId;
use gabion_store::{Disk, Identity, Store};

/// What a join brings.
pub(crate) struct Membership {
    pub(crate) id: NodeId,
    pub(crate) lease_until_ms: u64,
    pub(crate) heartbeat_ms: u64,
    pub(crate) nodes: Vec<NodeStatus>,
}

/// Where the journal ended when the store was first opened since the start that was let in last; up to
/// where it is durable if this is that start.
fn shown_position<D: Disk>(store: &Store<D>, identity: &Identity) -> u64 {
    let found = identity.found_position;
    found.unwrap_or_else(|| store.position())
}

/// Joins with what the store holds, and obeys the answer before anything is served.
///
/// # Errors
/// See [`JoinError`].
pub(crate) async fn ask_to_join<D: Disk>(
    participant: &Participant<D>,
    options: &NodeOptions,
) -> Result<Membership, JoinError> {
    let store_error = |refusal: Refusal| JoinError::Store(refusal.to_string());
    participant.end_membership().await;
    let start = options.start;
    let known = participant.with_store(move |store| begin(store, start));
    let identity = known.await.map_err(store_error)?;
    let chunks = participant
        .with_store(held_chunks)
        .await
        .map_err(store_error)?;
    let applicant = Applicant {
        cluster: identity.cluster,
        node: identity.node.or(options.node),
        start,
        position: shown_position(&participant.store, &identity),
        earlier: identity.starts,
        heard: identity.coordinator,
        rack: options.rack,
        address: options.address.clone(),
        capacity_bytes: options.capacity_bytes,
    };
    let node = Box::new(applicant);
    let request = CoordinatorRequest::Join { node, chunks };
    let sent_ms = participant.ports.now_ms();
    let reply = participant
        .ports
        .call_coordinator(request, MEMBERSHIP_DEADLINE_MS)
        .await;
    match reply {
        Ok(CoordinatorReply::Joined {
            cluster,
            coordinator,
            node,
            lease_ms,
            heartbeat_ms,
            obsolete,
            decided,
            nodes,
        }) => {
            let followed = participant.follow(coordinator).await;
            followed.map_err(|why| JoinError::Unreachable(why.to_string()))?;
            let obeyed = participant.with_store(move |store| {
                set_aside(store, &obsolete)?;
                accept(store, &decided)?;
                store.set_identity(&Identity {
                    cluster: Some(cluster),
                    node: Some(node),
                    starts: vec![start],
                    coordinator: Some(coordinator),
                    found_position: None,
                })
            });
            obeyed.await.map_err(store_error)?;
            participant.ports.learn_nodes(&nodes);
            let lease_until_ms = sent_ms + lease_ms;
            Ok(Membership {
                id: node,
                lease_until_ms,
                heartbeat_ms,
                nodes,
            })
        }
        Ok(CoordinatorReply::Refused(why)) => Err(JoinError::Refused(why)),
        Ok(other) => Err(JoinError::Unreachable(format!("it answered {other:?}"))),
        Err(error) => Err(JoinError::Unreachable(error.to_string())),
    }
}
