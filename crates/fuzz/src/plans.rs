//! Plans from peers: decoding, the checker, and all that follows a check.
//!
//! A plan that the checker accepts must have a cost, parts and a picture.

use crate::script::{Script, edit};
use crate::target::Target;
use gabion_codec::Code;
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, Slices, StripeId, Topology,
};
use gabion_plan::{Cost, Plan, check, drawn, graphviz, text, title};
use gabion_planner::repair::{self, SCHEMES, Scheme, helpers_by_distance, move_chunk};
use gabion_planner::update::{self, parix};
use gabion_planner::{Stripe, encode};
use std::sync::OnceLock;

/// The target.
pub(crate) const TARGET: Target = Target {
    name: "plans",
    run,
    seeds,
    input_bytes_max: 4096,
    // The checker's limit of work bounds its memory.
    memory_bytes_max: 1 << 30,
    test_input_count: 60_000,
};

/// Codes of each family.
const CODES: [&str; 8] = [
    "rs(2,1)",
    "rs(4,2)",
    "cauchy(3,2)",
    "rdp(4)",
    "evenodd(3)",
    "lrc(4,2,1)",
    "rotated(3,2,4)",
    "rep(3)",
];

/// The first byte: whether an encoded plan follows, or edits of a planner's plan.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let choice = script.u8();
    let mut code = &CODES[usize::from(choice >> 1) % CODES.len()];
    let encoding = if choice & 1 == 0 {
        script.rest().to_vec()
    } else {
        let plans = planned();
        let (of, plan) = &plans[script.below(plans.len())];
        code = of;
        let mut encoding = plan.clone();
        while !script.is_empty() {
            edit(&mut encoding, &mut script);
        }
        encoding
    };
    let Ok((plan, _)) = postcard::take_from_bytes::<Plan>(&encoding) else {
        return;
    };
    let again = postcard::to_stdvec(&plan).expect("it was decoded");
    assert_eq!(postcard::from_bytes::<Plan>(&again).as_ref(), Ok(&plan));
    let code: Code = code.parse().expect("a code of its family");
    match check(&plan, &code) {
        Ok(()) => use_checked(&plan, &code),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Does what every participant of a checked plan does with it, but run it.
fn use_checked(plan: &Plan, code: &Code) {
    let topology = Topology::uniform(4, 3);
    let cost = Cost::of(plan, &topology);
    let mut sum = Cost::of_merge(plan);
    sum.add(&cost);
    assert!(cost.busiest_link_bytes() <= cost.links.iter().map(|link| link.bytes).sum());
    for node in plan.participants() {
        let part = plan.part(node);
        assert!(!part.steps.is_empty(), "{node} takes part without a step");
    }
    assert!(!title(plan).is_empty());
    // A picture of thousands of steps takes time and shows nothing.
    if plan.steps.len() < 64 {
        assert!(!text(plan, code, &topology).is_empty());
        assert!(!graphviz(plan, &topology).is_empty());
        drop(drawn(plan, &topology));
    }
}

/// Encoded plans of planners, each with its code.
fn planned() -> &'static [(&'static str, Vec<u8>)] {
    static PLANNED: OnceLock<Vec<(&'static str, Vec<u8>)>> = OnceLock::new();
    PLANNED.get_or_init(|| {
        let of_code = |&code: &&'static str| {
            let plans = plans_of(code).into_iter();
            plans.map(move |plan| {
                let encoding = postcard::to_stdvec(&plan);
                (code, encoding.expect("a plan can be encoded"))
            })
        };
        CODES.iter().flat_map(of_code).collect()
    })
}

/// A plan of each kind that a code has.
fn plans_of(code: &str) -> Vec<Plan> {
    let code: Code = code.parse().expect("a code of its family");
    let chunk_bytes = 64 * code.sub_chunks() as u64;
    let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), chunk_bytes);
    let placement: Vec<NodeId> = (0..code.n() as u32).map(NodeId).collect();
    let whole = Stripe {
        id: StripeId(1),
        code: &code,
        geometry: geometry.expect("a small chunk"),
        placement: &placement,
        lost: &[],
    };
    let lost = [ChunkIndex(0)];
    let degraded = Stripe {
        lost: &lost,
        ..whole
    };
    let topology = Topology::uniform(4, 3);
    let part = ChunkRange {
        chunk: ChunkIndex(0),
        range: ByteRange::new(3, 40),
    };
    let slice_bytes = 16;
    let spare = NodeId(11);
    let helpers = helpers_by_distance(&degraded, spare, &topology);
    let mut plans: Vec<Plan> = Vec::new();
    plans.extend(encode::direct(&whole, NodeId::CLIENT, slice_bytes));
    plans.extend(encode::relay(&whole, NodeId::CLIENT, slice_bytes));
    plans.extend(move_chunk(&whole, ChunkIndex(0), spare, slice_bytes));
    for descriptor in &SCHEMES {
        let scheme: Scheme = descriptor.scheme;
        let repaired = repair::repair(&degraded, lost[0], spare, &helpers, scheme, slice_bytes);
        plans.extend(repaired);
    }
    let scheme = SCHEMES[0].scheme;
    let read = |stripe| {
        repair::read(
            stripe,
            &[part],
            NodeId::CLIENT,
            &helpers,
            scheme,
            slice_bytes,
        )
    };
    plans.extend(read(&whole));
    plans.extend(read(&degraded));
    for descriptor in &update::SCHEMES {
        let planner = descriptor.planner;
        let kept = planner.keepings(4096);
        let plan = planner.plan(&whole, &topology, &[part], slice_bytes);
        plans.extend(plan.map(|plan| plan.kept(kept)));
        let plan = planner.plan(&degraded, &topology, &[part], slice_bytes);
        plans.extend(plan.map(|plan| plan.kept(kept)));
    }
    plans.extend(parix::append(&whole, &[part], &[], slice_bytes));
    plans.extend(parix::commit(&whole, &[part], slice_bytes));
    assert!(Slices::whole(part.range).bytes() > 0);
    plans
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (at, (code, encoding)) in (0_u16..).zip(planned()) {
        let [low, high] = at.to_le_bytes();
        seeds.push(vec![1, low, high]);
        let code = CODES.iter().position(|known| known == code);
        let code = code.expect("the code is listed") as u8;
        if at % 4 == 0 && encoding.len() < 700 {
            seeds.push([&[code << 1][..], encoding].concat());
        }
    }
    seeds
}
