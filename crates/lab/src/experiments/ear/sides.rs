//! One point of figure 13: random replication and EAR on the same network, with the same writes and the
//! same background traffic, for several seeds.

use super::{mean, on_all_processors};
use crate::error::LabError;
use crate::experiments::Session;
use gabion_planner::placement::{ParityPlaces, RackLimit};
use gabion_sim::flow::{Layout, Outcome, Scenario, simulate};

/// What both sides have in common, and in what EAR may differ.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sides {
    /// The scenario of EAR. Random replication has the same but for its layout and rack limit.
    pub(super) ear: Scenario,
    /// What random replication does about racks that hold too much.
    pub(super) limit: RackLimit,
}

impl Sides {
    /// The paper's setting, with so many stripes for each encoder.
    pub(super) fn new(stripes_per_encoder: u32) -> Self {
        let layout = Layout::EncodingAware(ParityPlaces::CoreFirst);
        Self {
            ear: Scenario::ear(layout, stripes_per_encoder),
            limit: RackLimit::Ignored,
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

/// What came of a point, a value for each seed.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Gains {
    /// By how many per cent EAR encodes more in a second.
    pub(super) encode_pct: Vec<f64>,
    /// By how many per cent EAR's writes are faster: the inverse of their mean time.
    pub(super) write_pct: Vec<f64>,
    /// Data encoded in a second, in MB: random replication, EAR.
    pub(super) encode_mb_per_s: [f64; 2],
    /// Mean time of a write, in seconds.
    pub(super) write_s: [f64; 2],
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
    session.progress.begin("simulating", count as u64);
    let pairs = on_all_processors(count, |at| {
        let sides = &points[at / per_point];
        let seed = session.seed.wrapping_mul(1000) + (at % per_point) as u64;
        let pair = simulate(&sides.random(), seed)
            .and_then(|random| Ok([random, simulate(&sides.ear, seed)?]));
        session.progress.step();
        pair
    });
    let pairs: Vec<[Outcome; 2]> = pairs.into_iter().collect::<Result<_, _>>()?;
    Ok(pairs.chunks(per_point).map(gains).collect())
}

fn gains(pairs: &[[Outcome; 2]]) -> Gains {
    let all = |of: &dyn Fn(&[Outcome; 2]) -> f64| pairs.iter().map(of).collect::<Vec<f64>>();
    let rate = |outcome: &Outcome| outcome.encode_bytes_per_s();
    let side = |at: usize, of: &dyn Fn(&Outcome) -> f64| mean(&all(&|pair| of(&pair[at])));
    Gains {
        encode_pct: all(&|[random, ear]| 100.0 * (rate(ear) / rate(random) - 1.0)),
        write_pct: all(&|[random, ear]| 100.0 * (random.mean_write_s() / ear.mean_write_s() - 1.0)),
        encode_mb_per_s: [0, 1].map(|at| side(at, &|outcome| rate(outcome) / 1e6)),
        write_s: [0, 1].map(|at| side(at, &Outcome::mean_write_s)),
        event_count: pairs
            .iter()
            .flatten()
            .map(|outcome| outcome.event_count)
            .sum(),
    }
}
