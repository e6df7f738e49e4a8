//! How fast repairs are at present: what users allow, what the foreground leaves, and what is asked of
//! them. The arithmetic is `gabion_planner::manager`'s; here are the clock, the durable settings and
//! the nodes' word on how clients fare.

use crate::coordinator::Coordinator;
use crate::coordinator::core::{Answer, Denied, lock};
use crate::message::{CoordinatorReply, LinkRate, RepairOrder, Vitals};
use gabion_layout::{NodeId, Topology};
use gabion_meta::{KeyValue, Meta, RepairSettings};
use gabion_plan::LinkBytes;
use gabion_planner::manager::{Budget, Choice, Guard, Latencies, Limits, Progress};
use std::sync::Arc;

/// How often the guard looks at the foreground.
const GUARD_EVERY_MS: u64 = 1_000;
/// The slowest limit: below it a chunk of the largest size would take more than a month.
const BYTES_PER_S_MIN: u64 = 1_000;

/// What repairs are allowed and what they have done of late.
#[derive(Debug, Default)]
pub(in crate::coordinator) struct Throttle {
    settings: RepairSettings,
    budget: Budget,
    guard: Guard,
    /// What clients saw since the guard last looked.
    foreground: Latencies,
    /// What it found then.
    p99_ms: Option<u64>,
    /// Bytes that repairs began to send.
    sent: Progress,
    /// Bytes of chunks that repairs made.
    made: Progress,
}

impl Throttle {
    /// Nothing is under way yet.
    pub(in crate::coordinator) fn new(settings: RepairSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    pub(in crate::coordinator) fn is_paused(&self) -> bool {
        self.settings.is_paused
    }

    /// What users have set.
    pub(in crate::coordinator) fn limits(&self) -> Limits {
        limits_of(&self.settings)
    }

    pub(in crate::coordinator) fn p99_target_ms(&self) -> Option<u64> {
        self.settings.p99_target_ms
    }

    pub(in crate::coordinator) fn p99_ms(&self) -> Option<u64> {
        self.p99_ms
    }

    pub(in crate::coordinator) fn guard_bytes_per_s(&self) -> Option<u64> {
        self.guard.limit_bytes_per_s()
    }

    pub(in crate::coordinator) fn made(&mut self) -> &mut Progress {
        &mut self.made
    }

    /// What is in force: what users have set, or less while the foreground suffers.
    fn limits_now(&self) -> Limits {
        let set = self.limits();
        let guarded = self.guard.limit_bytes_per_s();
        let total = [set.total_bytes_per_s, guarded].into_iter().flatten().min();
        Limits {
            total_bytes_per_s: total,
            ..set
        }
    }

    /// Which of some repairs may begin.
    pub(in crate::coordinator) fn choose(
        &self,
        repairs: &[&[LinkBytes]],
        topology: &Topology,
        now_ms: u64,
    ) -> Choice {
        self.budget
            .choose(repairs, topology, &self.limits_now(), now_ms)
    }

    /// Takes what a repair is to send from the budget. Over how long it is to spread that.
    pub(in crate::coordinator) fn take(
        &mut self,
        links: &[LinkBytes],
        topology: &Topology,
        now_ms: u64,
    ) -> u64 {
        let bytes = links.iter().map(|link| link.bytes).sum();
        self.sent.note(bytes, now_ms);
        let limits = self.limits_now();
        self.budget.take(links, topology, &limits, now_ms)
    }

    /// Lets the guard look.
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

impl<K: KeyValue + Send + Sync + 'static> Coordinator<K> {
    /// Takes in how a node and its clients fare.
    pub(in crate::coordinator) fn note_vitals(&self, node: NodeId, vitals: &Vitals) {
        self.note_space(node, vitals);
        lock(&self.throttle).foreground.add(&vitals.foreground);
        let now_ms = self.core.ports.now_ms();
        let mut links = lock(&self.links);
        for &(to, bytes_per_s) in &vitals.links {
            links.note(node, to, bytes_per_s, now_ms);
        }
    }

    /// What links were found to carry.
    pub(in crate::coordinator) fn link_rates(&self) -> CoordinatorReply {
        let now_ms = self.core.ports.now_ms();
        let links = lock(&self.links);
        let rates = links.all().map(|(from, to, measured)| LinkRate {
            from,
            to,
            bytes_per_s: measured.bytes_per_s,
            age_ms: now_ms.saturating_sub(measured.at_ms),
        });
        CoordinatorReply::Links(rates.collect())
    }

    /// Lets the guard look at the foreground, until the metadata store fails.
    pub(in crate::coordinator) async fn guard_foreground(self: Arc<Self>) {
        while !self.core.is_broken() {
            self.core.ports.sleep_ms(GUARD_EVERY_MS).await;
            let now_ms = self.core.ports.now_ms();
            let changed = {
                let mut throttle = lock(&self.throttle);
                let before = throttle.guard_bytes_per_s();
                throttle.look(now_ms);
                throttle.guard_bytes_per_s() != before
            };
            if changed {
                self.repair_wake_up.wake();
            }
        }
    }

    /// Changes how repairs are made, durably.
    pub(in crate::coordinator) async fn order_repair(&self, order: RepairOrder) -> Answer {
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
        lock(&self.throttle).learn(settings);
        self.repair_wake_up.wake();
        Ok(CoordinatorReply::Done)
    }
}

fn check_limits(limits: &Limits) -> Result<(), Denied> {
    let all = [
        limits.node_bytes_per_s,
        limits.rack_bytes_per_s,
        limits.total_bytes_per_s,
    ];
    match all.into_iter().flatten().min() {
        Some(least) if least < BYTES_PER_S_MIN => Err(Denied(format!(
            "{least} bytes a second is no speed for repairs; allow {BYTES_PER_S_MIN} at least, or \
             pause them"
        ))),
        _ => Ok(()),
    }
}
