//! Measures the time to plan, check and count: the price of an update before its first byte moves, and that of
//! encodings and repairs. Prints one line a plan, in nanoseconds, the best of five rounds.
//!
//! `cargo bench -p gabion-planner --bench planning -- --quick` runs short rounds.

use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, StripeId, Topology};
use gabion_plan::{Cost, Plan, check};
use gabion_planner::repair::{SCHEMES, helpers_by_distance, repair};
use gabion_planner::update::cau;
use gabion_planner::{PlanError, Stripe, encode, placement, update};
use std::hint::black_box;
use std::time::{Duration, Instant};

const KIB: u64 = 1 << 10;
const CHUNK_BYTES: u64 = 64 << 20;
const SLICE_BYTES: u64 = 32 * KIB;
const ROUND_COUNT: usize = 5;

/// A stripe on a topology.
struct Setting {
    code: Code,
    geometry: Geometry,
    topology: Topology,
    placement: Vec<NodeId>,
}

impl Setting {
    /// On ten racks of three nodes.
    fn new(code: &str) -> Self {
        Self::on(code, Topology::uniform(10, 3), 3)
    }

    fn on(code: &str, topology: Topology, per_rack: usize) -> Self {
        let code: Code = code.parse().expect("a code of its family");
        let chunk_bytes = CHUNK_BYTES.next_multiple_of(code.sub_chunks() as u64);
        let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), chunk_bytes)
            .expect("the code's own shape");
        let placement = placement::rotate(&topology, 0, code.n(), per_rack).expect("nodes enough");
        Self {
            code,
            geometry,
            topology,
            placement,
        }
    }

    fn stripe<'a>(&'a self, lost: &'a [ChunkIndex]) -> Stripe<'a> {
        Stripe {
            id: StripeId(1),
            code: &self.code,
            geometry: self.geometry,
            placement: &self.placement,
            lost,
        }
    }
}

/// Mean times of one call, in nanoseconds.
struct Times {
    plan: u64,
    check: u64,
    cost: u64,
}

fn mean_ns(round: Duration, mut work: impl FnMut()) -> u64 {
    let mut best = u64::MAX;
    for _ in 0..ROUND_COUNT {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < round {
            for _ in 0..16 {
                work();
            }
            count += 16;
        }
        best = best.min(start.elapsed().as_nanos() as u64 / count);
    }
    best
}

fn measure(
    name: &str,
    setting: &Setting,
    round: Duration,
    make: impl Fn() -> Result<Plan, PlanError>,
) {
    let plan = make().expect("the setting has a plan");
    check(&plan, &setting.code).expect("planners make plans that check");
    let times = Times {
        plan: mean_ns(round, || drop(black_box(make()))),
        check: mean_ns(round, || drop(black_box(check(&plan, &setting.code)))),
        cost: mean_ns(round, || {
            drop(black_box(Cost::of(&plan, &setting.topology)));
        }),
    };
    let total = times.plan + times.check + times.cost;
    println!(
        "{name:34} {:5} {:9} {:9} {:9} {total:9}",
        plan.steps.len(),
        times.plan,
        times.check,
        times.cost
    );
}

/// Updates of whole chunks that know racks: all of a stripe's, and two of them.
fn measure_cross_rack(round: Duration) {
    for (racks, per_rack) in [(16, 1), (8, 2), (4, 4)] {
        let setting = Setting::on("rs(12,4)", Topology::uniform(racks, per_rack), 4);
        for count in [12, 2] {
            let range = ByteRange::new(0, CHUNK_BYTES);
            let chunks = (0..count).map(ChunkIndex);
            let ranges: Vec<ChunkRange> = chunks.map(|chunk| ChunkRange { chunk, range }).collect();
            let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
            let name = |scheme| format!("{scheme}, {count} of rs(12,4), {racks} racks");
            measure(&name("RackCU"), &setting, round, || {
                update::rackcu(&stripe, topology, &ranges, SLICE_BYTES)
            });
            measure(&name("CAU commit"), &setting, round, || {
                let selection = cau::Selection::Selective;
                cau::commit(&stripe, topology, &ranges, selection, SLICE_BYTES)
            });
        }
    }
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let round = Duration::from_millis(if is_quick { 5 } else { 100 });
    println!(
        "{:34} {:>5} {:>9} {:>9} {:>9} {:>9}",
        "mean ns", "steps", "plan", "check", "cost", "all"
    );
    for code in ["rs(6,3)", "rs(12,4)", "rdp(6)"] {
        let setting = Setting::new(code);
        let ranges = [ChunkRange {
            chunk: ChunkIndex(1),
            range: ByteRange::new(8 * KIB, 4 * KIB),
        }];
        let name = format!("update of 4 KiB, {code}");
        measure(&name, &setting, round, || {
            update::delta(
                &setting.stripe(&[]),
                &setting.topology,
                &ranges,
                SLICE_BYTES,
            )
        });
    }
    for code in ["rs(6,3)", "rs(12,4)", "rdp(6)"] {
        let setting = Setting::new(code);
        measure(&format!("encoding, {code}"), &setting, round, || {
            encode::direct(&setting.stripe(&[]), NodeId::CLIENT, SLICE_BYTES)
        });
    }
    let setting = Setting::new("rs(10,4)");
    let lost = [ChunkIndex(3)];
    let requestor = NodeId(29);
    for known in SCHEMES {
        let (name, scheme) = (known.name, known.scheme);
        measure(&format!("{name} repair, rs(10,4)"), &setting, round, || {
            let stripe = setting.stripe(&lost);
            let helpers = helpers_by_distance(&stripe, requestor, &setting.topology);
            repair(&stripe, lost[0], requestor, &helpers, scheme, SLICE_BYTES)
        });
    }
    measure_cross_rack(round);
}
