//! The primary's half of the protocol: it numbers a stripe's updates within its lease term, asks the
//! planner, starts the plan, and counts an update as committed when every participant's record is durable.
//! After any failure it abandons its term and settles the stripe under a new one before it serves again. So
//! only the recovery rule decides an update that failed half-way.

mod batch;
mod commits;
mod fates;
mod tokens;
mod updates;

use self::batch::Line;
pub(crate) use self::batch::NotDone;
use crate::limits::Limits;
use crate::locks::lock;
use crate::marks::{Marks, OwnProgress};
pub use crate::message::failed_nodes;
use crate::message::{
    AttestedCut, Cause, CommittedMark, CoordinatorCall, Meter, NodeStatus, Refusal, StripeLease,
    ask,
};
use crate::ports::{Ask as _, CoordinatorError, Ports};
use crate::progress::Heard;
use crate::settle::{collect, exclusion, is_proof, recovery_rule, resolve, verify_survivors};
use crate::term::{KnownToken, Term, check_leased_copies, topology_of};
use crate::turns::Turns;
use futures::lock::Mutex as AsyncMutex;
use gabion_codec::Code;
use gabion_layout::{
    ChunkIndex, Epoch, Geometry, NodeId, PoolId, Sequence, StripeId, StripeRecord,
};
use gabion_meta::{Exclusion, PutId};
use gabion_plan::Logged;
use gabion_planner::update;
use gabion_planner::update::cau::Phases;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Time limit of the coordinator's answer.
const COORDINATOR_DEADLINE_MS: u64 = 5_000;

/// A node's state as a primary: one entry for each stripe that it was asked about.
pub(crate) struct Primaries {
    node: NodeId,
    incarnation: u64,
    ports: Arc<dyn Ports>,
    limits: Limits,
    marks: Arc<Marks>,
    /// Participants' journal positions.
    heard: Arc<Heard>,
    stripes: Mutex<BTreeMap<StripeId, Arc<LedStripe>>>,
    codes: Mutex<BTreeMap<String, Code>>,
    phases: Mutex<Phases>,
    /// Planned bytes of the plans that have run to their end.
    planned: Mutex<Meter>,
    /// The number of times the node's membership has ended.
    memberships: AtomicU64,
}

/// A stripe's primary, and its answers to requests that need not wait for it.
struct LedStripe {
    /// The holder of the turn runs the stripe's only update.
    turns: Turns,
    /// Requests for updates; the holder of the turn makes those that change different bytes together.
    line: Line,
    /// Locked in turn.
    primary: AsyncMutex<Primary>,
    settled: Arc<Settled>,
    /// The stripe's pool if it has append phases, once known; it never changes.
    append_pool: OnceLock<Option<PoolId>>,
    /// The stripe's file, once a client has named it.
    file: OnceLock<PutId>,
}

/// The updates that a primary knows to be committed.
#[derive(Default)]
struct Settled(Mutex<Committed>);

/// The last committed update that this primary knows of.
#[derive(Clone, Copy, Default)]
struct Committed {
    /// No later update was acknowledged in any term up to the newest of these. None before the first settlement, and
    /// from when the outcome of another one may be known, since that may hold later ones, until it has ended.
    last: Option<AttestedCut>,
    /// Whether the term goes on. Then no later update is committed, neither by this primary nor by another.
    is_current: bool,
}

/// The state of one stripe's primary.
#[derive(Default)]
struct Primary {
    term: Option<Term>,
    /// Invariant: the summary of `term`.
    settled: Arc<Settled>,
}

impl Primaries {
    /// The primaries of a run of a node. Messages with marks carry the node's journal position.
    pub(crate) fn new(
        node: NodeId,
        incarnation: u64,
        ports: Arc<dyn Ports>,
        own_progress: OwnProgress,
        heard: Arc<Heard>,
    ) -> Self {
        let marks = Marks::new(Arc::clone(&ports), node, own_progress);
        let stripes = Mutex::default();
        Self {
            node,
            incarnation,
            ports,
            limits: Limits::default(),
            marks,
            heard,
            stripes,
            codes: Mutex::default(),
            phases: Mutex::default(),
            planned: Mutex::default(),
            memberships: AtomicU64::default(),
        }
    }

    /// The same with other limits than the default ones.
    pub(crate) fn with(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Planned bytes of the plans that have run to their end.
    pub(crate) fn planned(&self) -> Meter {
        lock(&self.planned).clone()
    }

    /// Stripes that it knows.
    pub(crate) fn stripe_count(&self) -> u64 {
        lock(&self.stripes).len() as u64
    }

    /// Notes at the coordinator that chunks are stale, before any update leaves them out.
    async fn leave_out(&self, term: &mut Term, mut missed: Vec<ChunkIndex>) -> Result<(), Refusal> {
        missed.retain(|&chunk| !term.stripe.is_stale(chunk) && !term.left_out.contains(&chunk));
        if missed.is_empty() {
            return Ok(());
        }
        if let Some(asked) = missed.iter().find(|chunk| term.asked.contains(chunk)) {
            // The next term's settlement leaves its node out, and fences all others.
            return Err(Refusal::Unavailable(format!("the node of {asked}")));
        }
        let request = ask::NoteDegraded {
            stripe: term.stripe.id,
            epoch: term.epoch,
            since: term.joins,
            chunks: missed.iter().map(|&chunk| (chunk, term.mark)).collect(),
        };
        self.tell_coordinator(request).await?;
        term.left_out.extend(missed);
        Ok(())
    }

    /// Makes a note durable at the coordinator.
    async fn tell_coordinator(
        &self,
        request: impl CoordinatorCall<Reply = ()>,
    ) -> Result<(), Refusal> {
        let told = self.ports.ask_coordinator(request, COORDINATOR_DEADLINE_MS);
        told.await.map_err(|error| match error {
            CoordinatorError::Silent(error) => Refusal::Unavailable(error.peer),
            other => Refusal::Interrupted(other.to_string()),
        })
    }

    /// The committed mark, the term that vouches for it, and what logs have of the ranges to decode. Does not wait for
    /// updates, unless there are such ranges or the stripe has to be settled first.
    pub(crate) async fn mark(
        &self,
        asked: ask::Mark,
        nodes: &[NodeStatus],
    ) -> Result<(Epoch, Sequence, Vec<Logged>), Refusal> {
        let ask::Mark {
            stripe,
            settle,
            decode,
            ticket: _,
        } = asked;
        let led = self.led(stripe);
        let settled = *led.settled.lock();
        if !settle
            && decode.is_empty()
            && let Some(last) = settled.last.filter(|_| settled.is_current)
        {
            // The reader has found a node without the mark, perhaps because the node was restarted. If an
            // update is running, its mark will be sent soon.
            let primary = led.primary.try_lock();
            if let Some(term) = primary.as_ref().and_then(|primary| primary.term.as_ref()) {
                self.spread_mark(term);
            }
            return Ok((last.since, last.mark, Vec::new()));
        }
        let _turn = led.turns.wait().await;
        let mut primary = led.primary.lock().await;
        if settle {
            primary.renounce();
        }
        // A reader needs no new term when nodes are lost: every update of the present one is on those that are left.
        self.ensure_term(&mut primary, stripe, None).await?;
        let term = primary.term.as_mut().expect("ensure_term has set it");
        term.admit(nodes);
        // The logs' contents and the mark are of one moment: no update runs in this turn.
        let appended = term.waiting.newest_of(&decode);
        Ok((term.epoch, term.mark, appended))
    }

    /// The last update that this primary knows to be committed, also when its term is over. Marks that were not sent
    /// before the node's lease expired are known to it alone, and so is that a later update was not acknowledged.
    pub(crate) fn last_committed(&self, stripe: StripeId) -> Option<AttestedCut> {
        let stripes = self.stripes.lock().unwrap_or_else(PoisonError::into_inner);
        stripes.get(&stripe)?.settled.lock().last
    }

    fn led(&self, stripe: StripeId) -> Arc<LedStripe> {
        let mut stripes = self.stripes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = stripes.len() >= self.limits.primary_stripe_count;
        if is_full && !stripes.contains_key(&stripe) {
            stripes.retain(|_, led| !is_forgettable(led));
        }
        Arc::clone(stripes.entry(stripe).or_default())
    }

    /// The same as [`Primaries::ensure_term`], with a new term if a node that the present one's settlement
    /// has asked is declared failed: updates that leave its chunk out need a new term.
    async fn ensure_whole_term(
        &self,
        primary: &mut Primary,
        (stripe, file): (StripeId, Option<PutId>),
        nodes: &[NodeStatus],
    ) -> Result<(), Refusal> {
        if primary
            .term
            .as_ref()
            .is_some_and(|term| term.has_lost(nodes))
        {
            primary.renounce();
        }
        self.ensure_term(primary, stripe, file).await?;
        if let Some(term) = &mut primary.term {
            term.admit(nodes);
        }
        Ok(())
    }

    /// Gets a lease and settles the stripe under it, unless there is a term already.
    async fn ensure_term(
        &self,
        primary: &mut Primary,
        stripe: StripeId,
        file: Option<PutId>,
    ) -> Result<(), Refusal> {
        if primary.term.is_some() {
            return Ok(());
        }
        let membership = self.membership();
        let lease = self.acquire(stripe, file).await?;
        primary.settled.grant(lease.epoch);
        let token = KnownToken::of(file, lease.token, membership);
        self.ports.learn_nodes(&lease.nodes);
        let failed = failed_nodes(&lease.nodes);
        let (stripe_then, former) = (&lease.stripe, &lease.former);
        let holdings = collect(&*self.ports, stripe_then, former, lease.epoch, &failed).await?;
        let code = self.code(&lease.pool.spec.code)?;
        let geometry = geometry_of(&lease.stripe, &code)?;
        check_leased_copies(&lease, &code, geometry, &failed)?;
        if !is_proof(&code, &holdings) {
            // This few nodes cannot prove which updates were committed.
            let too_few = format!("{} of {} nodes", holdings.len(), lease.stripe.nodes.len());
            return Err(Refusal::Unavailable(format!(
                "the stripe is down to {too_few} and"
            )));
        }
        let asked = holdings.keys().copied().collect();
        let outcome = recovery_rule(&holdings);
        let exclusion = exclusion(&lease.stripe, &failed, lease.epoch, &outcome);
        verify_survivors(&*self.ports, &code, &lease.stripe, &exclusion, &holdings).await?;
        // A reader may see an update that stands as soon as one node has heard of it.
        primary.settled.forget();
        self.report_settling(lease.stripe.id, exclusion).await?;
        resolve(&*self.ports, &lease.stripe, lease.epoch, &failed, &outcome).await?;
        let topology = topology_of(&lease.stripe, &lease.nodes)?;
        let (stripe, pool_id, pool) = (lease.stripe, lease.pool.id, lease.pool.spec);
        let keepings = update::keepings(pool.update, pool.reserve, stripe.chunk_bytes);
        let waiting = outcome.waiting(&stripe);
        let append = pool.append.map(|spec| (pool_id, spec));
        if let Some(of) = append.as_ref().filter(|_| !waiting.is_empty()) {
            let bytes = waiting.ranges().iter().map(|part| part.range.length).sum();
            let now_ms = self.ports.now_ms();
            lock(&self.phases).note((of.0, &of.1), stripe.id, bytes, now_ms);
        }
        primary.begin(Term {
            epoch: lease.epoch,
            stripe,
            topology,
            geometry,
            code,
            scheme: update::scheme(pool.update),
            names: (pool.name, pool.update.name()),
            keepings,
            mark: outcome.mark,
            next: outcome.next,
            asked,
            joined: Vec::new(),
            left_out: Vec::new(),
            waiting,
            append,
            appends: lease.appends,
            joins: lease.joins,
            token,
        });
        Ok(())
    }

    async fn acquire(&self, stripe: StripeId, file: Option<PutId>) -> Result<StripeLease, Refusal> {
        let request = ask::Acquire {
            stripe,
            node: self.node,
            incarnation: self.incarnation,
            file,
        };
        let lease = self.ports.ask_coordinator(request, COORDINATOR_DEADLINE_MS);
        match lease.await {
            Ok(lease) => lease.map_err(Refusal::NotPrimary),
            Err(CoordinatorError::Busy(denial)) => Err(Refusal::Interrupted(denial.sentence)),
            // It ends, and another one, or its next run, answers soon.
            Err(CoordinatorError::Refused(why)) if why.cause == Cause::NotLeading => {
                Err(Refusal::Interrupted(why.sentence))
            }
            Err(CoordinatorError::Silent(error)) => Err(Refusal::Unavailable(error.peer)),
            Err(error) => Err(Refusal::Failed(error.to_string())),
        }
    }

    /// Notes at the coordinator which chunks this settlement leaves out, and which updates stand without
    /// them. The note must be durable before the survivors resolve, because they forget these updates then.
    async fn report_settling(&self, stripe: StripeId, exclusion: Exclusion) -> Result<(), Refusal> {
        if exclusion.nodes.is_empty() {
            return Ok(());
        }
        let request = ask::Settling { stripe, exclusion };
        self.tell_coordinator(request).await
    }

    /// Tells the nodes of the stripe the committed mark. No guarantee depends on it: a node that misses it
    /// here asks later. Nodes of chunks that have missed updates must not get it: to them the mark would
    /// mean that they have all of them.
    fn spread_mark(&self, term: &Term) {
        let mark = CommittedMark {
            stripe: term.stripe.id,
            epoch: term.epoch,
            sequence: term.mark,
        };
        let told = term.stripe.chunks().filter(|&chunk| !term.misses(chunk));
        for node in told.filter_map(|chunk| term.stripe.node_of(chunk)) {
            self.marks.tell(node, mark);
        }
    }

    fn code(&self, text: &str) -> Result<Code, Refusal> {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = codes.get(text) {
            return Ok(code.clone());
        }
        let code: Code = text
            .parse()
            .map_err(|error| Refusal::Failed(format!("the pool's code is unknown: {error}")))?;
        codes.insert(text.to_owned(), code.clone());
        Ok(code)
    }
}

impl Default for LedStripe {
    fn default() -> Self {
        Self::new(Primary::default())
    }
}

impl LedStripe {
    fn new(primary: Primary) -> Self {
        let settled = Arc::clone(&primary.settled);
        Self {
            turns: Turns::default(),
            line: Line::default(),
            primary: AsyncMutex::new(primary),
            settled,
            append_pool: OnceLock::new(),
            file: OnceLock::new(),
        }
    }
}

impl Settled {
    fn note(&self, term: &Term) {
        *self.lock() = Committed {
            last: Some(AttestedCut::of_term(term.epoch, term.mark)),
            is_current: true,
        };
    }

    /// Notes a lease of the stripe, under which nothing is settled yet. The last update that is known to be committed
    /// stays the last one if no other lease was granted in between.
    fn grant(&self, epoch: Epoch) {
        let mut committed = self.lock();
        if let Some(last) = &mut committed.last
            && epoch.0 == last.until.0 + 1
        {
            last.until = epoch;
        }
    }

    /// Forgets the last committed update: a settlement is about to be made known.
    fn forget(&self) {
        self.lock().last = None;
    }

    fn lock(&self) -> MutexGuard<'_, Committed> {
        // The value is written in one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Primary {
    /// Begins a term: the stripe is settled under it.
    fn begin(&mut self, term: Term) {
        self.settled.note(&term);
        self.term = Some(term);
    }

    /// Notes that an update is committed.
    ///
    /// # Panics
    /// When there is no term.
    fn commit(&mut self, sequence: Sequence) -> &Term {
        let term = self.term.as_mut().expect("updates are made in a term");
        term.mark = sequence;
        self.settled.note(term);
        term
    }

    fn renounce(&mut self) {
        self.settled.lock().is_current = false;
        self.term = None;
    }
}

/// Whether a stripe may be forgotten: no request uses it. Its next term settles it anew.
fn is_forgettable(led: &Arc<LedStripe>) -> bool {
    led.primary.try_lock().is_some() && Arc::strong_count(led) == 1
}

/// The shape of a leased stripe.
fn geometry_of(stripe: &StripeRecord, code: &Code) -> Result<Geometry, Refusal> {
    let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), stripe.chunk_bytes)
        .map_err(|error| Refusal::Failed(error.to_string()))?;
    if stripe.nodes.len() != geometry.n() {
        let (id, count) = (stripe.id, stripe.nodes.len());
        return Err(Refusal::Failed(format!(
            "{id} was leased with {count} nodes, but its code has {} chunks",
            geometry.n()
        )));
    }
    Ok(geometry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A term that ends without another one leaves what it has committed.
    #[test]
    fn a_renounced_term_is_answered_for_and_not_current() {
        let mut primary = Primary::default();
        let last = AttestedCut::of_term(Epoch(3), Sequence(7));
        *primary.settled.lock() = Committed {
            last: Some(last),
            is_current: true,
        };
        primary.renounce();
        let committed = *primary.settled.lock();
        assert_eq!((committed.last, committed.is_current), (Some(last), false));
        let until = |primary: &Primary| primary.settled.lock().last.map(|last| last.until);
        primary.settled.grant(Epoch(4));
        assert_eq!(until(&primary), Some(Epoch(4)), "no other lease in between");
        primary.settled.grant(Epoch(6));
        assert_eq!(until(&primary), Some(Epoch(4)), "another one has led it");
        primary.settled.forget();
        assert_eq!(until(&primary), None);
    }

    #[test]
    fn a_stripe_in_use_is_not_forgotten() {
        let led = Arc::new(LedStripe::default());
        assert!(is_forgettable(&led));
        let waiting = Arc::clone(&led);
        assert!(!is_forgettable(&led));
        drop(waiting);
        let turn = led.primary.try_lock();
        assert!(!is_forgettable(&led));
        drop(turn);
    }
}
