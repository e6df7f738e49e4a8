//! Recommends an update scheme, code and chunk size for a trace, by the cross-rack traffic of each choice, its ratio to
//! the written bytes, and the time during which stripes survive less than promised.
//!
//! Traffic is counted by [`crate::update_traffic`], which runs the planners: the bytes that a cluster sends, or the
//! chunks that the papers count. Exposure is the time of each stripe in CAU's append phase, from its first appended
//! update to the commit, times the number of failures by which it then misses the promise. Other schemes log all bytes
//! that the code needs at once, so they have no exposure. The probability of data loss is that of
//! [`crate::reliability`] for the longest append phase that a stripe has.

use crate::error::LabError;
use crate::reliability::{Counting, Model, RackShare, Redundancy};
use crate::sample::mean_and_prediction;
use crate::trace::{Request, RequestKind};
use crate::update_traffic::{
    self, ByteTraffic, Layout, Options, Pace, PoolStripes, Question, StoredFile, Stripes, Volume,
    Waits, count_bytes,
};
use gabion_codec::Code;
use gabion_layout::{AppendSpec, Geometry, ReserveSpec, Survive, Topology, UpdateScheme};
use gabion_planner::update::cau::{AppendPhase, CommitPolicy};
use gabion_planner::{PlanError, pool, update};
use serde::Serialize;
use std::collections::BTreeMap;

const HOUR_MS: f64 = 3.6e6;
/// Units of 100 ns in a millisecond.
const TICKS_PER_MS: u64 = 10_000;

/// The unit of counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// The bytes that the nodes of a cluster send, with its rules for append phases.
    #[default]
    Bytes,
    /// Chunks, each updated as a whole, with one append phase for the cluster, as the papers count.
    Chunks,
}

/// The placement of stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// On as many nodes as a stripe has chunks, over which stripes rotate.
    #[default]
    Rotate,
    /// As a pool of each scheme places them, at random over all nodes.
    Pools {
        /// Nodes of each rack.
        nodes_per_rack: u32,
        /// Pools that are tried, each with a seed of its own; at least one.
        seeds: u64,
    },
}

/// The parameters.
#[derive(Clone, Debug)]
pub struct AdviceQuestion {
    /// The trace's name in the result.
    pub trace: String,
    /// Racks.
    pub racks: u32,
    /// The placement of stripes. The traffic of pools is counted in bytes alone, whatever the unit.
    pub placement: Placement,
    /// Codes to try; those that do not survive what is asked are left out.
    pub codes: Vec<Code>,
    /// Chunk sizes to try.
    pub chunk_bytes: Vec<u64>,
    /// The unit of counting.
    pub unit: Unit,
    /// Schemes and settings.
    pub terms: Terms,
}

/// The schemes to try, and what holds for each of them.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The failure that every stripe has to survive.
    pub survive: Survive,
    /// Schemes to try.
    pub schemes: Vec<String>,
    /// Settings of the schemes that let parity wait. In chunks only replicas, stripes and grouping count.
    pub append: AppendSpec,
    /// When writes come, if bytes are counted.
    pub pace: Pace,
    /// Bytes of reserves for each byte of data, for schemes that reserve space. Without a number, every parity chunk
    /// has the first reserve of a new pool.
    pub reserved_share: Option<f64>,
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
    /// Bytes that cross racks; of several pools their mean.
    pub cross_rack_bytes: u128,
    /// The interval of 95 % of pools; `None` if the placement is not random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_bytes: Option<[u64; 2]>,
    /// Bytes that cross racks for each byte that the trace writes.
    pub amplification: f64,
    /// Hours of stripes in append phases, times failures by which they then fall short of the promise.
    pub exposure_hours: f64,
    /// The longest time that a stripe waits for its parity, in hours.
    pub longest_wait_hours: f64,
    /// The probability that a stripe loses data in that time.
    pub loss_probability: f64,
    /// Bytes of chunks and reserves for each byte of data.
    pub storage: f64,
    /// Those of reserves among them.
    pub reserved: f64,
}

/// Reed-Solomon codes that fill `racks` racks evenly and survive the loss of one: `m` chunks a rack for
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
        if let Err(error) = fit(question, code) {
            refusal = Some(error);
            continue;
        }
        for &chunk_bytes in &question.chunk_bytes {
            choices.extend(choices_of(question, code, chunk_bytes, &open)?);
        }
    }
    if let (true, Some(refusal)) = (choices.is_empty(), refusal) {
        return Err(refusal.into());
    }
    Ok(best_first(choices))
}

/// Checks that a stripe of the code keeps the question's promise on its racks.
fn fit(question: &AdviceQuestion, code: &Code) -> Result<(), PlanError> {
    let survive = question.terms.survive;
    match question.placement {
        Placement::Pools { nodes_per_rack, .. } => {
            let topology = Topology::uniform(question.racks, nodes_per_rack);
            pool::fit(code, survive, &topology).map(|_| ())
        }
        Placement::Rotate => {
            let per_rack = code.n().div_ceil(question.racks.max(1) as usize);
            let most = pool::chunks_per_rack(code, survive)?;
            if per_rack <= most {
                return Ok(());
            }
            Err(PlanError::NoRoom {
                chunks: code.n(),
                per_rack: most,
                room: most * question.racks as usize,
            })
        }
    }
}

/// Tries the schemes on a stored file, with the placement, code and chunk size that it has, and counts bytes. A replay
/// of the trace on the file sends exactly what is said of its pool's scheme, if no chunk is lost and no other client
/// writes. Errors call the trace `trace`.
///
/// # Errors
/// Those of [`count_bytes`].
pub fn advise_stored(
    trace: &str,
    terms: &Terms,
    file: StoredFile,
    requests: impl Iterator<Item = Result<Request, LabError>>,
) -> Result<Vec<Choice>, LabError> {
    let volume = Volume::Stored(file);
    let counted = in_bytes(trace, terms, &volume, requests)?;
    Ok(best_first(choices(terms, &volume, counted)?))
}

fn best_first(mut choices: Vec<Choice>) -> Vec<Choice> {
    choices.sort_by(|a, b| {
        let by_bytes = a.cross_rack_bytes.cmp(&b.cross_rack_bytes);
        by_bytes.then(a.exposure_hours.total_cmp(&b.exposure_hours))
    });
    choices
}

/// The traffic of a scheme, and the wait of its stripes for parity.
struct Counted {
    scheme: &'static str,
    cross_rack_bytes: u128,
    is_deferred: bool,
    waits: Waits,
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
    let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), chunk_bytes)?;
    if let Placement::Pools {
        nodes_per_rack,
        seeds,
    } = question.placement
    {
        let topology = Topology::uniform(question.racks, nodes_per_rack);
        return choices_of_pools(question, (code, geometry), (&topology, seeds), open);
    }
    let racks = Some(question.racks);
    let stripes = Stripes::new(code.clone(), geometry, Layout::Rotate, racks)?;
    let volume = Volume::Laid(stripes);
    let counted = match question.unit {
        Unit::Bytes => in_bytes(&question.trace, &question.terms, &volume, open()?)?,
        Unit::Chunks => in_chunks(question, code, geometry, open)?,
    };
    choices(&question.terms, &volume, counted)
}

/// All schemes with one code and chunk size, on several pools each.
fn choices_of_pools<T>(
    question: &AdviceQuestion,
    (code, geometry): (&Code, Geometry),
    (topology, seeds): (&Topology, u64),
    open: impl Fn() -> Result<T, LabError>,
) -> Result<Vec<Choice>, LabError>
where
    T: Iterator<Item = Result<Request, LabError>>,
{
    let terms = &question.terms;
    let volume = |scheme: &str, seed: u64| {
        let shape = (code.clone(), geometry);
        PoolStripes::new(shape, topology.clone(), terms.survive, scheme, seed).map(Volume::Pool)
    };
    let mut runs = Vec::new();
    for seed in 0..seeds.max(1) {
        let (mut written_bytes, mut schemes) = (0, BTreeMap::new());
        for scheme in &terms.schemes {
            let one = std::slice::from_ref(scheme);
            let (append, pace) = (terms.append, terms.pace);
            let volume = volume(scheme, seed)?;
            let report = count_bytes(&question.trace, &volume, one, append, pace, open()?)?;
            written_bytes = report.written_bytes;
            schemes.extend(report.schemes);
        }
        runs.push((written_bytes, counted(&schemes)));
    }
    // Without a scheme this is the error that says so.
    let scheme = terms.schemes.first().map_or("", String::as_str);
    let sent = |run: &(u128, Vec<Counted>), at: usize| run.1[at].cross_rack_bytes as f64;
    let by_scheme = |at: usize| runs.iter().map(|run| sent(run, at)).collect::<Vec<f64>>();
    let values: Vec<Vec<f64>> = (0..runs[0].1.len()).map(by_scheme).collect();
    let written_bytes = runs[0].0;
    let mut choices = choices(terms, &volume(scheme, 0)?, runs.swap_remove(0))?;
    for (choice, values) in choices.iter_mut().zip(values) {
        let (mean, half) = mean_and_prediction(&values);
        choice.cross_rack_bytes = mean.round() as u128;
        choice.amplification = mean / written_bytes.max(1) as f64;
        choice.interval_bytes = half.map(|half| {
            let [low, high] = [(mean - half).max(0.0), mean + half];
            [low.floor() as u64, high.ceil() as u64]
        });
    }
    Ok(choices)
}

/// The result of the counts of written and sent bytes for a volume.
fn choices(
    terms: &Terms,
    volume: &Volume,
    (written_bytes, counted): (u128, Vec<Counted>),
) -> Result<Vec<Choice>, LabError> {
    let code = volume.code();
    let (geometry, racks) = racks_of_first(volume)?;
    let model = Model {
        survived: code.failures_survived(),
        racks,
        ..Model::figure_5()
    };
    let replicas = usize::from(terms.append.replicas);
    let choice = |counted: Counted| {
        let (redundancy, short) = if counted.is_deferred {
            let short = promised(terms.survive).saturating_sub(replicas);
            (Redundancy::Replicas(replicas), short)
        } else {
            (Redundancy::Parity, 0)
        };
        let reserved = if reserves_space(counted.scheme) {
            let first = || first_reserved_share(geometry);
            terms.reserved_share.unwrap_or_else(first)
        } else {
            0.0
        };
        let waits = counted.waits;
        let wait_hours = waits.longest_ms as f64 / HOUR_MS;
        Choice {
            scheme: counted.scheme,
            code: code.to_string(),
            chunk_bytes: geometry.chunk_bytes(),
            cross_rack_bytes: counted.cross_rack_bytes,
            interval_bytes: None,
            amplification: counted.cross_rack_bytes as f64 / written_bytes.max(1) as f64,
            exposure_hours: waits.total_ms as f64 / HOUR_MS * short as f64,
            longest_wait_hours: if counted.is_deferred { wait_hours } else { 0.0 },
            loss_probability: model.loss(redundancy, wait_hours, Counting::Exact),
            storage: code.n() as f64 / code.k() as f64 + reserved,
            reserved,
        }
    };
    Ok(counted.into_iter().map(choice).collect())
}

/// Whether parity chunks of pools of the scheme have reserves. Schemes of the papers that no pool has do not.
fn reserves_space(scheme: &str) -> bool {
    let known = scheme.parse::<UpdateScheme>();
    known.is_ok_and(|known| update::descriptor(known).reserves_space())
}

/// Bytes of reserves for each byte of data, if every parity chunk has the first reserve of a new pool.
fn first_reserved_share(geometry: Geometry) -> f64 {
    let chunk_bytes = geometry.chunk_bytes();
    let first_bytes = ReserveSpec::usual(chunk_bytes).initial_bytes(chunk_bytes);
    geometry.m() as f64 * first_bytes as f64 / geometry.stripe_bytes() as f64
}

/// The bytes that a cluster sends.
fn in_bytes(
    trace: &str,
    terms: &Terms,
    volume: &Volume,
    requests: impl Iterator<Item = Result<Request, LabError>>,
) -> Result<(u128, Vec<Counted>), LabError> {
    let (append, pace) = (terms.append, terms.pace);
    let report = count_bytes(trace, volume, &terms.schemes, append, pace, requests)?;
    Ok((report.written_bytes, counted(&report.schemes)))
}

/// The traffic of each scheme. Schemes that do not append are given the longest wait of the others.
fn counted(schemes: &BTreeMap<&'static str, ByteTraffic>) -> Vec<Counted> {
    let waits = schemes.values().map(|traffic| traffic.waits);
    let longest = waits
        .max_by_key(|waits| waits.longest_ms)
        .unwrap_or_default();
    let counted = schemes.iter().map(|(scheme, traffic)| {
        let is_deferred = traffic.commit_bytes.is_some();
        Counted {
            scheme,
            cross_rack_bytes: traffic.cross_rack_bytes,
            is_deferred,
            waits: if is_deferred { traffic.waits } else { longest },
        }
    });
    counted.collect()
}

/// The chunks that the papers count, times the chunk size.
fn in_chunks<T>(
    question: &AdviceQuestion,
    code: &Code,
    geometry: Geometry,
    open: impl Fn() -> Result<T, LabError>,
) -> Result<(u128, Vec<Counted>), LabError>
where
    T: Iterator<Item = Result<Request, LabError>>,
{
    let (terms, stripes_max) = (&question.terms, question.terms.append.stripes_max);
    let counted = Question {
        trace: question.trace.clone(),
        code: code.clone(),
        racks: Some(question.racks),
        layout: Layout::Rotate,
        chunk_bytes: geometry.chunk_bytes(),
        schemes: terms.schemes.clone(),
        options: Options {
            stripes_max,
            replicas: usize::from(terms.append.replicas),
            grouping: terms.append.grouping,
        },
    };
    let report = update_traffic::count(&counted, open()?)?;
    let (written_bytes, waits) = one_phase(open()?, geometry, stripes_max)?;
    let counted = report.schemes.iter().map(|(scheme, traffic)| Counted {
        scheme,
        cross_rack_bytes: u128::from(traffic.cross_rack_chunks)
            * u128::from(geometry.chunk_bytes()),
        is_deferred: traffic.commit.is_some(),
        waits,
    });
    Ok((written_bytes, counted.collect()))
}

/// Failures that a pool promises to survive, of nodes or of racks: a replica in another rack is good
/// against one of either.
const fn promised(survive: Survive) -> usize {
    match survive {
        Survive::Nodes(count) | Survive::Racks(count) => count as usize,
    }
}

/// The shape of stripe 0, and its data and parity nodes by rack.
fn racks_of_first(volume: &Volume) -> Result<(Geometry, Vec<RackShare>), LabError> {
    let mut shares: BTreeMap<_, RackShare> = BTreeMap::new();
    let (geometry, placement) = volume.stripe(0)?;
    for (chunk, &node) in geometry.chunks().zip(placement.iter()) {
        let rack = volume.topology().rack_of(node);
        let share = shares
            .entry(rack)
            .or_insert(RackShare { data: 0, parity: 0 });
        if geometry.is_data(chunk) {
            share.data += 1;
        } else {
            share.parity += 1;
        }
    }
    Ok((geometry, shares.into_values().collect()))
}

/// Bytes written, and how long stripes wait for their parity when one append phase of all stripes ends before one
/// stripe too many.
fn one_phase(
    requests: impl Iterator<Item = Result<Request, LabError>>,
    geometry: Geometry,
    stripes_max: u64,
) -> Result<(u128, Waits), LabError> {
    let policy = CommitPolicy {
        stripes_max: Some(stripes_max),
        ..CommitPolicy::default()
    };
    let (mut written_bytes, mut waits) = (0, Waits::default());
    let mut phase = AppendPhase::default();
    // By stripe: when its first update of the phase came.
    let mut since: BTreeMap<u64, u64> = BTreeMap::new();
    let mut now_ms = 0;
    for request in requests {
        let request = request?;
        if request.kind == RequestKind::Read {
            continue;
        }
        now_ms = request.at_ticks / TICKS_PER_MS;
        written_bytes += u128::from(request.length_bytes);
        let first = request.offset_bytes / geometry.stripe_bytes();
        let last = (request.end_bytes() - 1) / geometry.stripe_bytes();
        for stripe in first..=last {
            let is_new = !since.contains_key(&stripe);
            if policy.before(&phase, is_new, 0, now_ms).is_some() {
                waits.end(&mut since, now_ms);
                phase = AppendPhase::default();
            }
            let is_new = !since.contains_key(&stripe);
            since.entry(stripe).or_insert(now_ms);
            phase.note(is_new, 0, now_ms);
        }
    }
    waits.end(&mut since, now_ms);
    Ok((written_bytes, waits))
}

impl Waits {
    /// All of the stripes are committed.
    fn end(&mut self, since: &mut BTreeMap<u64, u64>, now_ms: u64) {
        for since_ms in std::mem::take(since).into_values() {
            self.add(now_ms.saturating_sub(since_ms));
        }
    }
}
