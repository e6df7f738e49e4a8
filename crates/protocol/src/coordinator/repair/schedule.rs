//! The schedule: the backlog is planned a window of stripes at a time, most endangered first. One schedule
//! chooses the helpers and requestors of the window, so that together they keep the network evenly busy
//! (`ECPipe` section 3.3 does so greedily); each repair begins when the budget allows it.

use super::Repair;
use super::attempt::{Admitted, Ended, Intent};
use super::survey::{Survey, Target, TaskError};
use crate::coordinator::core::lock;
use crate::event::Event;
use crate::measure::Measure;
use futures::{FutureExt, select_biased};
use gabion_layout::{ChunkIndex, NodeId, StripeId, Topology};
use gabion_meta::KeyValue;
use gabion_plan::{Cost, LinkBytes};
use gabion_planner::manager::{Choice, LinkMatrix};
use gabion_planner::repair::{
    self, Assignment, Bandwidths, CANDIDATES_MAX, Job, LinkWeights, Scheme, balanced_recovery,
    descriptor, weighted_path_to_all,
};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Stripes that are scheduled together.
const WINDOW: usize = 32;
/// Number of candidate requestors from which the schedule chooses; drawn at random, so that chunks spread
/// over all nodes in the long run.
const REQUESTOR_COUNT_MAX: usize = 6;
/// Doublings of the wait after failed repairs of a stripe: the longest is 64 times the first.
const DOUBLINGS_MAX: u32 = 6;
/// The assumed rates of nodes and racks while none are measured: equal rates make the rack links the
/// bottleneck, as they usually are.
const BANDWIDTHS: Bandwidths = Bandwidths {
    node_bytes_per_s: 1_000_000_000,
    rack_bytes_per_s: 1_000_000_000,
};

/// The decisions of the last schedule; none for stripes that only need to catch up, or whose state only
/// their repair can find out.
type Intents = BTreeMap<StripeId, Option<Intent>>;

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Repairs the queued stripes, until the metadata store fails.
    pub(in crate::coordinator) async fn run(self: Arc<Self>) {
        if let Err(error) = self.backlog.add_all().await {
            self.core.note_error(error.to_string());
        }
        let mut intents = Intents::new();
        while !self.core.is_broken() {
            let again_ms = self.start_repairs(&mut intents).await;
            let mut later = match again_ms {
                Some(at_ms) => {
                    let wait_ms = at_ms.saturating_sub(self.core.ports.now_ms()).max(1);
                    self.core.ports.sleep_ms(wait_ms).fuse()
                }
                None => futures::future::pending().boxed().fuse(),
            };
            select_biased! {
                () = self.backlog.woken().fuse() => {}
                () = later => {}
            }
        }
    }

    /// Begins all repairs that may begin. Returns when to try again, if others may begin later.
    async fn start_repairs(self: &Arc<Self>, intents: &mut Intents) -> Option<u64> {
        loop {
            if self.throttle.is_paused() {
                return None;
            }
            let parallel = self.core.options.repair_parallel.max(1);
            let window = self.backlog.window(parallel, WINDOW);
            if !intents.contains_key(window.first()?) {
                *intents = self.plan_repairs(window.clone()).await;
            }
            // A stripe behind the end of the last schedule waits until it is at the head.
            let window: Vec<StripeId> = window
                .into_iter()
                .filter(|stripe| intents.contains_key(stripe))
                .collect();
            let links: Vec<&[LinkBytes]> = window
                .iter()
                .map(|stripe| match &intents[stripe] {
                    Some(intent) => &intent.links[..],
                    None => &[],
                })
                .collect();
            let now_ms = self.core.ports.now_ms();
            let topology = self.nodes.fleet().topology(|_| true);
            match self.throttle.choose(&links, &topology, now_ms) {
                Choice::Begin(at) => self.begin(window[at], intents, &topology, now_ms),
                Choice::Later(at_ms) => return Some(at_ms),
                Choice::Nothing => return None,
            }
        }
    }

    /// Begins one repair.
    fn begin(
        self: &Arc<Self>,
        stripe: StripeId,
        intents: &mut Intents,
        topology: &Topology,
        now_ms: u64,
    ) {
        let intent = intents.remove(&stripe).flatten();
        if !self.backlog.take(stripe) {
            return;
        }
        self.throttle.begin(now_ms);
        let admitted = intent.map(|intent| Admitted {
            spread_ms: self.throttle.take(&intent.links, topology, now_ms),
            intent,
        });
        self.core.ports.note_event(&Event::RepairBegan(stripe));
        let this = Arc::clone(self);
        let began_us = self.core.ports.now_us();
        let repair = async move {
            let ended = Arc::clone(&this).repair_stripe(stripe, admitted).await;
            this.measure(ended.is_ok(), began_us);
            this.note_end(stripe, ended).await;
            this.backlog.wake();
        };
        self.core.ports.spawn(repair.boxed());
    }

    /// Tells the process of a repair that has ended.
    fn measure(&self, is_done: bool, began_us: u64) {
        let ports = &self.core.ports;
        ports.measure(&Measure::Repaired {
            scheme: lock(&self.scheme).name(),
            is_done,
            took_us: ports.now_us().saturating_sub(began_us),
        });
    }

    async fn note_end(self: &Arc<Self>, stripe: StripeId, ended: Result<Ended, TaskError>) {
        let failure_count = match &ended {
            Ok(_) => {
                self.backlog.succeeded(stripe, || self.throttle.rest());
                0
            }
            Err(_) => self.backlog.failed(stripe),
        };
        match &ended {
            Ok(_) => self.core.ports.note_event(&Event::RepairEnded(stripe)),
            Err(TaskError(why)) => {
                let event = Event::RepairFailed(stripe, why.clone());
                self.core.ports.note_event(&event);
            }
        }
        match ended {
            Ok(Ended::Done) => self.nodes.note_repaired(stripe),
            Ok(Ended::Unfinished) => {
                if let Err(error) = self.backlog.add_again(stripe).await {
                    self.core.note_error(format!("{stripe}: {error}"));
                }
                if !self.backlog.holds(stripe) {
                    self.nodes.note_repaired(stripe);
                }
            }
            Err(TaskError(sentence)) => {
                self.core.note_error(format!("{stripe}: {sentence}"));
                let wait_ms = self.core.options.retry_ms << (failure_count - 1).min(DOUBLINGS_MAX);
                let this = Arc::clone(self);
                let retry = async move {
                    this.core.ports.sleep_ms(wait_ms).await;
                    this.backlog.retry(stripe);
                };
                self.core.ports.spawn(retry.boxed());
            }
        }
    }

    /// Plans the repairs of a window's stripes as one schedule.
    async fn plan_repairs(self: &Arc<Self>, window: Vec<StripeId>) -> Intents {
        let mut surveys = Vec::with_capacity(window.len());
        for &stripe in &window {
            // If a stripe cannot be read here, its repair reports the error.
            if let Ok(Some(survey)) = self.survey(stripe).await {
                surveys.push(survey);
            }
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.core.ports.random());
        let all_pending: Vec<Pending<'_>> = surveys
            .iter()
            .filter_map(|survey| {
                let mut pending = Pending::of(survey)?;
                let bytes = survey.stripe.chunk_bytes;
                pending.requestors = self.nodes.roomy(pending.requestors, bytes);
                pending.requestors.shuffle(&mut rng);
                pending.requestors.truncate(REQUESTOR_COUNT_MAX);
                (!pending.requestors.is_empty()).then_some(pending)
            })
            .collect();
        let scheme = *lock(&self.scheme);
        let mut intents: Intents = window.into_iter().map(|stripe| (stripe, None)).collect();
        let links = self.nodes.links();
        for (stripe, intent) in scheduled(&all_pending, scheme, &links) {
            intents.insert(stripe, Some(intent));
        }
        intents
    }
}

/// A chunk that is to be made or moved, with its candidate requestors.
struct Pending<'a> {
    survey: &'a Survey,
    chunk: ChunkIndex,
    /// Chunks that cannot be read.
    lost: Vec<ChunkIndex>,
    requestors: Vec<NodeId>,
    /// Other lost chunks, which may be made with it.
    others: Vec<ChunkIndex>,
}

impl<'a> Pending<'a> {
    /// The first step of a stripe's repair. None when it only has to catch up, or is blocked.
    fn of(survey: &'a Survey) -> Option<Self> {
        let work = survey.fleet.work(&survey.stripe);
        let mut made = work.into_iter().filter(|&c| survey.behind(c).is_none());
        let chunk = made.next()?;
        let lost = survey.unreadable(&[]);
        let others = made.filter(|other| lost.contains(other)).collect();
        Some(Self {
            survey,
            chunk,
            lost,
            requestors: survey.requestors(chunk, |_| true),
            others,
        })
    }

    /// All chunks that may be made together, with their requestors; the first one has `requestor`.
    fn targets(&self, requestor: NodeId) -> Vec<Target> {
        let mut targets = vec![(self.chunk, requestor)];
        if self.is_move() {
            return targets;
        }
        for &other in &self.others {
            let candidates = self.survey.requestors_beside(other, &targets, |_| true);
            // Stripes prefer different nodes, so that chunks spread.
            let turn = self.survey.stripe.id.0 as usize % candidates.len().max(1);
            targets.extend(candidates.get(turn).map(|&node| (other, node)));
        }
        targets
    }

    fn is_move(&self) -> bool {
        !self.lost.contains(&self.chunk)
    }

    /// The path whose slowest link is the fastest possible (`ECPipe` section 4.3), if link rates are known
    /// and differ so much that the chain would take at least half as long again.
    fn faster_path(
        &self,
        targets: &[Target],
        path: &[ChunkIndex],
        links: &LinkMatrix,
    ) -> Option<Vec<ChunkIndex>> {
        let stripe = self.survey.stripe_for_plans(&self.lost).ok()?;
        let helpers: Vec<NodeId> = stripe.available().map(|c| stripe.node_of(c)).collect();
        if path.is_empty() || helpers.len() > CANDIDATES_MAX {
            return None;
        }
        let requestors: Vec<NodeId> = targets.iter().map(|&(_, node)| node).collect();
        let nodes: Vec<NodeId> = helpers.iter().chain(&requestors).copied().collect();
        let weights = links.weights(&nodes, stripe.geometry.chunk_bytes())?;
        let search = |among: &[NodeId], order: &LinkWeights| {
            weighted_path_to_all(among, &requestors, path.len(), order)
        };
        let best = search(&helpers, &weights)?;
        // The planned chain's links allow only one path.
        let hops: Vec<NodeId> = path.iter().map(|&chunk| stripe.node_of(chunk)).collect();
        let is_hop = |from: NodeId, to: NodeId| hops.windows(2).any(|hop| hop == [from, to]);
        let mut planned = weights.clone();
        planned.retain(|&(from, to), _| {
            is_hop(from, to) || (hops.last() == Some(&from) && requestors.contains(&to))
        });
        let slowest = search(&hops, &planned)?.bottleneck;
        (slowest > best.bottleneck.saturating_add(best.bottleneck / 2)).then(|| {
            let chunk_on = |&node: &NodeId| self.survey.stripe.chunk_on(node);
            best.helpers.iter().filter_map(chunk_on).collect()
        })
    }

    /// Link loads when the chunks reach their nodes by `path`. None when they cannot be made together, or
    /// not as cheaply.
    fn intent(
        &self,
        targets: Vec<Target>,
        (path, is_detour): (Vec<ChunkIndex>, bool),
        scheme: Scheme,
        topology: &Topology,
    ) -> Option<(StripeId, Intent)> {
        let stripe = self.survey.stripe_for_plans(&self.lost).ok()?;
        // Link loads do not depend on the slice size.
        let slice_bytes = stripe.geometry.sub_chunk_bytes();
        let plan = match targets[..] {
            [(chunk, node)] if self.is_move() => {
                repair::move_chunk(&stripe, chunk, node, slice_bytes).ok()?
            }
            [(chunk, node)] => {
                repair::repair(&stripe, chunk, node, &path, scheme, slice_bytes).ok()?
            }
            _ => {
                let equal = (!is_detour).then_some(topology);
                let plan =
                    repair::repair_together(&stripe, &targets, &path, scheme, equal, slice_bytes);
                plan.ok()??
            }
        };
        let links = Cost::of(&plan, topology).links;
        Some((
            stripe.id,
            Intent {
                targets,
                path,
                is_detour,
                links,
            },
        ))
    }

    /// The scheduled repair, of all lost chunks if possible, and by faster links if they are known.
    fn scheduled(
        &self,
        assignment: Assignment,
        scheme: Scheme,
        links: &LinkMatrix,
    ) -> Option<(StripeId, Intent)> {
        let Assignment { requestor, path } = assignment;
        let topology = self.survey.topology();
        let all = self.targets(requestor);
        let first = vec![all[0]];
        let ways = if all.len() > 1 {
            vec![all, first]
        } else {
            vec![first]
        };
        ways.into_iter().find_map(|targets| {
            let faster = self.faster_path(&targets, &path, links);
            let faster = faster.filter(|_| descriptor(scheme).is_one_chain);
            let by_faster = faster
                .and_then(|faster| self.intent(targets.clone(), (faster, true), scheme, &topology));
            by_faster.or_else(|| self.intent(targets, (path.clone(), false), scheme, &topology))
        })
    }
}

/// All pending repairs as one schedule; stripes that cannot be rebuilt now are left out.
fn scheduled(
    all_pending: &[Pending<'_>],
    scheme: Scheme,
    links: &LinkMatrix,
) -> Vec<(StripeId, Intent)> {
    let Some(topology) = all_pending.first().map(|pending| pending.survey.topology()) else {
        return Vec::new();
    };
    let (moves, rebuilds): (Vec<&Pending<'_>>, Vec<&Pending<'_>>) =
        all_pending.iter().partition(|pending| pending.is_move());
    let copied = moves.into_iter().filter_map(|pending| {
        let targets = vec![(pending.chunk, pending.requestors[0])];
        pending.intent(targets, (Vec::new(), false), scheme, &topology)
    });
    let mut intents: Vec<(StripeId, Intent)> = copied.collect();
    let mut jobs = Vec::with_capacity(rebuilds.len());
    let mut possible = Vec::with_capacity(rebuilds.len());
    for pending in rebuilds {
        let Ok(stripe) = pending.survey.stripe_for_plans(&pending.lost) else {
            continue;
        };
        let helpers: Vec<usize> = stripe.available().map(ChunkIndex::at).collect();
        if stripe
            .code
            .repair_equations(pending.chunk.at(), &helpers)
            .is_ok()
        {
            jobs.push(Job {
                stripe,
                lost: pending.chunk,
                requestors: &pending.requestors,
            });
            possible.push(pending);
        }
    }
    let schedule = balanced_recovery(&jobs, &topology, BANDWIDTHS);
    let assignments = schedule.map_or_else(|_| Vec::new(), |schedule| schedule.assignments);
    let rebuilt = possible.into_iter().zip(assignments);
    intents.extend(rebuilt.filter_map(|(pending, way)| pending.scheduled(way, scheme, links)));
    intents
}
