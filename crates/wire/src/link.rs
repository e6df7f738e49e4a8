//! Emulated links: racks and slow networks on one machine, without privileges.
//!
//! Every node has an egress and an ingress link, every rack a link up and one down. Each is a
//! bucket with the time until which it is busy; a transmission pushes that time on for every link
//! on its path, and the sender waits until the last of them is done. The buckets lie in a small
//! file that all processes of the machine map, so their traffic shares links as it would share
//! cables. This is a model for trials: it delays, but it neither drops nor reorders.
//!
//! Links are passed at the same time, not one after the other, as slices pass cables and switches:
//! a transmission takes as long as the slowest link on its path and as the queue before it, and
//! flows that share no link do not slow each other.

// The memory map is a system call and the view of it as atomics a cast.
#![allow(unsafe_code)]

use gabion_layout::{NodeId, RackId};
use memmap2::MmapRaw;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::WireError;
use crate::hello::PeerIdentity;

/// The file's name in its directory.
const FILE_NAME: &str = "links";
/// The first word of the file: the format and its version.
const FORMAT: u64 = u64::from_ne_bytes(*b"GBNLINK1");
const HEADER_WORDS: usize = 3;
const BUCKET_WORDS: usize = 2;
/// A link that was idle may catch up on this time, which compensates for timers that fire late.
const BURST_NS: u64 = 2_000_000;
/// A link that seems busy for longer than this has a time from another boot of the machine.
const MAX_BACKLOG_NS: u64 = 3_600_000_000_000;

/// Speeds of the emulated links. 0 means unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkSpec {
    /// Every node's egress and ingress, each by itself.
    pub node_bytes_per_s: u64,
    /// Every rack's way up and down, each by itself.
    pub rack_bytes_per_s: u64,
}

/// The state of all emulated links of a machine, shared by its processes.
#[derive(Debug)]
pub struct LinkTable {
    /// Invariant: at least [`file_words`] words long, page-aligned, and never shortened.
    map: MmapRaw,
    node_count: u32,
    rack_count: u32,
}

/// One direction of one link, as a position in the table.
#[derive(Clone, Copy)]
enum Link {
    Egress(NodeId),
    Ingress(NodeId),
    Up(RackId),
    Down(RackId),
}

fn file_words(node_count: u32, rack_count: u32) -> usize {
    HEADER_WORDS + BUCKET_WORDS * 2 * (node_count as usize + rack_count as usize)
}

impl LinkTable {
    /// Makes the table of a new trial in `directory`, with room for nodes `0..node_count` and
    /// racks `0..rack_count`, all links idle. An older table there is replaced; processes that
    /// still map it keep it.
    ///
    /// # Errors
    /// [`WireError::Io`] when the file cannot be written or mapped.
    pub fn create(
        directory: &Path,
        spec: LinkSpec,
        node_count: u32,
        rack_count: u32,
    ) -> Result<Self, WireError> {
        let mut words = vec![0; file_words(node_count, rack_count)];
        words[0] = FORMAT;
        words[1] = u64::from(node_count);
        words[2] = u64::from(rack_count);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let path = directory.join(FILE_NAME);
        let new = directory.join(format!("{FILE_NAME}.{}.new", std::process::id()));
        let failed = |source| WireError::io(format!("create {}", path.display()), source);
        fs::write(&new, bytes)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(failed)?;
        let table = Self::open(directory)?;
        table.set_rates(spec);
        Ok(table)
    }

    /// Opens the table in `directory`.
    ///
    /// # Errors
    /// [`WireError::Io`] when there is none, or it is not a link table of this version.
    pub fn open(directory: &Path) -> Result<Self, WireError> {
        let path = directory.join(FILE_NAME);
        Self::map(&path).map_err(|error| WireError::io(format!("open {}", path.display()), error))
    }

    fn map(path: &PathBuf) -> std::io::Result<Self> {
        let file = fs::File::options().read(true).write(true).open(path)?;
        let map = MmapRaw::map_raw(&file)?;
        let wrong = || {
            let words = "it is not a link table of this release; restart the cluster";
            std::io::Error::new(std::io::ErrorKind::InvalidData, words)
        };
        if map.len() < HEADER_WORDS * 8 {
            return Err(wrong());
        }
        let mut table = Self {
            map,
            node_count: 0,
            rack_count: 0,
        };
        let [format, nodes, racks] = [0, 1, 2].map(|at| table.word(at).load(Ordering::Relaxed));
        let (Ok(nodes), Ok(racks)) = (u32::try_from(nodes), u32::try_from(racks)) else {
            return Err(wrong());
        };
        if format != FORMAT || table.map.len() != file_words(nodes, racks) * 8 {
            return Err(wrong());
        }
        (table.node_count, table.rack_count) = (nodes, racks);
        Ok(table)
    }

    /// Sets the speeds of all links, at once and for all processes. Transmissions under way keep their
    /// times.
    pub fn set_rates(&self, spec: LinkSpec) {
        for node in (0..self.node_count).map(NodeId) {
            self.rate(Link::Egress(node))
                .store(spec.node_bytes_per_s, Ordering::Relaxed);
            self.rate(Link::Ingress(node))
                .store(spec.node_bytes_per_s, Ordering::Relaxed);
        }
        for rack in (0..self.rack_count).map(RackId) {
            self.rate(Link::Up(rack))
                .store(spec.rack_bytes_per_s, Ordering::Relaxed);
            self.rate(Link::Down(rack))
                .store(spec.rack_bytes_per_s, Ordering::Relaxed);
        }
    }

    /// Reserves the links from `from` to `to` for `bytes`; returns the time until they have passed.
    ///
    /// A process without node id passes no node link, and one without rack passes no rack link: a client's
    /// traffic uses the other side's own link only. A node or rack beyond the size of the table, such as a
    /// node that has joined a trial by hand, has no link of its own here either.
    pub fn reserve(&self, from: &PeerIdentity, to: &PeerIdentity, bytes: u64) -> Duration {
        self.reserve_at(monotonic_ns(), from, to, bytes)
    }

    /// [`LinkTable::reserve`] for a given time.
    fn reserve_at(
        &self,
        now_ns: u64,
        from: &PeerIdentity,
        to: &PeerIdentity,
        bytes: u64,
    ) -> Duration {
        let rack_links = match (from.rack, to.rack) {
            (Some(from), Some(to)) if from != to => [Some(Link::Up(from)), Some(Link::Down(to))],
            _ => [None, None],
        };
        let node_links = if from.node == to.node {
            [None, None]
        } else {
            [from.node.map(Link::Egress), to.node.map(Link::Ingress)]
        };
        let done_ns = node_links
            .into_iter()
            .chain(rack_links)
            .flatten()
            .filter(|&link| self.has(link))
            .map(|link| self.reserve_link(now_ns, link, bytes))
            .max();
        Duration::from_nanos(done_ns.unwrap_or(now_ns).saturating_sub(now_ns))
    }

    fn has(&self, link: Link) -> bool {
        match link {
            Link::Egress(node) | Link::Ingress(node) => node.0 < self.node_count,
            Link::Up(rack) | Link::Down(rack) => rack.0 < self.rack_count,
        }
    }

    /// Pushes one link's time on; returns when it has passed the bytes.
    fn reserve_link(&self, now_ns: u64, link: Link, bytes: u64) -> u64 {
        let bytes_per_s = self.rate(link).load(Ordering::Relaxed);
        if bytes_per_s == 0 {
            return now_ns;
        }
        let busy_until = self.busy_until(link);
        let mut seen = busy_until.load(Ordering::Relaxed);
        loop {
            let done_ns = done_at(now_ns, seen, bytes, bytes_per_s);
            let swapped = busy_until.compare_exchange_weak(
                seen,
                done_ns,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return done_ns,
                Err(current) => seen = current,
            }
        }
    }

    fn busy_until(&self, link: Link) -> &AtomicU64 {
        self.word(self.bucket(link))
    }

    fn rate(&self, link: Link) -> &AtomicU64 {
        self.word(self.bucket(link) + 1)
    }

    /// The first word of a link's bucket.
    fn bucket(&self, link: Link) -> usize {
        let (nodes, racks) = (self.node_count as usize, self.rack_count as usize);
        let (start, number, count) = match link {
            Link::Egress(node) => (0, node.0 as usize, nodes),
            Link::Ingress(node) => (nodes, node.0 as usize, nodes),
            Link::Up(rack) => (2 * nodes, rack.0 as usize, racks),
            Link::Down(rack) => (2 * nodes + racks, rack.0 as usize, racks),
        };
        assert!(
            number < count,
            "the link table has {count} links of this kind, not {number}"
        );
        HEADER_WORDS + BUCKET_WORDS * (start + number)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(
            (at + 1) * 8 <= self.map.len(),
            "word {at} lies behind the link table's end"
        );
        let words: *mut u64 = self.map.as_mut_ptr().cast();
        // SAFETY: the map is page-aligned, at least `at + 1` words long and lives as long as
        // `self`; all processes use it only through atomics. The file is renamed into place whole
        // and nothing here shortens it, so the mapped pages stay backed.
        unsafe { AtomicU64::from_ptr(words.add(at)) }
    }
}

/// The time when a link that is busy until `busy_until_ns` has passed `bytes` more that arrive now.
///
/// A link that has been idle starts up to [`BURST_NS`] in the past: a sender that wakes up late
/// then catches up, and over any second the link passes at most that much more than it should.
fn done_at(now_ns: u64, busy_until_ns: u64, bytes: u64, bytes_per_s: u64) -> u64 {
    let earliest_ns = now_ns.saturating_sub(BURST_NS);
    let is_plausible = busy_until_ns <= now_ns.saturating_add(MAX_BACKLOG_NS);
    let start_ns = if is_plausible {
        busy_until_ns.max(earliest_ns)
    } else {
        earliest_ns
    };
    let cost_ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_s));
    start_ns.saturating_add(u64::try_from(cost_ns).unwrap_or(u64::MAX))
}

/// The machine's monotonic clock, which all its processes share.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests;
