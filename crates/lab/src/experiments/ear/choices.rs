//! Choices that the paper leaves open in figure 13's simulations, and their effect on the gains:
//! one varied at a time, and the places of replicas beyond the third (EAR, experiment B.2).

use super::sides::{Average, Sides, run_points};
use crate::error::LabError;
use crate::experiment::{Cell, Finding, Paper, Session, Table, mean};
use crate::flow::{EncoderSeat, Execution, Layout, Sharing};
use gabion_planner::placement::{ParityPlaces, RackLimit, ReplicaSpread};

/// A choice that the paper leaves open, made otherwise.
type Choice = (&'static str, fn(&mut Sides));

/// Our choices, and each other choice by itself.
const CHOICES: [Choice; 16] = [
    ("as in the first table", |_| {}),
    ("parity computation takes no time", |sides| {
        sides.ear.coding_bytes_per_s = None;
    }),
    ("parity computation is twice as fast", |sides| {
        sides.ear.coding_bytes_per_s = sides.ear.coding_bytes_per_s.map(|rate| 2.0 * rate);
    }),
    ("the node of the first replica writes the block", |sides| {
        sides.ear.settings.is_writer_at_first_replica = true;
    }),
    (
        "write throughput is the inverse of the mean time",
        |sides| {
            sides.write_average = Average::OfAll;
        },
    ),
    ("encode throughput is the mean over stripes", |sides| {
        sides.encode_average = Average::OfEach;
    }),
    ("links are shared max-min fairly", |sides| {
        sides.ear.settings.sharing = Sharing::MaxMin;
    }),
    ("links are reserved for slots of 4 MiB", |sides| {
        sides.ear.settings.sharing = Sharing::Slotted {
            slot_bytes: 4 << 20,
        };
    }),
    (
        "an encoder fetches all blocks at once, then sends all parity",
        |sides| {
            sides.ear.settings.encoding = Execution::Staged;
        },
    ),
    (
        "links are shared fairly, and an encoder sends parity while it fetches",
        |sides| {
            sides.ear.settings.sharing = Sharing::MaxMin;
            sides.ear.settings.encoding = Execution::Streamed;
        },
    ),
    ("replicas are passed on slice by slice", |sides| {
        sides.ear.settings.write = Execution::Streamed;
    }),
    ("each encoder draws one rack for all stripes", |sides| {
        sides.ear.settings.encoder_seat = EncoderSeat::Drawn;
    }),
    (
        "an encoder moves to another rack for each stripe",
        |sides| {
            sides.ear.settings.encoder_seat = EncoderSeat::Moving;
        },
    ),
    (
        "in the core rack, the node with the least to fetch encodes",
        |sides| {
            sides.ear.settings.is_core_encoder_nearest = true;
        },
    ),
    (
        "data chunks leave the core rack for a parity chunk where possible",
        |sides| {
            sides.ear.layout = Layout::EncodingAware(ParityPlaces::CoreFirst);
        },
    ),
    ("random replication relocates", |sides| {
        sides.limit = RackLimit::Enforced;
    }),
];

/// The effect of each open choice at a point with this name, and the paper's gains there for encodings and writes, as
/// far as it prints them.
pub(super) fn open_choices(
    session: &Session<'_>,
    (name, at): (&str, &Sides),
    paper: [Option<f64>; 2],
) -> Result<Table, LabError> {
    let point = |(_, choose): &Choice| {
        let mut sides = at.clone();
        choose(&mut sides);
        sides
    };
    let points: Vec<Sides> = CHOICES.iter().map(point).collect();
    let gains = run_points(session, &points, session.scale.pick(1, 3, 6))?;
    let columns = ["choice", "encode gain %", "write gain %"];
    let title = format!("Open choices of the paper, one changed at a time, {name}");
    let mut table = Table::new(title, &columns);
    for ((name, _), gains) in CHOICES.iter().zip(gains) {
        let pct = [&gains.encode_pct, &gains.write_pct].map(|pct| mean(pct).into());
        table.row(std::iter::once((*name).into()).chain(pct));
    }
    if paper.iter().any(Option::is_some) {
        let pct = paper.map(|pct| pct.map_or_else(|| "-".into(), Cell::from));
        table.row(std::iter::once("the paper".into()).chain(pct));
    }
    Ok(table)
}

/// The possible places of replicas beyond the third, and whether data leave the core rack then for a parity chunk.
const READINGS: [(&str, ReplicaSpread, ParityPlaces); 4] = [
    (
        "a fresh rack each",
        ReplicaSpread::FreshRacks,
        ParityPlaces::Anywhere,
    ),
    (
        "a fresh rack each, and data leave the core rack",
        ReplicaSpread::FreshRacks,
        ParityPlaces::CoreFirst,
    ),
    (
        "two a rack",
        ReplicaSpread::TwoARack,
        ParityPlaces::Anywhere,
    ),
    (
        "all in the second replica's rack",
        ReplicaSpread::TwoRacks,
        ParityPlaces::Anywhere,
    ),
];
/// The paper's gain of writes at [`REPLICAS_MOST`] replicas, per cent.
const WRITES_AT_MOST_PCT: f64 = 20.5;
const REPLICAS_MOST: usize = 8;

/// The gains at few and at many replicas, by where those beyond the third go, and those of writes at the most
/// beside the paper's.
pub(super) fn replica_readings(
    session: &Session<'_>,
    stripes: u32,
) -> Result<(Table, Vec<Finding>), LabError> {
    let few = [2, 4, REPLICAS_MOST];
    let replicas = session.scale.pick(&few[2..], &few, &few);
    let point = |&(_, spread, parity_places)| {
        replicas.iter().map(move |&replica_count| {
            let mut sides = Sides::new(stripes);
            sides.ear.replica_count = replica_count;
            sides.ear.replica_spread = spread;
            sides.ear.layout = Layout::EncodingAware(parity_places);
            sides
        })
    };
    let points: Vec<Sides> = READINGS.iter().flat_map(point).collect();
    let gains = run_points(session, &points, session.scale.pick(1, 3, 10))?;
    let columns = [
        "replicas beyond the third",
        "replicas",
        "encode gain %",
        "write gain %",
        "RR, chunks across racks",
        "EAR",
    ];
    let mut table = Table::new("Open choices of the paper about replicas", &columns);
    let mut findings = Vec::new();
    for (at, ((name, ..), gains)) in READINGS
        .iter()
        .zip(gains.chunks(replicas.len()))
        .enumerate()
    {
        for (&replica_count, gains) in replicas.iter().zip(gains) {
            let write_pct = mean(&gains.write_pct);
            let figures = [mean(&gains.encode_pct), write_pct];
            let cells = figures.into_iter().chain(gains.cross_chunks);
            let first = [(*name).into(), (replica_count as u64).into()];
            table.row(first.into_iter().chain(cells.map(Into::into)));
            // The first reading is the one that the figure is judged by.
            if at > 0 && replica_count == REPLICAS_MOST {
                let what = format!("writes, at {REPLICAS_MOST} replicas: {name}");
                let paper = Paper::saving(WRITES_AT_MOST_PCT);
                let finding = Finding::beside(what, write_pct, " %", paper);
                findings.push(finding.reading(*name));
            }
        }
    }
    Ok((table, findings))
}
