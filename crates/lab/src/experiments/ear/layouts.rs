//! EAR-LAYOUTS: counts for EAR's claims about placements. Draws until a layout is accepted, against
//! the bound of section III-C; stripes of random replication that violate their rack limit, and the
//! cost of repairing that; and the chunks that cross racks for an encoding.

use super::setting::{NODES_PER_RACK, RACKS, racks, rules};
use crate::error::LabError;
use crate::experiment::{Experiment, Goal, Report, Session, Table};
use crate::plot::Plot;
use gabion_codec::Code;
use gabion_layout::{Geometry, NodeId, StripeId, Topology};
use gabion_plan::{Cost, Plan};
use gabion_planner::placement::{
    EncodingAware, RackLimit, RackTable, ReplicaSpread, ReplicatedStripe, random_replication,
    random_replication_end,
};
use gabion_planner::{PlanError, Stripe, encode};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

pub(crate) const EXPERIMENT: Experiment = Experiment::new(
    "EAR-LAYOUTS",
    "draws, broken rack limits, and chunks across racks",
    run,
);

/// Rack limits, the paper's `c`.
const PER_RACK: [usize; 3] = [1, 2, 4];
/// Racks of the settings in which random replication is counted.
const RACK_COUNTS: [u32; 3] = [15, 20, 40];

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    let stripe_count = session.scale.pick(100, 5000, 50_000);
    let steps = PER_RACK.len() + RACK_COUNTS.len() + 1;
    session.progress.begin("counting", steps as u64);
    let mut rng = ChaCha8Rng::seed_from_u64(session.seed);
    let mut draws = Vec::new();
    for per_rack in PER_RACK {
        draws.push(mean_draws(per_rack, stripe_count, &mut rng)?);
        session.progress.step();
    }
    let mut report = Report {
        setting: vec![
            "racks of 20 nodes, 20 of them unless the table says otherwise; 3 replicas, (14,10), parity in \
             the core rack first".to_owned(),
            format!("{stripe_count} stripes for each figure"),
        ],
        scaled: vec!["the paper has no figure for these, but states the bound on draws".to_owned()],
        goals: draws_goals(&draws),
        tables: vec![draws_table(&draws)],
        notes: vec![
            "a relocation moves one chunk across racks; a matching that chooses the replicas to keep needs the fewest, \
            an arbitrary choice needs more"
                .to_owned(),
        ],
        plots: vec![draws_plot(&draws)],
        ..Report::default()
    };
    let columns = [
        "racks",
        "break the limit %",
        "relocations a stripe, fewest",
        "any kept",
    ];
    let mut broken = Table::new(
        "Stripes of random replication with one chunk a rack",
        &columns,
    );
    for racks in RACK_COUNTS {
        let found = broken_limits(racks, stripe_count, &mut rng)?;
        broken.row(std::iter::once(u64::from(racks).into()).chain(found.map(Into::into)));
        session.progress.step();
    }
    report.tables.push(broken);
    let (table, goal) = crossing(session.scale.pick(50, 1000, 10_000), &mut rng)?;
    report.tables.push(table);
    report.goals.push(goal);
    session.progress.step();
    Ok(report)
}

/// Mean draws of each block of a stripe.
fn mean_draws(
    per_rack: usize,
    stripe_count: usize,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<f64>, PlanError> {
    let table = racks();
    let mut placer = EncodingAware::new(&table, rules(per_rack))?;
    let mut draws = [(0_u64, 0_u64); 10];
    for _ in 0..10 * stripe_count {
        let block = placer.place(rng)?;
        let (total, count) = &mut draws[block.position];
        *total += block.draw_count;
        *count += 1;
    }
    Ok(draws
        .iter()
        .map(|&(total, count)| total as f64 / count.max(1) as f64)
        .collect())
}

/// The paper's bound on the draws of a block, counted from 0.
fn bound(block: usize, per_rack: usize) -> f64 {
    1.0 / (1.0 - (block / per_rack) as f64 / f64::from(RACKS - 1))
}

fn draws_table(draws: &[Vec<f64>]) -> Table {
    let columns = [
        "block", "c = 1", "bound", "c = 2", "bound", "c = 4", "bound",
    ];
    let mut table = Table::new("Draws until a layout is accepted", &columns);
    for block in 0..10 {
        let pairs = draws.iter().zip(PER_RACK);
        let cells = pairs.flat_map(|(means, per_rack)| [means[block], bound(block, per_rack)]);
        let first = (block as u64 + 1).into();
        table.row(std::iter::once(first).chain(cells.map(Into::into)));
    }
    table
}

/// Few samples exceed a bound that is met exactly by a little.
fn draws_goals(draws: &[Vec<f64>]) -> Vec<Goal> {
    const OF_BOUND_MAX: f64 = 1.1;
    let goal = |(means, per_rack): (&Vec<f64>, usize)| {
        let over = |block: usize| means[block] / bound(block, per_rack);
        let most = (0..10).map(over).fold(0.0, f64::max);
        let what = format!("mean draws over the bound at most, c = {per_rack}");
        Goal::at_most(what, most, "x", OF_BOUND_MAX)
    };
    draws.iter().zip(PER_RACK).map(goal).collect()
}

fn draws_plot(draws: &[Vec<f64>]) -> Plot {
    let points = |means: &Vec<f64>| (1..=10).map(f64::from).zip(means.iter().copied()).collect();
    let pairs = draws.iter().zip(PER_RACK);
    let mut series: Vec<(String, Vec<(f64, f64)>)> = pairs
        .map(|(means, per_rack)| (format!("c = {per_rack}"), points(means)))
        .collect();
    let bounds: Vec<f64> = (0..10).map(|block| bound(block, 1)).collect();
    series.push(("bound, c = 1".to_owned(), points(&bounds)));
    Plot::lines(
        "EAR-LAYOUTS-draws",
        "Draws until a layout is accepted",
        ["block of the stripe", "draws"],
        series,
    )
}

fn any_replicas(table: &RackTable, rng: &mut ChaCha8Rng) -> Result<Vec<Vec<NodeId>>, PlanError> {
    (0..10)
        .map(|_| random_replication(table, 3, ReplicaSpread::FreshRacks, rng))
        .collect()
}

/// Of stripes of random replication, per cent that break the limit whichever replicas are kept, and
/// relocations a stripe: the fewest, and when any replicas are kept.
fn broken_limits(
    rack_count: u32,
    stripe_count: usize,
    rng: &mut ChaCha8Rng,
) -> Result<[f64; 3], PlanError> {
    let topology = Topology::uniform(rack_count, NODES_PER_RACK);
    let table = RackTable::new(&topology);
    let (mut broken_count, mut fewest, mut any) = (0, 0, 0);
    for _ in 0..stripe_count {
        let replicas = any_replicas(&table, rng)?;
        let end = random_replication_end(&table, replicas, 4, 1, RackLimit::Enforced, rng)?;
        let moved = end.relocated().count();
        broken_count += usize::from(moved > 0);
        fewest += moved;
        let end = random_replication_end(&table, end.replicas, 4, 1, RackLimit::Ignored, rng)?;
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        for &node in &end.placement[..10] {
            *counts.entry(topology.rack_of(node)).or_default() += 1;
        }
        any += counts.values().map(|count| count - 1).sum::<usize>();
    }
    let per_stripe = |count: usize| count as f64 / stripe_count as f64;
    Ok([
        100.0 * per_stripe(broken_count),
        per_stripe(fewest),
        per_stripe(any),
    ])
}

/// Chunks across racks and within, a stripe, by placement and encoding.
fn crossing(stripe_count: usize, rng: &mut ChaCha8Rng) -> Result<(Table, Goal), PlanError> {
    let columns = [
        "placement",
        "encoding",
        "chunks across racks",
        "within racks",
        "busiest link",
    ];
    let mut table = Table::new("To encode a stripe", &columns);
    let topology = Topology::uniform(RACKS, NODES_PER_RACK);
    let bench = Bench::new(&topology);
    let racks = RackTable::new(&topology);
    for limit in [RackLimit::Ignored, RackLimit::Enforced] {
        let mut stripes = Vec::with_capacity(stripe_count);
        for _ in 0..stripe_count {
            let replicas = any_replicas(&racks, rng)?;
            stripes.push(random_replication_end(&racks, replicas, 4, 1, limit, rng)?);
        }
        let name = match limit {
            RackLimit::Ignored => "RR",
            RackLimit::Enforced => "RR that relocates",
        };
        let encoder = |rng: &mut ChaCha8Rng| NodeId(rng.random_range(0..RACKS * NODES_PER_RACK));
        let gathered = bench.mean(&stripes, |stripe| bench.gather(stripe, encoder(rng)))?;
        let chained = bench.mean(&stripes, |stripe| bench.chain(stripe))?;
        for (encoding, figures) in [("gather", gathered), ("chain", chained)] {
            let names = [name, encoding].map(Into::into);
            table.row(names.into_iter().chain(figures.map(Into::into)));
        }
    }
    let mut most_data: f64 = 0.0;
    for per_rack in PER_RACK {
        let mut placer = EncodingAware::new(&racks, rules(per_rack))?;
        let mut stripes = Vec::with_capacity(stripe_count);
        while stripes.len() < stripe_count {
            stripes.extend(placer.place(rng)?.stripe);
        }
        let figures = bench.mean(&stripes, |stripe| {
            let encoder = encode::core_encoder(stripe, &topology);
            let plan = bench.gather(stripe, encoder.unwrap_or_default())?;
            let parity = stripe.placement[10..].iter();
            let away = parity
                .filter(|&&node| topology.rack_of(node) != stripe.core_rack)
                .count();
            let crossing = Cost::of(&plan, &topology).cross_rack_bytes;
            most_data = most_data.max((crossing - away as u64) as f64);
            Ok(plan)
        })?;
        let names = [
            format!("EAR, c = {per_rack}").into(),
            "gather in the core rack".into(),
        ];
        table.row(names.into_iter().chain(figures.map(Into::into)));
    }
    let what = "data chunks across racks for an encoding under EAR";
    Ok((table, Goal::at_most(what, most_data, "", 0.0)))
}

/// Chunks of one byte, so that a plan's bytes are chunks.
struct Bench<'a> {
    topology: &'a Topology,
    code: Code,
    geometry: Geometry,
}

impl<'a> Bench<'a> {
    fn new(topology: &'a Topology) -> Self {
        Self {
            topology,
            code: Code::reed_solomon(10, 4).expect("a small code"),
            geometry: Geometry::new(10, 4, 1, 1).expect("a byte a chunk"),
        }
    }

    fn stripe<'s>(&'s self, stripe: &'s ReplicatedStripe) -> Stripe<'s> {
        Stripe {
            id: StripeId(1),
            code: &self.code,
            geometry: self.geometry,
            placement: &stripe.placement,
            lost: &[],
        }
    }

    fn gather(&self, stripe: &ReplicatedStripe, encoder: NodeId) -> Result<Plan, PlanError> {
        let to_plan = self.stripe(stripe);
        let encoding = encode::gather(&to_plan, &stripe.replicas, encoder, self.topology, 1)?;
        Ok(encoding.plan)
    }

    fn chain(&self, stripe: &ReplicatedStripe) -> Result<Plan, PlanError> {
        let to_plan = self.stripe(stripe);
        let encoding = encode::chain(&to_plan, &stripe.replicas, self.topology, 1)?;
        Ok(encoding.plan)
    }

    /// Mean chunks across racks, within racks, and on the busiest node's link.
    fn mean(
        &self,
        stripes: &[ReplicatedStripe],
        mut plan: impl FnMut(&ReplicatedStripe) -> Result<Plan, PlanError>,
    ) -> Result<[f64; 3], PlanError> {
        let mut sums = [0; 3];
        for stripe in stripes {
            let cost = Cost::of(&plan(stripe)?, self.topology);
            let found = [
                cost.cross_rack_bytes,
                cost.inner_rack_bytes,
                cost.busiest_link_bytes(),
            ];
            for (sum, found) in sums.iter_mut().zip(found) {
                *sum += found;
            }
        }
        Ok(sums.map(|sum| sum as f64 / stripes.len() as f64))
    }
}
