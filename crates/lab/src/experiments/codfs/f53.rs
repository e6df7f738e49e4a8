//! COD-F53: update schemes under the same storage overhead, Figure 5.3 of the `CodFS` thesis (section
//! 5.2.5): parity logging with reserved space uses two chunks of each segment for the reserve; the other schemes may
//! use them for data or parity.

use super::update_run::{self, Bench, MIB, Phase, Rates};
use crate::error::LabError;
use crate::experiment::tolerance::SIGNIFICANT;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table};
use gabion_layout::UpdateScheme;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "COD-F53",
    "update schemes under the same storage overhead (Figure 5.3)",
    run,
)
.with_parts("ab");

/// The seven settings, by the thesis's (n, k).
const SETTINGS: [(UpdateScheme, &str, &str); 7] = [
    (UpdateScheme::Fo, "(8,6)", "cauchy(6,2)"),
    (UpdateScheme::Fl, "(8,6)", "cauchy(6,2)"),
    (UpdateScheme::Pl, "(8,6)", "cauchy(6,2)"),
    (UpdateScheme::Fo, "(8,4)", "cauchy(4,4)"),
    (UpdateScheme::Fl, "(8,4)", "cauchy(4,4)"),
    (UpdateScheme::Pl, "(8,4)", "cauchy(4,4)"),
    (UpdateScheme::Plr, "(6,4)", "cauchy(4,2)"),
];

/// Random writes under FO with (8,6) are slower than under PLR with (6,4) by at least this.
const FO_LOWER_PCT: f64 = 20.0;

/// The result of one setting.
struct Measured {
    scheme: UpdateScheme,
    shape: &'static str,
    /// Updates a second, background work included, on this machine and on the model.
    random: Rates,
    recover: Phase,
}

impl Measured {
    fn name(&self) -> String {
        format!("{} {}", self.scheme, self.shape)
    }
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let (segments, chunk_bytes) = session
        .scale
        .pick((10, MIB / 4), (12, 4 * MIB), (100, 4 * MIB));
    let all = session.sweep("settings", SETTINGS, |(scheme, shape, code)| {
        let mut bench = Bench::new(session, code, chunk_bytes, scheme, segments)?;
        bench.put()?;
        let random = bench.update_at_random()?;
        let settle = bench.settle()?;
        Ok(Measured {
            scheme,
            shape,
            random: random.per_s(&settle),
            recover: bench.recover()?,
        })
    })?;
    let mut report = Report {
        setting: vec![
            "Cauchy Reed-Solomon; (n,k) as in the thesis: n chunks in each segment, k of them data".to_owned(),
            "every setting stores 32 MiB for each segment with chunks of 4 MiB: 8 chunks, or 6 and two chunks of \
            reserved space; updates and recovery as in COD-F52"
                .to_owned(),
        ],
        scaled: vec![format!(
            "{segments} segments with chunks of {} MiB instead of 4 MiB, and no network",
            chunk_bytes as f64 / MIB as f64
        )],
        tables: vec![table(&all)],
        notes: update_run::notes(),
        ..Report::default()
    };
    update_run::choose_disk(&mut report);
    for (place, at) in update_run::PLACES {
        report.findings.extend(findings(&all, place, at));
    }
    let plot = |part, title, y_label, rates: fn(&Measured) -> Rates| {
        let (name, labels) = (format!("COD-F53{part}"), ["scheme and (n,k)", y_label]);
        update_run::bars((name, title), labels, &all, Measured::name, rates)
    };
    let mut random = plot("a", "Random writes", "updates a second", |m| m.random);
    let plr = find(&all, UpdateScheme::Plr, "(6,4)").random[1];
    let fo = find(&all, UpdateScheme::Fo, "(8,6)").name();
    random.mark_bar(fo, update_run::MODEL, (1.0 - FO_LOWER_PCT / 100.0) * plr);
    random
        .notes
        .push("the paper's: FO (8,6), in proportion to PLR (6,4)".to_owned());
    report.plots = vec![
        random,
        plot("b", "Recovery of two nodes", "MB/s", |m| {
            m.recover.mb_per_s()
        }),
    ];
    Ok(report)
}

fn find<'a>(all: &'a [Measured], scheme: UpdateScheme, shape: &str) -> &'a Measured {
    let found = all.iter().find(|m| m.scheme == scheme && m.shape == shape);
    found.expect("every setting was measured")
}

fn findings(all: &[Measured], place: &str, at: usize) -> [Finding; 3] {
    use UpdateScheme::{Fl, Fo, Pl, Plr};
    let get = |scheme, shape| find(all, scheme, shape);
    let plr = get(Plr, "(6,4)");
    let slower = 100.0 * (1.0 - get(Fo, "(8,6)").random[at] / plr.random[at]);
    let shares = [Fo, Fl, Pl].map(|s| get(s, "(8,4)").random[at] / get(s, "(8,6)").random[at]);
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let recovery = |m: &Measured| m.recover.mb_per_s()[at];
    let gain = recovery(plr) / recovery(get(Pl, "(8,6)"));
    let all = [
        Finding::beside(
            format!("random write, FO (8,6) below PLR (6,4), {place}"),
            slower,
            " %",
            Paper::saving(FO_LOWER_PCT).printed("20 % at least"),
        ),
        Finding::beside(
            format!("random write, (8,4) over (8,6) on average, {place}"),
            mean,
            "x",
            Paper::below(1.0, &SIGNIFICANT).printed("significantly below 1"),
        ),
        Finding::beside(
            format!("recovery, PLR (6,4) over PL (8,6), {place}"),
            gain,
            "x",
            Paper::above(1.0, &SIGNIFICANT).printed("significantly above 1"),
        ),
    ];
    let cause = "updates are durable here, so each append to a reserve costs a seek, but records in one log share \
    syncs. The model also has no network, which more parity would load";
    all.map(|finding| update_run::explained(finding, place, cause))
}

fn table(all: &[Measured]) -> Table {
    let columns = [
        "setting",
        "updates/s, disk",
        "updates/s, model",
        "recovery MB/s, disk",
        "recovery MB/s, model",
    ];
    let mut table = Table::new("Seven settings", &columns);
    for m in all {
        let [disk, model, _] = m.recover.mb_per_s();
        let cells = [m.random[0], m.random[1], disk, model];
        table.row([m.name().into()].into_iter().chain(cells.map(Into::into)));
    }
    table
}
