//! COD-T51: the number of fragments of a chunk on its disk after random writes, Table 5.1 of the `CodFS`
//! thesis (section 5.2.3), as the file system reports it.

use super::update_run::{self, Bench, MIB};
use crate::error::LabError;
use crate::experiment::tolerance::FRAGMENTS;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table};
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
        bench.update_at_random()?;
        bench.settle()?;
        bench.fragments()
    })?;
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
            let finding = Finding::beside(format!("{scheme}: {of}"), ours, "", paper);
            report.findings.push(finding);
        }
    }
    report.tables.push(table);
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
