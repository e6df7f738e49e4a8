//! The final table: operations, wrong cells, and the longest gaps of reads and writes for each kind
//! of fault.

use crate::episode::{Noted, Outcome};
use crate::faults::FaultKind;
use crate::recorder::{Counts, Gap, Kind};
use crate::stop::Stop;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The cause of a gap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cause {
    None,
    One(FaultKind),
    Several,
}

impl Cause {
    fn name(self) -> String {
        match self {
            Self::None => "no fault".to_owned(),
            Self::One(kind) => kind.name(),
            Self::Several => "several at once".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Row {
    fault_count: u64,
    read_us: u64,
    replaced_us: u64,
    write_us: u64,
    coordinated_us: u64,
}

/// The totals of all episodes.
#[derive(Debug)]
pub(crate) struct Report {
    seed: u64,
    episodes: u64,
    counts: Counts,
    rows: BTreeMap<Cause, Row>,
    errors: BTreeMap<String, u64>,
    /// The first failure, with its seed.
    failure: Option<(u64, Stop)>,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            episodes: 0,
            counts: Counts::default(),
            rows: BTreeMap::from([(Cause::None, Row::default())]),
            errors: BTreeMap::new(),
            failure: None,
        }
    }

    /// Adds an episode.
    pub(crate) fn add(&mut self, seed: u64, outcome: Outcome) {
        self.episodes += 1;
        let counts = outcome.recorded.counts;
        self.counts.read += counts.read;
        self.counts.written += counts.written;
        self.counts.named += counts.named;
        self.counts.failed += counts.failed;
        self.counts.forgotten += counts.forgotten;
        for (error, count) in outcome.recorded.errors {
            *self.errors.entry(error).or_default() += count;
        }
        for fault in &outcome.faults {
            let row = self.rows.entry(Cause::One(fault.kind)).or_default();
            row.fault_count += 1;
        }
        for gap in &outcome.recorded.gaps {
            let row = self.rows.entry(cause(gap, &outcome.faults)).or_default();
            let longest = match gap.kind {
                Kind::Read => &mut row.read_us,
                Kind::Replaced => &mut row.replaced_us,
                Kind::Write => &mut row.write_us,
                Kind::Coordinated => &mut row.coordinated_us,
            };
            *longest = (*longest).max(gap.to - gap.from);
        }
        if let Err(stop) = outcome.ended {
            self.failure = Some((seed, stop));
        }
    }

    /// The failure that ended the run.
    pub(crate) fn failure(&self) -> Option<&Stop> {
        self.failure.as_ref().map(|(_, stop)| stop)
    }

    /// Violated guarantees: the run ends at the first.
    fn wrong_count(&self) -> u64 {
        u64::from(matches!(self.failure(), Some(Stop::Broken(_))))
    }

    /// The report as JSON.
    pub(crate) fn as_json(&self) -> Value {
        let row = |(cause, row): (&Cause, &Row)| {
            json!({
                "fault": cause.name(),
                "count": row.fault_count,
                "longest_read_gap_s": row.read_us as f64 / 1e6,
                "longest_replaced_gap_s": row.replaced_us as f64 / 1e6,
                "longest_write_gap_s": row.write_us as f64 / 1e6,
                "longest_coordinated_gap_s": row.coordinated_us as f64 / 1e6,
            })
        };
        json!({
            "seed": self.seed,
            "episodes": self.episodes,
            "reads": self.counts.read,
            "writes": self.counts.written,
            "files": self.counts.named,
            "failed": self.counts.failed,
            "forgotten": self.counts.forgotten,
            "wrong": self.wrong_count(),
            "faults": self.rows.iter().map(row).collect::<Vec<_>>(),
            "errors": self.errors,
            "failure": self.failure.as_ref().map(|(seed, stop)| {
                json!({"seed": seed, "why": stop.to_string()})
            }),
        })
    }

    /// The report as text.
    pub(crate) fn print(&self) {
        println!(
            "{:<18} {:>6} {:>17} {:>17} {:>17} {:>17}",
            "longest gaps", "count", "reads", "replaced stripes", "writes", "coordinator"
        );
        for (cause, row) in &self.rows {
            let count = match cause {
                Cause::One(_) => row.fault_count.to_string(),
                Cause::None | Cause::Several => String::new(),
            };
            println!(
                "{:<18} {:>6} {:>17} {:>17} {:>17} {:>17}",
                cause.name(),
                count,
                seconds(row.read_us, *cause, Kind::Read),
                seconds(row.replaced_us, *cause, Kind::Replaced),
                seconds(row.write_us, *cause, Kind::Write),
                seconds(row.coordinated_us, *cause, Kind::Coordinated)
            );
        }
        println!(
            "* above the goal after a single failure: reads {} s, writes within a stripe {} s; reads of a\n  \
             stripe that another client has replaced, openings and writes across stripes wait for the\n  \
             coordinator",
            goal_s(Kind::Read),
            goal_s(Kind::Write)
        );
        let mut errors: Vec<_> = self.errors.iter().collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (error, count) in errors.into_iter().take(8) {
            println!("{count:>6} times: {error}");
        }
        println!(
            "seed {}, {} episodes: {} reads, {} writes and {} operations on whole files acknowledged;\n\
             {} failed, {} of them writes with an unknown outcome; {} wrong",
            self.seed,
            self.episodes,
            self.counts.read,
            self.counts.written,
            self.counts.named,
            self.counts.failed,
            self.counts.forgotten,
            self.wrong_count()
        );
        if let Some((seed, stop)) = &self.failure {
            println!("FAILED with seed {seed}: {stop}");
        }
    }
}

fn goal_s(kind: Kind) -> f64 {
    kind.goal_us().map_or(f64::INFINITY, |us| us as f64 / 1e6)
}

fn seconds(us: u64, cause: Cause, kind: Kind) -> String {
    let seconds = us as f64 / 1e6;
    let is_promised = match cause {
        Cause::One(FaultKind::KillCoordinator | FaultKind::StopCoordinator) => {
            kind != Kind::Replaced
        }
        Cause::One(_) => true,
        Cause::None | Cause::Several => false,
    };
    let is_late = is_promised && seconds > goal_s(kind);
    format!("{seconds:.2} s{}", if is_late { "*" } else { " " })
}

/// The faults that were active, or from which the cluster was recovering, during a gap.
fn cause(gap: &Gap, faults: &[Noted]) -> Cause {
    let is_there = |fault: &&Noted| {
        fault.began <= gap.to && fault.healed.is_none_or(|healed| healed >= gap.from)
    };
    let mut there = faults.iter().filter(is_there);
    match (there.next(), there.next()) {
        (None, _) => Cause::None,
        (Some(fault), None) => Cause::One(fault.kind),
        _ => Cause::Several,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: FaultKind, began: u64, healed: Option<u64>) -> Noted {
        Noted {
            kind,
            began,
            healed,
        }
    }

    #[test]
    fn a_gap_is_attributed_to_the_faults_during_it() {
        let faults = [
            fault(FaultKind::Kill, 10, Some(20)),
            fault(FaultKind::Stop, 30, Some(40)),
            fault(FaultKind::OneWay, 35, None),
        ];
        for (from, to, expected) in [
            (0, 9, Cause::None),
            (0, 10, Cause::One(FaultKind::Kill)),
            (15, 25, Cause::One(FaultKind::Kill)),
            (21, 29, Cause::None),
            (15, 30, Cause::Several),
            (36, 37, Cause::Several),
            (41, 99, Cause::One(FaultKind::OneWay)),
        ] {
            let kind = Kind::Read;
            assert_eq!(cause(&Gap { kind, from, to }, &faults), expected, "{from}");
        }
    }
}
