//! COD-F51: aggregate read and write throughput against the number of nodes, Figure 5.1 of the `CodFS`
//! thesis (section 5.1), on clusters of real processes whose nodes have emulated links.

use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table};
use crate::experiment::{TransferSetting, Transfers};
use crate::plot::Plot;
use gabion_codec::Code;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "COD-F51",
    "aggregate throughput against the number of nodes (Figure 5.1)",
    run,
);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Chunks of a segment and data chunks among them, for both codes.
const CHUNKS: f64 = 6.0;
const DATA_CHUNKS: f64 = 4.0;

/// Nodes for which the thesis prints rates in its text, the least of writes and of reads in MB/s, and the rate of its
/// nodes' links.
const PRINTED_NODES: u32 = 10;
const PRINTED_MB_PER_S: [f64; 2] = [450.0, 580.0];
const PRINTED_LINK_BYTES_PER_S: f64 = 114.5e6;

/// The variable of a scale.
struct Sizes {
    nodes: &'static [u32],
    /// Code and bytes of a chunk.
    codes: &'static [(&'static str, u64)],
    link_bytes_per_s: u64,
    clients: u32,
    file_bytes: u64,
}

const QUICK: Sizes = Sizes {
    nodes: &[6, 8],
    codes: &[("rdp(4)", 256 * KIB)],
    link_bytes_per_s: 4_000_000,
    clients: 4,
    file_bytes: 4 * MIB,
};
const USUAL: Sizes = Sizes {
    nodes: &[6, 8, 10],
    codes: &[
        ("rdp(4)", 256 * KIB),
        ("rdp(4)", 512 * KIB),
        ("rs(4,2)", 512 * KIB),
    ],
    link_bytes_per_s: 8_000_000,
    clients: 10,
    file_bytes: 12 * MIB,
};
const FULL: Sizes = Sizes {
    nodes: &[6, 7, 8, 9, 10],
    codes: &[
        ("rdp(4)", 2 * MIB),
        ("rdp(4)", 4 * MIB),
        ("rdp(4)", 8 * MIB),
        ("rdp(4)", 16 * MIB),
        ("rs(4,2)", 4 * MIB),
    ],
    link_bytes_per_s: 114_500_000,
    clients: 10,
    file_bytes: 1024 * MIB,
};

/// One cluster's throughput, in bytes a second.
struct Measured {
    series: String,
    nodes: u32,
    write: f64,
    read: f64,
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let sizes = session.scale.pick(QUICK, USUAL, FULL);
    let clusters = session.clusters.ok_or(LabError::NoClusters)?;
    let points = sizes
        .codes
        .iter()
        .flat_map(|&code| sizes.nodes.iter().map(move |&nodes| (code, nodes)));
    let all = session.sweep("clusters", points, |((code, chunk_bytes), nodes)| {
        let setting = TransferSetting {
            directory: session.empty_directory("cluster")?,
            node_count: nodes,
            link_bytes_per_s: sizes.link_bytes_per_s,
            code: code
                .parse::<Code>()
                .expect("the experiment names codes that there are"),
            chunk_bytes,
            client_count: sizes.clients,
            file_bytes: sizes.file_bytes,
        };
        let Transfers { write_s, read_s } = clusters.transfer(&setting)?;
        let bytes = (u64::from(sizes.clients) * sizes.file_bytes) as f64;
        let segment = 4 * chunk_bytes / KIB;
        Ok(Measured {
            series: format!("{code}, segments of {segment} KiB"),
            nodes,
            write: bytes / write_s,
            read: bytes / read_s,
        })
    })?;
    Ok(report(&sizes, &all))
}

/// A bound of writes and of reads, in bytes a second, by nodes and the rate of their links.
type Bound = fn(u32, u64) -> [f64; 2];

/// The thesis's formulas: everything that a primary receives or sends besides its own chunk passes
/// its link.
fn thesis(nodes: u32, link_bytes_per_s: u64) -> [f64; 2] {
    let all = f64::from(nodes) * link_bytes_per_s as f64;
    [
        all / (1.0 + (CHUNKS - 1.0) / DATA_CHUNKS),
        all / (1.0 + (DATA_CHUNKS - 1.0) / DATA_CHUNKS),
    ]
}

/// The same for a client that encodes, and reads data chunks from their nodes: each chunk passes
/// one node's link, once.
fn ours(nodes: u32, link_bytes_per_s: u64) -> [f64; 2] {
    let all = f64::from(nodes) * link_bytes_per_s as f64;
    [all * DATA_CHUNKS / CHUNKS, all]
}

fn report(sizes: &Sizes, all: &[Measured]) -> Report {
    let rate = sizes.link_bytes_per_s;
    let mut report = Report {
        setting: vec![
            "(n,k) = (6,4), RDP and Reed-Solomon; one process for each node, 10 clients (4 at scale quick); each \
            client puts a file and then gets it"
                .to_owned(),
            format!("each node's link carries {:.1} MB/s in each direction", rate as f64 / 1e6),
        ],
        scaled: vec![format!(
            "links of {:.1} MB/s instead of 114.5, files of {} MiB, and segments of the table's sizes instead of 8 to \
            64 MiB, so that two processors can drive all nodes and the load is even",
            rate as f64 / 1e6,
            sizes.file_bytes / MIB
        )],
        tables: vec![table(sizes, all)],
        notes: vec![
            "in the thesis, primaries encode and gather, so each segment passes a primary's link and the links of the \
            chunks' nodes: T_write = M B / (1 + (n-1)/k), T_read = M B / (1 + (k-1)/k). Here clients encode, and read \
            data chunks directly from their nodes, so the bounds are M B k/n and M B"
                .to_owned(),
        ],
        plots: vec![
            plot(sizes, all, "write", 0, |m| m.write),
            plot(sizes, all, "read", 1, |m| m.read),
        ],
        ..Report::default()
    };
    for (name, at, get) in [
        ("write", 0, (|m| m.write) as fn(&Measured) -> f64),
        ("read", 1, |m| m.read),
    ] {
        let shares = |bound: Bound| {
            let sum: f64 = all.iter().map(|m| get(m) / bound(m.nodes, rate)[at]).sum();
            sum / all.len().max(1) as f64
        };
        let of_thesis = shares(thesis);
        let finding = Finding::beside(
            format!("{name}: over the thesis's formula, on average"),
            of_thesis,
            "x",
            Paper::ratio(1.0).without_effect(0.0).printed("about 1"),
        );
        report.findings.push(finding.because(
            "the processors are the limit, not the links; see our bound in the table, and run the experiment on an \
            idle machine",
        ));
        report.findings.push(Finding::number(
            format!("{name}: over our own bound, on average"),
            shares(ours),
            "",
            "-",
        ));
    }
    report
}

fn table(sizes: &Sizes, all: &[Measured]) -> Table {
    let rate = sizes.link_bytes_per_s;
    let columns = [
        "code and segment",
        "nodes",
        "write MB/s",
        "our bound",
        "thesis's formula",
        "read MB/s",
        "our bound",
        "thesis's formula",
    ];
    let mut table = Table::new("All clients together", &columns);
    for m in all {
        let [thesis_write, thesis_read] = thesis(m.nodes, rate);
        let [write, read] = ours(m.nodes, rate);
        let cells = [m.write, write, thesis_write, m.read, read, thesis_read];
        let names = [m.series.clone().into(), u64::from(m.nodes).into()];
        let rates = cells.map(|rate| (rate / 1e6).into());
        table.row(names.into_iter().chain(rates));
    }
    table
}

fn plot(sizes: &Sizes, all: &[Measured], name: &str, at: usize, get: fn(&Measured) -> f64) -> Plot {
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for m in all {
        let point = (f64::from(m.nodes), get(m) / 1e6);
        match series.last_mut() {
            Some((last, points)) if *last == m.series => points.push(point),
            _ => series.push((m.series.clone(), vec![point])),
        }
    }
    let bounds: [(&str, Bound); 2] = [("thesis's formula", thesis), ("our bound", ours)];
    for (bound, rates) in bounds {
        let point = |&nodes: &u32| {
            (
                f64::from(nodes),
                rates(nodes, sizes.link_bytes_per_s)[at] / 1e6,
            )
        };
        series.push((bound.to_owned(), sizes.nodes.iter().map(point).collect()));
    }
    let mut plot = Plot::lines(
        format!("COD-F51-{name}"),
        format!("Aggregate {name} throughput"),
        ["nodes", "MB/s"],
        series,
    );
    if sizes.nodes.contains(&PRINTED_NODES) {
        let share = sizes.link_bytes_per_s as f64 / PRINTED_LINK_BYTES_PER_S;
        plot.mark_point(f64::from(PRINTED_NODES), PRINTED_MB_PER_S[at] * share);
        plot.notes.push(format!(
            "the paper's: {} MB/s at least, in proportion to the rate of links",
            PRINTED_MB_PER_S[at]
        ));
    }
    plot
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the paper's scale the printed rates are below our own bound, and below the thesis's formula.
    #[test]
    fn the_printed_rates_are_marked_where_ten_nodes_are_measured() {
        for (sizes, is_marked) in [(QUICK, false), (USUAL, true), (FULL, true)] {
            let all = sizes.nodes.iter().map(|&nodes| Measured {
                series: "one".to_owned(),
                nodes,
                write: 1e6,
                read: 1e6,
            });
            let all: Vec<Measured> = all.collect();
            for (at, name) in ["write", "read"].into_iter().enumerate() {
                let svg = plot(&sizes, &all, name, at, |m| m.write).svg().unwrap();
                assert_eq!(svg.contains("class=\"paper\""), is_marked, "{svg}");
            }
        }
        let formula = thesis(PRINTED_NODES, PRINTED_LINK_BYTES_PER_S as u64);
        for (formula, printed) in formula.into_iter().zip(PRINTED_MB_PER_S) {
            let share = printed * 1e6 / formula;
            assert!((0.8..1.0).contains(&share), "{share}");
        }
    }
}
