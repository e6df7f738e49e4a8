//! ECP-8g, 8h and 9: repairs over unequal links: a slow edge, racks, and regions (`ECPipe` sections 4 and
//! 6.2, Figures 8 and 9).

use super::bench::{BenchLinks, Helpers, RepairBench, Work};
use super::figure::{Base, CONVENTIONAL, Figure, HOLDER_COUNT, PIPELINE, PPR, PPR_IN_ROUNDS, one};
use crate::error::LabError;
use crate::experiment::{Experiment, Paper, Report, Session};
use gabion_planner::repair::Scheme;

pub(crate) const F8G: Experiment = Experiment::new(
    "ECP-8g",
    "cyclic and basic pipelining over a slow edge (Figure 8g)",
    slow_edge,
)
.on_testbed();
pub(crate) const F8H: Experiment = Experiment::new(
    "ECP-8h",
    "rack-aware pipelining over slow uplinks (Figure 8h)",
    racks,
)
.on_testbed();
pub(crate) const F9: Experiment =
    Experiment::new("ECP-9", "weighted paths over regions (Figure 9)", regions).on_testbed();

const CYCLIC: &str = "cyclic RP";
const RACK_AWARE: &str = "rack-aware RP";
const OPTIMAL: &str = "RP+optimal";
/// A region's name, and the rates from it in Mbit/s: the paper's Table 1.
type Region = (&'static str, [u64; 4]);
const NORTH_AMERICA: [Region; 4] = [
    ("California", [501, 57, 44, 300]),
    ("Canada", [55, 732, 63, 48]),
    ("Ohio", [46, 66, 333, 96]),
    ("Oregon", [298, 50, 94, 250]),
];
const ASIA: [Region; 4] = [
    ("Mumbai", [625, 62, 40, 38]),
    ("Seoul", [64, 266, 86, 183]),
    ("Singapore", [42, 88, 493, 49]),
    ("Tokyo", [40, 181, 47, 489]),
];

fn slow_edge(session: &Session<'_>) -> Result<Report, LabError> {
    let base = Base::of(session);
    let parts: &[u64] = session.scale.pick(&[1, 10], &[1, 2, 5, 10], &[1, 2, 5, 10]);
    let count = HOLDER_COUNT as usize + 1;
    let bench = |&part: &u64| {
        let mut rows = vec![vec![0; count]; count];
        for (from, row) in rows.iter_mut().enumerate() {
            row[from] = base.node_bytes_per_s;
            if from + 1 < count && part > 1 {
                row[count - 1] = base.node_bytes_per_s / part;
            }
        }
        let trials = vec![
            base.one(PIPELINE, Scheme::Pipeline),
            base.one(CYCLIC, Scheme::Cyclic),
        ];
        let mut bench = base.bench(session, "rs(10,4)", trials);
        bench.links = BenchLinks::Pairs(rows);
        (format!("1:{part}"), bench)
    };
    let figure = Figure::measure(session, parts.iter().map(bench).collect())?;
    let title = "Time of a single-chunk repair by the edge's share of a link";
    let mut report = figure.report("ECP-8g", title, "edge", base);
    let paper = Some(Paper::saving(82.8));
    figure.compare(&mut report, ("1:10", CYCLIC, PIPELINE), paper, 80.0);
    Ok(report)
}

fn racks(session: &Session<'_>) -> Result<Report, LabError> {
    let base = Base::of(session);
    let bench = |tenths: u64| {
        let trials = vec![
            base.one(CONVENTIONAL, Scheme::Conventional),
            // The order of a chain that knows nothing of racks: chunks of a rack are apart.
            base.trial(
                PIPELINE,
                one(Scheme::Pipeline, Helpers::Random(session.seed)),
            ),
            base.trial(RACK_AWARE, one(Scheme::Pipeline, Helpers::RackAware)),
        ];
        let mut bench = base.bench(session, "rs(6,3)", trials);
        bench.links = BenchLinks::Racks {
            rack_count: 3,
            nodes_per_rack: 4,
            node_bytes_per_s: base.node_bytes_per_s,
            rack_bytes_per_s: base.node_bytes_per_s * tenths / 10,
        };
        (format!("0.{tenths} of a link"), bench)
    };
    let figure = Figure::measure(session, [4, 8].map(bench).into())?;
    let title = "Time of a single-chunk repair by the speed of uplinks, (9,6) on 3 racks";
    let mut report = figure.report("ECP-8h", title, "uplinks", base);
    for (x, papers) in [
        ("0.4 of a link", [None, None]),
        ("0.8 of a link", [Some(60.9), Some(77.6)]),
    ] {
        let goals = [(PIPELINE, 30.0), (RACK_AWARE, 75.0)];
        for ((name, goal), paper) in goals.into_iter().zip(papers) {
            let paper = paper.map(Paper::saving);
            figure.compare(&mut report, (x, name, CONVENTIONAL), paper, goal);
        }
    }
    report.notes.push(
        "the lost chunk and the requestor are in one rack with two more of the stripe's chunks; the limit is each \
        rack's uplink, which all traffic into or out of the rack shares"
            .to_owned(),
    );
    Ok(report)
}

fn regions(session: &Session<'_>) -> Result<Report, LabError> {
    let base = Base {
        chunk_bytes: session.scale.pick(2 << 20, 8 << 20, 16 << 20),
        slice_bytes: session.scale.pick(4 << 10, 8 << 10, 32 << 10),
        ..Base::of(session)
    };
    let clusters = [("North America", NORTH_AMERICA), ("Asia", ASIA)];
    let benches =
        clusters.map(|(name, table)| (name.to_owned(), region_bench(session, base, &table)));
    let figure = Figure::measure(session, benches.into())?;
    let title = "Time of a single-chunk repair by the requestor's region, (16,12)";
    let mut report = figure.report("ECP-9", title, "cluster", base);
    for (cluster, table) in clusters {
        for (region, _) in table {
            let name = |scheme: &str| format!("{scheme}, {region}");
            let pairs = [
                (PIPELINE, PPR_IN_ROUNDS, Some((62.7, 87.1)), 40.0),
                (OPTIMAL, PIPELINE, Some((7.3, 45.4)), 7.3),
                (OPTIMAL, PPR, None, 0.0),
            ];
            for (ours, than, paper, goal) in pairs {
                let (ours, than) = (name(ours), name(than));
                let paper = paper.map(|(least, most)| Paper::savings(least, most));
                figure.compare(&mut report, (cluster, &ours, &than), paper, goal);
            }
        }
    }
    report.setting[0] = format!(
        "chunks of {} MiB in slices of {} KiB; each pair of hosts has the rate of Table 1, to the whole Mbit/s, \
         and each host the highest of its region",
        base.chunk_bytes >> 20,
        base.slice_bytes >> 10
    );
    report.notes.push(
        "PPR was published in rounds: a helper has a whole chunk before it sends its sum. Here a helper does not wait \
        for the others of its round. PPR in slices waits only for its slowest pair, like a chain, because each pair of \
        hosts has its own rate"
            .to_owned(),
    );
    report.notes.push(
        "rates do not change between the choice of the path and the repair, but on EC2 they do; RP takes a random path"
        .to_owned(),
    );
    Ok(report)
}

/// Four hosts a region that hold a chunk each, and one that is the requestor.
fn region_bench(session: &Session<'_>, base: Base, table: &[Region; 4]) -> RepairBench {
    const HOSTS: usize = 20;
    let region_of = |host: usize| match host {
        0..16 => host / 4,
        late => late - 16,
    };
    let bytes_per_s = |mbit: u64| mbit * 1_000_000 / 8;
    let rate = |from: usize, to: usize| {
        let row = &table[region_of(from)].1;
        if from == to {
            bytes_per_s(row.iter().copied().max().unwrap_or(0))
        } else {
            bytes_per_s(row[region_of(to)])
        }
    };
    let row = |from| (0..HOSTS).map(|to| rate(from, to)).collect();
    let mut trials = Vec::new();
    for (requestor, (region, _)) in table.iter().enumerate() {
        let trial = |name: &str, scheme, helpers| {
            let work = Work::One {
                scheme,
                helpers,
                requestor,
            };
            base.trial(format!("{name}, {region}"), work)
        };
        let random = Helpers::Random(session.seed);
        trials.extend([
            base.by_chunk(trial(PPR_IN_ROUNDS, Scheme::Ppr, random)),
            trial(PPR, Scheme::Ppr, random),
            trial(PIPELINE, Scheme::Pipeline, random),
            trial(OPTIMAL, Scheme::Pipeline, Helpers::Weighted),
        ]);
    }
    let mut bench = base.bench(session, "rs(12,4)", trials);
    bench.links = BenchLinks::Pairs((0..HOSTS).map(row).collect());
    bench.late_count = 4;
    bench
}
