//! ECP-8e and 11: recovery of all chunks of a node, and pipelining by chunks and by slices (`ECPipe`
//! sections 6.1 and 6.4, Figures 8e and 11).

use super::bench::{RepairBench, Selection, Trial, Work};
use super::figure::{Base, CONVENTIONAL, Figure, MIB, PIPELINE, PPR, SLICE_BYTES_MAX};
use super::modelled::add_requestors;
use crate::error::LabError;
use crate::experiment::tolerance::RATE_GAIN;
use crate::experiment::{Experiment, Finding, Goal, Paper, Report, Session};
use gabion_plan::StepOrder;
use gabion_planner::repair::Scheme;

pub(crate) const F8E: Experiment = Experiment::new(
    "ECP-8e",
    "full-node recovery against requestors (Figure 8e)",
    requestors,
)
.on_testbed();
pub(crate) const F11: Experiment = Experiment::new(
    "ECP-11",
    "pipelining by whole chunks and by slices (Figure 11)",
    granularity,
)
.on_testbed();

pub(super) const SCHEDULED: &str = "RP+scheduling";
const BALANCED: &str = "RP+balanced";

/// The schemes of Figure 8e, and one more schedule.
pub(super) const SCHEMES: [(&str, Scheme, Selection); 5] = [
    (CONVENTIONAL, Scheme::Conventional, Selection::Smallest),
    (PPR, Scheme::Ppr, Selection::Smallest),
    (PIPELINE, Scheme::Pipeline, Selection::Smallest),
    (SCHEDULED, Scheme::Pipeline, Selection::Greedy),
    (BALANCED, Scheme::Pipeline, Selection::Balanced),
];

/// Hosts with stripes on 16 of them, and requestors on others.
fn node_bench(
    session: &Session<'_>,
    base: Base,
    late_count: u32,
    trials: Vec<Trial>,
) -> RepairBench {
    let mut bench = base.bench_with(late_count, session, "rs(10,4)", trials);
    bench.stripe_count = session.scale.pick(16, 32, 64);
    bench
}

/// The scale of one repair, with chunks small enough that a node of them can be stored.
fn small(session: &Session<'_>) -> Base {
    let base = Base::of(session);
    Base {
        chunk_bytes: session.scale.pick(4 * MIB, 4 * MIB, 64 * MIB),
        ..base
    }
}

fn requestors(session: &Session<'_>) -> Result<Report, LabError> {
    let base = small(session);
    let late_count = 8;
    let counts: &[usize] = session.scale.pick(&[1, 8], &[1, 2, 4, 8], &[1, 2, 4, 8]);
    let mut trials = Vec::new();
    for &requestor_count in counts {
        for (name, scheme, selection) in SCHEMES {
            let work = Work::Node {
                scheme,
                selection,
                requestor_count,
            };
            trials.push(base.trial(format!("{name}, {requestor_count}"), work));
        }
    }
    let bench = node_bench(session, base, late_count, trials);
    let x = "(14,10)";
    let figure = Figure::measure(session, vec![(x.to_owned(), bench)])?;
    let title = "Time of a full-node recovery, by scheme and number of requestors";
    let mut report = figure.report("ECP-8e", title, "code", base);
    let speedup = |name: &str, than: &str| {
        let at = |name: &str| figure.time(x, &format!("{name}, 8"));
        let (ours, theirs) = (at(name)?, at(than)?);
        let measured = theirs.median_s() / ours.median_s();
        Some((measured, theirs.links_s / ours.links_s))
    };
    for (name, than, paper, goal) in [
        (PIPELINE, CONVENTIONAL, Some(1.89), 1.0),
        (SCHEDULED, CONVENTIONAL, Some(1.89 * 1.133), 1.9),
        (BALANCED, CONVENTIONAL, None, 1.9),
        (SCHEDULED, PIPELINE, Some(1.133), 1.0),
        (BALANCED, SCHEDULED, None, 1.0),
    ] {
        let Some((ratio, allowed)) = speedup(name, than) else {
            continue;
        };
        let what = format!("8 requestors: rate of {name} over {than}");
        let links = format!("their busiest links allow {allowed:.2}");
        report.findings.extend(paper.map(|paper| {
            let finding = Finding::beside(what.as_str(), ratio, "x", Paper::ratio(paper));
            finding.because(links.as_str())
        }));
        let goal = Goal::at_least(what, ratio, "x", goal);
        report.goals.push(goal.because(links));
    }
    add_requestors(session, &mut report)?;
    report.notes.push(
        "requestors hold no chunks here, so each of 8 requestors receives 10/8 of a chunk for each stripe under \
        conventional repair, and each of 15 helpers sends at least 10/15 under any scheme. With equal load, no \
        schedule is more than 1.875 times as fast, unless conventional repair is slower than its links allow. With few \
        stripes, requestors get unequal loads. The paper's requestors are also helpers"
            .to_owned(),
    );
    Ok(report)
}

fn granularity(session: &Session<'_>) -> Result<Report, LabError> {
    const CHUNKWISE: &str = "Pipe-B";
    const IN_TURN: &str = "Pipe-S";
    let node = small(session);
    let node = Base {
        chunk_bytes: node.chunk_bytes.min(SLICE_BYTES_MAX),
        ..node
    };
    // A slice must be much longer than the burst that a link lets pass at once, or else a link that
    // rests while its node does something else makes up for it afterwards.
    let one = Base {
        chunk_bytes: SLICE_BYTES_MAX,
        slice_bytes: SLICE_BYTES_MAX / 64,
        ..Base::of(session)
    };
    let [x_one, x_node] = ["one chunk", "a node's chunks"];
    let single = one.bench(
        session,
        "rs(10,4)",
        vec![
            one.by_chunk(one.one(CHUNKWISE, Scheme::Pipeline)),
            Trial {
                order: StepOrder::InTurn,
                ..one.one(IN_TURN, Scheme::Pipeline)
            },
            one.one(PIPELINE, Scheme::Pipeline),
        ],
    );
    let recovery = node_bench(session, node, 8, recoveries(node, 8));
    let benches = vec![(x_one.to_owned(), single), (x_node.to_owned(), recovery)];
    let figure = Figure::measure(session, benches)?;
    let title = "Time of repairs by whole chunks and by slices, (14,10)";
    let mut report = figure.report("ECP-11", title, "of", one);
    for (name, than, paper, goal) in [
        (PIPELINE, CHUNKWISE, (93.2, 93.2), 75.0),
        (IN_TURN, CHUNKWISE, (87.8, 87.8), 60.0),
        (PIPELINE, IN_TURN, (41.1, 43.0), 25.0),
    ] {
        let paper = Some(Paper::savings(paper.0, paper.1));
        figure.compare(&mut report, (x_one, name, than), paper, goal);
    }
    for (name, than, paper) in [
        ("RP-single", "Pipe-Rep", 80.2),
        ("RP-all", "Pipe-Sur", 268.1),
        ("RP-all", "RP-single", 58.1),
    ] {
        let seconds = |name| figure.seconds(x_node, name);
        let Some((ours, theirs)) = seconds(name).zip(seconds(than)) else {
            continue;
        };
        let more = 100.0 * (theirs / ours - 1.0);
        let what = format!("rate of {name} over {than}: more by");
        let paper = Paper::saving(paper).within(&RATE_GAIN);
        report
            .findings
            .push(Finding::beside(what, more, " %", paper));
    }
    report
        .setting
        .push(format!("a node's chunks: {}", node.setting()));
    report.notes.push(
        "in Pipe-S each node does one step at a time: it receives a slice, reads its own, combines both and sends the \
        sum before it receives the next; so its limit is half the rate of a link. After a pause, a link passes a burst \
        of 66 kB without delay: a quarter of a slice of 256 KiB, or a whole slice of 32 KiB. The cluster has 8 \
        requestors, not 16"
            .to_owned(),
    );
    Ok(report)
}

/// Recoveries of a node by whole chunks and by slices, onto one requestor and onto several.
fn recoveries(base: Base, all: usize) -> Vec<Trial> {
    let node = |selection, requestor_count| Work::Node {
        scheme: Scheme::Pipeline,
        selection,
        requestor_count,
    };
    vec![
        base.by_chunk(base.trial("Pipe-Rep", node(Selection::Smallest, 1))),
        base.by_chunk(base.trial("Pipe-Sur", node(Selection::Smallest, all))),
        base.trial("RP-single", node(Selection::Greedy, 1)),
        base.trial("RP-all", node(Selection::Greedy, all)),
    ]
}
