//! Experiments that count the cross-rack traffic of update schemes: those of CAU (section 5.1) and
//! of `RackCU` (section V-B). Their shared parts are here: the volumes, and one count of a volume.

pub(super) mod testbed;

use crate::error::LabError;
use crate::experiment::{Finding, Paper, Session, mean};
use crate::plot::Plot;
use crate::profile::Profile;
use crate::trace::Request;
use crate::update_traffic::{self, Options, Question, SchemeTraffic};
use crate::workload::{Target, VOLUMES, Volume, Workload, volume};
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// The progress text of a sweep over volumes.
pub(super) const COUNTING: &str = "counting volumes";

type Requests = Box<dyn Iterator<Item = Result<Request, LabError>>>;

/// One volume as an experiment replays it.
pub(super) struct Subject {
    pub(super) volume: &'static Volume,
    /// One of how many of the volume's writes are made; none for a trace.
    one_in: Option<u64>,
    /// The statistics of the workload that stands in.
    target: Target,
}

impl Subject {
    /// The volume's trace if there is a whole one, or else its calibrated workload with at most as
    /// many writes as the scale allows.
    pub(super) fn new(session: &Session<'_>, volume: &'static Volume) -> Result<Self, LabError> {
        let one_in = match session.trace(&trace_path(volume))? {
            Some(_) => None,
            None => Some(one_in(session, volume)?),
        };
        Ok(Self {
            volume,
            one_in,
            target: volume.target,
        })
    }

    /// The same volume with a stand-in whose writes all gather in one area; a trace stays as it is.
    pub(super) fn gathered(&self) -> Self {
        Self {
            target: Target {
                area_count: 1,
                ..self.target
            },
            ..*self
        }
    }

    /// Whether a calibrated workload stands in for the volume.
    pub(super) fn is_stand_in(&self) -> bool {
        self.one_in.is_some()
    }

    /// The mean size of the volume's updates, in bytes, and the stripes of this many bytes that 1,000 of them touch.
    pub(super) fn profile(
        &self,
        session: &Session<'_>,
        stripe_bytes: u64,
    ) -> Result<(f64, f64), LabError> {
        let stripe_bytes = NonZeroU64::new(stripe_bytes).unwrap_or(NonZeroU64::MIN);
        let profile = Profile::of(self.requests(session)?, stripe_bytes)?;
        let mean_bytes = profile.update_sizes.mean_bytes();
        Ok((mean_bytes, profile.locality.stripes_per_window))
    }

    /// The volume's calibrated workload, if it has a whole trace: what the lab would take without it.
    pub(super) fn stand_in(&self, session: &Session<'_>) -> Result<Option<Self>, LabError> {
        if self.one_in.is_some() {
            return Ok(None);
        }
        Ok(Some(Self {
            one_in: Some(one_in(session, self.volume)?),
            ..*self
        }))
    }

    fn requests(&self, session: &Session<'_>) -> Result<Requests, LabError> {
        if let (None, Some(trace)) = (self.one_in, session.trace(&trace_path(self.volume))?) {
            return Ok(Box::new(trace));
        }
        let part = NonZeroU64::new(self.one_in.unwrap_or(1)).unwrap_or(NonZeroU64::MIN);
        let workload = Workload::new(self.target.part(part), session.seed)?;
        Ok(Box::new(workload.requests().map(Ok)))
    }

    /// Counts schemes on this volume.
    pub(super) fn count(
        &self,
        session: &Session<'_>,
        setting: &Setting,
    ) -> Result<Counts, LabError> {
        let question = Question {
            trace: self.volume.name.to_owned(),
            code: setting
                .code
                .parse()
                .map_err(gabion_planner::PlanError::from)?,
            racks: setting.racks,
            layout: setting.layout.parse()?,
            chunk_bytes: setting.chunk_bytes,
            schemes: setting
                .schemes
                .iter()
                .map(|&name| name.to_owned())
                .collect(),
            options: setting.options,
        };
        let report = update_traffic::count(&question, self.requests(session)?)?;
        Ok(report.schemes)
    }
}

pub(super) type Counts = BTreeMap<&'static str, SchemeTraffic>;

/// The counted traffic.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) code: &'static str,
    pub(super) racks: Option<u32>,
    pub(super) layout: &'static str,
    pub(super) chunk_bytes: u64,
    pub(super) schemes: &'static [&'static str],
    pub(super) options: Options,
}

fn trace_path(volume: &Volume) -> String {
    format!("msr/{}.csv", volume.name)
}

/// Returns the number of a volume's writes of which one is made, so that the scale's number is not exceeded.
fn one_in(session: &Session<'_>, volume: &Volume) -> Result<u64, LabError> {
    let writes_max = session.scale.pick(1_000, 30_000, u64::MAX);
    let mut one_in = volume.target.writes.div_ceil(writes_max).max(1);
    loop {
        let part = NonZeroU64::new(one_in).unwrap_or(NonZeroU64::MIN);
        match Workload::new(volume.target.part(part), session.seed) {
            Ok(_) => return Ok(one_in),
            // So small a part has too few writes for its statistics.
            Err(LabError::Target(_)) if one_in > 1 => one_in /= 2,
            Err(error) => return Err(error),
        }
    }
}

/// A number of volumes, from those with few writes to those with many, and `wdev_1` and `rsrch_1`,
/// for which whole traces may exist.
pub(super) fn spread_volumes(
    session: &Session<'_>,
    count: usize,
) -> Result<Vec<Subject>, LabError> {
    let count = session.scale.pick(4, count, count).min(VOLUMES.len());
    let mut chosen: Vec<&'static Volume> = ["wdev_1", "rsrch_1"]
        .into_iter()
        .filter_map(volume)
        .collect();
    let spread = (0..VOLUMES.len()).map(|at| &VOLUMES[at * 7 % VOLUMES.len()]);
    for volume in spread {
        if chosen.len() < count && chosen.iter().all(|other| other.name != volume.name) {
            chosen.push(volume);
        }
    }
    let subjects = chosen
        .into_iter()
        .map(|volume| Subject::new(session, volume));
    subjects.collect()
}

/// Differences from the papers.
pub(super) fn scaled(subjects: &[Subject], papers: &str) -> Vec<String> {
    let made = subjects.iter().filter(|subject| subject.one_in.is_some());
    vec![
        format!(
            "{} of {} volumes have no whole trace here; a calibrated workload with assumed sizes and offsets of writes \
            replaces each",
            made.clone().count(),
            subjects.len()
        ),
        format!(
            "at most one in {} writes of the workloads is generated, on proportionally less data",
            made.filter_map(|subject| subject.one_in).max().unwrap_or(1)
        ),
        papers.to_owned(),
    ]
}

/// By how many per cent `ours` is less than `other`.
pub(super) fn saving_pct(ours: u64, other: u64) -> f64 {
    100.0 * (1.0 - ours as f64 / other.max(1) as f64)
}

/// A plot of volumes, with those marked that have stand-ins.
pub(super) fn by_volume(plot: Plot, subjects: &[Subject]) -> Plot {
    let made = subjects.iter().filter(|subject| subject.is_stand_in());
    plot.with_stand_ins(made.map(|subject| subject.volume.name))
}

/// The lower and the upper half of some values, by a measure of each.
pub(super) fn halves(values: &[f64], measures: &[f64]) -> [Vec<f64>; 2] {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| measures[a].total_cmp(&measures[b]));
    let (low, high) = order.split_at(values.len() / 2);
    [low, high].map(|half| half.iter().map(|&at| values[at]).collect())
}

/// The mean of savings, beside the paper's.
pub(super) fn mean_finding(what: impl Into<String>, savings: &[f64], paper_pct: f64) -> Finding {
    Finding::beside(what, mean(savings), " %", Paper::saving(paper_pct))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_by_the_measure() {
        let [low, high] = halves(&[1.0, 2.0, 3.0, 4.0], &[9.0, 1.0, 8.0, 2.0]);
        assert_eq!((low, high), (vec![2.0, 4.0], vec![3.0, 1.0]));
    }
}
