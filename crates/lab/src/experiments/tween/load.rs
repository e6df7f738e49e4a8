//! The writes of a volume, for the experiments on flash: in pages of 4 KiB, numbered without gaps, and
//! repeated until the log has been filled several times.

use crate::error::LabError;
use crate::experiment::{Scale, Session};
use crate::trace::{Request, RequestKind};
use crate::workload::{self, Workload};
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU64;

const PAGE_BYTES: u64 = 4096;
/// A volume whose writes touch fewer pages than this says nothing about a log of stripes.
const PAGES_LEAST: usize = 2000;

/// A volume's writes.
pub(super) struct Load {
    /// The trace, or the volume that a workload is made after.
    pub(super) name: String,
    /// First page and number of pages of each write.
    pub(super) writes: Vec<(u32, u32)>,
    /// Pages that the volume has: those that are written or read.
    pub(super) pages: u32,
    /// Per cent of written pages that had been accessed before, in one pass.
    pub(super) update_pct: f64,
    /// Times that all passes write as many pages as the volume has, at least.
    pub(super) turnover: f64,
    /// Passes over the writes.
    pub(super) passes: u32,
}

impl Load {
    /// Pages written in all passes.
    pub(super) fn written_pages(&self) -> u64 {
        let pass: u64 = self.writes.iter().map(|write| u64::from(write.1)).sum();
        pass * u64::from(self.passes)
    }

    /// Pages that leave a memory of this size before they are written again, if it keeps those that
    /// are written soonest. That would need to know the future (Belady's rule), so no policy has
    /// fewer.
    pub(super) fn leaving_pages(&self, memory_pages: usize) -> u64 {
        let writes = (0..self.passes).flat_map(|_| &self.writes);
        let pages: Vec<u32> = writes
            .flat_map(|&(first, count)| first..first + count)
            .collect();
        let mut next_at = vec![usize::MAX; pages.len()];
        let mut later = vec![usize::MAX; self.pages as usize];
        for (at, &page) in pages.iter().enumerate().rev() {
            next_at[at] = std::mem::replace(&mut later[page as usize], at);
        }
        let mut is_kept = vec![false; self.pages as usize];
        let mut kept_count = 0;
        // The next writes of kept pages, and past writes, which come out last.
        let mut latest: BinaryHeap<(usize, u32)> = BinaryHeap::new();
        let mut leaving = 0;
        for (&page, &next) in pages.iter().zip(&next_at) {
            latest.push((next, page));
            if std::mem::replace(&mut is_kept[page as usize], true) {
                continue;
            }
            if kept_count < memory_pages {
                kept_count += 1;
            } else if let Some((_, page)) = latest.pop() {
                is_kept[page as usize] = false;
                leaving += 1;
            }
        }
        leaving
    }

    /// Whether most of it is updates; the goals are for these loads.
    pub(super) fn is_hot(&self) -> bool {
        self.update_pct > 60.0
    }

    /// Requests as writes to pages. None where there are too few.
    fn new(
        name: String,
        requests: impl Iterator<Item = Result<Request, LabError>>,
        turnover: f64,
    ) -> Result<Option<Self>, LabError> {
        let mut numbers: BTreeMap<u64, u32> = BTreeMap::new();
        let mut ranges = Vec::new();
        let (mut written, mut updated) = (0_u64, 0_u64);
        for request in requests {
            let request = request?;
            let first = request.offset_bytes / PAGE_BYTES;
            let end = request.end_bytes().div_ceil(PAGE_BYTES);
            let mut known = 0;
            for page in first..end {
                known += u64::from(numbers.insert(page, 0).is_some());
            }
            if request.kind == RequestKind::Write {
                written += end - first;
                updated += known;
                ranges.push((first, (end - first) as u32));
            }
        }
        if numbers.len() < PAGES_LEAST {
            return Ok(None);
        }
        // Neighbours stay neighbours, and untouched addresses take no space.
        for (number, dense) in numbers.values_mut().zip(0..) {
            *number = dense;
        }
        let dense = |(first, count): (u64, u32)| (numbers[&first], count);
        let writes: Vec<(u32, u32)> = ranges.into_iter().map(dense).collect();
        let pages = numbers.len() as u32;
        Ok(Some(Self {
            name,
            writes,
            pages,
            update_pct: 100.0 * updated as f64 / written.max(1) as f64,
            turnover,
            passes: (turnover * f64::from(pages) / written.max(1) as f64)
                .ceil()
                .max(1.0) as u32,
        }))
    }
}

/// Volumes with calibrated workloads, and one of how many of their requests is made: so much that each has
/// some 40,000 to 100,000 pages.
const CALIBRATED: [(&str, u64); 5] = [
    ("rsrch_2", 2),
    ("src2_0", 2),
    ("usr_0", 8),
    ("ts_0", 3),
    ("src2_2", 64),
];

/// The loads of a scale: pieces of real traces if they exist, and calibrated workloads.
pub(super) fn loads(session: &Session<'_>) -> Result<Vec<Load>, LabError> {
    loads_of(session, turnover(session.scale))
}

fn loads_of(session: &Session<'_>, turnover: f64) -> Result<Vec<Load>, LabError> {
    let mut loads = Vec::new();
    for name in ["hm_1", "rsrch_1", "hm_0"] {
        if let Some((file, reader)) = session.volume(name)? {
            loads.extend(Load::new(file, reader, turnover)?);
        }
    }
    let machine = "cloudphysics/cloudPhysicsIO.csv.gz";
    if let Some(reader) = session.trace(machine)? {
        loads.extend(Load::new("cloudphysics".to_owned(), reader, turnover)?);
    }
    let count = session.scale.pick(1, CALIBRATED.len(), CALIBRATED.len());
    for (name, one_in) in &CALIBRATED[..count] {
        loads.extend(calibrated(name, *one_in, session, turnover)?);
    }
    if session.scale == Scale::Quick {
        loads.sort_by_key(Load::written_pages);
        loads.retain(|load| load.pages < 60_000);
    }
    Ok(loads)
}

/// The loads whose writes are mostly updates.
pub(super) fn hot_loads(session: &Session<'_>) -> Result<Vec<Load>, LabError> {
    hot_loads_of(session, turnover(session.scale))
}

fn hot_loads_of(session: &Session<'_>, turnover: f64) -> Result<Vec<Load>, LabError> {
    let mut loads = loads_of(session, turnover)?;
    loads.retain(Load::is_hot);
    Ok(loads)
}

fn calibrated(
    name: &str,
    one_in: u64,
    session: &Session<'_>,
    turnover: f64,
) -> Result<Option<Load>, LabError> {
    let Some(volume) = workload::volume(name) else {
        return Ok(None);
    };
    let divisor = session.scale.pick(one_in * 4, one_in, one_in);
    let target = volume
        .target
        .part(NonZeroU64::new(divisor).unwrap_or(NonZeroU64::MIN));
    let workload = Workload::new(target, session.seed)?;
    let title = format!("{name}, 1 in {divisor}");
    // A calibrated workload has enough writes for one pass; more would only take longer.
    let enough = (turnover * target.working_set_gib * 262_144.0) as usize;
    let requests = workload.requests().take(enough.max(10_000)).map(Ok);
    Load::new(title, requests, turnover)
}

/// The hot loads of experiments with many settings. At the usual scale they write less than the others do, and the
/// report says so.
pub(super) fn shorter_hot_loads(session: &Session<'_>) -> Result<Vec<Load>, LabError> {
    let turnover = turnover(session.scale);
    hot_loads_of(session, session.scale.pick(turnover, 3.0, turnover))
}

/// Returns the number of times a volume is overwritten.
fn turnover(scale: Scale) -> f64 {
    scale.pick(2.0, 5.0, 12.0)
}

/// The experiments' description of their loads.
pub(super) fn scaled(session: &Session<'_>, loads: &[Load]) -> Vec<String> {
    let of_others = turnover(session.scale);
    let turnover = loads.first().map_or(of_others, |load| load.turnover);
    let passes: Vec<String> = loads
        .iter()
        .map(|load| format!("{} {}", load.name, load.passes))
        .collect();
    let mut scaled = vec![
        format!(
            "volumes have only the pages that their traces touch, all filled before the measurement; a trace repeats \
            until it has written {} times its pages ({} passes)",
            turnover,
            passes.join(", ")
        ),
        "stripes, erase blocks and buffers are scaled down with the volumes: chunks of one erase block of \
         64 KiB, stripes of 256 KiB, so that the eight buffers hold 2 to 4 % of a volume"
            .to_owned(),
        format!(
            "calibrated workloads with seed {} replace volumes without traces here",
            session.seed
        ),
    ];
    if turnover < of_others {
        scaled.push(format!(
            "scaled down: writes of {turnover} times a volume's pages; the other experiments write {of_others} times"
        ));
    }
    scaled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_at_least_is_what_is_written_again_last() {
        let load = Load {
            name: String::new(),
            writes: vec![(0, 3), (0, 1), (3, 1), (1, 2)],
            pages: 4,
            update_pct: 0.0,
            turnover: 2.0,
            passes: 2,
        };
        // 0 1 2 0 3 1 2, twice: of three pages kept, 3 leaves each time as soon as it comes.
        assert_eq!(load.leaving_pages(4), 0);
        assert_eq!(load.leaving_pages(3), 2);
        // Nothing is written twice running, so a memory of none has all of them leave.
        assert_eq!(load.leaving_pages(0), 14);
    }
}
