//! RCU-EX: the guiding example of `RackCU` (section III-A, Figures 3 and 4), one stripe with updates of all data
//! chunks. It compares our planners' plans with the paper's formulas over every choice of collector racks, which show
//! the cost of a second collector.

use crate::error::LabError;
use crate::experiment::{Experiment, Finding, Paper, Report, Session, Table};
use crate::plot::Plot;
use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, StripeId, Topology};
use gabion_plan::{Cost, Plan};
use gabion_planner::update::cau::{self, Selection};
use gabion_planner::{PlanError, Stripe, placement, update};

pub(crate) const EXAMPLE: Experiment = Experiment::new(
    "RCU-EX",
    "worked example of RackCU: one stripe on five racks",
    run,
)
.once();

const CHUNK_BYTES: u64 = 4 << 10;
/// Racks with data, two updated chunks in each.
const DATA_RACKS: usize = 3;
/// Racks with parity, two chunks in each.
const PARITY_RACKS: usize = 2;
/// Chunks of the stripe in each rack.
const PER_RACK: u64 = 2;

fn run(session: &Session<'_>) -> Result<Report, LabError> {
    session
        .progress
        .begin("planning", (DATA_RACKS + PARITY_RACKS) as u64);
    let sent = planned()?;
    let by_count = by_collectors(|| session.progress.step());
    let mut plans = Table::new("Chunks across racks, planned", &["scheme", "chunks"]);
    for (scheme, chunks) in sent {
        plans.row([scheme.into(), chunks.into()]);
    }
    let columns = ["collector racks", "choices", "fewest chunks", "most chunks"];
    let mut choices = Table::new("Chunks across racks by the paper's formulas", &columns);
    for (count, chunks) in (1_u64..).zip(&by_count) {
        let (least, most) = (chunks.iter().min(), chunks.iter().max());
        if let (Some(&least), Some(&most)) = (least, most) {
            choices.row([count, chunks.len() as u64, least, most].map(Into::into));
        }
    }
    let exact = |what: &str, ours: u64, paper: u64| {
        Finding::beside(what, ours as f64, " chunks", Paper::exactly(paper as f64))
    };
    let [baseline, .., rackcu] = sent;
    let least = by_count.iter().flatten().min().copied();
    let mut plot = Plot::bars(
        "RCU-EX",
        "Chunks across racks for one update",
        ["scheme", "chunks"],
        sent.map(|(scheme, _)| scheme.to_owned()).to_vec(),
        vec![(
            "planned".to_owned(),
            sent.map(|(_, chunks)| chunks as f64).to_vec(),
        )],
    );
    plot.mark_bar(baseline.0, "planned", 24.0);
    plot.mark_bar(rackcu.0, "planned", 8.0);
    Ok(Report {
        setting: vec![
            "RS(6,4), layout 3x2+2x2, chunks of 4 KiB; all six data chunks are updated as a whole".to_owned(),
            "collectors: each data rack sends its deltas to at most one rack, and a collector keeps its own"
                .to_owned(),
        ],
        scaled: vec!["nothing".to_owned()],
        findings: vec![
            exact("baseline", baseline.1, 24),
            exact("two collectors of figure 3", chunks_by_formula(FIGURE_3), 10),
            exact("RackCU", rackcu.1, 8),
            exact("the best choice", least.unwrap_or_default(), 8),
        ],
        tables: vec![plans, choices],
        plots: vec![plot],
        ..Report::default()
    })
}

/// Cross-rack traffic of the planners' plans, in chunks: updates by delta, CAU's selective update,
/// `RackCU`.
fn planned() -> Result<[(&'static str, u64); 3], LabError> {
    let code: Code = "rs(6,4)".parse().map_err(PlanError::from)?;
    let layout = format!("{DATA_RACKS}x{PER_RACK}+{PARITY_RACKS}x{PER_RACK}");
    let (topology, placement) = placement::grouped(layout.parse()?, code.k(), code.m())?;
    let geometry = Geometry::new(code.k(), code.m(), 1, CHUNK_BYTES).map_err(PlanError::from)?;
    let stripe = Stripe {
        id: StripeId(1),
        code: &code,
        geometry,
        placement: &placement,
        lost: &[],
    };
    let range = ByteRange::new(0, CHUNK_BYTES);
    let ranges: Vec<ChunkRange> = geometry
        .data_chunks()
        .map(|chunk: ChunkIndex| ChunkRange { chunk, range })
        .collect();
    let chunks =
        |plan: Plan, topology: &Topology| Cost::of(&plan, topology).cross_rack_bytes / CHUNK_BYTES;
    let delta = update::delta(&stripe, &topology, &ranges, CHUNK_BYTES)?;
    let selective = cau::selective(
        &stripe,
        &topology,
        &ranges,
        Selection::Selective,
        CHUNK_BYTES,
    )?;
    let collected = update::rackcu(&stripe, &topology, &ranges, CHUNK_BYTES)?;
    Ok([
        ("by delta", chunks(delta, &topology)),
        ("CAU selective", chunks(selective, &topology)),
        ("RackCU", chunks(collected, &topology)),
    ])
}

/// The rack that each data rack's deltas go to; racks with parity follow those with data.
type Collectors = [usize; DATA_RACKS];

/// The first rack gives to the second, which collects, and the third to the first with parity.
const FIGURE_3: Collectors = [1, 1, DATA_RACKS];

/// The paper's formulas (section III-B) for every choice, by number of collectors.
fn by_collectors(step: impl Fn()) -> [Vec<u64>; DATA_RACKS] {
    let racks = DATA_RACKS + PARITY_RACKS;
    let mut found: [Vec<u64>; DATA_RACKS] = Default::default();
    for a in 0..racks {
        for (b, c) in (0..racks).flat_map(|b| (0..racks).map(move |c| (b, c))) {
            let to = [a, b, c];
            // A data rack that collects keeps its own deltas.
            let keeps = |&rack: &usize| rack >= DATA_RACKS || to[rack] == rack;
            if to.iter().all(keeps) {
                let mut distinct = to.to_vec();
                distinct.sort_unstable();
                distinct.dedup();
                found[distinct.len() - 1].push(chunks_by_formula(to));
            }
        }
        step();
    }
    found
}

/// `T_collect + T_update` of section III-B.
fn chunks_by_formula(to: Collectors) -> u64 {
    let racks = DATA_RACKS + PARITY_RACKS;
    let mut chunks = 0;
    for collector in 0..racks {
        let has = PER_RACK * to.iter().filter(|&&rack| rack == collector).count() as u64;
        if has == 0 {
            continue;
        }
        let own = if collector < DATA_RACKS { PER_RACK } else { 0 };
        let others = (DATA_RACKS..racks).filter(|&rack| rack != collector);
        chunks += has - own + others.map(|_| has.min(PER_RACK)).sum::<u64>();
    }
    chunks
}
