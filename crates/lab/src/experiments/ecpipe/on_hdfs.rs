//! ECP-10b on HDFS: full-node recovery, repairs of one block and degraded reads by HDFS's own code and by Gabion's
//! plugin, on `DataNode`s with limited links (`ECPipe` section 6.3, Figure 10b).
//!
//! `hdfs/` measures (`LimitedLinksMeasurement.java`); here are its settings, its results, and the report. Where it
//! cannot run, the model of links replaces it (`modelled`).

use super::figure::{CONVENTIONAL, PIPELINE, PPR};
use super::hdfs_times::{HdfsBench, HdfsTimes};
use super::modelled::onto_a_new_host;
use crate::error::LabError;
use crate::experiment::{
    Cell, Clusters, Experiment, Finding, Goal, Paper, Report, Session, Table, least_and_most,
};
use crate::plot::Plot;

pub(crate) const F10B: Experiment = Experiment::new(
    "ECP-10b",
    "full-node recovery of HDFS-3 by its own code and by schemes of the plugin (Figure 10b)",
    run,
);

/// HDFS's own recovery with the settings that Hadoop ships, and with those of docs/hdfs.md.
const DEFAULTS: &str = "HDFS";
const TUNED: &str = "HDFS, tuned";
/// The least and the most gain of pipelining that the paper prints, over its codes.
const PRINTED: [(&str, f64); 2] = [("least", 5.1), ("most", 16.0)];
/// From this `k` on, the paper's conventional repair by helpers is faster than HDFS's own.
const LARGE_K: u32 = 10;

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let clusters = session.clusters;
    let missing = clusters.map_or_else(
        || Some("this program starts no clusters".to_owned()),
        <dyn Clusters>::hdfs_missing,
    );
    if let Some(missing) = missing {
        let mut report = onto_a_new_host(session)?;
        let line = format!("HDFS itself, which the model of links replaces: {missing}");
        report.left_out.push(line);
        return Ok(report);
    }
    let clusters = clusters.ok_or(LabError::NoClusters)?;
    let measured = session.sweep("codes on HDFS", benches(session), |mut bench| {
        bench.directory = session.empty_directory("hdfs")?;
        let times = clusters.hdfs(&bench)?;
        Ok((bench, times))
    })?;
    Ok(report(&measured))
}

/// The settings of this scale, code by code.
fn benches(session: &Session<'_>) -> Vec<HdfsBench> {
    let codes: &[(u32, u32)] = session.scale.pick(
        &[(6, 3)],
        &[(6, 3), (10, 4), (14, 2)],
        &[(6, 3), (10, 4), (14, 2)],
    );
    let bench = |&(k, m): &(u32, u32)| HdfsBench {
        directory: session.directory.to_owned(),
        k,
        m,
        group_count: session.scale.pick(4, 8, 64),
        block_mib: session.scale.pick(4, 8, 8),
        single_mib: session.scale.pick(8, 32, 64),
        link_mbit: session.scale.pick(100, 100, 200),
    };
    codes.iter().map(bench).collect()
}

type Measured = (HdfsBench, HdfsTimes);

/// How many times as long the first takes.
fn ratio(times: &HdfsTimes, than: &str, name: &str) -> f64 {
    times.of(than) / times.of(name)
}

fn report(measured: &[Measured]) -> Report {
    let mut report = Report {
        setting: setting(measured),
        scaled: scaled(measured),
        tables: vec![
            node_table(measured),
            block_table(measured),
            read_table(measured),
            processor_table(measured),
        ],
        plots: vec![plot(measured)],
        ..Report::default()
    };
    report.choose(
        "the settings of HDFS",
        "Hadoop's defaults",
        "the paper names none; with those of docs/hdfs.md HDFS orders repairs faster",
    );
    report.findings = node_findings(measured);
    report.findings.extend(block_findings(measured));
    report.goals = measured.iter().flat_map(goals).collect();
    report.notes.push(
        "the command recover runs the plugin's schemes: it gathers, plans and orders all blocks, onto a DataNode that \
        has rebuilt a small block before. A time ends when HDFS lists every block as live. Then all files are read \
        and compared"
            .to_owned(),
    );
    report.notes.push(
        "HDFS's own code, tuned, runs on the same DataNodes after their agents are stopped; with Hadoop's defaults on \
        new DataNodes without the plugin"
            .to_owned(),
    );
    report
}

fn setting(measured: &[Measured]) -> Vec<String> {
    let Some((bench, _)) = measured.first() else {
        return Vec::new();
    };
    vec![
        format!(
            "Hadoop 3.4.1: n + 1 DataNodes as processes, each with its agent in a network namespace \
            whose link passes {} Mbit/s each way",
            bench.link_mbit
        ),
        format!(
            "{} groups with blocks of {} MiB, one of each at every DataNode but one; a DataNode is killed, and the new \
            one gets its blocks. One block and reads: a group with blocks of {} MiB. Cells of 1 MiB, slices of 64 KiB",
            bench.group_count, bench.block_mib, bench.single_mib
        ),
    ]
}

fn scaled(measured: &[Measured]) -> Vec<String> {
    let loads: Vec<f64> = measured.iter().map(|(_, times)| times.of("load")).collect();
    let [least, most] = least_and_most(&loads);
    vec![
        "all DataNodes are on one machine and store in memory, with slow links so that links are the limit; the paper \
        has 16 hosts, 1 Gb/s, 64 groups with blocks of 64 MiB, and slices of 32 KiB. Compare ratios, not seconds"
            .to_owned(),
        format!("the machine's load at the end of a code's measurement was {least:.1} to {most:.1}"),
        "the paper's text names k = 10 and 14, but not the codes".to_owned(),
        "HDFS is told of a loss at once; with its defaults it would notice it after 630 s"
            .to_owned(),
    ]
}

/// A table with a row for each code: what was measured under these names.
fn table(title: &str, measured: &[Measured], columns: &[(&str, &str)]) -> Table {
    let heads = columns.iter().map(|(head, _)| *head);
    let heads: Vec<&str> = std::iter::once("code").chain(heads).collect();
    let mut table = Table::new(title, &heads);
    for (bench, times) in measured {
        let cells = columns.iter().map(|(_, name)| Cell::from(times.of(name)));
        table.row(std::iter::once(Cell::from(bench.code().as_str())).chain(cells));
    }
    table
}

fn node_table(measured: &[Measured]) -> Table {
    let columns = [
        (DEFAULTS, "node.hadoop-default"),
        (TUNED, "node.hadoop-tuned"),
        (CONVENTIONAL, "node.conventional"),
        (PPR, "node.ppr"),
        (PIPELINE, "node.pipeline"),
        ("RP, ordered by HDFS", "node.ordered-by-hdfs"),
    ];
    table(
        "Seconds of the recovery of a DataNode onto a new one",
        measured,
        &columns,
    )
}

fn block_table(measured: &[Measured]) -> Table {
    let columns = [
        ("direct send", "direct"),
        (TUNED, "one.hadoop"),
        (CONVENTIONAL, "one.conventional"),
        (PPR, "one.ppr"),
        (PIPELINE, "one.pipeline"),
        ("RP, its task alone", "one.pipeline.task"),
        ("RP, ordered by HDFS", "one.ordered-by-hdfs"),
    ];
    table("Seconds of the repair of one block", measured, &columns)
}

fn read_table(measured: &[Measured]) -> Table {
    let columns = [
        ("nothing lost", "read.normal"),
        ("agents rebuild", "read.agents"),
        ("HDFS decodes", "read.hadoop"),
        ("block: nothing lost", "read.normal.cells"),
        ("block: agents rebuild", "read.agents.cells"),
        ("block: HDFS decodes", "read.hadoop.cells"),
    ];
    let title =
        "Seconds of a sequential read of a group with a lost block, and of this block alone";
    table(title, measured, &columns)
}

fn processor_table(measured: &[Measured]) -> Table {
    let columns = [
        (CONVENTIONAL, "core-seconds-per-gib.conventional"),
        (PPR, "core-seconds-per-gib.ppr"),
        (PIPELINE, "core-seconds-per-gib.pipeline"),
    ];
    let title = "Core-seconds of all agents for each GiB that helpers read, recovery of a DataNode";
    table(title, measured, &columns)
}

fn plot(measured: &[Measured]) -> Plot {
    let series = [
        (DEFAULTS, "node.hadoop-default"),
        (TUNED, "node.hadoop-tuned"),
        (CONVENTIONAL, "node.conventional"),
        (PPR, "node.ppr"),
        (PIPELINE, "node.pipeline"),
    ];
    let bars = |(head, name): (&str, &str)| {
        let heights = measured.iter().map(|(_, times)| times.of(name));
        (head.to_owned(), heights.collect())
    };
    let mut plot = Plot::bars(
        "ECP-10b",
        "Full-node recovery of HDFS onto a new DataNode",
        ["code", "seconds"],
        measured.iter().map(|(bench, _)| bench.code()).collect(),
        series.map(bars).into(),
    );
    // The text prints the gains of some codes only; they are the ends of the range.
    let ends = [
        measured.first(),
        measured.last().filter(|_| measured.len() > 1),
    ];
    for ((bench, times), (_, gain)) in ends.into_iter().flatten().zip(PRINTED) {
        let seconds = times.of("node.hadoop-default") / gain;
        plot.mark_bar(bench.code(), PIPELINE, seconds);
    }
    plot.notes.push(
        "the paper's: it prints its least and its greatest gain without their codes; the marks are at the codes with \
        the smallest and the largest k"
            .to_owned(),
    );
    plot
}

fn node_findings(measured: &[Measured]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (of, name, is_judged) in [
        (DEFAULTS, "node.hadoop-default", true),
        (TUNED, "node.hadoop-tuned", false),
    ] {
        let gain = |(_, times): &Measured| ratio(times, name, "node.pipeline");
        let gains: Vec<f64> = measured.iter().map(gain).collect();
        for ((which, printed), ours) in PRINTED.into_iter().zip(least_and_most(&gains)) {
            let what = format!("node: rate of {PIPELINE} over {of}, {which} over codes");
            let paper = Paper::ratio(printed);
            if which == "most" && measured.len() == 1 {
                findings.push(Finding::left_out(what, format!("{printed}x")));
                continue;
            }
            let finding = Finding::beside(what, ours, "x", paper).because(
                "links alone allow k times (6 and 14 at the ends); the rest is how long HDFS's own code waits, which \
                depends on its settings and on the length of a repair",
            );
            findings.push(if is_judged {
                finding
            } else {
                finding.reading("HDFS is tuned")
            });
        }
    }
    for (bench, times) in measured.iter().filter(|(bench, _)| bench.k >= LARGE_K) {
        let gain = ratio(times, "node.hadoop-default", "node.conventional");
        findings.push(Finding::claim(
            format!(
                "{}, node: rate of conventional repair by agents over HDFS's own",
                bench.code()
            ),
            format!("{gain:.2}x"),
            "above 1 for k = 10 and 14",
            gain > 1.0,
        ));
    }
    findings
}

/// The paper's single-block repairs are those of HDFS-RAID, "similar" to HDFS-3's by its text.
fn block_findings(measured: &[Measured]) -> Vec<Finding> {
    let saving = |times: &HdfsTimes, name| 100.0 * (1.0 - ratio(times, name, "one.hadoop"));
    let of_code = |(bench, times): &Measured| {
        let what = |name: &str| {
            let code = bench.code();
            format!("{code}, one block: {name}, less time than HDFS's own")
        };
        let paper = Paper::savings(82.7, 91.2);
        let pipelined = saving(times, "one.pipeline");
        let conventional = saving(times, "one.conventional");
        [
            Finding::beside(what(PIPELINE), pipelined, " %", paper).because(
                "links alone allow 1 - 1/k; gathering, planning and the new DataNode's first task take a fixed time",
            ),
            Finding::number(what(CONVENTIONAL), conventional, " %", "up to 21.8 %"),
        ]
    };
    measured.iter().flat_map(of_code).collect()
}

/// The goals of a code.
fn goals((bench, times): &Measured) -> [Goal; 5] {
    let what = |name: &str| format!("{}, {name}", bench.code());
    let over = |than, name| ratio(times, than, name);
    let links =
        "processors that are shared with other work slow agents more than links do; see the load";
    [
        Goal::at_least(
            what("node: rate of RP over HDFS"),
            over("node.hadoop-default", "node.pipeline"),
            "x",
            5.0,
        )
        .because(links),
        Goal::at_least(
            what("node: rate of RP over HDFS, tuned"),
            over("node.hadoop-tuned", "node.pipeline"),
            "x",
            2.0,
        )
        .because(links),
        Goal::at_most(
            what("one block: time of RP over direct send"),
            over("one.pipeline", "direct"),
            "x",
            1.15,
        )
        .because("it includes gathering, planning, and the first task of a DataNode that has just started"),
        Goal::at_least(
            what("degraded sequential read: rate over a normal read"),
            over("read.normal", "read.agents"),
            "x",
            0.8,
        )
        .because(links),
        Goal::at_most(
            what("core-seconds of agents a GiB"),
            times.of("core-seconds-per-gib.pipeline"),
            "",
            1.5,
        )
        .because("the kernel's work for TCP over two namespaces and a limited queue counts, for each hop"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Verdict;

    /// Times of links that pass 1 MiB a second, and of a HDFS that waits `slowdown` times as long as its links.
    fn measured(k: u32, slowdown: f64) -> Measured {
        let bench = HdfsBench {
            directory: "x".into(),
            k,
            m: 2,
            group_count: 8,
            block_mib: 1,
            single_mib: 1,
            link_mbit: 8,
        };
        let k = f64::from(k);
        let times = HdfsTimes::with(|name| match name {
            "node.hadoop-default" => 8.0 * k * slowdown,
            "one.hadoop" => k * slowdown,
            "node.hadoop-tuned" | "node.conventional" => 8.0 * k,
            "one.conventional" | "read.normal" | "read.agents" => k,
            name if name.starts_with("node.") => 8.0,
            _ => 1.0,
        });
        (bench, times)
    }

    fn finding<'a>(report: &'a Report, what: &str) -> &'a Finding {
        let found = report.findings.iter().find(|f| f.what.contains(what));
        found.unwrap_or_else(|| panic!("no {what} in {:#?}", report.findings))
    }

    #[test]
    fn gains_near_the_papers_are_near_and_others_are_not() {
        let near = report(&[measured(6, 0.9), measured(14, 1.1)]);
        let least = finding(&near, "over HDFS, least");
        assert_eq!(least.verdict, Some(Verdict::Near), "{least:?}");
        assert_eq!(near.verdict(), Some(Verdict::Near), "{:#?}", near.findings);
        assert!(
            near.goals.iter().all(|goal| goal.is_met),
            "{:#?}",
            near.goals
        );
        // Tuned, links alone count, which the experiment is not judged by.
        assert!(finding(&near, "over HDFS, tuned, most").reading.is_some());

        let far = report(&[measured(6, 3.0), measured(14, 3.0)]);
        assert_eq!(
            far.verdict(),
            Some(Verdict::DirectionOnly),
            "{:#?}",
            far.findings
        );

        // HDFS's own code at the rate of pipelining.
        let slower = report(&[measured(6, 1.0 / 6.5), measured(14, 1.0 / 14.5)]);
        assert_eq!(slower.verdict(), Some(Verdict::Opposite));
        let claim = finding(&slower, "conventional repair by agents");
        assert_eq!(claim.verdict, Some(Verdict::Opposite), "{claim:?}");
        assert_eq!(slower.goals.iter().filter(|goal| !goal.is_met).count(), 2);
    }

    #[test]
    fn one_code_is_not_judged_by_the_greatest_gain() {
        let alone = report(&[measured(6, 1.0)]);
        assert_eq!(finding(&alone, "over HDFS, most").ours, "not run");
        assert!(alone.plots[0].svg().unwrap().contains("class=\"paper\""));
    }
}
