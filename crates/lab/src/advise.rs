//! Which update scheme, code and chunk size suit a trace: what each choice sends across racks, how
//! many times the written bytes that is, and how long stripes survive less than was promised.
//!
//! Traffic is counted by [`crate::update_traffic`], which runs the planners. Exposure is the time that
//! stripes spend in CAU's append phase, each stripe's from its first appended update to the commit,
//! times the failures by which it falls short of the promise meanwhile; other schemes log what the
//! code needs at once and have none. The probability of data loss is that of
//! [`crate::reliability`] for the longest append phase that a stripe has.

use crate::error::LabError;
use crate::reliability::{Counting, Model, RackShare, Redundancy};
use crate::trace::{Request, RequestKind};
use crate::update_traffic::{self, Layout, Options, Question, Stripes};
use gabion_codec::Code;
use gabion_layout::{Geometry, Survive};
use gabion_planner::pool;
use gabion_planner::update::cau::{AppendPhase, CommitPolicy};
use serde::Serialize;
use std::collections::BTreeMap;

/// Units of 100 ns in an hour.
const HOUR_TICKS: f64 = 36e9;

/// The parameters.
#[derive(Clone, Debug)]
pub struct AdviceQuestion {
    /// The trace's name in the result.
    pub trace: String,
    /// Racks, over which stripes rotate.
    pub racks: u32,
    /// What every stripe has to survive; codes that cannot are left out.
    pub survive: Survive,
    /// Codes to try.
    pub codes: Vec<Code>,
    /// Chunk sizes to try.
    pub chunk_bytes: Vec<u64>,
    /// Schemes to try.
    pub schemes: Vec<String>,
    /// Settings of the schemes that let parity wait.
    pub options: Options,
}

/// One choice.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Choice {
    /// The update scheme.
    pub scheme: &'static str,
    /// The code.
    pub code: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes that cross racks.
    pub cross_rack_bytes: u128,
    /// Bytes that cross racks for each byte that the trace writes.
    pub amplification: f64,
    /// Hours of stripes, times failures by which they fall short of the promise meanwhile.
    pub exposure_hours: f64,
    /// The longest time that a stripe waits for its parity, in hours.
    pub longest_wait_hours: f64,
    /// The probability that a stripe loses data in so long a time.
    pub loss_probability: f64,
    /// Stored bytes for each byte of data.
    pub storage: f64,
}

/// Reed-Solomon codes that fill so many racks evenly and survive one of them: `m` chunks a rack for
/// `m` of 2, 3 and 4.
pub fn usual_codes(racks: u32) -> Vec<Code> {
    let racks = racks as usize;
    let shapes = (2..=4).map(|m| (racks.saturating_sub(1) * m, m));
    shapes
        .filter_map(|(k, m)| Code::reed_solomon(k, m).ok())
        .collect()
}

/// Tries every choice on a trace, which `open` begins anew each time, and gives them with the fewest
/// bytes across racks first; of equal ones the less exposed first.
///
/// # Errors
/// The trace's first error, and what [`update_traffic::count`] says of racks, chunk sizes and schemes;
/// [`LabError::Plan`] when no code keeps the promise.
pub fn advise<T>(
    question: &AdviceQuestion,
    open: impl Fn() -> Result<T, LabError>,
) -> Result<Vec<Choice>, LabError>
where
    T: Iterator<Item = Result<Request, LabError>>,
{
    let mut choices = Vec::new();
    let mut refusal = None;
    for code in &question.codes {
        let per_rack = code.n().div_ceil(question.racks.max(1) as usize);
        match pool::chunks_per_rack(code, question.survive) {
            Ok(most) if per_rack <= most => {}
            Ok(most) => {
                let room = most * question.racks as usize;
                refusal = Some(gabion_planner::PlanError::NoRoom {
                    chunks: code.n(),
                    per_rack: most,
                    room,
                });
                continue;
            }
            Err(error) => {
                refusal = Some(error);
                continue;
            }
        }
        for &chunk_bytes in &question.chunk_bytes {
            choices.extend(choices_of(question, code, chunk_bytes, &open)?);
        }
    }
    if let (true, Some(refusal)) = (choices.is_empty(), refusal) {
        return Err(refusal.into());
    }
    choices.sort_by(|a: &Choice, b: &Choice| {
        let by_bytes = a.cross_rack_bytes.cmp(&b.cross_rack_bytes);
        by_bytes.then(a.exposure_hours.total_cmp(&b.exposure_hours))
    });
    Ok(choices)
}

/// All schemes with one code and chunk size.
fn choices_of<T>(
    question: &AdviceQuestion,
    code: &Code,
    chunk_bytes: u64,
    open: impl Fn() -> Result<T, LabError>,
) -> Result<Vec<Choice>, LabError>
where
    T: Iterator<Item = Result<Request, LabError>>,
{
    let counted = Question {
        trace: question.trace.clone(),
        code: code.clone(),
        racks: Some(question.racks),
        layout: Layout::Rotate,
        chunk_bytes,
        schemes: question.schemes.clone(),
        options: question.options,
    };
    let report = update_traffic::count(&counted, open()?)?;
    let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), chunk_bytes)?;
    let waits = Waits::of(open()?, geometry, question.options.stripes_max)?;
    let model = Model {
        survived: code.failures_survived(),
        racks: racks_of_first(code, geometry, question.racks)?,
        ..Model::figure_5()
    };
    let choice = |(scheme, traffic): (&&'static str, &update_traffic::SchemeTraffic)| {
        let cross_rack_bytes = u128::from(traffic.cross_rack_chunks) * u128::from(chunk_bytes);
        let is_deferred = traffic.commit.is_some();
        let replicas = question.options.replicas;
        let (redundancy, short) = if is_deferred {
            let short = promised(question.survive).saturating_sub(replicas);
            (Redundancy::Replicas(replicas), short)
        } else {
            (Redundancy::Parity, 0)
        };
        let wait = waits.longest_hours;
        Choice {
            scheme,
            code: code.to_string(),
            chunk_bytes,
            cross_rack_bytes,
            amplification: cross_rack_bytes as f64 / waits.written_bytes.max(1) as f64,
            exposure_hours: waits.total_hours * short as f64,
            longest_wait_hours: if is_deferred { wait } else { 0.0 },
            loss_probability: model.loss(redundancy, wait, Counting::Exact),
            storage: code.n() as f64 / code.k() as f64,
        }
    };
    Ok(report.schemes.iter().map(choice).collect())
}

/// Failures that a pool promises to survive, of nodes or of racks: a replica in another rack is good
/// against one of either.
const fn promised(survive: Survive) -> usize {
    match survive {
        Survive::Nodes(count) | Survive::Racks(count) => count as usize,
    }
}

/// Data and parity nodes of stripe 0 by rack.
fn racks_of_first(code: &Code, geometry: Geometry, racks: u32) -> Result<Vec<RackShare>, LabError> {
    let stripes = Stripes::new(code.clone(), geometry, Layout::Rotate, Some(racks))?;
    let mut shares: BTreeMap<_, RackShare> = BTreeMap::new();
    for (chunk, node) in geometry.chunks().zip(stripes.placement(0)?) {
        let rack = stripes.topology().rack_of(node);
        let share = shares
            .entry(rack)
            .or_insert(RackShare { data: 0, parity: 0 });
        if geometry.is_data(chunk) {
            share.data += 1;
        } else {
            share.parity += 1;
        }
    }
    Ok(shares.into_values().collect())
}

/// How long stripes wait for their parity when a commit comes before one stripe too many.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Waits {
    written_bytes: u128,
    total_hours: f64,
    longest_hours: f64,
}

impl Waits {
    fn of(
        requests: impl Iterator<Item = Result<Request, LabError>>,
        geometry: Geometry,
        stripes_max: u64,
    ) -> Result<Self, LabError> {
        let policy = CommitPolicy {
            stripes_max: Some(stripes_max),
            ..CommitPolicy::default()
        };
        let mut waits = Self::default();
        let mut phase = AppendPhase::default();
        // By stripe: when its first update of the phase came.
        let mut since: BTreeMap<u64, u64> = BTreeMap::new();
        let mut now = 0;
        for request in requests {
            let request = request?;
            if request.kind == RequestKind::Read {
                continue;
            }
            now = request.at_ticks;
            waits.written_bytes += u128::from(request.length_bytes);
            let first = request.offset_bytes / geometry.stripe_bytes();
            let last = (request.end_bytes() - 1) / geometry.stripe_bytes();
            for stripe in first..=last {
                let is_new = !since.contains_key(&stripe);
                if policy.before(&phase, is_new, 0, now).is_some() {
                    waits.commit(&mut since, now);
                    phase = AppendPhase::default();
                }
                let is_new = !since.contains_key(&stripe);
                since.entry(stripe).or_insert(now);
                phase.note(is_new, 0, now);
            }
        }
        waits.commit(&mut since, now);
        Ok(waits)
    }

    fn commit(&mut self, since: &mut BTreeMap<u64, u64>, now: u64) {
        for first_at in std::mem::take(since).into_values() {
            let hours = now.saturating_sub(first_at) as f64 / HOUR_TICKS;
            self.total_hours += hours;
            self.longest_hours = self.longest_hours.max(hours);
        }
    }
}
