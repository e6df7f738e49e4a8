//! COD-F52: sequential write, random write, sequential read and recovery by update scheme, Figure 5.2
//! of the `CodFS` thesis (sections 5.2.1 to 5.2.4).

use super::cache_run;
use super::update_run::{self, Bench, Phase, Rates, UNSYNCED};
use crate::error::LabError;
use crate::experiment::tolerance::{LOG_READ, NEGLIGIBLE, SAVING};
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table, least_and_most, mean};
use crate::plot::Plot;
use gabion_layout::UpdateScheme;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "COD-F52",
    "writes, reads and recovery by update scheme (Figures 5.2a to 5.2d)",
    run,
)
.with_parts("abcd");

/// All phases under one scheme.
struct Measured {
    scheme: UpdateScheme,
    put: Phase,
    random: Phase,
    settle: Phase,
    read: Phase,
    recover: Phase,
    stalled: u64,
}

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let all = session.sweep("update schemes", UpdateScheme::BY_DELTA, |scheme| {
        measure(session, scheme)
    })?;
    let mut report = Report {
        setting: vec![
            "RDP with 4 data and 2 parity chunks, 10 nodes, 10 clients, reserved space of one chunk".to_owned(),
            "random updates of 1/32 of a chunk (128 KiB in the thesis) overwrite every segment once; then all data is \
            read, and two failed nodes are recovered, each with cold caches"
                .to_owned(),
        ],
        scaled: update_run::scaled(session),
        tables: vec![rates(&all), costs(&all), causes(&all)],
        notes: update_run::notes(),
        ..Report::default()
    };
    update_run::choose_disk(&mut report);
    for (place, at) in update_run::PLACES {
        report.findings.extend(findings(&all, place, at));
    }
    let plot = |part, title, y_label, rates: fn(&Measured) -> Rates| {
        let name = format!("COD-F52{part}");
        let scheme = |m: &Measured| m.scheme.to_string();
        update_run::bars(
            (name, title),
            ["update scheme", y_label],
            &all,
            scheme,
            rates,
        )
    };
    let read = "Sequential read after random writes";
    report.plots = vec![
        plot("a", "Sequential write", "MB/s", |m| m.put.mb_per_s()),
        plot(
            "b",
            "Random writes",
            "updates a second",
            Measured::random_per_s,
        ),
        plot("c", read, "MB/s", |m| m.read.mb_per_s()),
        plot("d", "Recovery of two nodes", "MB/s", |m| {
            m.recover.mb_per_s()
        }),
    ];
    mark(&mut report.plots, &all);
    cache_run::add(session, &mut report, &cache_subjects(session))?;
    Ok(report)
}

/// The random updates again, on a cluster under each scheme. Its data is larger than the cache.
fn cache_subjects(session: &Session<'_>) -> Vec<cache_run::Subject> {
    let stripe_count = session.scale.pick(2, 12, 64);
    let stripe_bytes = cache_run::segment_bytes(session.scale);
    let record_bytes = cache_run::chunk_bytes(session.scale) / update_run::UPDATES_PER_CHUNK;
    let updates =
        update_run::random_updates(stripe_count, stripe_bytes, record_bytes, session.seed);
    let subject = |scheme: UpdateScheme| {
        let name = scheme.to_string();
        cache_run::Subject::new(name, scheme, &updates, stripe_count, stripe_bytes)
    };
    UpdateScheme::BY_DELTA.into_iter().map(subject).collect()
}

fn measure(session: &Session<'_>, scheme: UpdateScheme) -> Result<Measured, LabError> {
    let (segments, chunk_bytes) = update_run::synthetic_size(session.scale);
    let mut bench = Bench::new(session, "rdp(4)", chunk_bytes, scheme, segments)?;
    let put = bench.put()?;
    let random = bench.update_at_random()?;
    let stalled = bench.stalled_count();
    let settle = bench.settle()?;
    let read = bench.read()?;
    let recover = bench.recover()?;
    Ok(Measured {
        scheme,
        put,
        random,
        settle,
        read,
        recover,
        stalled,
    })
}

impl Measured {
    /// Updates a second, with the cost of their background work included.
    fn random_per_s(&self) -> Rates {
        self.random.per_s(&self.settle)
    }
}

fn of(all: &[Measured], scheme: UpdateScheme) -> &Measured {
    let found = all.iter().find(|measured| measured.scheme == scheme);
    found.expect("every scheme was measured")
}

/// Our figures in the order of [`papers`].
fn figures(all: &[Measured], at: usize) -> [f64; 7] {
    use UpdateScheme::{Fl, Fo, Pl, Plr};
    let get = |scheme| of(all, scheme);
    let spread = |rates: &[f64]| {
        let [least, most] = least_and_most(rates);
        100.0 * (1.0 - least / most)
    };
    let put: Vec<f64> = all.iter().map(|m| m.put.mb_per_s()[at]).collect();
    let random = |scheme| get(scheme).random_per_s()[at];
    let logging = [random(Fl), random(Pl), random(Plr)];
    let [slowest, _] = least_and_most(&logging);
    let fewer = 100.0 * (1.0 - random(Fo) / slowest);
    let read = |scheme| get(scheme).read.mb_per_s()[at];
    let recover = |scheme| get(scheme).recover.mb_per_s()[at];
    [
        spread(&put),
        fewer,
        spread(&logging),
        read(Fl) / read(Fo),
        recover(Fo) / recover(Fl),
        recover(Plr) / recover(Pl),
        100.0 * (1.0 - recover(Plr) / recover(Fo)),
    ]
}

/// The figures of the model, as judged and with nothing synced, beside the thesis's.
fn causes(all: &[Measured]) -> Table {
    let [model, unsynced] = [1, UNSYNCED].map(|at| figures(all, at));
    let pairs = std::iter::zip(model, unsynced);
    let rows = papers().into_iter().zip(pairs);
    update_run::causes(rows.map(|((what, _, paper), (model, unsynced))| {
        (what.to_owned(), [model, unsynced], paper.words().to_owned())
    }))
}

fn findings(all: &[Measured], place: &str, at: usize) -> Vec<Finding> {
    let all = papers().into_iter().zip(figures(all, at));
    let explained = all.map(|((what, unit, paper), ours)| {
        let finding = Finding::beside(format!("{what}, {place}"), ours, unit, paper);
        update_run::explained(finding, place, cause(what))
    });
    explained.collect()
}

/// Marks the thesis's rates on the model's bars. It prints ratios alone, so each is marked in proportion to a bar of
/// ours.
fn mark(plots: &mut [Plot], all: &[Measured]) {
    use UpdateScheme::{Fl, Fo, Pl, Plr};
    let bar = |rates: fn(&Measured) -> Rates, scheme| rates(of(all, scheme))[1];
    let random = |scheme| bar(Measured::random_per_s, scheme);
    let [slowest, _] = least_and_most(&[Fl, Pl, Plr].map(random));
    let read = |m: &Measured| m.read.mb_per_s();
    let recover = |m: &Measured| m.recover.mb_per_s();
    let puts = all.iter().map(|m| m.put.mb_per_s()[1]);
    let put = mean(&puts.collect::<Vec<f64>>());
    let marks: [Vec<(UpdateScheme, f64)>; 4] = [
        all.iter().map(|m| (m.scheme, put)).collect(),
        vec![(Fo, (1.0 - RANDOM_FO_LOWER_PCT / 100.0) * slowest)],
        vec![(Fl, READ_FL_OVER_FO * bar(read, Fo))],
        vec![
            (Fl, bar(recover, Fo) / RECOVERY_FO_OVER_FL),
            (Pl, bar(recover, Plr) / RECOVERY_PLR_OVER_PL),
            (
                Plr,
                (1.0 - RECOVERY_PLR_LOWER_PCT / 100.0) * bar(recover, Fo),
            ),
        ],
    ];
    let words = [
        "no difference between schemes, at the mean of ours",
        "FO, below the slowest other bar",
        "FL, in proportion to FO",
        "FL and PLR in proportion to FO, PL to PLR",
    ];
    for ((plot, marks), words) in plots.iter_mut().zip(marks).zip(words) {
        for (scheme, value) in marks {
            plot.mark_bar(scheme.to_string(), update_run::MODEL, value);
        }
        plot.notes.push(format!("the paper's: {words}"));
    }
}

/// Random writes under FO are slower than under any other scheme by at least this.
const RANDOM_FO_LOWER_PCT: f64 = 21.0;
const READ_FL_OVER_FO: f64 = 0.5;
const RECOVERY_FO_OVER_FL: f64 = 4.5;
const RECOVERY_PLR_OVER_PL: f64 = 3.0;
const RECOVERY_PLR_LOWER_PCT: f64 = 9.2;

/// Returns the thesis's figures: the name, the unit and the value of each.
fn papers() -> [(&'static str, &'static str, Paper); 7] {
    [
        (
            "a: sequential write, spread of schemes",
            " %",
            Paper::at_most(0.0, &NEGLIGIBLE).printed("negligible"),
        ),
        (
            "b: random write, FO below the slowest other",
            " %",
            Paper::saving(RANDOM_FO_LOWER_PCT).printed("21.0 % at least"),
        ),
        (
            "b: random write, spread of the other three",
            " %",
            Paper::at_most(4.1, &SAVING).printed("under 4.1 %"),
        ),
        (
            "c: sequential read, FL over FO",
            "x",
            Paper::ratio(READ_FL_OVER_FO)
                .printed("about 0.5")
                .within(&LOG_READ),
        ),
        (
            "d: recovery, FO over FL",
            "x",
            Paper::ratio(RECOVERY_FO_OVER_FL).printed("up to 4.5x"),
        ),
        (
            "d: recovery, PLR over PL",
            "x",
            Paper::ratio(RECOVERY_PLR_OVER_PL).printed("3x on average"),
        ),
        (
            "d: recovery, PLR below FO",
            " %",
            Paper::at_most(RECOVERY_PLR_LOWER_PCT, &SAVING).printed("under 9.2 %"),
        ),
    ]
}

/// Reasons why a figure of the model differs from the thesis's, as far as they follow from how things are built.
fn cause(what: &str) -> &'static str {
    match what.get(..1) {
        Some("a") => {
            "only new data is written, so the schemes differ only in the location of files: parity chunks with \
            reserved space lie further apart, and scaled-down data has few files on each disk"
        }
        Some("b") => {
            "updates are durable here, so each update costs positioning: FL and PL append to one log on each node, but \
            PLR appends to the chunk's reserve and the head moves there. In the thesis, updates wait in memory before \
            they are written"
        }
        Some("c") => {
            "here a read of a chunk with its log seeks for every record; reads of the thesis also waited for the \
            network"
        }
        _ => {
            "the model has no network, but recovery in the thesis waited for network and disks. So the model shows the \
            full cost of seeks for records and of reading a reserve with its chunk"
        }
    }
}

fn rates(all: &[Measured]) -> Table {
    let columns = [
        "scheme",
        "measured on",
        "seq. write MB/s",
        "random updates/s",
        "seq. read MB/s",
        "recovery MB/s",
    ];
    let mut table = Table::new("Rates of all clients together", &columns);
    for (place, at) in update_run::PLACES {
        for m in all {
            table.row([
                m.scheme.to_string().into(),
                place.into(),
                m.put.mb_per_s()[at].into(),
                m.random_per_s()[at].into(),
                m.read.mb_per_s()[at].into(),
                m.recover.mb_per_s()[at].into(),
            ]);
        }
    }
    table
}

fn costs(all: &[Measured]) -> Table {
    let columns = [
        "scheme",
        "updates",
        "syncs/update",
        "written/update KiB",
        "read/update KiB",
        "appends that waited",
        "written by settling MiB",
    ];
    let mut table = Table::new("Work of random updates on all disks", &columns);
    for m in all {
        let updates = m.random.operations as f64;
        table.row([
            m.scheme.to_string().into(),
            m.random.operations.into(),
            (m.random.io.syncs as f64 / updates).into(),
            (m.random.io.written_bytes as f64 / updates / 1024.0).into(),
            (m.random.io.read_bytes as f64 / updates / 1024.0).into(),
            m.stalled.into(),
            (m.settle.io.written_bytes as f64 / update_run::MIB as f64).into(),
        ]);
    }
    table
}
