//! The rates of this node's links to others: measured on the streams of repairs, and by small probes of
//! unused links. The coordinator collects the results.
//!
//! A stream of a repair may be slow for other reasons than its link, so it can only show that a link is
//! faster than known. A probe measures the rate that a link has left at that moment. On a slow link a probe
//! delays all other traffic, so probes there are short, rare, and wait for a quiet moment.

use gabion_layout::NodeId;
use gabion_protocol::message::{Liveness, Meter, NodeStatus, ask};
use gabion_protocol::ports::{Ask as _, Ports};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A shorter stream does not show a link's rate: most of it may be in buffers.
const STREAM_BYTES_MIN: u64 = 1 << 20;
/// Probe sizes, sent in this order until one is conclusive. A link of 100 Mbit/s needs 21 ms for the
/// largest.
const PROBE_SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// A probe is conclusive if it takes this much longer than a byte: for a link of 2 Mbit/s, 16 KiB are
/// enough.
const TELLING: Duration = Duration::from_millis(20);
/// A shorter time is noise of timers and of a busy machine, and counts as this. So a probe shows 262 MB/s at
/// most; streams show more.
const NOISE: Duration = Duration::from_millis(1);
/// Interval of the checks for a link that needs a probe.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// After probing a link, the node pauses for at least this many times the duration of the probes.
const SHARE: u32 = 100;
/// A node probes after this many consecutive checks without traffic: a single one may fall into a pause of
/// its work.
const QUIET_LOOK_COUNT: u32 = 5;
/// After this many checks without a quiet moment, a busy node probes all the same.
const BUSY_LOOK_COUNT: u32 = 150;
/// A measurement older than this is taken again.
const GOOD_FOR: Duration = Duration::from_mins(5);
/// Time limit of a probe.
const PROBE_DEADLINE_MS: u64 = 5_000;

/// The measured rates of this node's links to others.
#[derive(Debug, Default)]
pub struct LinkRates {
    known: Mutex<BTreeMap<NodeId, Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    bytes_per_s: u64,
    at: Instant,
    is_news: bool,
}

impl LinkRates {
    /// Notes the result of a stream to a node. A short or slow stream is ignored.
    pub(crate) fn note_stream(&self, to: NodeId, bytes: u64, took: Duration) {
        if bytes < STREAM_BYTES_MIN {
            return;
        }
        let bytes_per_s = rate(bytes, took);
        let is_faster = |known: &Known| bytes_per_s > known.bytes_per_s;
        if self.lock().get(&to).is_none_or(is_faster) {
            self.note(to, bytes_per_s);
        }
    }

    /// The results since the last call.
    pub(crate) fn take_news(&self) -> Vec<(NodeId, u64)> {
        let mut known = self.lock();
        let news = known.iter_mut().filter(|(_, known)| known.is_news);
        news.map(|(&node, known)| {
            known.is_news = false;
            (node, known.bytes_per_s)
        })
        .collect()
    }

    /// Whether a link's measurement is old.
    fn is_due(&self, to: NodeId) -> bool {
        let known = self.lock().get(&to).copied();
        known.is_none_or(|known| known.at.elapsed() >= GOOD_FOR)
    }

    fn note(&self, to: NodeId, bytes_per_s: u64) {
        let known = Known {
            bytes_per_s,
            at: Instant::now(),
            is_news: true,
        };
        self.lock().insert(to, known);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Known>> {
        // Each change is one insertion.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rate(bytes: u64, took: Duration) -> u64 {
    let nanoseconds = took.max(NOISE).as_nanos();
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanoseconds).unwrap_or(u64::MAX)
}

/// Probes links that need it, one at a time, until the process ends. `nodes` gives the cluster's nodes,
/// and `sent` the bytes that this node has sent so far.
pub async fn probe_links(
    ports: Arc<dyn Ports>,
    rates: Arc<LinkRates>,
    own: NodeId,
    nodes: impl Fn() -> Vec<NodeStatus> + Send,
    sent: impl Fn() -> Meter + Send,
) {
    // Nodes begin at different peers, and a peer that does not answer is asked again only after all others.
    let mut last = own;
    let mut pause = PROBE_EVERY;
    let mut quiet = Quiet::default();
    loop {
        tokio::time::sleep(pause).await;
        pause = PROBE_EVERY;
        let due = |status: &&NodeStatus| {
            status.node != own && status.liveness == Liveness::Up && rates.is_due(status.node)
        };
        let peers: Vec<NodeId> = nodes().iter().filter(due).map(|s| s.node).collect();
        let next = peers.iter().find(|&&peer| peer > last).or(peers.first());
        let Some(&peer) = next.filter(|_| quiet.is_now(sent())) else {
            continue;
        };
        last = peer;
        let began = Instant::now();
        if let Some(bytes_per_s) = probe_link(&*ports, peer).await {
            rates.note(peer, bytes_per_s);
        }
        pause = pause.max(began.elapsed() * SHARE);
    }
}

/// Finds quiet moments of a node.
#[derive(Debug, Default)]
struct Quiet {
    /// Bytes sent at the last check.
    sent: Meter,
    /// Consecutive checks without traffic.
    silent_count: u32,
    /// Checks since it was last quiet for long enough.
    vain_count: u32,
}

impl Quiet {
    /// Whether enough consecutive checks were quiet, or too many checks found no quiet moment.
    fn is_now(&mut self, sent: Meter) -> bool {
        let has_sent = sent != self.sent;
        self.sent = sent;
        self.silent_count = if has_sent { 0 } else { self.silent_count + 1 };
        self.vain_count += 1;
        let is_quiet = self.silent_count >= QUIET_LOOK_COUNT || self.vain_count >= BUSY_LOOK_COUNT;
        if is_quiet {
            self.vain_count = 0;
        }
        is_quiet
    }
}

/// The bandwidth that a link has left beside its present load, in bytes a second; none when the peer
/// does not answer. A link that does not carry a probe in time is no faster than the probe's bytes over
/// the time waited.
async fn probe_link(ports: &dyn Ports, peer: NodeId) -> Option<u64> {
    // The time of a single byte is latency; it is subtracted from each probe below.
    let Probed::Answered(byte) = probe(ports, peer, 1).await else {
        return None;
    };
    let mut bytes_per_s = None;
    for bytes in PROBE_SIZES {
        // One that was slow may have waited for a busy machine; what holds up two is the link. It also may
        // let a burst pass that is more than its rate.
        for is_second in [false, true] {
            let took = match probe(ports, peer, bytes).await {
                Probed::Answered(took) => took.saturating_sub(byte),
                Probed::Late(waited) => return Some(rate(bytes as u64, waited)),
                Probed::Refused => return None,
            };
            bytes_per_s = Some(rate(bytes as u64, took));
            if took < TELLING {
                break;
            }
            if is_second {
                return bytes_per_s;
            }
        }
    }
    bytes_per_s
}

/// The outcome of a probe.
enum Probed {
    /// The peer answered after this time.
    Answered(Duration),
    /// The peer did not answer within this timeout.
    Late(Duration),
    /// The peer cannot be asked.
    Refused,
}

async fn probe(ports: &dyn Ports, peer: NodeId, bytes: usize) -> Probed {
    let began = Instant::now();
    let bytes = vec![0; bytes].into();
    let answer = ports.ask_node(peer, ask::Probe { bytes }, PROBE_DEADLINE_MS);
    let is_answered = answer.await.is_ok();
    let took = began.elapsed();
    if is_answered {
        Probed::Answered(took)
    } else if took >= Duration::from_millis(PROBE_DEADLINE_MS) {
        Probed::Late(took)
    } else {
        Probed::Refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_protocol::message::Purpose;

    #[test]
    fn a_quiet_time_is_waited_for_and_not_for_ever() {
        let mut quiet = Quiet::default();
        let mut sent = Meter::default();
        let mut looks = |count: u32, is_busy: bool| -> Vec<bool> {
            let look = |_| {
                sent.count(None, None, Purpose::Update, u64::from(is_busy));
                quiet.is_now(sent.clone())
            };
            (0..count).map(look).collect()
        };
        // The first look sees an entry in the meter that was not there.
        looks(1, true);
        assert_eq!(looks(6, false), [false, false, false, false, true, true]);
        let busy = looks(BUSY_LOOK_COUNT, true);
        assert_eq!(busy.iter().filter(|now| **now).count(), 1);
        assert_eq!(busy.last(), Some(&true), "it has waited long enough");
        assert_eq!(looks(5, false), [false, false, false, false, true]);
    }

    #[test]
    fn a_time_too_short_to_measure_shows_no_higher_rate() {
        assert_eq!(rate(4 << 10, Duration::from_millis(2)), 2_048_000);
        for short in [Duration::ZERO, Duration::from_nanos(1), NOISE] {
            assert_eq!(rate(256 << 10, short), 262_144_000, "{short:?}");
        }
    }

    #[tokio::test]
    async fn streams_only_raise_what_is_known_and_news_are_told_once() {
        let rates = LinkRates::default();
        let (a, b) = (NodeId(1), NodeId(2));
        assert!(rates.is_due(a));
        rates.note_stream(a, STREAM_BYTES_MIN, Duration::from_secs(1));
        rates.note_stream(a, 2 * STREAM_BYTES_MIN, Duration::from_secs(4));
        rates.note_stream(b, STREAM_BYTES_MIN - 1, Duration::from_millis(1));
        assert_eq!(rates.take_news(), [(a, STREAM_BYTES_MIN)]);
        assert_eq!(rates.take_news(), []);
        assert!(!rates.is_due(a) && rates.is_due(b));
        rates.note_stream(a, 4 * STREAM_BYTES_MIN, Duration::from_secs(1));
        assert_eq!(rates.take_news(), [(a, 4 * STREAM_BYTES_MIN)]);
        rates.note(a, 7);
        assert_eq!(rates.take_news(), [(a, 7)], "a probe may lower it");
    }
}
