//! RCU-B1 and RCU-B2: update throughput of `RackCU` against updates by delta on racks with limited links,
//! by the links' rate and by the size of chunks (`RackCU` section V-C).
//!
//! Clusters are real, on a testbed that the session's clusters make. What is not as in the paper, rates
//! above all, is said in the reports.

use super::{Subject, trace_path};
use crate::error::LabError;
use crate::experiments::{
    Cell, Experiment, Finding, Overwrite, Report, Session, Table, TestbedSetting, Throughput,
};
use crate::plot::{Chart, Plot};
use crate::trace::{Request, RequestKind};
use crate::workload::{self, Volume};
use gabion_layout::{ByteRange, UpdateScheme};
use std::collections::BTreeMap;

pub(in super::super) const B1: Experiment = Experiment {
    id: "RCU-B1",
    parts: "",
    title: "update throughput of RackCU by the rate between racks",
    run: run_b1,
};

pub(in super::super) const B2: Experiment = Experiment {
    id: "RCU-B2",
    parts: "",
    title: "update throughput of RackCU by size of chunks",
    run: run_b2,
};

/// The baseline of the paper is by delta; PLR keeps records as `RackCU` does here.
const SCHEMES: [UpdateScheme; 2] = [UpdateScheme::Plr, UpdateScheme::Rackcu];
const VOLUME: &str = "rsrch_1";
const DATA_CHUNKS: u64 = 12;
/// Of the paper's rate to ours: its 16 nodes had two processors each, and ours share two.
const SLOWER: u64 = 25;
/// How many times as fast as the baseline: what the paper says in figures 10 and 11.
const PAPER: [f64; 2] = [1.882, 2.011];

/// One cluster: chunks of so many bytes, and uplinks of so many Mbit/s.
#[derive(Clone, Copy)]
struct Point {
    chunk_bytes: u64,
    paper_mbit_per_s: u64,
}

impl Point {
    const fn uplink_bytes_per_s(self) -> u64 {
        self.paper_mbit_per_s * 1_000_000 / 8 / SLOWER
    }
}

fn run_b1(session: &Session<'_>) -> Result<Report, LabError> {
    const RATES: [u64; 3] = [50, 100, 200];
    let count = session.scale.pick(1, 3, 3);
    let points = RATES[..count].iter().map(|&paper_mbit_per_s| Point {
        chunk_bytes: 4 << 10,
        paper_mbit_per_s,
    });
    let name = |point: Point| format!("{} Mbit/s", point.paper_mbit_per_s / SLOWER);
    run(
        session,
        "RCU-B1",
        &points.collect::<Vec<_>>(),
        &name,
        PAPER[0],
    )
}

fn run_b2(session: &Session<'_>) -> Result<Report, LabError> {
    const CHUNKS_KIB: [u64; 3] = [4, 8, 16];
    let count = session.scale.pick(1, 3, 3);
    let points = CHUNKS_KIB[..count].iter().map(|kib| Point {
        chunk_bytes: kib << 10,
        paper_mbit_per_s: 100,
    });
    let name = |point: Point| format!("{} KiB", point.chunk_bytes >> 10);
    run(
        session,
        "RCU-B2",
        &points.collect::<Vec<_>>(),
        &name,
        PAPER[1],
    )
}

fn run(
    session: &Session<'_>,
    id: &str,
    points: &[Point],
    name: &dyn Fn(Point) -> String,
    paper: f64,
) -> Result<Report, LabError> {
    let Some(clusters) = session.clusters else {
        return Err(LabError::Cluster("nobody starts clusters here".to_owned()));
    };
    let mut report = begin(session)?;
    let columns = [
        "cluster",
        "scheme",
        "MB/s updated",
        "MB across racks",
        "busiest uplink, payload %",
        "processors %",
    ];
    let mut table = Table::new(format!("The first updates of {VOLUME}"), &columns);
    let mut gains = Vec::new();
    session
        .progress
        .begin("updating on testbeds", points.len() as u64);
    for &point in points {
        let updates = Updates::of(session, point.chunk_bytes)?;
        let setting = TestbedSetting {
            directory: session.empty_directory("testbed")?,
            rack_count: 8,
            nodes_per_rack: 2,
            uplink_bytes_per_s: point.uplink_bytes_per_s(),
            code: "rs(12,4)".to_owned(),
            chunk_bytes: point.chunk_bytes,
            depth: 16,
        };
        let overwrites = SCHEMES.map(|scheme| updates.overwrite(scheme));
        let measured = clusters.update_on_testbed(&setting, &overwrites)?;
        for (scheme, through) in SCHEMES.iter().zip(&measured) {
            table.row(row(name(point), *scheme, updates.bytes, *through));
        }
        gains.push(measured[0].seconds / measured[1].seconds);
        session.progress.step();
    }
    report.tables.push(table);
    for (&point, &gain) in points.iter().zip(&gains) {
        let what = format!("RackCU over updates by delta, {}", name(point));
        let finding = Finding::number(what, gain, "x", format!("{paper:.2}x on average"));
        report.findings.push(finding.reached(gain >= 0.95 * paper));
    }
    report
        .plots
        .push(plot(id, points.iter().map(|&p| name(p)).collect(), gains));
    Ok(report)
}

fn begin(session: &Session<'_>) -> Result<Report, LabError> {
    let source = if session.trace(&trace_path(volume()))?.is_some() {
        format!("the trace of {VOLUME}")
    } else {
        format!(
            "a calibrated workload in place of {VOLUME}, with seed {}",
            session.seed
        )
    };
    Ok(Report {
        setting: vec![
            format!(
                "RS(12,4) on 8 racks of 2 nodes, each its own network namespace; {source}, its first {} \
                 updates, whole chunks, 16 under way at a time, each durable on all disks when it is done",
                update_count(session)
            ),
            "what a rack sends to all other racks and gets from them is limited; its traffic with client \
             and coordinator is not"
                .to_owned(),
        ],
        scaled: vec![
            format!(
                "rates are {SLOWER} times lower than in the paper, so that links and not the two \
                 processors of all nodes are the limit"
            ),
            "CAU and PARIX are not among the schemes that nodes run yet".to_owned(),
            "stripes of RackCU have parity in two racks of its own; those of the baseline are placed at \
             random, as its pools do"
                .to_owned(),
        ],
        ..Report::default()
    })
}

fn volume() -> &'static Volume {
    workload::volume(VOLUME).expect("the volume is one of the papers'")
}

fn update_count(session: &Session<'_>) -> usize {
    session.scale.pick(60, 300, 1_000)
}

fn row(cluster: String, scheme: UpdateScheme, bytes: u64, through: Throughput) -> [Cell; 6] {
    [
        cluster.into(),
        scheme.to_string().into(),
        (bytes as f64 / 1e6 / through.seconds).into(),
        (through.cross_rack_bytes as f64 / 1e6).into(),
        (100.0 * through.uplink_share).into(),
        (100.0 * through.processor_share).into(),
    ]
}

fn plot(id: &str, categories: Vec<String>, gains: Vec<f64>) -> Plot {
    Plot {
        name: id.to_owned(),
        title: "Update throughput of RackCU".to_owned(),
        x_label: "cluster".to_owned(),
        y_label: "of the baseline".to_owned(),
        chart: Chart::Bars {
            categories,
            series: vec![("RackCU".to_owned(), gains)],
        },
    }
}

/// The first updates of the volume, on a file of the stripes that they touch.
struct Updates {
    file_bytes: u64,
    writes: Vec<ByteRange>,
    bytes: u64,
}

impl Updates {
    fn of(session: &Session<'_>, chunk_bytes: u64) -> Result<Self, LabError> {
        let requests = Subject::new(session, volume())?.requests(session)?;
        let is_write = |request: &Result<Request, LabError>| !matches!(request, Ok(request) if request.kind == RequestKind::Read);
        let first = requests.filter(is_write).take(update_count(session));
        let first: Vec<Request> = first.collect::<Result<_, _>>()?;
        Ok(Self::compact(&first, chunk_bytes))
    }

    /// Widens requests to whole chunks, cuts them at borders of stripes, and numbers stripes anew in the
    /// order of their first update.
    fn compact(requests: &[Request], chunk_bytes: u64) -> Self {
        let stripe_bytes = DATA_CHUNKS * chunk_bytes;
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

    fn overwrite(&self, scheme: UpdateScheme) -> Overwrite {
        Overwrite {
            scheme,
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
        let updates = Updates::compact(&[request(9_550, 151), request(2_400, 1)], 100);
        let range = ByteRange::new;
        let expected = [range(1_100, 100), range(1_200, 200), range(2_400, 100)];
        assert_eq!(updates.writes, expected);
        assert_eq!((updates.file_bytes, updates.bytes), (3_600, 400));
    }
}
