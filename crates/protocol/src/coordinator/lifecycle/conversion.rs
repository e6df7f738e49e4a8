//! The conversion of one segment: replicated blocks become a stripe, or a stripe becomes blocks again
//! (EAR, section II-B).
//!
//! The coordinator takes the leases of the old stripes, settles them, pins their marks at the nodes and
//! gives the leases back. The new stripe is made of chunks as of these marks while updates continue, and
//! read back. Then the coordinator takes the leases again. If the marks have not changed, one transaction
//! puts the new stripe in the place of the old ones. Otherwise the new chunks are discarded and the
//! conversion is retried; after a few attempts it keeps the leases, and updates wait.
//!
//! Until that transaction only the old stripes count. From then on only the new one counts, and each of its
//! chunks is on a node that is up. So the pool's promise holds at every instant. A crash before the
//! transaction leaves an unfinished put, a crash after it leaves garbage.

use super::Lifecycles;
use crate::coordinator::core::lock;
use crate::coordinator::leases::occupied::Occupation;
use crate::coordinator::members::fleet::is_welcoming;
use crate::coordinator::pool_facts::PoolFacts;
use crate::coordinator::repair::attempt::OUTRUN_COUNT_MAX;
use crate::coordinator::repair::pins::Pins;
use crate::coordinator::repair::survey::TaskError;
use crate::event::Event;
use crate::initiate::{RunTerms, run_between_nodes};
use crate::message::{ConversionSource, Effect, Purpose, ReadCut, Refusal, RunId, SettledStripe};
use futures::future::{join_all, try_join_all};
use gabion_layout::{
    ChunkId, ChunkIndex, Epoch, NodeId, Sequence, StripeId, StripeRecord, Topology,
};
use gabion_meta::{Displaced, KeyValue, Meta, Placement, PutId};
use gabion_plan::{Cost, Plan, check};
use gabion_planner::{Stripe, encode, placement};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Wait before a conversion asks the budget again.
const BUDGET_WAIT_MS: u64 = 500;

/// The planned conversion of a segment.
#[derive(Clone, Debug)]
pub(super) struct Conversion {
    /// The file's name.
    pub(super) name: String,
    /// The put that brought it.
    pub(super) file: PutId,
    /// The stripes of the segment, in the file's order.
    pub(super) sources: Vec<StripeId>,
    /// Data chunks of the segment.
    pub(super) data_count: usize,
    /// The pool of the stripes that they become.
    pub(super) into: Arc<PoolFacts>,
}

impl Conversion {
    /// Whether blocks become a stripe.
    pub(super) fn encodes(&self) -> bool {
        self.into.record.lifecycle.is_none()
    }
}

/// Old stripes whose updates are fenced off.
struct Held {
    occupation: Occupation,
    leases: Vec<Displaced>,
    settled: Vec<SettledStripe>,
}

/// The places of a data chunk's bytes.
type Sources = Vec<(NodeId, ChunkId, Sequence)>;

/// The nodes that have each data chunk's bytes.
fn nodes_of(sources: &[Sources]) -> Vec<Vec<NodeId>> {
    let of_chunk = |sources: &Sources| sources.iter().map(|&(node, ..)| node).collect();
    sources.iter().map(of_chunk).collect()
}

/// New stripes with every chunk durable and read back, which no layout names yet.
struct Made {
    put: PutId,
    stripes: Vec<StripeRecord>,
    /// The number of times their nodes had joined when the conversion began.
    joins: BTreeMap<NodeId, u64>,
    cost: Cost,
    /// The share of the cost that was data across racks.
    download_bytes: u64,
}

/// The job that makes one new stripe.
struct Job {
    plan: Plan,
    sources: Vec<ConversionSource>,
    cost: Cost,
    download_bytes: u64,
}

impl<K: KeyValue + Send + Sync + 'static> Lifecycles<K> {
    /// Converts a segment.
    pub(super) async fn convert(
        self: &Arc<Self>,
        conversion: &Conversion,
    ) -> Result<(), TaskError> {
        for outrun_count in 0..=OUTRUN_COUNT_MAX {
            let updates_wait = outrun_count == OUTRUN_COUNT_MAX;
            if self.try_convert(conversion, updates_wait).await? {
                return Ok(());
            }
            lock(&self.converted).outrun_count += 1;
        }
        Err(TaskError(
            "other work took its stripes during the conversion".to_owned(),
        ))
    }

    /// One attempt. False when the old stripes have updates that the new ones do not have.
    async fn try_convert(
        self: &Arc<Self>,
        conversion: &Conversion,
        updates_wait: bool,
    ) -> Result<bool, TaskError> {
        let held = self.hold(&conversion.sources).await?;
        let settled = held.settled.clone();
        let pins = self.pin_settled(&settled).await;
        let kept = if updates_wait {
            Some(held)
        } else {
            self.let_go(held).await?;
            None
        };
        let made = self
            .make_converted(conversion, &settled, updates_wait)
            .await;
        for pins in pins {
            self.repair.unpin(pins);
        }
        let (made, held) = match (made, kept) {
            (Ok(made), Some(held)) => (made, held),
            (Ok(made), None) => match self.hold(&conversion.sources).await {
                Ok(held) => (made, held),
                Err(error) => {
                    self.files.abort_put(made.put).await?;
                    return Err(error);
                }
            },
            (Err(error), kept) => {
                if let Some(held) = kept {
                    self.let_go(held).await?;
                }
                return Err(error);
            }
        };
        let marks = |settled: &[SettledStripe]| -> Vec<Sequence> {
            settled.iter().map(|settled| settled.mark).collect()
        };
        let is_current = marks(&held.settled) == marks(&settled);
        let committed = if is_current {
            self.commit_converted(conversion, &made, &held).await
        } else {
            Ok(())
        };
        if !is_current || committed.is_err() {
            self.files.abort_put(made.put).await?;
        }
        self.let_go(held).await?;
        committed?;
        if is_current {
            self.count_converted(conversion, &made);
        }
        Ok(is_current)
    }

    /// Keeps others from updating stripes, and settles them.
    async fn hold(self: &Arc<Self>, stripes: &[StripeId]) -> Result<Held, TaskError> {
        let occupation = self.occupied.occupy(stripes.to_vec()).map_err(|stripe| {
            TaskError(format!(
                "{stripe} is being repaired or rewritten; its conversion waits"
            ))
        })?;
        let leases = self.leases.take_leases(stripes).await?;
        let settling = leases
            .iter()
            .map(|old| self.files.settle_old(old.stripe, old.epoch));
        let settled: Result<Vec<SettledStripe>, _> = join_all(settling).await.into_iter().collect();
        match settled {
            Ok(settled) => Ok(Held {
                occupation,
                leases,
                settled,
            }),
            Err(rejection) => {
                self.leases.release_leases(leases).await?;
                self.files.leave(occupation).await?;
                Err(rejection.into())
            }
        }
    }

    /// Gives back the leases that the coordinator still has.
    async fn let_go(self: &Arc<Self>, held: Held) -> Result<(), TaskError> {
        self.leases.release_leases(held.leases).await?;
        Ok(self.files.leave(held.occupation).await?)
    }

    /// Keeps the marks readable at all nodes that serve reads.
    async fn pin_settled(&self, settled: &[SettledStripe]) -> Vec<Pins> {
        let hold_ms = 2 * self.core.options.repair_deadline_ms;
        let pins = settled.iter().map(|settled| {
            let nodes = self
                .readable(settled)
                .map(|chunk| settled.stripe.nodes[chunk.at()]);
            self.repair
                .pin_nodes(settled.stripe.id, settled.mark, nodes.collect(), hold_ms)
        });
        join_all(pins).await
    }

    /// The chunks that a settled stripe can be read from.
    fn readable<'a>(
        &self,
        settled: &'a SettledStripe,
    ) -> impl Iterator<Item = ChunkIndex> + use<'a, K> {
        let unreadable = self.nodes.fleet().unreadable(&settled.stripe);
        let chunks = settled.stripe.chunks();
        chunks.filter(move |c| !unreadable.contains(c) && !settled.unsettled.contains(c))
    }

    /// Finds the nodes that have the bytes of each data chunk of the segment.
    fn sources(
        &self,
        conversion: &Conversion,
        settled: &[SettledStripe],
    ) -> Result<Vec<Sources>, TaskError> {
        let mut sources: Vec<Sources> = Vec::new();
        for old in settled {
            let id = |index| ChunkId {
                stripe: old.stripe.id,
                index,
            };
            let found = self.readable(old).map(|index| {
                let node = old.stripe.nodes[index.at()];
                (index, (node, id(index), old.mark))
            });
            if conversion.encodes() {
                // Every chunk of a replicated block holds the whole block.
                sources.push(found.map(|(_, source)| source).collect());
            } else {
                let found: BTreeMap<_, _> = found.collect();
                let data = (0..conversion.data_count).map(ChunkIndex::new);
                sources.extend(data.map(|chunk| found.get(&chunk).copied().into_iter().collect()));
            }
        }
        match sources.iter().position(Vec::is_empty) {
            None => Ok(sources),
            Some(at) => Err(TaskError(format!(
                "data chunk {at} of the segment is lost; it is converted when it is repaired"
            ))),
        }
    }

    /// Makes the new stripes. If a step fails, the started stripes are aborted.
    async fn make_converted(
        self: &Arc<Self>,
        conversion: &Conversion,
        settled: &[SettledStripe],
        updates_wait: bool,
    ) -> Result<Made, TaskError> {
        let sources = self.sources(conversion, settled)?;
        let placements = self.places(conversion, settled, &sources)?;
        let nodes: BTreeSet<NodeId> = placements.iter().flat_map(|p| p.nodes.clone()).collect();
        let joins = self.nodes.joins_of_all(&nodes).await;
        let (file, pool) = (conversion.file, conversion.into.record.id);
        let now_ms = self.core.ports.now_ms();
        let begin = move |meta: &Meta<K>| meta.begin_conversion(file, pool, &placements, now_ms);
        let put = self.core.with_meta(begin).await?;
        let done = async {
            let jobs = self.jobs(conversion, &put.stripes, &sources)?;
            self.carry_out(&put.stripes, &jobs, updates_wait).await?;
            Ok::<_, TaskError>(jobs)
        };
        let jobs = match done.await {
            Ok(jobs) => jobs,
            Err(error) => {
                self.files.abort_put(put.id).await?;
                return Err(error);
            }
        };
        let mut cost = Cost::default();
        for job in &jobs {
            cost.add(&job.cost);
        }
        Ok(Made {
            put: put.id,
            stripes: put.stripes,
            joins,
            cost,
            download_bytes: jobs.iter().map(|job| job.download_bytes).sum(),
        })
    }

    /// Chooses the nodes of the new stripes' chunks.
    fn places(
        &self,
        conversion: &Conversion,
        settled: &[SettledStripe],
        sources: &[Sources],
    ) -> Result<Vec<Placement>, TaskError> {
        let spec = &conversion.into.record.spec;
        let racks = placement::RackTable::new(&self.nodes.fleet().topology(is_welcoming));
        let mut rng = ChaCha8Rng::seed_from_u64(self.core.ports.random());
        let nodes = nodes_of(sources);
        let all: Vec<Vec<NodeId>> = if conversion.encodes() {
            let end = placement::encoding(&racks, nodes, spec.m, spec.chunks_per_rack, &mut rng)?;
            vec![end.placement]
        } else {
            let kept = nodes.concat();
            placement::promotion(&racks, &kept, spec.m + 1, &mut rng)?
        };
        let chunk_bytes = settled
            .first()
            .map_or(0, |settled| settled.stripe.chunk_bytes);
        let place = |nodes| Placement { chunk_bytes, nodes };
        Ok(all.into_iter().map(place).collect())
    }

    /// Plans each new stripe.
    fn jobs(
        &self,
        conversion: &Conversion,
        stripes: &[StripeRecord],
        sources: &[Sources],
    ) -> Result<Vec<Job>, TaskError> {
        let facts = &conversion.into;
        let fleet = self.nodes.fleet();
        let (all, live) = (fleet.topology(|_| true), fleet.topology(is_welcoming));
        let data_count = facts.record.spec.k;
        let mut jobs = Vec::with_capacity(stripes.len());
        for (record, sources) in stripes.iter().zip(sources.chunks(data_count)) {
            let stripe = Stripe {
                id: record.id,
                code: &facts.code,
                geometry: facts.geometry(record.chunk_bytes)?,
                placement: &record.nodes,
                lost: &[],
            };
            let nodes = nodes_of(sources);
            let encoder = encode::best_encoder(&stripe, &nodes, &live);
            let encoder = encoder.ok_or_else(|| TaskError("no node is up to encode".to_owned()))?;
            let slice_bytes = self.core.options.slice_bytes;
            let plan = encode::convert(&stripe, &nodes, encoder, &live, slice_bytes)?;
            let plan = plan.kept(facts.keepings(record.chunk_bytes));
            check(&plan, &facts.code)?;
            let cost = Cost::of(&plan, &all);
            let away = |node: NodeId| all.rack_of(node) != all.rack_of(encoder);
            let parity = record.nodes[data_count..]
                .iter()
                .filter(|&&node| away(node));
            let upload_bytes = parity.count() as u64 * record.chunk_bytes;
            let sources = sources.iter().enumerate().flat_map(|(at, of_chunk)| {
                let chunk = ChunkIndex::new(at);
                of_chunk
                    .iter()
                    .map(move |&(node, held, cut)| ConversionSource {
                        chunk,
                        node,
                        held,
                        cut,
                    })
            });
            jobs.push(Job {
                sources: sources.collect(),
                download_bytes: cost.cross_rack_bytes.saturating_sub(upload_bytes),
                plan,
                cost,
            });
        }
        Ok(jobs)
    }

    /// Runs the plans when the budget allows it, and has every new chunk read back.
    async fn carry_out(
        self: &Arc<Self>,
        stripes: &[StripeRecord],
        jobs: &[Job],
        updates_wait: bool,
    ) -> Result<(), TaskError> {
        let spread_ms = self.afford(jobs, updates_wait).await;
        let runs = stripes.iter().zip(jobs).map(|(record, job)| async move {
            let effect = Effect::Convert {
                sources: job.sources.clone(),
            };
            let deadline_ms = self.core.options.repair_deadline_ms;
            let terms = RunTerms {
                spread_ms,
                ..RunTerms::new(
                    RunId(self.core.ports.random()),
                    // No other process knows the stripe yet.
                    (Epoch(0), record.generation),
                    ReadCut::Settled(Sequence(0)),
                    effect,
                    Purpose::Encode,
                    deadline_ms.saturating_add(spread_ms),
                )
            };
            run_between_nodes(&*self.core.ports, &job.plan, &terms).await
        });
        if let Err(failed) = try_join_all(runs).await {
            if let Refusal::Damaged(damage) = &failed.refusal {
                self.repair
                    .mark_damaged(failed.node, vec![damage.clone()])
                    .await?;
            }
            return Err(failed.into());
        }
        let chunks = stripes.iter().flat_map(|record| {
            let stripe = record.id;
            let placed = record.chunks().zip(&record.nodes);
            placed.map(move |(index, &node)| (ChunkId { stripe, index }, node))
        });
        let read_back = chunks.map(|(chunk, node)| async move {
            match self.repair.read_back(chunk, node).await {
                Ok(false) => Err(TaskError(format!("{node} has not made {chunk} well"))),
                other => other,
            }
        });
        try_join_all(read_back).await.map(drop)
    }

    /// Waits for a share of the budget, unless updates wait. Returns the time over which to spread the
    /// transfer.
    async fn afford(&self, jobs: &[Job], updates_wait: bool) -> u64 {
        let links: Vec<_> = jobs.iter().flat_map(|job| job.cost.links.clone()).collect();
        loop {
            let topology: Topology = self.nodes.fleet().topology(|_| true);
            let now_ms = self.core.ports.now_ms();
            let throttle = self.repair.throttle();
            if updates_wait {
                // Updates wait, so the transfer runs at full speed.
                throttle.take(&links, &topology, now_ms);
                return 0;
            }
            let again_ms = match throttle.try_take(&links, &topology, now_ms) {
                Ok(spread_ms) => return spread_ms,
                Err(at_ms) => at_ms.unwrap_or(now_ms + BUDGET_WAIT_MS),
            };
            self.core
                .ports
                .sleep_ms(again_ms.saturating_sub(now_ms).max(1))
                .await;
        }
    }

    /// Swaps the new stripes in for the old ones, whose updates are fenced off, and queues the old ones for
    /// removal.
    async fn commit_converted(
        self: &Arc<Self>,
        conversion: &Conversion,
        made: &Made,
        held: &Held,
    ) -> Result<(), TaskError> {
        let joins = self.nodes.hold_joins().await;
        let fleet = self.nodes.fleet();
        let is_there = |node: &NodeId| {
            // A node that has joined again may have reported its chunks before the new one was whole.
            fleet.is_up(*node) && joins.get(node) == made.joins.get(node)
        };
        let mut nodes = made.stripes.iter().flat_map(|stripe| &stripe.nodes);
        if let Some(node) = nodes.find(|node| !is_there(node)) {
            return Err(TaskError(format!(
                "{node} did not answer while the segment was converted"
            )));
        }
        let (put, file, displaced) = (made.put, conversion.file, held.leases.clone());
        let commit = move |meta: &Meta<K>| meta.commit_conversion(put, file, &displaced);
        let stripes = self.core.with_meta(commit).await?;
        drop(joins);
        self.backlog.add(stripes).await?;
        // The garbage collection removes the rest; the new stripes take no updates before that.
        if !self.files.withdraw(conversion.sources.clone()).await? {
            self.leftovers.wake();
        }
        Ok(())
    }

    fn count_converted(&self, conversion: &Conversion, made: &Made) {
        let data_count = conversion.into.record.spec.k as u64;
        let data = made
            .stripes
            .iter()
            .map(|stripe| stripe.chunk_bytes * data_count);
        if let Some(stripe) = made.stripes.first().map(|stripe| stripe.id) {
            let event = if conversion.encodes() {
                Event::Encoded(stripe)
            } else {
                Event::Promoted(stripe)
            };
            self.core.ports.note_event(&event);
        }
        let mut converted = lock(&self.converted);
        converted.converted_bytes += data.sum::<u64>();
        if conversion.encodes() {
            converted.encoded_count += 1;
            converted.planned_encode_cross_rack_bytes += made.cost.cross_rack_bytes;
            converted.planned_download_cross_rack_bytes += made.download_bytes;
        } else {
            converted.promoted_count += 1;
            converted.planned_promote_cross_rack_bytes += made.cost.cross_rack_bytes;
        }
    }
}
