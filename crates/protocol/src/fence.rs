//! Fencing of nodes whose chunks a term leaves out. The term does not use their chunks, but a reader with
//! an old layout would. So no term serves before each of them that is not declared failed has durably
//! refused older terms and layouts.

use crate::message::{Refusal, ask};
use crate::ports::{Ports, ask_living};
use gabion_layout::{Epoch, Generation, NodeId, StripeId, StripeRecord};

/// Time limit of a node's answer with its holdings.
pub(crate) const SETTLE_DEADLINE_MS: u64 = 5_000;

/// The nodes that have, or may have, chunks of the stripe that the term leaves out: those of stale chunks
/// and the `former` holders. Nodes in `failed` do not serve, and survivors are asked anyway.
pub(crate) fn left_out(stripe: &StripeRecord, former: &[NodeId], failed: &[NodeId]) -> Vec<NodeId> {
    let stale = stripe.stale.iter();
    let stale = stale.filter_map(|stale| stripe.node_of(stale.chunk));
    let is_survivor = |node: NodeId| {
        let chunk = stripe.chunk_on(node);
        chunk.is_some_and(|chunk| !stripe.is_stale(chunk))
    };
    let mut nodes: Vec<NodeId> = stale.chain(former.iter().copied()).collect();
    nodes.retain(|&node| !failed.contains(&node) && !is_survivor(node));
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Makes one node durably refuse older terms and layouts of a stripe.
///
/// # Errors
/// [`Refusal::Unavailable`] when it does not answer, or its own refusal.
pub(crate) async fn fence(
    ports: &dyn Ports,
    node: NodeId,
    (stripe, epoch, generation): (StripeId, Epoch, Generation),
) -> Result<(), Refusal> {
    let fence = ask::Fence {
        stripe,
        epoch,
        generation,
    };
    Ok(ask_living(ports, node, fence, SETTLE_DEADLINE_MS).await?)
}
