//! The log of slow operations: each with the reason, as far as the process knows it. A node's part of an update that
//! is slow is in that node's own log, and a slow sync beside it.

use gabion_layout::NodeId;
use gabion_protocol::measure::{Answered, Measure, Updated};
use gabion_protocol::message::Purpose;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines of a kind in one period; further slow operations of the period are only counted.
const LINE_COUNT_MAX: u32 = 20;
const PERIOD: Duration = Duration::from_secs(10);

/// Requests that wait by their nature.
const PATIENT: [&str; 7] = [
    "BeginJoin",
    "EndJoin",
    "CommitPool",
    "OpenExclusive",
    "CommitReplace",
    "ScrubAll",
    "Scrub",
];

/// Logs operations that take longer than a limit.
#[derive(Debug)]
pub(crate) struct SlowLog {
    limit: Duration,
    updates: Mutex<Said>,
    requests: Mutex<Said>,
    disk: Mutex<Said>,
}

/// Counts of logged lines of one kind, so that slow syncs do not displace slow updates.
#[derive(Debug)]
struct Said {
    since: Instant,
    line_count: u32,
    left_out_count: u64,
}

impl SlowLog {
    /// Logs what takes longer than this.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            updates: Mutex::new(Said::nothing()),
            requests: Mutex::new(Said::nothing()),
            disk: Mutex::new(Said::nothing()),
        }
    }

    /// Logs a measurement if it is slow.
    pub(crate) fn measured(&self, measure: &Measure<'_>) {
        match measure {
            Measure::Updated(updated) => {
                let took_us = updated.times.all_us();
                self.say(&self.updates, took_us, || reason_of(updated));
            }
            Measure::Answered(answered) if may_be_slow(answered) => {
                self.say(&self.requests, answered.took_us, || {
                    let purpose = answered.purpose.map(Purpose::name);
                    let purpose = purpose.map_or_else(String::new, |name| format!(" for {name}"));
                    format!("the request {}{purpose}", answered.request)
                });
            }
            Measure::Transaction { took_us } => self.say(&self.disk, *took_us, || {
                "a transaction of the metadata, including its wait for others".to_owned()
            }),
            _ => {}
        }
    }

    /// Logs a sync of the disk if it is slow.
    pub(crate) fn synced(&self, what: &str, time: Duration) {
        self.say(&self.disk, time.as_micros() as u64, || {
            format!("the disk's sync of a {what}")
        });
    }

    fn say(&self, said: &Mutex<Said>, took_us: u64, what: impl FnOnce() -> String) {
        if u128::from(took_us) < self.limit.as_micros() {
            return;
        }
        let admitted = lock(said).admit(Instant::now());
        if let Some(left_out_count) = admitted {
            let (ms, what) = (took_us / 1000, what());
            tracing::warn!(target: "slow", ms, left_out_count, "{ms} ms: {what}");
        }
    }
}

impl Said {
    fn nothing() -> Self {
        Self {
            since: Instant::now(),
            line_count: 0,
            left_out_count: 0,
        }
    }

    /// Whether a line may be written now; if so, how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) >= PERIOD {
            self.since = now;
            self.line_count = 0;
        }
        if self.line_count == LINE_COUNT_MAX {
            self.left_out_count += 1;
            return None;
        }
        self.line_count += 1;
        Some(std::mem::take(&mut self.left_out_count))
    }
}

fn lock(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    // Its counts are whole after every call.
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An update that was made is logged with its reasons, and repairs take as long as their limits say.
fn may_be_slow(answered: &Answered) -> bool {
    let is_client_path = match answered.purpose {
        Some(purpose) => matches!(
            purpose,
            Purpose::Client | Purpose::Update | Purpose::Replica | Purpose::Commit
        ),
        None => true,
    };
    let is_made = answered.request == "Update" && answered.refusal.is_none();
    is_client_path && !is_made && !PATIENT.contains(&answered.request)
}

/// Returns the parts of an update's time as a sentence.
fn reason_of(updated: &Updated<'_>) -> String {
    let times = &updated.times;
    let ms = |us: u64| us / 1000;
    let last = updated
        .last
        .as_ref()
        .map_or_else(String::new, |node: &NodeId| {
            format!(", the last answer came from {node}")
        });
    format!(
        "an update of pool {} by {}: {} ms for earlier updates of its stripe, {} ms for its lease, its plan and \
         commits before it, {} ms for the parts of its nodes{last}",
        updated.pool,
        updated.scheme,
        ms(times.turn_us),
        ms(times.term_us),
        ms(times.parts_us),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_protocol::measure::UpdateTimes;

    #[test]
    fn a_slow_update_tells_what_it_waited_for() {
        let updated = Updated {
            pool: "vm",
            scheme: "plr",
            bytes: 4096,
            times: UpdateTimes {
                turn_us: 1_000,
                term_us: 2_000,
                parts_us: 900_000,
            },
            last: Some(NodeId(5)),
        };
        let expected = "an update of pool vm by plr: 1 ms for earlier updates of its stripe, 2 ms for its lease, its plan \
                        and commits before it, 900 ms for the parts of its nodes, the last answer came from node 5";
        assert_eq!(reason_of(&updated), expected);
    }

    #[test]
    fn lines_are_limited_and_those_left_out_are_counted() {
        let mut said = Said::nothing();
        let begun = Instant::now();
        let admitted = (0..100).filter(|_| said.admit(begun).is_some());
        assert_eq!(admitted.count() as u32, LINE_COUNT_MAX);
        let later = begun + PERIOD + Duration::from_secs(1);
        assert_eq!(said.admit(later), Some(u64::from(100 - LINE_COUNT_MAX)));
        assert_eq!(said.admit(later), Some(0));
    }
}
