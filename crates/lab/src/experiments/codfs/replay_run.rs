//! The shared part of COD-F54 and COD-F55: the first writes of ten MSR Cambridge volumes replayed as fast as
//! possible under each update scheme (`CodFS` thesis, section 5.3.1).

use super::update_run::{Bench, MIB, Phase, Rates, Update};
use super::{cache_run, update_run};
use crate::error::LabError;
use crate::experiment::{Report, Scale, Session, Table, mean};
use crate::plot::Plot;
use crate::trace::{Request, RequestKind};
use crate::workload::{self, Workload};
use gabion_layout::UpdateScheme;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// The volumes that the thesis selected, in the order of its table.
pub(super) const VOLUMES: [&str; 10] = [
    "src2_2", "mds_0", "rsrch_0", "usr_0", "web_0", "ts_0", "stg_0", "hm_0", "prn_1", "proj_0",
];
/// The group of bars that are means of all volumes.
pub(super) const MEAN: &str = "mean";
/// Data chunks of a stripe.
const DATA_CHUNKS: u64 = 4;
/// Most stripes of a replay; addresses of wider traces are folded.
const STRIPES_MAX: u64 = 32;

/// A volume's writes, on stripes.
pub(super) struct Source {
    pub(super) volume: &'static str,
    /// The trace's file, or what stands in for it.
    pub(super) name: String,
    /// Whether it is of the volume's own trace.
    pub(super) is_trace: bool,
    updates: Vec<Update>,
    stripe_count: u64,
    /// Stripes that its addresses would take if they were not folded.
    touched_count: u64,
}

/// The result of one volume under one scheme.
pub(super) struct Replayed {
    pub(super) scheme: UpdateScheme,
    pub(super) update: Phase,
    pub(super) settle: Phase,
    pub(super) recover: Option<Phase>,
}

impl Replayed {
    /// Writes a second, background work included, on this machine and on the model.
    pub(super) fn per_s(&self) -> Rates {
        self.update.per_s(&self.settle)
    }
}

/// The subject of an experiment's replays: one rate, and its ratio under PLR to that of another
/// scheme.
pub(super) struct Shown {
    /// The experiment's id.
    pub(super) id: &'static str,
    /// The subject of the table and the plot.
    pub(super) titles: [&'static str; 2],
    /// The quantity of the plot: the rate over that of the other scheme.
    pub(super) y_label: &'static str,
    /// On this machine and on the model.
    pub(super) rate: fn(&Replayed) -> Rates,
    /// The scheme that PLR is held against.
    pub(super) over: UpdateScheme,
}

impl Shown {
    /// Returns PLR's rate over the other scheme's.
    fn gain(&self, replayed: &[Replayed], at: usize) -> f64 {
        let of = |scheme| {
            let found = replayed.iter().find(|one| one.scheme == scheme);
            found.map_or(0.0, |one| (self.rate)(one)[at])
        };
        of(UpdateScheme::Plr) / of(self.over)
    }

    /// The factor of each volume.
    pub(super) fn gains(&self, all: &[(Source, Vec<Replayed>)], at: usize) -> Vec<f64> {
        let volumes = all.iter();
        volumes
            .map(|(_, replayed)| self.gain(replayed, at))
            .collect()
    }

    pub(super) fn table(&self, all: &[(Source, Vec<Replayed>)], place: &str, at: usize) -> Table {
        let last = format!("PLR over {}", self.over.to_string().to_uppercase());
        let columns = ["volume", "source", "fo", "fl", "pl", "plr", &last];
        let mut table = Table::new(format!("{}, {place}", self.titles[0]), &columns);
        for (source, replayed) in all {
            let rates = replayed.iter().map(|one| (self.rate)(one)[at].into());
            let names = [source.volume.into(), source.name.clone().into()];
            let last = [self.gain(replayed, at).into()];
            table.row(names.into_iter().chain(rates).chain(last));
        }
        table
    }

    pub(super) fn plot(&self, all: &[(Source, Vec<Replayed>)], place: &str, at: usize) -> Plot {
        let rate = |replayed: &[Replayed], scheme| {
            let found = replayed.iter().find(|one: &&Replayed| one.scheme == scheme);
            found.map_or(0.0, |one| (self.rate)(one)[at])
        };
        let shares = |scheme| -> Vec<f64> {
            let volumes = all.iter().map(|(_, replayed)| replayed.as_slice());
            volumes
                .map(|replayed| rate(replayed, scheme) / rate(replayed, self.over))
                .collect()
        };
        let series = UpdateScheme::BY_DELTA.map(|scheme| (scheme.to_string(), shares(scheme)));
        let means: Vec<f64> = series.iter().map(|(_, shares)| mean(shares)).collect();
        let made = all.iter().filter(|(source, _)| !source.is_trace);
        let mut plot = Plot::bars(
            format!("{}-{place}", self.id),
            format!("{}, {place}", self.titles[1]),
            ["volume", self.y_label],
            all.iter()
                .map(|(source, _)| source.volume.to_owned())
                .collect(),
            series.to_vec(),
        )
        .with_stand_ins(made.map(|(source, _)| source.volume));
        plot.add_group(MEAN, &means);
        plot
    }
}

/// Volumes, writes of each, and bytes of a chunk.
fn size(scale: Scale) -> (usize, u64, u64) {
    scale.pick((1, 60, MIB / 4), (10, 1000, MIB), (10, 50_000, 4 * MIB))
}

/// Replays all volumes of the scale under all schemes, and recovers two nodes after each if asked to.
pub(super) fn run(
    session: &Session<'_>,
    recovers: bool,
) -> Result<Vec<(Source, Vec<Replayed>)>, LabError> {
    let (volume_count, writes, chunk_bytes) = size(session.scale);
    let source = |volume: &&'static str| source(session, volume, writes, chunk_bytes * DATA_CHUNKS);
    let sources = VOLUMES[..volume_count].iter().map(source);
    let sources: Vec<Source> = sources.collect::<Result<_, _>>()?;
    let schemes = UpdateScheme::BY_DELTA;
    session.grid(
        "replays of volumes",
        sources,
        &schemes,
        |source, &scheme| replay(session, source, scheme, chunk_bytes, recovers),
    )
}

/// The same writes for a cluster with a cache or none, under reserved space.
pub(super) fn cache_subjects(session: &Session<'_>) -> Result<Vec<cache_run::Subject>, LabError> {
    let (volume_count, writes, _) = size(session.scale);
    let stripe_bytes = cache_run::segment_bytes(session.scale);
    let subject = |volume: &&'static str| {
        let source = source(session, volume, writes, stripe_bytes)?;
        Ok(cache_run::Subject::new(
            *volume,
            UpdateScheme::Plr,
            &source.updates,
            source.stripe_count,
            stripe_bytes,
        ))
    };
    VOLUMES[..volume_count].iter().map(subject).collect()
}

fn replay(
    session: &Session<'_>,
    source: &Source,
    scheme: UpdateScheme,
    chunk_bytes: u64,
    recovers: bool,
) -> Result<Replayed, LabError> {
    let mut bench = Bench::new(session, "rdp(4)", chunk_bytes, scheme, source.stripe_count)?;
    bench.put()?;
    let update = bench.update(&source.updates)?;
    let settle = bench.settle()?;
    let recover = recovers.then(|| bench.recover()).transpose()?;
    Ok(Replayed {
        scheme,
        update,
        settle,
        recover,
    })
}

/// The first writes of a volume: of its trace, or of the workload that stands in for it, with as much
/// less data as it has fewer writes.
fn source(
    session: &Session<'_>,
    name: &'static str,
    writes: u64,
    stripe_bytes: u64,
) -> Result<Source, LabError> {
    if let Some((file, trace)) = session.volume(name)? {
        let is_write = |r: &Result<Request, LabError>| {
            r.as_ref()
                .map_or(true, |request| request.kind == RequestKind::Write)
        };
        let first = trace.filter(is_write).take(writes as usize);
        let requests: Vec<Request> = first.collect::<Result<_, _>>()?;
        let (updates, touched_count) = on_stripes(&joined(&requests), stripe_bytes);
        return Ok(Source {
            volume: name,
            name: format!("first {} writes of {file}", requests.len()),
            is_trace: true,
            updates,
            stripe_count: touched_count.min(STRIPES_MAX),
            touched_count,
        });
    }
    let volume = workload::volume(name).expect("the thesis's volumes are in its table");
    let one_in = volume.target.writes.div_ceil(writes);
    let divisor = NonZeroU64::new(one_in).unwrap_or(NonZeroU64::MIN);
    let workload = Workload::new(volume.target.part(divisor), session.seed)?;
    let requests: Vec<Request> = workload
        .requests()
        .filter(|request| request.kind == RequestKind::Write)
        .collect();
    let (updates, touched_count) = on_stripes(&joined(&requests), stripe_bytes);
    Ok(Source {
        volume: name,
        name: format!("workload, 1 in {one_in}"),
        is_trace: false,
        updates,
        stripe_count: touched_count.min(STRIPES_MAX),
        touched_count,
    })
}

/// Sequential writes are joined into one, as in the thesis.
fn joined(requests: &[Request]) -> Vec<Request> {
    let mut joined: Vec<Request> = Vec::new();
    for request in requests {
        match joined.last_mut() {
            Some(last) if last.end_bytes() == request.offset_bytes => {
                last.length_bytes += request.length_bytes;
            }
            _ => joined.push(*request),
        }
    }
    joined
}

/// Requests cut at the borders of stripes, on stripes that lie side by side: those that no request
/// touches are left out. Gives how many stripes are touched; their numbers are folded onto [`STRIPES_MAX`].
fn on_stripes(requests: &[Request], stripe_bytes: u64) -> (Vec<Update>, u64) {
    let stripes = |request: &Request| {
        request.offset_bytes / stripe_bytes..=(request.end_bytes() - 1) / stripe_bytes
    };
    let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
    for request in requests {
        numbers.extend(stripes(request).map(|stripe| (stripe, 0)));
    }
    for (at, number) in numbers.values_mut().enumerate() {
        *number = at as u64 % STRIPES_MAX;
    }
    let mut updates = Vec::new();
    for request in requests {
        for stripe in stripes(request) {
            let first = request.offset_bytes.max(stripe * stripe_bytes);
            let end = request.end_bytes().min((stripe + 1) * stripe_bytes);
            updates.push((numbers[&stripe], first % stripe_bytes, end - first));
        }
    }
    (updates, numbers.len() as u64)
}

/// Returns the setting of both experiments.
fn setting() -> Vec<String> {
    vec![
        "RDP with 4 data and 2 parity chunks, 10 nodes, 10 clients, reserved space of one chunk; writes as fast as \
        possible; a write that continues the previous one is joined with it"
            .to_owned(),
        "written addresses are mapped to consecutive stripes, so that only written data is stored".to_owned(),
    ]
}

/// Returns the differences of the setting from the thesis.
fn scaled(session: &Session<'_>, all: &[(Source, Vec<Replayed>)]) -> Vec<String> {
    let (_, writes, chunk_bytes) = size(session.scale);
    let traces = all.iter().filter(|(source, _)| source.is_trace).count();
    let mut scaled = vec![format!(
        "{writes} writes a volume instead of 0.8 to 4 million, segments of {} MiB instead of 16, and no \
         network",
        DATA_CHUNKS * chunk_bytes / MIB
    )];
    scaled.push(format!(
        "{traces} of {} volumes have their own trace or a part of it here; calibrated workloads replace the others",
        all.len()
    ));
    scaled
}

/// Returns the parts of the volumes that the scale leaves out.
fn left_out(session: &Session<'_>, all: &[(Source, Vec<Replayed>)]) -> Vec<String> {
    let mut left_out = Vec::new();
    let folded = all
        .iter()
        .filter(|(source, _)| source.touched_count > STRIPES_MAX);
    let most = all.iter().map(|(source, _)| source.touched_count).max();
    if folded.clone().count() > 0 {
        left_out.push(format!(
            "addresses of {} of {} volumes are folded onto {STRIPES_MAX} stripes, of up to {} that their writes touch",
            folded.count(),
            all.len(),
            most.unwrap_or(0)
        ));
    }
    let (volume_count, ..) = size(session.scale);
    if volume_count < VOLUMES.len() {
        left_out.push(format!("{volume_count} volume of the {}", VOLUMES.len()));
    }
    left_out
}

/// A report without figures.
pub(super) fn begun(session: &Session<'_>, all: &[(Source, Vec<Replayed>)]) -> Report {
    Report {
        setting: setting(),
        scaled: scaled(session, all),
        left_out: left_out(session, all),
        notes: update_run::notes(),
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset_bytes: u64, length_bytes: u64) -> Request {
        Request {
            at_ticks: 0,
            kind: RequestKind::Write,
            offset_bytes,
            length_bytes,
        }
    }

    #[test]
    fn writes_that_go_on_are_joined_and_stripes_lie_side_by_side() {
        let requests = [
            write(900, 50),
            write(950, 100),
            write(10, 5),
            write(5000, 10),
        ];
        let (updates, stripe_count) = on_stripes(&joined(&requests), 1000);
        assert_eq!(updates, [(0, 900, 100), (1, 0, 50), (0, 10, 5), (2, 0, 10)]);
        assert_eq!(stripe_count, 3);
    }
}
