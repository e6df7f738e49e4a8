//! Damage: chunks that a scrub or a read finds corrupt are marked stale and repaired.

use super::Repair;
use crate::coordinator::core::{Answer, lock};
use crate::event::Event;
use crate::message::{Damage, Denial, Refusal, ScrubReport, Scrubbed, ask};
use crate::ports::{Ask as _, NodeError};
use crate::settle::verify_deadline_ms;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use gabion_layout::{ChunkId, Generation, NodeId, StripeRecord};
use gabion_meta::{Departure, KeyValue, Meta, MetaError, StripeStatus};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often a node is asked to read damage again if it cannot now.
const CONFIRM_COUNT: u32 = 4;
/// Interval at which damage that a node could not confirm is asked for again, in milliseconds.
const ASK_AGAIN_MS: u64 = 5_000;
/// Most chunks of a node that are kept for that.
const DOUBTFUL_COUNT_MAX: usize = 10_000;

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Verifies all bytes of every node that is up, and repairs the damaged chunks.
    pub(in crate::coordinator) async fn scrub_all(self: &Arc<Self>) -> Answer<ScrubReport> {
        let fleet = self.nodes.fleet();
        let scrubs = fleet
            .nodes()
            .iter()
            .map(|status| async move { (status, self.scrub_node(status.node).await) });
        let (mut chunk_count, mut bytes) = (0_u64, 0_u64);
        let (mut damage, mut unreachable) = (Vec::new(), Vec::new());
        for (status, reply) in join_all(scrubs).await {
            if let Some(Scrubbed {
                chunk_count: chunks,
                bytes: verified,
                damage: found,
            }) = reply
            {
                chunk_count = chunk_count.saturating_add(chunks);
                bytes = bytes.saturating_add(verified);
                self.mark_scrubbed(status.node, &found).await?;
                damage.extend(found);
            } else if status.departure != Departure::Drained {
                unreachable.push(status.node);
            }
        }
        Ok(ScrubReport {
            chunk_count,
            bytes,
            damage,
            unreachable,
        })
    }

    /// Has a node that is up verify all its bytes; `None` if it is not up, or does not do so.
    ///
    /// A connection may be that of a process which has died since. So the node is asked again, for the length of a
    /// lease from its first failure on: if the node lives no more, its lease has expired then.
    async fn scrub_node(&self, node: NodeId) -> Option<Scrubbed> {
        let options = &self.core.options;
        let patience_ms = options.timing.lease_ms + options.timing.margin_ms;
        let mut until_ms = None;
        while self.nodes.fleet().is_up(node) {
            let request = ask::Scrub { chunks: Vec::new() };
            let asked = self
                .core
                .ports
                .ask_node(node, request, options.scrub_deadline_ms);
            if let Ok(scrubbed) = asked.await {
                return Some(scrubbed);
            }
            let now_ms = self.core.ports.now_ms();
            if now_ms >= *until_ms.get_or_insert(now_ms.saturating_add(patience_ms)) {
                return None;
            }
            self.core.ports.sleep_ms(options.retry_ms).await;
        }
        None
    }

    /// Marks the damaged chunks stale that are `node`'s own. Others are leftovers.
    async fn mark_scrubbed(self: &Arc<Self>, node: NodeId, found: &[Damage]) -> Result<(), Denial> {
        let chunks: Vec<_> = found.iter().map(|damage| damage.chunk).collect();
        let not_its_own = move |meta: &Meta<K>| {
            let mut left = Vec::new();
            for chunk in chunks {
                match meta.stripe(chunk.stripe) {
                    Ok(stripe) if stripe.node_of(chunk.index) == Some(node) => {}
                    Ok(_) => left.push(chunk),
                    // No put will make it a node's own: the run of an aborted put may have ended after the
                    // order to remove its chunks.
                    Err(MetaError::UnknownStripe(_))
                        if meta.stripe_status(chunk.stripe)? == StripeStatus::Unknown =>
                    {
                        left.push(chunk);
                    }
                    Err(MetaError::UnknownStripe(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(left)
        };
        for chunk in self.core.with_meta(not_its_own).await? {
            self.leftovers.add(node, chunk);
        }
        Ok(self.mark_damaged(node, found.to_vec()).await?)
    }

    /// Notes damage that a node has reported: in its own chunks, and in at most one of another node, which it has had
    /// read before a settlement. Of that one only its own node's word counts.
    pub(in crate::coordinator) async fn report_damage(
        self: &Arc<Self>,
        report: ask::ReportDamage,
    ) -> Answer<()> {
        let reporter = report.node;
        let sort = move |meta: &Meta<K>| {
            let (mut own, mut foreign) = (Vec::new(), None);
            for found in report.damage {
                let holder = match meta.stripe(found.chunk.stripe) {
                    Ok(stripe) => stripe.node_of(found.chunk.index),
                    Err(MetaError::UnknownStripe(_)) => None,
                    Err(error) => return Err(error),
                };
                match holder.filter(|holder| *holder != reporter) {
                    Some(holder) => foreign = foreign.or(Some((holder, found))),
                    None => own.push(found),
                }
            }
            Ok((own, foreign))
        };
        let (own, foreign) = self.core.with_meta(sort).await?;
        self.mark_damaged(reporter, own).await?;
        if let Some((holder, found)) = foreign {
            // So that it concerns no chunk that was rebuilt, if it is not read again because it counts as lost now.
            let generation = Generation(0);
            let damage = vec![Damage {
                generation,
                ..found
            }];
            self.mark_damaged(holder, damage).await?;
        }
        Ok(())
    }

    /// Marks chunks stale that their node has found damaged, and repairs them. Damage that the node does not find again
    /// is ignored. A chunk that its node cannot read again now stays as it is, and the
    /// node is asked again later.
    pub(in crate::coordinator) async fn mark_damaged(
        self: &Arc<Self>,
        node: NodeId,
        damage: Vec<Damage>,
    ) -> Result<(), MetaError> {
        let sort = move |meta: &Meta<K>| sort(meta, damage);
        let Sorted { known, news } = self.core.with_meta(sort).await?;
        let mut new_count = self.mark_certain(node, known).await?;
        let mut news = news.into_values();
        while let Some((found, chunk_bytes)) = news.next() {
            match self.confirm(node, &found, chunk_bytes).await {
                // At once: while further chunks are read, a settlement may make this one irreplaceable.
                Finding::Certain(found) => new_count += self.mark_certain(node, found).await?,
                Finding::Doubtful => {
                    let rest = news.map(|(found, _)| found);
                    self.ask_later(node, std::iter::once(found).chain(rest).collect());
                    break;
                }
                Finding::OfNoNode => break,
            }
        }
        if new_count > 0 {
            *lock(&self.damaged).entry(node).or_default() += new_count;
            let event = Event::Damaged(node, new_count);
            self.core.ports.note_event(&event);
        }
        Ok(())
    }

    /// Marks chunks stale that are damaged for certain. Returns how many of them did not count as lost.
    async fn mark_certain(&self, node: NodeId, certain: Vec<Damage>) -> Result<u64, MetaError> {
        let pools = Arc::clone(&self.pools);
        let mark = move |meta: &Meta<K>| {
            let (mut records, mut new_count) = (Vec::<StripeRecord>::new(), 0);
            for found in certain {
                let is_new = matches!(standing(meta, found.chunk)?, Standing::News(_));
                let marked = meta.mark_damaged(found.chunk, node, found.generation)?;
                new_count += u64::from(marked.is_some() && is_new);
                if let Some(marked) = marked {
                    pools.note_stale(meta, &marked)?;
                    records.push(marked);
                }
            }
            Ok((records, new_count))
        };
        let (records, new_count) = self.core.with_meta(mark).await?;
        self.backlog.add(records).await?;
        Ok(new_count)
    }

    /// Keeps damage that a node could not confirm, and asks the node again once it is up. If there is too much, the
    /// rest is dropped: the next read or scrub of it reports it again.
    fn ask_later(self: &Arc<Self>, node: NodeId, damage: Vec<Damage>) {
        if damage.is_empty() {
            return;
        }
        let mut doubtful = lock(&self.doubtful);
        let is_first = !doubtful.contains_key(&node);
        let kept = doubtful.entry(node).or_default();
        for found in damage {
            if kept.len() < DOUBTFUL_COUNT_MAX {
                kept.insert(found.chunk, found);
            }
        }
        let count = kept.len() as u64;
        drop(doubtful);
        if is_first {
            let event = Event::DamageInDoubt(node, count);
            self.core.ports.note_event(&event);
            self.core.ports.spawn(Arc::clone(self).ask_when_up(node));
        }
    }

    /// Waits until the node is up, and has it read again what it could not confirm.
    fn ask_when_up(self: Arc<Self>, node: NodeId) -> BoxFuture<'static, ()> {
        let ask = async move {
            loop {
                self.core.ports.sleep_ms(ASK_AGAIN_MS).await;
                if self.nodes.fleet().is_up(node) {
                    break;
                }
            }
            let kept = lock(&self.doubtful).remove(&node).unwrap_or_default();
            // If the metadata fail, the next read or scrub reports the damage again.
            let _ = self.mark_damaged(node, kept.into_values().collect()).await;
        };
        ask.boxed()
    }

    /// Makes a node read a damaged chunk again. A chunk that failed one read may be intact, and a settlement that could
    /// read all of it may have made the chunk irreplaceable since. The damage
    /// stays in doubt if its node does not answer, serves nothing, or refuses several times.
    async fn confirm(&self, node: NodeId, found: &Damage, chunk_bytes: u64) -> Finding {
        let ports = &self.core.ports;
        let mut wait_ms = self.core.options.retry_ms;
        for count in 1..=CONFIRM_COUNT {
            let chunks = vec![found.chunk];
            let deadline_ms = verify_deadline_ms(chunk_bytes);
            let asked = ports.ask_node(node, ask::Scrub { chunks }, deadline_ms);
            match asked.await {
                Ok(scrubbed) => return Finding::Certain(scrubbed.damage),
                Err(
                    NodeError::Silent(_)
                    | NodeError::NotBegun(Refusal::NoLease | Refusal::Stalled(_))
                    | NodeError::Refused(Refusal::NoLease | Refusal::Stalled(_)),
                ) => break,
                // It leaves the cluster, and none of its chunks counts then.
                Err(
                    NodeError::NotBegun(Refusal::StoreFailed(_))
                    | NodeError::Refused(Refusal::StoreFailed(_)),
                ) => return Finding::OfNoNode,
                Err(_) if count < CONFIRM_COUNT => ports.sleep_ms(wait_ms).await,
                Err(_) => {}
            }
            wait_ms *= 2;
        }
        Finding::Doubtful
    }
}

/// Reported damage, after its node was asked to read the chunk again.
enum Finding {
    /// Found again; nothing, if the chunk is intact.
    Certain(Vec<Damage>),
    /// The node cannot read the chunk now.
    Doubtful,
    /// The node's store has failed, so none of its chunks counts.
    OfNoNode,
}

/// Reported damage, by what is known of the chunks.
#[derive(Default)]
struct Sorted {
    /// In chunks that count as lost already. A node reports the same damage again until the chunk is repaired.
    known: Vec<Damage>,
    /// In chunks that count, with the bytes of each.
    news: BTreeMap<ChunkId, (Damage, u64)>,
}

/// Sorts reported damage. That of stripes which no file has is left out.
fn sort<K: KeyValue>(meta: &Meta<K>, damage: Vec<Damage>) -> Result<Sorted, MetaError> {
    let mut sorted = Sorted::default();
    for found in damage {
        match standing(meta, found.chunk)? {
            Standing::News(chunk_bytes) => {
                sorted.news.insert(found.chunk, (found, chunk_bytes));
            }
            Standing::Lost => sorted.known.push(found),
            Standing::Unknown => {}
        }
    }
    Ok(sorted)
}

/// The standing of a chunk in the metadata.
enum Standing {
    /// It does not count as lost; its stripe's chunks have this many bytes.
    News(u64),
    /// It counts as lost.
    Lost,
    /// No file has its stripe, or not yet.
    Unknown,
}

fn standing<K: KeyValue>(meta: &Meta<K>, chunk: ChunkId) -> Result<Standing, MetaError> {
    match meta.stripe(chunk.stripe) {
        Ok(stripe) => {
            let stale = stripe.staleness(chunk.index);
            let is_lost = stale.is_some_and(|stale| stale.missed_after.is_none());
            Ok(if is_lost {
                Standing::Lost
            } else {
                Standing::News(stripe.chunk_bytes)
            })
        }
        Err(MetaError::UnknownStripe(_)) => Ok(Standing::Unknown),
        Err(error) => Err(error),
    }
}
