//! EAR-F13a to EAR-F13f: the gain of EAR's throughput over random replication's, against `k`, `n - k`,
//! link bandwidth, write rate, rack failures tolerated, and replicas (EAR, figure 13, experiment B.2).

use super::choices::{open_choices, replica_readings};
use super::sides::{Gains, Sides, run_points};
use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table, least_and_most, mean};
use crate::flow::Layout;
use crate::plot::{Chart, Plot};
use gabion_planner::placement::ParityPlaces;

macro_rules! figure {
    ($name:ident, $letter:literal, $title:literal, $part:path) => {
        pub(crate) const $name: Experiment =
            Experiment::new(concat!("EAR-F13", $letter), $title, |session| {
                run(session, concat!("EAR-F13", $letter), &$part)
            });
    };
}

figure!(F13A, "a", "throughput gain of EAR against k", A);
figure!(F13B, "b", "throughput gain of EAR against n - k", B);
figure!(
    F13C,
    "c",
    "throughput gain of EAR against link bandwidth",
    C
);
figure!(
    F13D,
    "d",
    "throughput gain of EAR against the rate of writes",
    D
);
figure!(
    F13E,
    "e",
    "throughput gain of EAR against rack failures tolerated",
    E
);
figure!(F13F, "f", "throughput gain of EAR against replicas", F);

/// The one of the paper's two gains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gain {
    Encode,
    Write,
}

/// The place of a gain that the paper gives.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// At a value of the axis.
    At(f64),
    /// Over all values, on average.
    All,
    /// As the fall from the first value to the last.
    Fall(f64, f64),
}

/// A gain that the paper gives: the least and the most of it.
type Printed = (Gain, Place, [f64; 2]);

/// One part of the figure.
struct Part {
    axis: &'static str,
    values: &'static [f64],
    set: fn(&mut Sides, f64),
    printed: &'static [Printed],
    /// The reason why a figure is not near, by the table of open choices.
    cause: &'static str,
}

use Gain::{Encode, Write};
use Place::{All, At, Fall};

const CHOICES: &str = "this figure depends on choices of the paper's simulator that the paper does not state (see the \
table of open choices, here or in EAR-F13a)";

const A: Part = Part {
    axis: "k",
    values: &[6.0, 8.0, 10.0, 12.0],
    set: |sides, k| sides.ear.data_count = k as usize,
    printed: &[(Encode, At(12.0), [78.7; 2]), (Write, At(12.0), [36.8; 2])],
    cause: CHOICES,
};

const B: Part = Part {
    axis: "n - k",
    values: &[2.0, 4.0, 6.0, 8.0],
    set: |sides, m| sides.ear.parity_count = m as usize,
    printed: &[
        (Encode, All, [70.0; 2]),
        (Write, At(2.0), [33.9; 2]),
        (Write, At(8.0), [14.1; 2]),
        (Write, Fall(2.0, 8.0), [19.8; 2]),
    ],
    cause: CHOICES,
};

const C: Part = Part {
    axis: "Gb/s",
    values: &[0.2, 0.5, 1.0, 2.0],
    set: |sides, gbit_per_s| {
        // The paper's setting has 1 Gb/s.
        sides.ear.rates.node_bytes_per_s *= gbit_per_s;
        sides.ear.rates.rack_bytes_per_s *= gbit_per_s;
    },
    printed: &[(Encode, At(0.2), [165.2; 2]), (Write, All, [20.0; 2])],
    cause: CHOICES,
};

const D: Part = Part {
    axis: "writes a second",
    values: &[1.0, 2.0, 3.0, 4.0],
    set: |sides, rate| sides.ear.writes_per_s = rate,
    printed: &[(Encode, At(4.0), [89.1; 2]), (Write, All, [25.0, 28.0])],
    cause: "both gains are near the paper's if the node of the first replica writes the block, or if links are shared \
    max-min fairly; the paper does not state the choice of its simulator (see the table of open choices)",
};

const E: Part = Part {
    axis: "rack failures",
    values: &[4.0, 2.0, 1.0],
    // Stripes may end in any racks: with the fewest that hold one, the core rack's share goes to
    // data. With a share of one it has an original data chunk; a larger one leaves space for
    // parity, which is made there.
    set: |sides, failures| {
        sides.ear.per_rack = sides.ear.parity_count / failures as usize;
        if sides.ear.per_rack > 1 {
            sides.ear.layout = Layout::EncodingAware(ParityPlaces::CoreFirst);
        }
    },
    printed: &[
        (Encode, At(4.0), [70.1; 2]),
        (Encode, At(1.0), [82.1; 2]),
        (Write, At(4.0), [26.3; 2]),
        (Write, At(1.0), [48.3; 2]),
    ],
    cause: CHOICES,
};

const F: Part = Part {
    axis: "replicas",
    values: &[2.0, 4.0, 6.0, 8.0],
    set: |sides, replicas| sides.ear.replica_count = replicas as usize,
    printed: &[
        (Encode, All, [70.0; 2]),
        (Write, At(2.0), [34.7; 2]),
        (Write, At(8.0), [20.5; 2]),
        (Write, Fall(2.0, 8.0), [14.2; 2]),
    ],
    cause: "the place of replicas beyond the third decides this figure: all in the second replica's rack give less \
    than the paper prints, and two in each rack give more (see the table of open choices about replicas)",
};

fn run(session: &Session<'_>, id: &'static str, part: &Part) -> Result<Report, LabError> {
    let seed_count = session.scale.pick(2, 6, 30);
    let stripes = session.scale.pick(4, 50, 50);
    let values = session.scale.pick(
        &part.values[part.values.len() - 1..],
        part.values,
        part.values,
    );
    let point = |&value: &f64| {
        let mut sides = Sides::new(stripes);
        (part.set)(&mut sides, value);
        sides
    };
    let points: Vec<Sides> = values.iter().map(point).collect();
    let gains = run_points(session, &points, seed_count)?;
    let mut report = Report {
        setting: vec![
            "20 racks of 20 nodes, 1 Gb/s for each node and rack each way, blocks of 64 MiB, (14,10), 3 replicas, one \
            chunk in each rack, except for the axis's parameter"
                .to_owned(),
            format!("20 encoders of {stripes} stripes each; one write and one background transfer a second \
                 (exponential, 64 MiB on average, half of them across racks); {seed_count} seeds"),
            "any node writes; an encoder computes parity at 1.5 GB/s, which is our rate".to_owned(),
        ],
        scaled: scaled(session),
        findings: findings(part, values, &gains),
        tables: vec![table(part, values, &gains)],
        notes: notes(&gains),
        plots: plots(id, part, values, &gains),
        ..Report::default()
    };
    if id == F13A.id {
        let table = open_choices(session, ("k = 10", &Sides::new(stripes)), [None; 2])?;
        report.tables.push(table);
    } else if id != F13E.id {
        report.tables.push(choices_at_end(session, part, stripes)?);
    }
    if id == F13F.id {
        report.choose(
            "place of replicas beyond the third",
            "to a fresh rack each",
            "according to the paper, random replication downloads less with more replicas; this holds only if the \
            replicas go to more racks",
        );
        let (table, findings) = replica_readings(session, stripes)?;
        report.tables.push(table);
        report.findings.extend(findings);
    }
    Ok(report)
}

/// The open choices at the axis's last value, beside the paper's gains there.
fn choices_at_end(session: &Session<'_>, part: &Part, stripes: u32) -> Result<Table, LabError> {
    let last = part.values.last().copied().unwrap_or_default();
    let mut sides = Sides::new(stripes);
    (part.set)(&mut sides, last);
    let printed = |wanted: Gain| {
        let of_gain = part.printed.iter().filter(|(gain, ..)| *gain == wanted);
        let is_there = |place: &Place| matches!(place, All) || *place == At(last);
        let mut found = of_gain.filter(|(_, place, _)| is_there(place));
        found
            .next_back()
            .map(|(.., [least, most])| f64::midpoint(*least, *most))
    };
    let paper = [Encode, Write].map(printed);
    let name = format!("{last} {}", part.axis);
    open_choices(session, (&name, &sides), paper)
}

fn scaled(session: &Session<'_>) -> Vec<String> {
    let mut scaled = vec![
        "the values on the axis are ours if the paper's text does not name them".to_owned(),
        "the paper's simulator reserves links; our part of the paper has no further description. EAR-F13a's second \
        table has the open choices"
            .to_owned(),
    ];
    let smaller = session.scale.pick(
        Some("2 seeds and 4 stripes an encoder instead of 30 and 50, and one value of the axis"),
        Some("6 seeds instead of 30"),
        None,
    );
    scaled.extend(smaller.map(str::to_owned));
    scaled
}

fn findings(part: &Part, values: &[f64], gains: &[Gains]) -> Vec<Finding> {
    let of = |gain: Gain, gains: &Gains| {
        mean(if gain == Encode {
            &gains.encode_pct
        } else {
            &gains.write_pct
        })
    };
    let at = |gain: Gain, value: f64| {
        let is_there = |known: &f64| (known - value).abs() < 1e-9;
        let at = values.iter().position(is_there)?;
        Some(of(gain, &gains[at]))
    };
    let finding = |&(gain, place, [least, most]): &Printed| {
        let name = if gain == Encode { "encoding" } else { "writes" };
        let (ours, place) = match place {
            At(value) => (at(gain, value)?, format!("at {value} {}", part.axis)),
            All => {
                let all: Vec<f64> = gains.iter().map(|gains| of(gain, gains)).collect();
                (mean(&all), "on average".to_owned())
            }
            Fall(first, last) => (
                at(gain, first)? - at(gain, last)?,
                format!("points less at {last} {} than at {first}", part.axis),
            ),
        };
        let paper = if least < most {
            Paper::savings(least, most)
        } else {
            Paper::saving(most)
        };
        let finding = Finding::beside(format!("{name}, {place}"), ours, " %", paper);
        Some(finding.because(part.cause))
    };
    part.printed.iter().filter_map(finding).collect()
}

fn table(part: &Part, values: &[f64], gains: &[Gains]) -> Table {
    let columns = [
        part.axis,
        "encode RR, MB/s",
        "encode EAR, MB/s",
        "gain %",
        "least",
        "most",
        "write RR, s",
        "write EAR, s",
        "gain %",
        "least",
        "most",
    ];
    let mut table = Table::new(
        "Gains of EAR over random replication, mean over seeds",
        &columns,
    );
    for (value, gains) in values.iter().zip(gains) {
        let spread = |pct: &[f64]| {
            let [least, most] = least_and_most(pct);
            [mean(pct), least, most]
        };
        let cells = std::iter::once(*value)
            .chain(gains.encode_mb_per_s)
            .chain(spread(&gains.encode_pct))
            .chain(gains.write_s)
            .chain(spread(&gains.write_pct));
        table.row(cells.map(Into::into));
    }
    table
}

fn notes(gains: &[Gains]) -> Vec<String> {
    let events: u64 = gains.iter().map(|gains| gains.event_count).sum();
    vec![
        "encode throughput is the encoded data divided by the time until the last stripe is encoded; write throughput \
        is the mean over the writes that ended by then"
            .to_owned(),
        "as in the paper, random replication moves no chunks to keep its rack limit, which makes it look better"
            .to_owned(),
        format!("{events} events were simulated"),
    ]
}

fn plots(id: &str, part: &Part, values: &[f64], gains: &[Gains]) -> Vec<Plot> {
    let plot = |name: &str, title: &str, gain: Gain, pct: &dyn Fn(&Gains) -> &Vec<f64>| {
        let mut plot = Plot::new(
            format!("{id}-{name}"),
            format!("{title} of EAR over random replication"),
            [part.axis, "throughput, random replication = 1"],
            Chart::Boxes {
                samples: values
                    .iter()
                    .zip(gains)
                    .map(|(value, gains)| {
                        let normalised = pct(gains).iter().map(|pct| 1.0 + pct / 100.0);
                        (value.to_string(), normalised.collect())
                    })
                    .collect(),
            },
        );
        for &(_, place, [least, most]) in part.printed.iter().filter(|(of, ..)| *of == gain) {
            let marked = values.iter().filter(|&&value| match place {
                At(at) => (at - value).abs() < 1e-9,
                All => true,
                Fall(..) => false,
            });
            for value in marked {
                let printed = 1.0 + f64::midpoint(least, most) / 100.0;
                plot.mark_box(value.to_string(), printed);
            }
        }
        plot
    };
    vec![
        plot("encode", "Encode throughput", Encode, &|gains| {
            &gains.encode_pct
        }),
        plot("write", "Write throughput", Write, &|gains| {
            &gains.write_pct
        }),
    ]
}
