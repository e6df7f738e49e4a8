//! COD-T51: the number of fragments of a chunk on its disk after random writes, Table 5.1 of the `CodFS`
//! thesis (section 5.2.3), as the file system reports it.

use super::update_run::{self, Bench, MIB};
use crate::error::LabError;
use crate::experiment::tolerance::FRAGMENTS;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table, Verdict};
use crate::plot::Plot;
use gabion_layout::UpdateScheme;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "COD-T51",
    "fragments per chunk after random writes, by FIEMAP (Table 5.1)",
    run,
);

/// The thesis's averages for data and parity chunks.
const THESIS: [(UpdateScheme, [f64; 2]); 4] = [
    (UpdateScheme::Fo, [0.0, 0.0]),
    (UpdateScheme::Fl, [29.41, 117.66]),
    (UpdateScheme::Pl, [0.0, 117.66]),
    (UpdateScheme::Plr, [0.0, 0.0]),
];

/// The cause of fragments under PLR that are not there if one client stores the segments.
const SIDE_BY_SIDE: &str = "clients store segments side by side, so the file system allocates space for others between \
the allocations of a parity chunk and of its reserve; stored by one client, chunks are near the thesis (table of causes)";

/// Fragments of stored chunks after their random updates, of data and of parity chunks.
fn fragments(bench: &mut Bench) -> Result<[f64; 2], LabError> {
    bench.update_at_random()?;
    bench.settle()?;
    bench.fragments()
}

/// The table of causes: a parity chunk's fragments under PLR after ten clients, or one, have stored the segments.
fn causes(by_ten: f64, by_one: f64) -> Table {
    let title = "Causes: fragments of a parity chunk under PLR, by the number of clients that store the segments";
    let mut causes = Table::new(title, &["clients", "parity"]);
    for (clients, parity) in [("ten", by_ten), ("one", by_one)] {
        causes.row([clients.into(), parity.into()]);
    }
    causes
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let (segments, chunk_bytes) = session
        .scale
        .pick((12, MIB / 2), (24, 4 * MIB), (200, 4 * MIB));
    let columns = ["scheme", "data", "thesis", "parity", "thesis"];
    let mut table = Table::new("Fragments beyond the chunk's own, on average", &columns);
    let mut report = Report {
        setting: vec![
            "RDP with 4 data and 2 parity chunks, 10 nodes, 10 clients; random updates of 1/32 of a chunk (128 KiB in \
            the thesis) overwrite every segment once; reserved space of one chunk"
                .to_owned(),
            "a fragment is a run of adjacent blocks of the real file system. The figure counts the runs of the chunk's \
            bytes with its unmerged records, minus the runs of the chunk alone"
                .to_owned(),
        ],
        scaled: vec![format!(
            "{segments} segments of {} MiB instead of 1280 of 16 MiB",
            4 * chunk_bytes / MIB
        )],
        ..Report::default()
    };
    let all = session.sweep("update schemes", THESIS, |(scheme, _)| {
        let mut bench = Bench::new(session, "rdp(4)", chunk_bytes, scheme, segments)?;
        bench.put()?;
        fragments(&mut bench)
    })?;
    let reserved = UpdateScheme::Plr;
    let by_one = session.sweep("stored by one client", [reserved], |scheme| {
        let mut bench = Bench::new(session, "rdp(4)", chunk_bytes, scheme, segments)?;
        bench.put_by_one()?;
        fragments(&mut bench)
    })?;
    let by_one = by_one[0][1];
    for ((scheme, [thesis_data, thesis_parity]), &[data, parity]) in THESIS.into_iter().zip(&all) {
        table.row([
            scheme.to_string().into(),
            data.into(),
            thesis_data.into(),
            parity.into(),
            thesis_parity.into(),
        ]);
        for (of, ours, thesis) in [
            ("data", data, thesis_data),
            ("parity", parity, thesis_parity),
        ] {
            let paper = Paper::exactly(thesis).within(&FRAGMENTS);
            let is_cause = paper.judge(by_one) == Verdict::Near;
            let mut finding = Finding::beside(format!("{scheme}: {of}"), ours, "", paper);
            if scheme == reserved && of == "parity" && is_cause {
                finding = finding.because(SIDE_BY_SIDE);
            }
            report.findings.push(finding);
        }
    }
    let by_ten = all.last().map_or(0.0, |&[_, parity]| parity);
    report.tables.extend([table, causes(by_ten, by_one)]);
    report.notes.push(format!(
        "a data chunk gets {0} records and a parity chunk {1}. Two records form one fragment if they are adjacent in \
        their node's log. In the thesis this holds for one record in 12; it is likelier if fewer chunks share a log",
        update_run::UPDATES_PER_CHUNK,
        4 * update_run::UPDATES_PER_CHUNK
    ));
    report.notes.extend(update_run::notes().into_iter().take(1));
    report.plots.push(plot(&all));
    Ok(report)
}

fn plot(all: &[[f64; 2]]) -> Plot {
    let series = |name: &str, at: usize| {
        let values = all.iter().map(|found| found[at]);
        (name.to_owned(), values.collect())
    };
    let mut plot = Plot::bars(
        "COD-T51",
        "Fragments of a chunk after random writes",
        ["update scheme", "fragments per chunk"],
        THESIS.map(|(scheme, _)| scheme.to_string()).into(),
        vec![series("data chunks", 0), series("parity chunks", 1)],
    );
    for (scheme, [data, parity]) in THESIS {
        plot.mark_bar(scheme.to_string(), "data chunks", data);
        plot.mark_bar(scheme.to_string(), "parity chunks", parity);
    }
    plot
}
