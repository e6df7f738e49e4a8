//! ECP-10b where HDFS cannot run, and the 16 requestors of ECP-8e: full-node recovery on the paper's cluster in the
//! model of links (`ECPipe` sections 6.1 and 6.3, Figures 8e and 10b).

use super::bench::Selection;
use super::figure::{CONVENTIONAL, PIPELINE};
use super::paper_cluster::PaperCluster;
use super::recovery::{SCHEDULED, SCHEMES};
use crate::error::LabError;
use crate::experiment::{Finding, Paper, Report, Session, Table, least_and_most};
use crate::plot::Plot;
use gabion_planner::repair::Scheme;

/// Read rates of disks that serve many repairs at once: no limit, or an assumption, half of the rate in sequence.
const DISKS: [(&str, Option<f64>); 2] = [("never waited for", None), ("72 MB/s", Some(72e6))];
const REQUESTOR_COUNTS: [u32; 5] = [1, 2, 4, 8, 16];

const CAUSE: &str = "in the model, the host with the smallest number sends a chunk of nearly every stripe under \
conventional repair and under RP, so its link limits both. A requestor's link carries less, four stripes. The model \
lacks other causes that slow conventional repair on the paper's hosts; disks at half of their rate change little (see \
the table)";

/// Adds the table of the paper's cluster by number of requestors, and the findings at 16.
pub(super) fn add_requestors(session: &Session<'_>, report: &mut Report) -> Result<(), LabError> {
    let title = "The paper's cluster in the model: seconds by number of requestors";
    let names = SCHEMES.iter().map(|(name, ..)| *name);
    let columns: Vec<&str> = ["disks", "requestors"].into_iter().chain(names).collect();
    let mut table = Table::new(title, &columns);
    let of_disks = |disks| REQUESTOR_COUNTS.map(|count| (disks, count));
    let rows = DISKS.into_iter().flat_map(of_disks);
    let all = session.grid(
        "recoveries in the model",
        rows,
        &SCHEMES,
        |(disks, count), scheme| {
            let &(_, scheme, selection) = scheme;
            let cluster = PaperCluster::new("rs(10,4)", session.seed, disks.1)?;
            cluster.recovery_s(scheme, selection, &PaperCluster::spread(*count))
        },
    )?;
    for (((disks, disk_bytes_per_s), count), seconds) in all {
        let first = [disks.into(), u64::from(count).into()];
        table.row(first.into_iter().chain(seconds.iter().map(|&s| s.into())));
        if count == 16 && disk_bytes_per_s.is_none() {
            let [conventional, _, pipeline, scheduled, _] = seconds[..] else {
                unreachable!("there are five schemes");
            };
            for (ours, than, ratio, paper) in [
                (PIPELINE, CONVENTIONAL, conventional / pipeline, 1.51),
                (SCHEDULED, PIPELINE, pipeline / scheduled, 1.089),
            ] {
                let what = format!("16 requestors, by the model: rate of {ours} over {than}");
                let finding = Finding::beside(what, ratio, "x", Paper::ratio(paper));
                report.findings.push(finding.because(CAUSE));
            }
        }
    }
    report.tables.push(table);
    report.left_out.push(
        "16 requestors on real links: the model of links replaces them; in the paper, the 16 hosts both help and \
        receive"
            .to_owned(),
    );
    Ok(())
}

/// The codes of Figure 10b. Its text names k = 10 and 14; 6 is the other k of HDFS-3.
const CODES: [(&str, &str); 3] = [
    ("(9,6)", "rs(6,3)"),
    ("(14,10)", "rs(10,4)"),
    ("(16,14)", "rs(14,2)"),
];

/// ECP-10b in the model of links.
pub(super) fn onto_a_new_host(session: &Session<'_>) -> Result<Report, LabError> {
    /// The least and the most over the paper's codes.
    const PRINTED: [(&str, f64); 2] = [("least", 5.1), ("most", 16.0)];
    let mut table = Table::new(
        "Seconds of the recovery of 64 chunks onto a new host",
        &["code", CONVENTIONAL, PIPELINE, "times as fast"],
    );
    let all = session.sweep("recoveries in the model", CODES, |(_, code)| {
        let cluster = PaperCluster::new(code, session.seed, None)?;
        let onto = [PaperCluster::NEW_HOST];
        let seconds = |scheme| cluster.recovery_s(scheme, Selection::Smallest, &onto);
        Ok([seconds(Scheme::Conventional)?, seconds(Scheme::Pipeline)?])
    })?;
    let ratios: Vec<f64> = all.iter().map(|times| times[0] / times[1]).collect();
    for (((name, _), times), &ratio) in CODES.into_iter().zip(&all).zip(&ratios) {
        table.row([name.into(), times[0].into(), times[1].into(), ratio.into()]);
    }
    let finding = |((which, printed), ours)| {
        let what = format!("rate of {PIPELINE} over {CONVENTIONAL}, {which} over codes");
        Finding::beside(what, ours, "x", Paper::ratio(printed)).because(
            "if links are the only limit, pipelining is k times as fast as conventional repair onto one host for every \
            code (see the table). The model has no cost of connections and reads",
        )
    };
    let findings = PRINTED.into_iter().zip(least_and_most(&ratios));
    let findings = findings.map(finding).collect();
    let series = |(at, name): (usize, &str)| {
        let times = all.iter().map(|times| times[at]);
        (name.to_owned(), times.collect())
    };
    let names = CODES.iter().map(|(name, _)| (*name).to_owned());
    let mut plot = Plot::bars(
        "ECP-10b",
        "Full-node recovery onto a new host",
        ["code", "seconds"],
        names.collect(),
        [(0, CONVENTIONAL), (1, PIPELINE)].map(series).into(),
    );
    for ((_, printed), ratio) in PRINTED.into_iter().zip(least_and_most(&ratios)) {
        let is_it = |other: &f64| other.to_bits() == ratio.to_bits();
        let at = ratios.iter().position(is_it);
        let at = at.expect("it is one of the ratios");
        plot.mark_bar(CODES[at].0, PIPELINE, all[at][0] / printed);
    }
    plot.notes.push(
        "the paper's: it prints its least and its greatest gain without their codes; the marks are at the codes of \
        our least and greatest gain"
            .to_owned(),
    );
    Ok(Report {
        setting: vec![
            "64 lost chunks of 64 MiB of one host, onto a host without chunks, all at the same time; 16 hosts on links \
            of 1 Gb/s, in the model of links"
                .to_owned(),
        ],
        scaled: vec![
            "no HDFS runs here; its own repair is conventional repair. Both schemes are modelled without HDFS's \
            connections, reads and processes"
                .to_owned(),
            "the paper's text names k = 10 and 14, but not the codes".to_owned(),
        ],
        tables: vec![table],
        plots: vec![plot],
        findings,
        ..Report::default()
    })
}
