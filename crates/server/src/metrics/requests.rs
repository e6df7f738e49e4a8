//! The counts of both roles: requests with their times and refusals, refusals before a request reached the role, and
//! events.

use super::labels::{Label, add, by_label, seconds_of_us, times};
use gabion_metrics::Page;
use gabion_protocol::measure::Answered;
use gabion_protocol::message::Purpose;
use gabion_wire::{ConnectionLimit, NotAdmitted, WireError};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The limit on the requests of a peer that are served.
const SERVED_REQUESTS: &str = "served_requests";
/// Causes for which connections and requests are turned away.
const TURNED_AWAY: [&str; 8] = [
    "sender",
    "untrusted",
    "wrong_cluster",
    "wrong_version",
    "tls",
    "corrupt",
    "late",
    "closed",
];

/// The requests of a process, its refusals and its events.
#[derive(Debug)]
pub(super) struct Requests {
    seconds: Family<[Label; 2], Histogram>,
    refusals: Family<[Label; 2], Counter>,
    /// The number of times each limit has refused something.
    limits: Mutex<BTreeMap<&'static str, u64>>,
    connections: Family<[Label; 1], Counter>,
    events: Family<[Label; 1], Counter>,
}

impl Requests {
    /// All counts are zero. Those of what is turned away are there from the beginning, because Prometheus sees no
    /// increase where a row appears.
    pub(super) fn new() -> Self {
        let limits = ConnectionLimit::ALL.map(ConnectionLimit::name);
        let limits = limits.into_iter().chain([SERVED_REQUESTS]);
        let connections = Family::<[Label; 1], Counter>::default();
        for reason in TURNED_AWAY {
            drop(connections.get_or_create(&[("reason", reason)]));
        }
        Self {
            seconds: Family::new_with_constructor(times),
            refusals: Family::default(),
            limits: Mutex::new(limits.map(|limit| (limit, 0)).collect()),
            connections,
            events: Family::default(),
        }
    }

    /// Counts an answered request.
    pub(super) fn answered(&self, answered: &Answered) {
        let request = ("request", answered.request);
        let purpose = answered.purpose.map_or("", Purpose::name);
        let seconds = self.seconds.get_or_create(&[request, ("purpose", purpose)]);
        seconds.observe(seconds_of_us(answered.took_us));
        if let Some(reason) = answered.refusal {
            let refusals = self.refusals.get_or_create(&[request, ("reason", reason)]);
            refusals.inc();
        }
    }

    /// Has a row for a kind of events from the beginning.
    pub(super) fn expect(&self, kind: &'static str) {
        drop(self.events.get_or_create(&[("kind", kind)]));
    }

    /// Counts an event.
    pub(super) fn happened(&self, kind: &'static str) {
        self.events.get_or_create(&[("kind", kind)]).inc();
    }

    /// Counts a request that did not reach the role.
    pub(super) fn not_admitted(&self, why: NotAdmitted) {
        match why {
            NotAdmitted::Sender => self.refused("sender"),
            NotAdmitted::ServedRequests => self.limited(SERVED_REQUESTS),
        }
    }

    /// Counts a connection that was not accepted.
    pub(super) fn not_accepted(&self, reason: &WireError) {
        match reason {
            WireError::Full(limit) => self.limited(limit.name()),
            WireError::Untrusted(_) => self.refused("untrusted"),
            WireError::WrongCluster { .. } => self.refused("wrong_cluster"),
            WireError::WrongVersion { .. } | WireError::UnclearVersions { .. } => {
                self.refused("wrong_version");
            }
            WireError::WantsTls | WireError::NoTls => self.refused("tls"),
            WireError::Corrupt(_) => self.refused("corrupt"),
            WireError::DeadlinePassed { .. } => self.refused("late"),
            // The peer has gone by itself.
            _ => self.refused("closed"),
        }
    }

    fn limited(&self, limit: &'static str) {
        *self.lock_limits().entry(limit).or_default() += 1;
    }

    fn lock_limits(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        // Its counts are whole after every call.
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, reason: &'static str) {
        self.connections.get_or_create(&[("reason", reason)]).inc();
    }

    /// Adds the counts to a page, with those of the role's own limits.
    pub(super) fn add_to(&self, page: &mut Page, limited: &BTreeMap<&'static str, u64>) {
        let own = self.lock_limits().clone();
        let limits = own.into_iter().chain(limited.clone());
        add! { page:
            add "request"[Unit::Seconds]:
                "Duration of requests from arrival to answer, by request and by the purpose of a plan's part",
                self.seconds.clone();
            add "refusals": "Requests that were refused or failed, by request and by the reason of the reply",
                self.refusals.clone();
            add "turned_away":
                "Connections and requests that were refused before they reached the role, by reason",
                self.connections.clone();
            add "events": "Events of the process's log, by kind", self.events.clone();
            counters "limit_refusals":
                "Connections, requests, bytes and frames refused by a limit per peer, by limit",
                by_label("limit", limits);
        }
    }
}
