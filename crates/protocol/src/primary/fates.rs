//! The fate of a run, for a client that lost the answer to its update. The primary derives it from the
//! memories of the stripe's nodes ([`crate::fate`]).
//!
//! It asks in its turn and in its own term. So no update of this primary is in progress, parts of earlier
//! terms are refused, and the nodes would report a later term. The client has withdrawn the run before, so
//! that it does not begin afterwards.

use super::Primaries;
use crate::fate::fate;
use crate::message::{NodeStatus, Refusal, RunFate, RunId, RunQuestion, ask, failed_nodes};
use crate::ports::{Ports, ask_living};
use crate::term::Term;
use futures::future::join_all;
use gabion_layout::{ChunkId, ChunkIndex};
use gabion_store::RunMemory;
use std::collections::BTreeMap;

/// Time limit of a node's answer.
const RECOLLECT_DEADLINE_MS: u64 = 5_000;

/// The nodes' answers about a run.
struct Recollections {
    memories: BTreeMap<ChunkIndex, RunMemory>,
    /// The reason of a missing answer, if there is one.
    missing: Option<Refusal>,
}

impl Primaries {
    /// The fate of a run.
    pub(crate) async fn fate(
        &self,
        asked: &RunQuestion,
        nodes: &[NodeStatus],
    ) -> Result<RunFate, Refusal> {
        let led = self.led(asked.stripe);
        let _turn = led.turns.wait().await;
        let mut primary = led.primary.lock().await;
        self.ensure_term(&mut primary, asked.stripe, None).await?;
        let term = primary.term.as_ref().expect("ensure_term has set it");
        check_chunks(term, &asked.chunks)?;
        let heard = recollect(&*self.ports, term, asked.run, nodes).await;
        let fate = heard.and_then(|heard| conclude(term, asked, heard));
        if matches!(fate, Err(Refusal::Fenced { .. } | Refusal::Unsettled)) {
            primary.renounce();
        }
        fate
    }
}

/// Refuses chunks that the stripe does not have.
fn check_chunks(term: &Term, chunks: &[ChunkIndex]) -> Result<(), Refusal> {
    let unknown = chunks
        .iter()
        .find(|chunk| term.stripe.node_of(**chunk).is_none());
    unknown.map_or(Ok(()), |chunk| {
        let stripe = term.stripe.id;
        Err(Refusal::Invalid(format!("{stripe} has no {chunk}")))
    })
}

/// Asks the nodes of all chunks that have all updates up to the term and in it: those that its settlement
/// has asked.
async fn recollect(
    ports: &dyn Ports,
    term: &Term,
    run: RunId,
    nodes: &[NodeStatus],
) -> Result<Recollections, Refusal> {
    let failed = failed_nodes(nodes);
    let (stripe, epoch) = (term.stripe.id, term.epoch);
    let holders = term.asked.iter().filter_map(|&index| {
        let node = term.stripe.node_of(index)?;
        (!term.misses(index) && !failed.contains(&node)).then_some((index, node))
    });
    let calls = holders.map(|(index, node)| {
        let chunk = ChunkId { stripe, index };
        let request = ask::Recollect { chunk, epoch, run };
        let call = ask_living(ports, node, request, RECOLLECT_DEADLINE_MS);
        async move { (index, call.await) }
    });
    let mut heard = Recollections {
        memories: BTreeMap::new(),
        missing: None,
    };
    for (index, reply) in join_all(calls).await {
        match reply.map_err(Refusal::from) {
            Ok(memory) => {
                heard.memories.insert(index, memory);
            }
            // A run of a later term may exist.
            Err(fenced @ Refusal::Fenced { .. }) => return Err(fenced),
            Err(refusal) => heard.missing = Some(refusal),
        }
    }
    Ok(heard)
}

/// The conclusion from the nodes' answers.
///
/// # Errors
/// The reason why a decisive answer is missing; [`Refusal::Unsettled`] when a node has a record of the run
/// that no settlement has decided.
fn conclude(term: &Term, asked: &RunQuestion, heard: Recollections) -> Result<RunFate, Refusal> {
    let would_know = |complete: &[ChunkIndex]| {
        let known = term.witnesses().would_know(complete, asked);
        known.map_err(|error| Refusal::Failed(error.to_string()))
    };
    match fate(&heard.memories, asked.after, would_know)? {
        RunFate::Stood(sequence) if sequence > term.mark => Err(Refusal::Unsettled),
        RunFate::Forgotten => heard.missing.map_or(Ok(RunFate::Forgotten), Err),
        fate => Ok(fate),
    }
}
