//! The present speed of repairs: the users' limits, the guard of foreground traffic, and the demand. The
//! arithmetic is in `gabion_planner::manager`; here are the clock, the durable settings and the nodes'
//! reports of client latency.

use super::backlog::Backlog;
use crate::coordinator::core::{Answer, Core, lock};
use crate::message::{Cause, Denial, NodeHealth, RepairOrder, RepairStatus};
use gabion_layout::Topology;
use gabion_meta::{KeyValue, Meta, RepairSettings};
use gabion_plan::LinkBytes;
use gabion_planner::manager::{Budget, Choice, Guard, Latencies, Limits, Progress};
use std::sync::{Arc, Mutex};

/// Period of the guard's checks of the foreground.
const GUARD_EVERY_MS: u64 = 1_000;
/// The slowest limit: below it a chunk of the largest size would take more than a month.
const BYTES_PER_S_MIN: u64 = 1_000;

/// The limits of repairs and their recent transfers.
#[derive(Debug, Default)]
struct State {
    settings: RepairSettings,
    budget: Budget,
    guard: Guard,
    /// Client latencies since the guard's last check.
    foreground: Latencies,
    /// The result of that check.
    p99_ms: Option<u64>,
    /// Bytes that repairs began to send.
    sent: Progress,
    /// Bytes of chunks that repairs made.
    made: Progress,
}

impl State {
    /// No repair is under way yet.
    fn new(settings: RepairSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// The users' settings.
    fn limits(&self) -> Limits {
        limits_of(&self.settings)
    }

    fn guard_bytes_per_s(&self) -> Option<u64> {
        self.guard.limit_bytes_per_s()
    }

    /// The limits in force: the users' settings, or less while foreground latency suffers.
    fn limits_now(&self) -> Limits {
        let set = self.limits();
        let guarded = self.guard.limit_bytes_per_s();
        let total = [set.total_bytes_per_s, guarded].into_iter().flatten().min();
        Limits {
            total_bytes_per_s: total,
            ..set
        }
    }

    /// The repairs of a list that may begin.
    fn choose(&self, repairs: &[&[LinkBytes]], topology: &Topology, now_ms: u64) -> Choice {
        self.budget
            .choose(repairs, topology, &self.limits_now(), now_ms)
    }

    /// Takes a repair's transfer from the budget. Returns the time over which to spread it.
    fn take(&mut self, links: &[LinkBytes], topology: &Topology, now_ms: u64) -> u64 {
        let bytes = links.iter().map(|link| link.bytes).sum();
        self.sent.note(bytes, now_ms);
        let limits = self.limits_now();
        self.budget.take(links, topology, &limits, now_ms)
    }

    /// Runs the guard's check.
    fn look(&mut self, now_ms: u64) {
        let foreground = std::mem::take(&mut self.foreground);
        self.p99_ms = foreground.p99_ms();
        let sent = self.sent.bytes_per_s(now_ms);
        self.guard
            .observe(self.settings.p99_target_ms, &foreground, sent);
    }

    fn learn(&mut self, settings: RepairSettings) {
        if limits_of(&settings) != self.limits() {
            self.budget.clear();
        }
        self.settings = settings;
    }
}

fn limits_of(settings: &RepairSettings) -> Limits {
    Limits {
        node_bytes_per_s: settings.node_bytes_per_s,
        rack_bytes_per_s: settings.rack_bytes_per_s,
        total_bytes_per_s: settings.total_bytes_per_s,
    }
}

/// The limits of repairs and conversions, and the guard of the foreground.
pub(in crate::coordinator) struct Throttle<K> {
    core: Arc<Core<K>>,
    backlog: Arc<Backlog<K>>,
    state: Mutex<State>,
}

impl<K: KeyValue + Send + Sync + 'static> Throttle<K> {
    /// No repair is under way yet.
    pub(super) fn new(
        core: &Arc<Core<K>>,
        backlog: &Arc<Backlog<K>>,
        settings: RepairSettings,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            backlog: Arc::clone(backlog),
            state: Mutex::new(State::new(settings)),
        }
    }

    /// Whether users have paused repairs.
    pub(super) fn is_paused(&self) -> bool {
        lock(&self.state).settings.is_paused
    }

    /// The repairs of a list that may begin.
    pub(super) fn choose(
        &self,
        repairs: &[&[LinkBytes]],
        topology: &Topology,
        now_ms: u64,
    ) -> Choice {
        lock(&self.state).choose(repairs, topology, now_ms)
    }

    /// Whether a repair with this transfer may go on now.
    pub(super) fn may_begin(&self, links: &[LinkBytes], topology: &Topology, now_ms: u64) -> bool {
        let state = lock(&self.state);
        let choice = state.choose(&[links], topology, now_ms);
        !state.settings.is_paused && choice == Choice::Begin(0)
    }

    /// Takes a repair's transfer from the budget. Returns the time over which to spread it.
    pub(in crate::coordinator) fn take(
        &self,
        links: &[LinkBytes],
        topology: &Topology,
        now_ms: u64,
    ) -> u64 {
        lock(&self.state).take(links, topology, now_ms)
    }

    /// Takes the transfer if the budget allows it now.
    ///
    /// # Errors
    /// When to retry, if the budget allows it later.
    pub(in crate::coordinator) fn try_take(
        &self,
        links: &[LinkBytes],
        topology: &Topology,
        now_ms: u64,
    ) -> Result<u64, Option<u64>> {
        let mut state = lock(&self.state);
        match state.choose(&[links], topology, now_ms) {
            Choice::Begin(_) if !state.settings.is_paused => {
                Ok(state.take(links, topology, now_ms))
            }
            Choice::Later(at_ms) => Err(Some(at_ms)),
            Choice::Begin(_) | Choice::Nothing => Err(None),
        }
    }

    /// Notes that a repair begins.
    pub(super) fn begin(&self, now_ms: u64) {
        lock(&self.state).made.begin(now_ms);
    }

    /// Notes a rebuilt chunk of this many bytes.
    pub(super) fn note_made(&self, bytes: u64, now_ms: u64) {
        lock(&self.state).made.note(bytes, now_ms);
    }

    /// Notes that no repair is under way.
    pub(super) fn rest(&self) {
        lock(&self.state).made.rest();
    }

    /// The present and allowed speed of repairs, and the time that they will take.
    pub(in crate::coordinator) fn tell_speed(&self, repair: &mut RepairStatus) {
        let now_ms = self.core.ports.now_ms();
        let state = lock(&self.state);
        repair.bytes_per_s = state.made.bytes_per_s(now_ms);
        repair.rest_ms = state.made.rest_ms(repair.left_bytes, now_ms);
        repair.is_paused = state.settings.is_paused;
        repair.limits = state.limits();
        repair.p99_target_ms = state.settings.p99_target_ms;
        repair.p99_ms = state.p99_ms;
        repair.guard_bytes_per_s = state.guard_bytes_per_s();
    }

    /// Notes the client latencies of a node.
    pub(in crate::coordinator) fn note_foreground(&self, health: &NodeHealth) {
        lock(&self.state).foreground.add(&health.foreground);
    }

    /// Runs the guard's checks of the foreground, until the metadata store fails.
    pub(in crate::coordinator) async fn guard(self: Arc<Self>) {
        while !self.core.is_broken() {
            self.core.ports.sleep_ms(GUARD_EVERY_MS).await;
            let now_ms = self.core.ports.now_ms();
            let changed = {
                let mut state = lock(&self.state);
                let before = state.guard_bytes_per_s();
                state.look(now_ms);
                state.guard_bytes_per_s() != before
            };
            if changed {
                self.backlog.wake();
            }
        }
    }

    /// Changes how repairs are made, durably.
    pub(in crate::coordinator) async fn order(&self, order: RepairOrder) -> Answer<()> {
        if let RepairOrder::Limit { limits, .. } = &order {
            check_limits(limits)?;
        }
        let change = move |settings: &mut RepairSettings| match order {
            RepairOrder::Pause => settings.is_paused = true,
            RepairOrder::Resume => settings.is_paused = false,
            RepairOrder::Limit {
                limits,
                p99_target_ms,
            } => {
                settings.node_bytes_per_s = limits.node_bytes_per_s;
                settings.rack_bytes_per_s = limits.rack_bytes_per_s;
                settings.total_bytes_per_s = limits.total_bytes_per_s;
                settings.p99_target_ms = p99_target_ms;
            }
        };
        let changed = self
            .core
            .with_meta(move |meta: &Meta<K>| meta.change_repair_settings(change));
        let settings = changed.await?;
        lock(&self.state).learn(settings);
        self.backlog.wake();
        Ok(())
    }
}

fn check_limits(limits: &Limits) -> Result<(), Denial> {
    let all = [
        limits.node_bytes_per_s,
        limits.rack_bytes_per_s,
        limits.total_bytes_per_s,
    ];
    match all.into_iter().flatten().min() {
        Some(least) if least < BYTES_PER_S_MIN => Err(Denial::new(
            Cause::Invalid,
            format!(
                "a limit of {least} bytes a second is too low for repairs; allow at least \
             {BYTES_PER_S_MIN}, or pause repairs"
            ),
        )),
        _ => Ok(()),
    }
}
