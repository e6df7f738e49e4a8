//! ECP-8a to 8d, 8f and 8i: repairs within one stripe on hosts behind one switch (`ECPipe` section 6.1,
//! Figure 8).

use super::bench::{RepairBench, Together, Trial, Work};
use super::figure::{Base, CONVENTIONAL, DIRECT, Figure, KIB, MIB, PIPELINE, PPR, PPR_IN_ROUNDS};
use crate::error::LabError;
use crate::experiment::tolerance::{DIRECT_SEND, OF_CONVENTIONAL};
use crate::experiment::{Experiment, Finding, Goal, Paper, Report, Session, Verdict};
use gabion_planner::repair::Scheme;

/// The code of most figures, (14,10).
const CODE: &str = "rs(10,4)";
/// The paper's fastest links.
const PAPER_MBIT_MAX: u64 = 10_000;
/// Several chunks by all helpers, each for its share of the slices.
const DEALT: &str = "dealt";

pub(crate) const F8A: Experiment = Experiment::new(
    "ECP-8a",
    "single-chunk repair against slice size (Figure 8a)",
    slice_size,
)
.on_testbed();
pub(crate) const F8B: Experiment = Experiment::new(
    "ECP-8b",
    "single-chunk repair against chunk size (Figure 8b)",
    chunk_size,
)
.on_testbed();
pub(crate) const F8C: Experiment = Experiment::new(
    "ECP-8c",
    "single-chunk repair against (n,k) (Figure 8c)",
    parameters,
)
.on_testbed();
pub(crate) const F8D: Experiment = Experiment::new(
    "ECP-8d",
    "pipelining with LRC and Rotated RS (Figure 8d)",
    repair_friendly,
)
.on_testbed();
pub(crate) const F8F: Experiment = Experiment::new(
    "ECP-8f",
    "repair of several chunks of a stripe (Figure 8f)",
    several,
)
.on_testbed();
pub(crate) const F8I: Experiment = Experiment::new(
    "ECP-8i",
    "single-chunk repair against link speed (Figure 8i)",
    link_speed,
)
.on_testbed();

fn slice_size(session: &Session<'_>) -> Result<Report, LabError> {
    let base = Base::of(session);
    let sizes: &[u64] =
        session
            .scale
            .pick(&[2, 8, 128], &[2, 16, 128, 1024], &[1, 4, 32, 256, 2048]);
    let mut trials = vec![base.trial(DIRECT, Work::DirectSend)];
    trials.extend(base.three().into_iter().take(2));
    trials.push(base.by_chunk(base.one(PPR_IN_ROUNDS, Scheme::Ppr)));
    let pipelined = |&size: &u64| Trial {
        slice_bytes: size * KIB,
        ..base.one(format!("{PIPELINE}, {size} KiB"), Scheme::Pipeline)
    };
    trials.extend(sizes.iter().map(pipelined));
    let x = "(14,10)".to_owned();
    let figure = Figure::measure(
        session,
        vec![(x.clone(), base.bench(session, CODE, trials))],
    )?;
    let title = "Time of a single-chunk repair by slice size";
    let mut report = figure.report("ECP-8a", title, "code", base);
    let best = format!("{PIPELINE}, {} KiB", base.slice_bytes / KIB);
    for (than, paper, goal) in [(CONVENTIONAL, 89.5, 88.0), (PPR, 69.5, 65.0)] {
        let paper = Some(Paper::saving(paper));
        figure.compare(&mut report, (&x, &best, than), paper, goal);
    }
    let over_direct = |name: &str| {
        let times = figure.seconds(&x, name).zip(figure.seconds(&x, DIRECT));
        times.map(|(pipelined, direct)| pipelined / direct)
    };
    if let Some(ratio) = over_direct(&best) {
        let what = format!("{best} over direct send");
        let paper = || Paper::ratio(1.088).within(&DIRECT_SEND);
        let mut finding = Finding::beside(what.as_str(), ratio, "x", paper());
        // The number of slices is what makes pipelining slower than a direct send, so fewer and more of them are tried.
        let others = sizes.iter().filter(|&&size| size * KIB != base.slice_bytes);
        let found = others.filter_map(|&size| {
            let ratio = over_direct(&format!("{PIPELINE}, {size} KiB"))?;
            (paper().judge(ratio) == Verdict::Near).then_some((size, ratio))
        });
        if let Some((size, ratio)) = found.min_by_key(|&(size, _)| size) {
            finding = finding.because(format!(
                "the time that a node takes for a slice: in slices of {size} KiB, pipelining takes {ratio:.2} times a \
                direct send, which is near the paper's"
            ));
        }
        report.findings.push(finding);
        report.goals.push(Goal::at_most(what, ratio, "x", 1.05));
    }
    Ok(report)
}

fn chunk_size(session: &Session<'_>) -> Result<Report, LabError> {
    let base = Base::of(session);
    let quarters: &[u64] = session
        .scale
        .pick(&[2, 4], &[1, 2, 4, 8], &[1, 2, 4, 8, 16]);
    let bench = |&quarter: &u64| {
        let bytes = base.chunk_bytes * quarter / 4;
        let sized = Base {
            chunk_bytes: bytes,
            ..base
        };
        let bench = sized.bench(session, CODE, sized.three());
        (format!("{} MiB", bytes / MIB), bench)
    };
    let words = [
        "ECP-8b",
        "Time of a single-chunk repair by chunk size",
        "chunk",
    ];
    let (papers, goals) = ([(88.8, 91.6), (66.0, 91.8)], [85.0, 62.0]);
    against_both(
        session,
        base,
        quarters.iter().map(bench),
        words,
        papers,
        goals,
    )
}

fn parameters(session: &Session<'_>) -> Result<Report, LabError> {
    let base = Base::of(session);
    let all = [
        ("(9,6)", "rs(6,3)"),
        ("(12,8)", "rs(8,4)"),
        ("(14,10)", CODE),
        ("(16,12)", "rs(12,4)"),
    ];
    let few = [all[0], all[3]];
    let codes: &[(&str, &str)] = session.scale.pick(&few, &all, &all);
    let bench = |&(x, code): &(&str, &str)| (x.to_owned(), base.bench(session, code, base.three()));
    let words = ["ECP-8c", "Time of a single-chunk repair by code", "(n,k)"];
    let (papers, goals) = ([(82.5, 91.2), (68.6, 70.4)], [80.0, 60.0]);
    against_both(session, base, codes.iter().map(bench), words, papers, goals)
}

fn repair_friendly(session: &Session<'_>) -> Result<Report, LabError> {
    let base = Base::of(session);
    let codes = [
        ("RS", "rs(12,4)"),
        ("LRC", "lrc(12,2,2)"),
        ("Rotated RS", "rotated(12,4,2)"),
    ];
    let bench = |(x, code): (&str, &str)| (x.to_owned(), base.bench(session, code, base.three()));
    let figure = Figure::measure(session, codes.map(bench).into())?;
    let title = "Time of a single-chunk repair by code, (16,12) and LRC(12,2,2)";
    let mut report = figure.report("ECP-8d", title, "code", base);
    let whole = figure.seconds("RS", CONVENTIONAL);
    for ((x, _), conventional) in codes.into_iter().zip([None, Some(0.5), Some(0.75)]) {
        for (name, paper, goal) in [
            (CONVENTIONAL, conventional, None),
            (PPR, None, None),
            (PIPELINE, Some(0.1), Some(0.13)),
        ] {
            let Some((seconds, whole)) = figure.seconds(x, name).zip(whole) else {
                continue;
            };
            let ratio = seconds / whole;
            let what = format!("{x}: {name}, over conventional RS");
            report.findings.push(match paper {
                Some(paper) => {
                    let paper = Paper::ratio(paper).within(&OF_CONVENTIONAL);
                    Finding::beside(what.as_str(), ratio, "x", paper)
                }
                None => Finding::number(what.as_str(), ratio, "x", "-"),
            });
            let goal = goal.map(|goal| Goal::at_most(what, ratio, "x", goal));
            report.goals.extend(goal);
        }
    }
    report.notes.push(
        "our Rotated RS reads 7.5 chunks for a data chunk, but the paper reads nine on average; see `rotated` in the \
        codec"
            .to_owned(),
    );
    Ok(report)
}

fn several(session: &Session<'_>) -> Result<Report, LabError> {
    let base = Base::of(session);
    let late_count = 4;
    let mut trials = Vec::new();
    for count in 1..=late_count as usize {
        for (name, way) in [
            (CONVENTIONAL, Together::Dedicated),
            (PIPELINE, Together::Chain),
            (DEALT, Together::Dealt),
        ] {
            let work = Work::Several { count, way };
            trials.push(base.trial(format!("{name}, f = {count}"), work));
        }
    }
    let bench = base.bench_with(late_count, session, CODE, trials);
    let x = "(14,10)";
    let figure = Figure::measure(session, vec![(x.to_owned(), bench)])?;
    let title = "Time of a repair of f chunks of one stripe";
    let mut report = figure.report("ECP-8f", title, "code", base);
    for (count, paper, goal) in [(1, None, 85.0), (2, None, 75.0), (4, Some(60.9), 60.0)] {
        let name = |scheme: &str| format!("{scheme}, f = {count}");
        let [chain, dealt, than] = [PIPELINE, DEALT, CONVENTIONAL].map(name);
        let paper = paper.map(Paper::saving);
        figure.compare(&mut report, (x, &chain, &than), paper, goal);
        figure.compare(&mut report, (x, &dealt, &than), None, 85.0);
    }
    report.notes.push(
        "by its links, a chain takes 100 - 10 f percent less time than a requestor that receives ten chunks: 60 at f = \
        4; the paper's conventional repair took longer than its links require. If each helper decodes its share of the \
        slices, the links allow 100 - 10 (1 + (f - 1) / 10): 87 at f = 4"
            .to_owned(),
    );
    Ok(report)
}

fn link_speed(session: &Session<'_>) -> Result<Report, LabError> {
    let base = Base::of(session);
    let factors: &[u64] = session.scale.pick(&[1, 2], &[1, 2, 4, 8], &[1, 2, 5, 10]);
    let bench = |&factor: &u64| {
        let faster = Base {
            node_bytes_per_s: base.node_bytes_per_s * factor,
            ..base
        };
        let rate = faster.node_bytes_per_s * 8 / 1_000_000;
        let bench = faster.bench(session, CODE, faster.three());
        (format!("{rate} Mbit/s"), bench)
    };
    let words = [
        "ECP-8i",
        "Time of a single-chunk repair by link speed",
        "links",
    ];
    let (papers, goals) = ([(81.4, 90.0), (50.0, 70.0)], [81.4, 50.0]);
    let mut report = against_both(
        session,
        base,
        factors.iter().map(bench),
        words,
        papers,
        goals,
    )?;
    let fastest_mbit = factors.iter().max().unwrap_or(&1) * base.node_bytes_per_s * 8 / 1_000_000;
    if fastest_mbit < PAPER_MBIT_MAX {
        report.left_out.push(format!(
            "links of 10 Gbit/s: the fastest links here have {fastest_mbit} Mbit/s; above that, the processors of this \
            machine are the limit"
        ));
        for (than, saved) in [(CONVENTIONAL, "81.4 %"), (PPR, "50.0 %")] {
            let what = format!("10 Gbit/s: {PIPELINE}, less time than {than}");
            report.findings.push(Finding::left_out(what, saved));
        }
    }
    Ok(report)
}

/// A figure along one axis, with its id, title and axis: at every place pipelining against conventional repair
/// and PPR.
fn against_both(
    session: &Session<'_>,
    base: Base,
    benches: impl Iterator<Item = (String, RepairBench)>,
    [id, title, x_label]: [&str; 3],
    papers: [(f64, f64); 2],
    goals: [f64; 2],
) -> Result<Report, LabError> {
    let figure = Figure::measure(session, benches.collect())?;
    let mut report = figure.report(id, title, x_label, base);
    for measured in &figure.all {
        for ((than, (least, most)), goal) in [CONVENTIONAL, PPR].into_iter().zip(papers).zip(goals)
        {
            let paper = Some(Paper::savings(least, most));
            figure.compare(&mut report, (&measured.x, PIPELINE, than), paper, goal);
        }
    }
    Ok(report)
}
