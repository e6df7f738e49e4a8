//! How fast this node's links to others are: from what repairs send over them, and from small probes
//! where nothing has been sent. The coordinator gathers what comes of it.
//!
//! A stream of a repair may be slow for other reasons than its link, so it can only show that a link is
//! faster than was known; a probe says how fast the link is at that moment, beside whatever else it
//! carries.

use gabion_layout::NodeId;
use gabion_protocol::message::{Liveness, NodeReply, NodeRequest, NodeStatus};
use gabion_protocol::ports::Ports;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// As little says nothing about a link: most of it may be in buffers.
const STREAM_BYTES_MIN: u64 = 1 << 20;
/// What a probe sends. A link of 100 Mbit/s needs 21 ms for it.
const PROBE_BYTES: usize = 256 << 10;
/// How often a link is looked for that needs a probe.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// How long a measurement is good.
const GOOD_FOR: Duration = Duration::from_mins(5);
/// How long a probe may take.
const PROBE_DEADLINE_MS: u64 = 5_000;

/// What is known of this node's links to others.
#[derive(Debug, Default)]
pub(crate) struct LinkRates {
    known: Mutex<BTreeMap<NodeId, Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    bytes_per_s: u64,
    at: Instant,
    is_news: bool,
}

impl LinkRates {
    /// Takes in what a stream to a node came to. It says nothing if it was short or slow.
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

    /// What was found out since the last time.
    pub(crate) fn take_news(&self) -> Vec<(NodeId, u64)> {
        let mut known = self.lock();
        let news = known.iter_mut().filter(|(_, known)| known.is_news);
        news.map(|(&node, known)| {
            known.is_news = false;
            (node, known.bytes_per_s)
        })
        .collect()
    }

    /// Whether a link has not been measured for long.
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
    let nanoseconds = took.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanoseconds).unwrap_or(u64::MAX)
}

/// Probes one link at a time that needs it, for as long as the process lives. `nodes` says who there is.
pub(crate) async fn probe_links(
    ports: Arc<dyn Ports>,
    rates: Arc<LinkRates>,
    own: NodeId,
    nodes: impl Fn() -> Vec<NodeStatus> + Send,
) {
    loop {
        tokio::time::sleep(PROBE_EVERY).await;
        let due = |status: &&NodeStatus| {
            status.node != own && status.liveness == Liveness::Up && rates.is_due(status.node)
        };
        let peers: Vec<NodeId> = nodes().iter().filter(due).map(|s| s.node).collect();
        // Not all nodes begin with the same one.
        let Some(&peer) = peers.iter().find(|&&peer| peer > own).or(peers.first()) else {
            continue;
        };
        // What a small one takes is not the link's bandwidth.
        let small = probe(&*ports, peer, 1).await;
        let large = probe(&*ports, peer, PROBE_BYTES).await;
        if let (Some(small), Some(large)) = (small, large) {
            rates.note(peer, rate(PROBE_BYTES as u64, large.saturating_sub(small)));
        }
    }
}

/// How long a probe takes to be answered; none when it is not.
async fn probe(ports: &dyn Ports, peer: NodeId, bytes: usize) -> Option<Duration> {
    let began = Instant::now();
    let bytes = vec![0; bytes].into();
    let answered = ports.call_node(peer, NodeRequest::Probe { bytes }, PROBE_DEADLINE_MS);
    (answered.await == Ok(NodeReply::Done)).then(|| began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

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
