//! The conversion of one segment: replicated blocks become a stripe, or a stripe becomes blocks again
//! (EAR, section II-B).
//!
//! The coordinator takes the leases of the old stripes, settles them, has their marks pinned and gives the
//! leases back. The new stripe is made of chunks as of these marks while updates go on, and read back. Then
//! the coordinator takes the leases again. If the marks are what they were, one transaction puts the new
//! stripe in the place of the old ones; else what was made is thrown away and made anew, after some such
//! attempts under the leases, while updates wait.
//!
//! Until that transaction the old stripes are all that counts, and from then on the new one is, every chunk
//! of which is on a node that is up. So at no instant less is survived than the pool promises. A crash
//! before the transaction leaves a put that nobody goes on with, one after it leaves garbage.

use super::Lifecycles;
use crate::coordinator::core::lock;
use crate::coordinator::leases::occupied::Occupation;
use crate::coordinator::members::fleet::is_welcoming;
use crate::coordinator::pool_facts::PoolFacts;
use crate::coordinator::repair::attempt::OUTRUN_COUNT_MAX;
use crate::coordinator::repair::pins::Pins;
use crate::coordinator::repair::survey::Setback;
use crate::initiate::{RunTerms, run_plan};
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

/// How long a conversion waits before it asks again for what the budget does not allow now.
const BUDGET_WAIT_MS: u64 = 500;

/// What is to become of a segment.
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

/// Old stripes that nobody updates.
struct Held {
    occupation: Occupation,
    leases: Vec<Displaced>,
    settled: Vec<SettledStripe>,
}

/// Where a data chunk's bytes are.
type Sources = Vec<(NodeId, ChunkId, Sequence)>;

/// The nodes that have each data chunk's bytes.
fn nodes_of(sources: &[Sources]) -> Vec<Vec<NodeId>> {
    let of_chunk = |sources: &Sources| sources.iter().map(|&(node, ..)| node).collect();
    sources.iter().map(of_chunk).collect()
}

/// New stripes with every chunk durable and read back, which nobody knows yet.
struct Made {
    put: PutId,
    stripes: Vec<StripeRecord>,
    /// How often their nodes had joined when they were begun.
    joins: BTreeMap<NodeId, u64>,
    cost: Cost,
    /// What of the cost was data that crossed racks.
    download_bytes: u64,
}

/// What makes one new stripe.
struct Job {
    plan: Plan,
    sources: Vec<ConversionSource>,
    cost: Cost,
    download_bytes: u64,
}

impl<K: KeyValue + Send + Sync + 'static> Lifecycles<K> {
    /// Converts a segment.
    pub(super) async fn convert(self: &Arc<Self>, conversion: &Conversion) -> Result<(), Setback> {
        for outrun_count in 0..=OUTRUN_COUNT_MAX {
            let updates_wait = outrun_count == OUTRUN_COUNT_MAX;
            if self.try_convert(conversion, updates_wait).await? {
                return Ok(());
            }
            lock(&self.converted).outrun_count += 1;
        }
        Err(Setback("its stripes were taken over meanwhile".to_owned()))
    }

    /// One attempt. False when updates went on that the new stripes do not have.
    async fn try_convert(
        self: &Arc<Self>,
        conversion: &Conversion,
        updates_wait: bool,
    ) -> Result<bool, Setback> {
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
                Err(setback) => {
                    self.files.abort_put(made.put).await?;
                    return Err(setback);
                }
            },
            (Err(setback), kept) => {
                if let Some(held) = kept {
                    self.let_go(held).await?;
                }
                return Err(setback);
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

    /// Keeps everybody else from updating stripes, and settles them.
    async fn hold(self: &Arc<Self>, stripes: &[StripeId]) -> Result<Held, Setback> {
        let occupation = self.occupied.occupy(stripes.to_vec()).map_err(|stripe| {
            Setback(format!(
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

    /// Gives the leases back that are the coordinator's still.
    async fn let_go(self: &Arc<Self>, held: Held) -> Result<(), Setback> {
        self.leases.release_leases(held.leases).await?;
        Ok(self.files.leave(held.occupation).await?)
    }

    /// Has all nodes that may be read from keep the marks readable.
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

    /// Where the bytes of each data chunk of the segment are.
    fn sources(
        &self,
        conversion: &Conversion,
        settled: &[SettledStripe],
    ) -> Result<Vec<Sources>, Setback> {
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
                // Every chunk of a block is the block.
                sources.push(found.map(|(_, source)| source).collect());
            } else {
                let found: BTreeMap<_, _> = found.collect();
                let data = (0..conversion.data_count).map(ChunkIndex::new);
                sources.extend(data.map(|chunk| found.get(&chunk).copied().into_iter().collect()));
            }
        }
        match sources.iter().position(Vec::is_empty) {
            None => Ok(sources),
            Some(at) => Err(Setback(format!(
                "data chunk {at} of the segment is lost; it is converted when it is repaired"
            ))),
        }
    }

    /// Makes the new stripes. What was begun and has failed is given up.
    async fn make_converted(
        self: &Arc<Self>,
        conversion: &Conversion,
        settled: &[SettledStripe],
        updates_wait: bool,
    ) -> Result<Made, Setback> {
        let sources = self.sources(conversion, settled)?;
        let placements = self.places(conversion, settled, &sources)?;
        let nodes: BTreeSet<NodeId> = placements.iter().flat_map(|p| p.nodes.clone()).collect();
        let joins = self.nodes.joins_of_all(&nodes).await;
        let (name, file, pool) = (
            conversion.name.clone(),
            conversion.file,
            conversion.into.record.id,
        );
        let now_ms = self.core.ports.now_ms();
        let begin =
            move |meta: &Meta<K>| meta.begin_conversion(&name, file, pool, &placements, now_ms);
        let put = self.core.with_meta(begin).await?;
        let done = async {
            let jobs = self.jobs(conversion, &put.stripes, &sources)?;
            self.carry_out(&put.stripes, &jobs, updates_wait).await?;
            Ok::<_, Setback>(jobs)
        };
        let jobs = match done.await {
            Ok(jobs) => jobs,
            Err(setback) => {
                self.files.abort_put(put.id).await?;
                return Err(setback);
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

    /// Where the chunks of the new stripes go.
    fn places(
        &self,
        conversion: &Conversion,
        settled: &[SettledStripe],
        sources: &[Sources],
    ) -> Result<Vec<Placement>, Setback> {
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

    /// Plans the making of each new stripe.
    fn jobs(
        &self,
        conversion: &Conversion,
        stripes: &[StripeRecord],
        sources: &[Sources],
    ) -> Result<Vec<Job>, Setback> {
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
            let encoder = encoder.ok_or_else(|| Setback("no node is up to encode".to_owned()))?;
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
    ) -> Result<(), Setback> {
        let spread_ms = self.afford(jobs, updates_wait).await;
        let runs = stripes.iter().zip(jobs).map(|(record, job)| async move {
            let terms = RunTerms {
                run: RunId(self.core.ports.random()),
                // Nobody else knows the stripe yet.
                epoch: Epoch(0),
                generation: record.generation,
                cut: ReadCut::Settled(Sequence(0)),
                effect: Effect::Convert {
                    sources: job.sources.clone(),
                },
                purpose: Purpose::Encode,
                spread_ms,
                deadline_ms: self
                    .core
                    .options
                    .repair_deadline_ms
                    .saturating_add(spread_ms),
                stall_ms: None,
            };
            let ran = run_plan(&*self.core.ports, &job.plan, &terms, |_| {
                unreachable!("a conversion moves bytes between nodes alone")
            });
            ran.await
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
                Ok(false) => Err(Setback(format!("{node} has not made {chunk} well"))),
                other => other,
            }
        });
        try_join_all(read_back).await.map(drop)
    }

    /// Waits for a share of the budget, unless updates wait. Over how long it is to be spread.
    async fn afford(&self, jobs: &[Job], updates_wait: bool) -> u64 {
        let links: Vec<_> = jobs.iter().flat_map(|job| job.cost.links.clone()).collect();
        loop {
            let topology: Topology = self.nodes.fleet().topology(|_| true);
            let now_ms = self.core.ports.now_ms();
            let throttle = self.repair.throttle();
            if updates_wait {
                // It is as fast as it can be.
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

    /// Puts the new stripes in the place of the old ones, which nobody updates, and has these removed.
    async fn commit_converted(
        self: &Arc<Self>,
        conversion: &Conversion,
        made: &Made,
        held: &Held,
    ) -> Result<(), Setback> {
        let joins = self.nodes.hold_joins().await;
        let fleet = self.nodes.fleet();
        let is_there = |node: &NodeId| {
            // One that has joined anew may have told its chunks before the new one was whole.
            fleet.is_up(*node) && joins.get(node) == made.joins.get(node)
        };
        let mut nodes = made.stripes.iter().flat_map(|stripe| &stripe.nodes);
        if let Some(node) = nodes.find(|node| !is_there(node)) {
            return Err(Setback(format!(
                "{node} was away while the segment was converted"
            )));
        }
        let (put, file, displaced) = (made.put, conversion.file, held.leases.clone());
        let commit = move |meta: &Meta<K>| meta.commit_conversion(put, file, &displaced);
        let stripes = self.core.with_meta(commit).await?;
        drop(joins);
        self.backlog.add(stripes).await?;
        // What is left is removed as other garbage is; nobody updates the new stripes before.
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
