//! The shared part of COD-F56 and COD-F57: the reserves of all segments over a file server's 41 days, under
//! several strategies at once (`CodFS` thesis, section 5.3.2).
//!
//! As on a node, the planner's reserve manager decides the sizes; this file only counts bytes.
//! Both parity chunks of a segment get a delta of every update, so one reserve stands for both.

use crate::error::LabError;
use crate::experiment::{Report, Scale, Session};
use crate::trace::RequestKind;
use crate::workload::{self, Workload};
use gabion_layout::ReserveSpec;
use gabion_planner::reserve::{Demand, Policy, Reserve, Usage};
use std::collections::HashMap;
use std::num::NonZeroU64;

const MIB: u64 = 1 << 20;
/// Data bytes of a segment.
pub(super) const SEGMENT_BYTES: u64 = 16 * MIB;
/// Data and parity chunks of a segment.
const DATA_CHUNKS: u64 = 8;
const PARITY_CHUNKS: u64 = 2;
pub(super) const CHUNK_BYTES: u64 = SEGMENT_BYTES / DATA_CHUNKS;
/// The initial state of a reserve.
const FIRST_BYTES: u64 = 16 * MIB;
/// From one review to the next, in units of 100 ns: reviews are at 00:00 and 12:00.
const PERIOD_TICKS: u64 = 12 * 3600 * 10_000_000;

/// How a reserve begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// With its segment, and measured first.
    Measured,
    /// With its segment, and counted as used until a review.
    Used,
    /// With the first update of its segment.
    FirstUpdate {
        /// Whether its size is what other reserves have needed, as far as that is learnt.
        learns: bool,
    },
}

/// A way of managing reserves.
pub(super) struct Strategy {
    pub(super) name: &'static str,
    first_bytes: u64,
    /// None keeps the first size.
    policy: Option<Policy>,
    begins: Begins,
    /// Whether the thesis does not have it.
    is_ours: bool,
}

impl Strategy {
    /// The first size that the strategy has learnt, if it learns.
    fn learnt_bytes(&self, demand: &Demand) -> Option<u64> {
        let learns = self.begins == Begins::FirstUpdate { learns: true };
        demand.first_bytes(self.policy.as_ref().filter(|_| learns)?)
    }

    /// The reserve of a new segment.
    fn fresh(&self) -> Held {
        let mut reserve = Reserve::default();
        let waits = matches!(self.begins, Begins::FirstUpdate { .. });
        let usage = Usage {
            reserved_bytes: if waits { 0 } else { self.first_bytes },
            ..Usage::default()
        };
        if let Some(policy) = self.policy.filter(|_| self.begins == Begins::Used) {
            let used_bytes = usage.reserved_bytes;
            reserve.review(
                &policy,
                Usage {
                    used_bytes,
                    ..usage
                },
            );
        }
        Held {
            reserve,
            usage,
            waits,
            period_bytes: 0,
        }
    }
}

/// The thesis's five strategies, and ours.
pub(super) fn strategies() -> Vec<Strategy> {
    let fixed = |name, mib| Strategy {
        name,
        first_bytes: mib * MIB,
        policy: None,
        begins: Begins::Measured,
        is_ours: false,
    };
    let managed = |name, policy, begins| Strategy {
        name,
        first_bytes: FIRST_BYTES,
        policy: Some(policy),
        begins,
        is_ours: begins != Begins::Measured || policy.growth.is_some(),
    };
    let on_nodes = |name, learns| Strategy {
        first_bytes: CHUNK_BYTES,
        ..managed(
            name,
            Policy::of(&ReserveSpec::default(), CHUNK_BYTES),
            Begins::FirstUpdate { learns },
        )
    };
    let spec = ReserveSpec::default();
    let thesis = Policy::thesis(&spec, CHUNK_BYTES);
    let shrinks = Policy {
        merges: false,
        ..thesis
    };
    vec![
        fixed("2 MiB", 2),
        fixed("8 MiB", 8),
        fixed("16 MiB", 16),
        managed("shrink only", shrinks, Begins::Measured),
        managed("shrink+merge", thesis, Begins::Measured),
        managed("shrink only, from 1", shrinks, Begins::Used),
        managed("shrink+merge, from 1", thesis, Begins::Used),
        managed(
            "as nodes do, with growth",
            Policy::of(&spec, CHUNK_BYTES),
            Begins::Measured,
        ),
        on_nodes("from the first update, one chunk", false),
        on_nodes("from the first update, learnt", true),
    ]
}

/// The result of a strategy at the end of a period.
#[derive(Clone, Copy, Default)]
pub(super) struct Period {
    /// Reserved bytes over data and parity bytes, the thesis's gamma.
    pub(super) overhead: f64,
    /// Writes of the period.
    pub(super) writes: u64,
    /// Those of them that waited for a merge.
    pub(super) merges: u64,
    /// Those of them whose parity was updated in place, for want of a reserve.
    pub(super) in_place: u64,
}

/// A strategy's whole run.
pub(super) struct Outcome {
    pub(super) name: &'static str,
    /// Whether the thesis does not have the strategy.
    pub(super) is_ours: bool,
    pub(super) periods: Vec<Period>,
    /// The share of segments without a reserve at the end.
    pub(super) empty_share: f64,
}

impl Outcome {
    /// The overhead at the end.
    pub(super) fn overhead(&self) -> f64 {
        self.periods.last().map_or(0.0, |period| period.overhead)
    }

    /// Writes that waited for a merge, per 1,000.
    pub(super) fn merges_per_1000(&self) -> f64 {
        self.per_1000(|period| period.merges)
    }

    /// Writes that updated parity in place, per 1,000.
    pub(super) fn in_place_per_1000(&self) -> f64 {
        self.per_1000(|period| period.in_place)
    }

    fn per_1000(&self, count: fn(&Period) -> u64) -> f64 {
        let writes: u64 = self.periods.iter().map(|period| period.writes).sum();
        1000.0 * self.periods.iter().map(count).sum::<u64>() as f64 / writes.max(1) as f64
    }
}

/// One reserve.
struct Held {
    reserve: Reserve,
    usage: Usage,
    /// Whether it begins with an update that has not come.
    waits: bool,
    /// Bytes of the period's deltas.
    period_bytes: u64,
}

/// A strategy under way.
struct Run {
    strategy: Strategy,
    segments: Vec<Held>,
    demand: Demand,
    period: Period,
    periods: Vec<Period>,
}

impl Run {
    /// A delta comes to a segment's parity chunks.
    fn update(&mut self, segment: usize, bytes: u64) {
        while self.segments.len() <= segment {
            self.segments.push(self.strategy.fresh());
        }
        let Held {
            reserve,
            usage,
            waits,
            period_bytes,
        } = &mut self.segments[segment];
        *period_bytes += bytes;
        if *waits && bytes > 0 {
            *waits = false;
            let learnt_bytes = self.strategy.learnt_bytes(&self.demand);
            usage.reserved_bytes = learnt_bytes.unwrap_or(self.strategy.first_bytes);
        }
        if usage.used_bytes + bytes > usage.reserved_bytes {
            let is_without = usage.reserved_bytes == 0;
            self.period.in_place += u64::from(is_without);
            self.period.merges += u64::from(!is_without);
            usage.stall_count += 1;
            usage.used_bytes = 0;
            if let Some(policy) = self.strategy.policy {
                let learnt_bytes = self.strategy.learnt_bytes(&self.demand);
                let policy = Policy {
                    first_bytes: learnt_bytes.unwrap_or(policy.first_bytes),
                    ..policy
                };
                let grown = reserve.grow(&policy, *usage);
                usage.reserved_bytes = grown.unwrap_or(usage.reserved_bytes);
            }
        }
        if usage.used_bytes + bytes <= usage.reserved_bytes {
            usage.used_bytes += bytes;
        }
    }

    /// Ends a period: reserves are reviewed, and the decisions are carried out at once.
    fn review(&mut self) {
        if let Some(policy) = &self.strategy.policy {
            for held in self.segments.iter_mut().filter(|held| !held.waits) {
                let Held { reserve, usage, .. } = held;
                self.demand
                    .note(policy, std::mem::take(&mut held.period_bytes));
                let review = reserve.review(policy, *usage);
                usage.reserved_bytes = review.reserved_bytes;
                usage.stall_count = 0;
                if review.merges {
                    usage.used_bytes = 0;
                }
            }
        }
        let reserved: u64 = self
            .segments
            .iter()
            .map(|held| held.usage.reserved_bytes)
            .sum();
        let stored = self.segments.len() as u64 * (DATA_CHUNKS + PARITY_CHUNKS) * CHUNK_BYTES;
        self.period.overhead = (PARITY_CHUNKS * reserved) as f64 / stored.max(1) as f64;
        self.periods.push(std::mem::take(&mut self.period));
    }

    fn finish(self) -> Outcome {
        let is_empty = |held: &&Held| held.usage.reserved_bytes == 0;
        let empty_count = self.segments.iter().filter(is_empty).count();
        Outcome {
            name: self.strategy.name,
            is_ours: self.strategy.is_ours,
            periods: self.periods,
            empty_share: empty_count as f64 / self.segments.len().max(1) as f64,
        }
    }
}

/// The segment that holds a file's bytes. A segment is of one file, or of small files of one kind: files
/// that will be updated fill segments in the order of their numbers, the others in the order in which
/// they come.
struct Segments {
    updated_files: u64,
    file_bytes: u64,
    /// First address and end of the accessed range of each updated file.
    files: HashMap<u64, (u64, u64)>,
    /// Bytes of other files so far.
    other_bytes: u64,
    /// Numbers of segments by kind and position.
    numbers: HashMap<(bool, u64), usize>,
}

impl Segments {
    /// The segment of a request, and whether bytes there were accessed before.
    fn locate(&mut self, file: u64, offset: u64, length: u64) -> (usize, bool) {
        let is_hot = file < self.updated_files;
        let (position, is_known) = if is_hot {
            let (start, end) = self.files.entry(file).or_insert((offset, offset));
            let is_known = offset < *end;
            *end = (*end).max(offset + length);
            (file * self.file_bytes + (offset - *start), is_known)
        } else {
            self.other_bytes += length;
            (self.other_bytes - length, false)
        };
        let next = self.numbers.len();
        let number = *self
            .numbers
            .entry((is_hot, position / SEGMENT_BYTES))
            .or_insert(next);
        (number, is_known)
    }
}

/// One of how many of the file server's requests a scale runs.
pub(super) fn one_in(scale: Scale) -> u64 {
    scale.pick(2000, 4, 1)
}

/// A report without figures.
pub(super) fn begun(session: &Session<'_>) -> Report {
    Report {
        setting: setting(),
        scaled: scaled(session),
        ..Report::default()
    }
}

/// Runs all strategies on the file server's workload.
pub(super) fn run(session: &Session<'_>) -> Result<Vec<Outcome>, LabError> {
    let divisor = NonZeroU64::new(one_in(session.scale)).unwrap_or(NonZeroU64::MIN);
    let target = workload::HARVARD.target.part(divisor);
    let workload = Workload::new(target, session.seed)?;
    let updated_files = target.files.map_or(0, |files| files.updated);
    let hot_bytes =
        target.working_set_gib * target.updated_working_set_pct / 100.0 * (1_u64 << 30) as f64;
    let mut segments = Segments {
        updated_files,
        file_bytes: (hot_bytes / updated_files.max(1) as f64).ceil() as u64,
        files: HashMap::new(),
        other_bytes: 0,
        numbers: HashMap::new(),
    };
    let start = |strategy| Run {
        strategy,
        segments: Vec::new(),
        demand: Demand::default(),
        period: Period::default(),
        periods: Vec::new(),
    };
    let mut runs: Vec<Run> = strategies().into_iter().map(start).collect();
    let period_count = target.duration_ticks / PERIOD_TICKS;
    session
        .progress
        .begin("half days of a file server", period_count);
    let mut reviewed = 0;
    let mut requests = workload.requests();
    while let Some(request) = requests.next() {
        while reviewed < request.at_ticks / PERIOD_TICKS && reviewed < period_count {
            runs.iter_mut().for_each(Run::review);
            reviewed += 1;
            session.progress.step();
        }
        let file = requests.file();
        let (segment, is_known) = segments.locate(file, request.offset_bytes, request.length_bytes);
        for run in &mut runs {
            let bytes = if is_known { request.length_bytes } else { 0 };
            run.update(segment, bytes);
            run.period.writes += u64::from(request.kind == RequestKind::Write);
        }
    }
    while reviewed < period_count {
        runs.iter_mut().for_each(Run::review);
        reviewed += 1;
        session.progress.step();
    }
    Ok(runs.into_iter().map(Run::finish).collect())
}

/// Returns the setting of both experiments.
fn setting() -> Vec<String> {
    vec![
        "Cauchy Reed-Solomon with 8 data and 2 parity chunks of 2 MiB: segments of 16 MiB"
            .to_owned(),
        "workload after Table 3.1: 41 days, 91.56 % of writes are updates, of 10.58 KiB".to_owned(),
        "reviews at 00:00 and 12:00, alpha 0.3, 16 MiB behind each parity chunk on the first day"
            .to_owned(),
        "the thesis does not give the utility of a new reserve. By default the first review uses only its own \
        measurement; 'from 1' starts with a fully used reserve"
            .to_owned(),
        "a merge counts if an update waits because its reserve is full; merges by reviews do not count"
            .to_owned(),
    ]
}

/// Returns the differences of the setting from the thesis.
fn scaled(session: &Session<'_>) -> Vec<String> {
    vec![
        format!(
            "the Harvard traces are not here; a calibrated workload replaces them, with one in {} of the requests on \
            proportionally less data",
            one_in(session.scale)
        ),
        "its requests are spread evenly over the 41 days, without nights and bursts".to_owned(),
        "a segment holds one file, or small files of one kind, so segments with and without updates are separate; a \
        segment exists from its first access on"
            .to_owned(),
    ]
}
