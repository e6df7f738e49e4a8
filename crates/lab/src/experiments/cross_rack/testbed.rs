//! Update throughput on testbeds: racks or regions with limited links, and the first updates of a volume
//! under several update schemes (`RackCU` section V-C, CAU sections 5.2 and 5.3).
//!
//! Clusters are real, on testbeds made by the session. The reports list the differences from the
//! papers, above all of rates.

use super::Subject;
use crate::error::LabError;
use crate::experiment::{
    Finding, Overwrite, Paper, Report, Session, Table, TestbedSetting, Throughput, mean,
};
use crate::plot::Plot;
use crate::trace::{Request, RequestKind};
use crate::workload::{self, Volume};
use gabion_layout::{AppendSpec, ByteRange, UpdateScheme};
use std::collections::BTreeMap;

/// Updates that are under way at a time.
pub(crate) const DEPTH: usize = 16;
/// A pool whose updates are timed.
#[derive(Clone)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) scheme: UpdateScheme,
    pub(crate) append: Option<AppendSpec>,
}

impl Contender {
    /// A pool with the defaults of its scheme.
    pub(crate) fn usual(name: &str, scheme: UpdateScheme) -> Self {
        Self {
            name: name.to_owned(),
            scheme,
            append: None,
        }
    }
}

/// One cluster, and the updates that each of its pools gets.
#[derive(Clone)]
pub(crate) struct Round {
    pub(crate) name: String,
    pub(crate) volume: &'static Volume,
    /// Size of a chunk into which the volume is cut; the cluster's may be smaller.
    pub(crate) addressed_bytes: u64,
    pub(crate) data_chunk_count: u64,
    /// Its directory and the seed of places are filled in when it begins.
    pub(crate) setting: TestbedSetting,
    pub(crate) contenders: Vec<Contender>,
}

/// Runs all rounds, adds a table of them to the report, and returns each contender's result.
pub(crate) fn race(
    session: &Session<'_>,
    report: &mut Report,
    rounds: &[Round],
) -> Result<Vec<Vec<Throughput>>, LabError> {
    let Some(clusters) = session.clusters else {
        return Err(LabError::Cluster("this run starts no clusters".to_owned()));
    };
    let columns = [
        "cluster",
        "scheme",
        "chunks/s updated",
        "MB/s updated",
        "MB across racks",
        "busiest uplink, payload %",
        "processors %",
        "commit at the end, %",
    ];
    let mut table = Table::new("First updates", &columns);
    let measured = session.sweep("updating on testbeds", rounds, |round| {
        let updates = round.updates(session)?;
        let setting = TestbedSetting {
            directory: session.empty_directory("testbed")?,
            placement_seed: session.seed,
            ..round.setting.clone()
        };
        let overwrites: Vec<Overwrite> = round
            .contenders
            .iter()
            .map(|contender| updates.overwrite(contender))
            .collect();
        let throughs = clusters.update_on_testbed(&setting, &overwrites)?;
        for (contender, through) in round.contenders.iter().zip(&throughs) {
            let bytes_per_s = updates.bytes as f64 / through.seconds;
            table.row([
                round.name.as_str().into(),
                contender.name.as_str().into(),
                (bytes_per_s / setting.chunk_bytes as f64).into(),
                (bytes_per_s / 1e6).into(),
                (through.cross_rack_bytes as f64 / 1e6).into(),
                (100.0 * through.uplink_share).into(),
                (100.0 * through.processor_share).into(),
                (100.0 * through.commit_seconds / through.seconds).into(),
            ]);
        }
        Ok(throughs)
    })?;
    report.tables.push(table);
    Ok(measured)
}

/// Returns the speed of one contender over that of another, in each round.
pub(crate) fn gains(measured: &[Vec<Throughput>], faster: usize, slower: usize) -> Vec<f64> {
    let gain = |round: &Vec<Throughput>| round[slower].seconds / round[faster].seconds;
    measured.iter().map(gain).collect()
}

/// A mean of gains beside the paper's.
pub(crate) fn mean_finding(what: &str, gains: &[f64], paper: f64) -> Finding {
    Finding::beside(what, mean(gains), "x", Paper::ratio(paper))
}

/// Adds the gains of one contender over each of the others: on average, beside the paper's, and in each round.
pub(crate) fn compare(
    report: &mut Report,
    rounds: &[Round],
    measured: &[Vec<Throughput>],
    (ours, name): (usize, &str),
    others: impl IntoIterator<Item = ((usize, &'static str), f64)>,
) {
    for ((at, other), paper) in others {
        let gains = gains(measured, ours, at);
        let what = format!("{name} over {other}, mean");
        report.findings.push(mean_finding(&what, &gains, paper));
        for (round, gain) in rounds.iter().zip(gains) {
            let what = format!("{name} over {other}, {}", round.name);
            let finding = Finding::number(what, gain, "x", "on average as above");
            report.findings.push(finding);
        }
    }
}

/// The group of bars that are means of all rounds.
pub(crate) const MEAN: &str = "mean";

/// Bars of all gains over the first contender, round by round, and their means.
pub(crate) fn plot(
    session: &Session<'_>,
    (id, title): (&str, &str),
    rounds: &[Round],
    measured: &[Vec<Throughput>],
) -> Result<Plot, LabError> {
    let contenders = rounds.first().map_or(&[][..], |round| &round.contenders);
    let bars = |(at, contender): (usize, &Contender)| {
        let name = contender.name.clone();
        (name, gains(measured, at, 0))
    };
    let series: Vec<(String, Vec<f64>)> = contenders.iter().enumerate().skip(1).map(bars).collect();
    let means: Vec<f64> = series.iter().map(|(_, gains)| mean(gains)).collect();
    let mut plot = Plot::bars(
        id,
        title,
        ["cluster", "update throughput, relative to the baseline"],
        rounds.iter().map(|round| round.name.clone()).collect(),
        series,
    );
    plot.add_group(MEAN, &means);
    for round in rounds {
        if Subject::new(session, round.volume)?.is_stand_in() {
            plot = plot.with_stand_ins([round.name.as_str()]);
        }
    }
    Ok(plot)
}

/// Returns the sources of the volumes' writes: traces, and workloads for the volumes without a trace.
pub(crate) fn sources(session: &Session<'_>, volumes: &[&str]) -> Result<String, LabError> {
    let mut words = Vec::new();
    for name in volumes {
        let is_trace = Subject::new(session, volume(name))?.one_in.is_none();
        words.push(if is_trace {
            format!("the trace of {name}")
        } else {
            format!("a calibrated workload instead of {name}")
        });
    }
    Ok(words.join("; "))
}

/// Differences from the papers in any of these experiments.
pub(crate) fn scaled(session: &Session<'_>, slower: u64) -> Vec<String> {
    vec![
        format!(
            "rates are {slower} times lower than in the paper, so that the links are the limit and not the two \
            processors of this machine"
        ),
        format!(
            "the first {} updates of each volume, by one client with {DEPTH} in flight; an update is acknowledged when \
            it is durable on all participating disks",
            update_count(session)
        ),
        "under CAU and PARIX each primary commits and counts its own updated stripes; the time includes the last commit"
            .to_owned(),
    ]
}

pub(crate) fn volume(name: &str) -> &'static Volume {
    workload::volume(name).expect("the volume is one of the papers'")
}

fn update_count(session: &Session<'_>) -> usize {
    session.scale.pick(60, 300, 1_000)
}

impl Round {
    fn updates(&self, session: &Session<'_>) -> Result<Updates, LabError> {
        let requests = Subject::new(session, self.volume)?.requests(session)?;
        let is_write = |request: &Result<Request, LabError>| !matches!(request, Ok(request) if request.kind == RequestKind::Read);
        let first = requests.filter(is_write).take(update_count(session));
        let first: Vec<Request> = first.collect::<Result<_, _>>()?;
        let mut updates = Updates::compact(&first, self.addressed_bytes, self.data_chunk_count);
        updates.scale(self.addressed_bytes, self.setting.chunk_bytes);
        Ok(updates)
    }
}

/// The first updates of a volume, on a file of the stripes that they touch.
struct Updates {
    file_bytes: u64,
    writes: Vec<ByteRange>,
    bytes: u64,
}

impl Updates {
    /// Widens requests to whole chunks, cuts them at borders of stripes, and numbers stripes anew in the
    /// order of their first update.
    fn compact(requests: &[Request], chunk_bytes: u64, data_chunk_count: u64) -> Self {
        let stripe_bytes = data_chunk_count * chunk_bytes;
        let mut places: BTreeMap<u64, u64> = BTreeMap::new();
        let mut writes = Vec::new();
        for request in requests {
            let mut at = request.offset_bytes / chunk_bytes * chunk_bytes;
            let end = request.end_bytes().next_multiple_of(chunk_bytes);
            while at < end {
                let stripe = at / stripe_bytes;
                let next = places.len() as u64;
                let place = *places.entry(stripe).or_insert(next);
                let until = end.min((stripe + 1) * stripe_bytes);
                writes.push(ByteRange::new(
                    place * stripe_bytes + at % stripe_bytes,
                    until - at,
                ));
                at = until;
            }
        }
        Self {
            file_bytes: places.len() as u64 * stripe_bytes,
            bytes: writes.iter().map(|write| write.length).sum(),
            writes,
        }
    }

    /// Makes the same updates of smaller chunks.
    fn scale(&mut self, from_bytes: u64, to_bytes: u64) {
        let scale = |bytes: &mut u64| *bytes = *bytes / from_bytes * to_bytes;
        scale(&mut self.file_bytes);
        scale(&mut self.bytes);
        for write in &mut self.writes {
            scale(&mut write.offset);
            scale(&mut write.length);
        }
    }

    fn overwrite(&self, contender: &Contender) -> Overwrite {
        Overwrite {
            scheme: contender.scheme,
            append: contender.append,
            file_bytes: self.file_bytes,
            writes: self.writes.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_whole_chunks_of_stripes_without_gaps() {
        let request = |offset_bytes, length_bytes| Request {
            at_ticks: 0,
            kind: RequestKind::Write,
            offset_bytes,
            length_bytes,
        };
        // Chunks of 100 bytes, stripes of 1200: stripes 7 and 8, then 2.
        let mut updates = Updates::compact(&[request(9_550, 151), request(2_400, 1)], 100, 12);
        let range = ByteRange::new;
        let expected = [range(1_100, 100), range(1_200, 200), range(2_400, 100)];
        assert_eq!(updates.writes, expected);
        assert_eq!((updates.file_bytes, updates.bytes), (3_600, 400));
        updates.scale(100, 7);
        let expected = [range(77, 7), range(84, 14), range(168, 7)];
        assert_eq!(updates.writes, expected);
        assert_eq!((updates.file_bytes, updates.bytes), (252, 28));
    }
}
