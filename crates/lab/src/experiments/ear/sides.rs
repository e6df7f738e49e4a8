//! One point of figure 13: random replication and EAR on the same network, with the same writes and the
//! same background traffic, for several seeds.

use crate::error::LabError;
use crate::experiment::{Session, mean};
use crate::flow::{Layout, Outcome, Scenario, simulate};
use gabion_planner::placement::{ParityPlaces, RackLimit};

/// The common parameters of both sides, and those in which EAR may differ.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sides {
    /// The scenario of EAR. Random replication has the same but for its layout and rack limit.
    pub(super) ear: Scenario,
    /// Random replication's treatment of racks that hold too much.
    pub(super) limit: RackLimit,
    /// The definition of the throughput of encodings.
    pub(super) encode_average: Average,
    /// The definition of the throughput of writes.
    pub(super) write_average: Average,
}

/// The definition of average throughput, which the paper leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Average {
    /// All bytes over the time of all.
    OfAll,
    /// The mean of the throughput of each stripe or write in its own time.
    OfEach,
}

impl Sides {
    /// The paper's setting, with this number of stripes for each encoder.
    pub(super) fn new(stripes_per_encoder: u32) -> Self {
        let layout = Layout::EncodingAware(ParityPlaces::Anywhere);
        Self {
            ear: Scenario::ear(layout, stripes_per_encoder),
            limit: RackLimit::Ignored,
            encode_average: Average::OfAll,
            write_average: Average::OfEach,
        }
    }

    fn random(&self) -> Scenario {
        Scenario {
            layout: Layout::Random(self.limit),
            per_rack: 1,
            target_rack_count: None,
            ..self.ear.clone()
        }
    }
}

/// The results of a point, a value for each seed.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Gains {
    /// By how many per cent EAR encodes more in a second.
    pub(super) encode_pct: Vec<f64>,
    /// By how many per cent EAR's writes are faster.
    pub(super) write_pct: Vec<f64>,
    /// Data encoded in a second, in MB: random replication, EAR.
    pub(super) encode_mb_per_s: [f64; 2],
    /// Mean time of a write, in seconds.
    pub(super) write_s: [f64; 2],
    /// Chunks that cross racks for the encoding of a stripe.
    pub(super) cross_chunks: [f64; 2],
    /// Events simulated.
    pub(super) event_count: u64,
}

/// Simulates all points with all seeds, on all processors.
pub(super) fn run_points(
    session: &Session<'_>,
    points: &[Sides],
    seed_count: u64,
) -> Result<Vec<Gains>, LabError> {
    let per_point = seed_count as usize;
    let count = points.len() * per_point;
    let pairs = session.sweep_on_all_processors("simulating", count, |at| {
        let sides = &points[at / per_point];
        let seed = session.seed.wrapping_mul(1000) + (at % per_point) as u64;
        Ok([
            simulate(&sides.random(), seed)?,
            simulate(&sides.ear, seed)?,
        ])
    })?;
    let by_point = points.iter().zip(pairs.chunks(per_point));
    Ok(by_point.map(|(sides, pairs)| gains(sides, pairs)).collect())
}

fn gains(sides: &Sides, pairs: &[[Outcome; 2]]) -> Gains {
    let all = |of: &dyn Fn(&[Outcome; 2]) -> f64| pairs.iter().map(of).collect::<Vec<f64>>();
    let rate = |outcome: &Outcome| match sides.encode_average {
        Average::OfAll => outcome.encode_bytes_per_s(),
        Average::OfEach => outcome.mean_stripe_bytes_per_s(),
    };
    let write_rate = |outcome: &Outcome| match sides.write_average {
        Average::OfAll => 1.0 / outcome.mean_write_s(),
        Average::OfEach => outcome.mean_write_bytes_per_s(),
    };
    let cross_chunks = |outcome: &Outcome| {
        let bytes = outcome.encode_cross_rack_bytes as f64;
        bytes / (sides.ear.chunk_bytes * outcome.stripe_count) as f64
    };
    let side = |at: usize, of: &dyn Fn(&Outcome) -> f64| mean(&all(&|pair| of(&pair[at])));
    Gains {
        encode_pct: all(&|[random, ear]| 100.0 * (rate(ear) / rate(random) - 1.0)),
        write_pct: all(&|[random, ear]| 100.0 * (write_rate(ear) / write_rate(random) - 1.0)),
        encode_mb_per_s: [0, 1].map(|at| side(at, &|outcome| rate(outcome) / 1e6)),
        write_s: [0, 1].map(|at| side(at, &Outcome::mean_write_s)),
        cross_chunks: [0, 1].map(|at| side(at, &cross_chunks)),
        event_count: pairs
            .iter()
            .flatten()
            .map(|outcome| outcome.event_count)
            .sum(),
    }
}
