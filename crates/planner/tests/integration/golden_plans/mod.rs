//! Plans as people read them, kept as files: a change of a planner or of the rendering shows as a
//! change of text. Run with `GABION_UPDATE_GOLDEN=1` to write the files anew, and read the diff.

mod encodings;

use gabion_codec::Code;
use gabion_layout::{
    ByteRange, ChunkIndex, ChunkRange, Geometry, NodeId, ReserveSpec, StripeId, Topology,
    UpdateScheme,
};
use gabion_plan::{Plan, check, graphviz, text};
use gabion_planner::repair::{MultiScheme, Scheme, helpers_by_distance, read, repair, repair_all};
use gabion_planner::update::{cau, parix};
use gabion_planner::{PlanError, Stripe, encode, placement, update};
use std::path::Path;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A stripe on racks of four nodes each, with one node's room left in every rack.
struct Setting {
    code: Code,
    geometry: Geometry,
    topology: Topology,
    placement: Vec<NodeId>,
}

impl Setting {
    fn new(code: &str, chunk_bytes: u64, racks: u32) -> Self {
        let code: Code = code.parse().expect("a code of its family");
        let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), chunk_bytes)
            .expect("whole rows make a geometry");
        let topology = Topology::uniform(racks, 4);
        let placement = placement::rotate(&topology, 0, code.n(), 3).expect("racks enough");
        Self {
            code,
            geometry,
            topology,
            placement,
        }
    }

    fn stripe<'a>(&'a self, lost: &'a [ChunkIndex]) -> Stripe<'a> {
        Stripe {
            id: StripeId(7),
            code: &self.code,
            geometry: self.geometry,
            placement: &self.placement,
            lost,
        }
    }

    fn repair(&self, lost: u8, requestor: u32, scheme: Scheme) -> Result<Plan, PlanError> {
        let lost = [ChunkIndex(lost)];
        let stripe = self.stripe(&lost);
        let helpers = helpers_by_distance(&stripe, NodeId(requestor), &self.topology);
        repair(
            &stripe,
            lost[0],
            NodeId(requestor),
            &helpers,
            scheme,
            32 * KIB,
        )
    }

    /// Compares the plan's text with `golden/<name>.txt`.
    #[track_caller]
    fn is_golden(&self, name: &str, plan: Result<Plan, PlanError>) -> Plan {
        let plan = plan.expect("a plan");
        check(&plan, &self.code).expect("a plan that checks");
        compare(
            &format!("{name}.txt"),
            &text(&plan, &self.code, &self.topology),
        );
        plan
    }
}

fn range(chunk: u8, offset: u64, length: u64) -> ChunkRange {
    ChunkRange {
        chunk: ChunkIndex(chunk),
        range: ByteRange::new(offset, length),
    }
}

#[track_caller]
fn compare(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file);
    if std::env::var_os("GABION_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).expect("the directory is there");
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == found,
        "{file} has changed; run with GABION_UPDATE_GOLDEN=1 and read the diff\n{found}"
    );
}

#[test]
fn update_of_one_range() {
    let setting = Setting::new("rs(6,3)", 64 * MIB, 3);
    let ranges = [range(1, 8 * KIB, 4 * KIB)];
    let plan = update::delta(&setting.stripe(&[]), &setting.topology, &ranges, 32 * KIB);
    let plan = setting.is_golden("update_rs_6_3", plan);
    compare("update_rs_6_3.dot", &graphviz(&plan, &setting.topology));
}

#[test]
fn update_into_reserved_space() {
    let setting = Setting::new("rs(4,2)", MIB, 2);
    let keepings = update::keepings(UpdateScheme::Plr, Some(ReserveSpec::default()), MIB);
    let plan = update::delta(
        &setting.stripe(&[]),
        &setting.topology,
        &[range(0, 0, 4 * KIB)],
        32 * KIB,
    );
    setting.is_golden("update_plr", plan.map(|plan| plan.kept(keepings)));
}

#[test]
fn update_of_two_chunks() {
    let setting = Setting::new("rs(6,3)", 64 * MIB, 3);
    let ranges = [range(2, 64 * MIB - 1000, 1000), range(3, 0, 64 * KIB)];
    let plan = update::delta(&setting.stripe(&[]), &setting.topology, &ranges, 32 * KIB);
    setting.is_golden("update_two_chunks", plan);
}

#[test]
fn update_of_sub_chunks() {
    let setting = Setting::new("rdp(4)", 16 * KIB, 2);
    let ranges = [range(2, 6 * KIB, 4 * KIB)];
    let plan = update::delta(&setting.stripe(&[]), &setting.topology, &ranges, 32 * KIB);
    setting.is_golden("update_rdp_4", plan);
}

#[test]
fn degraded_updates() {
    let setting = Setting::new("rs(6,3)", 64 * MIB, 3);
    let ranges = [range(1, 8 * KIB, 4 * KIB), range(2, 8 * KIB, 4 * KIB)];
    let lost = [ChunkIndex(1), ChunkIndex(8)];
    let plan = update::delta(&setting.stripe(&lost), &setting.topology, &ranges, 32 * KIB);
    setting.is_golden("degraded_update_rs_6_3", plan);
    let setting = Setting::new("lrc(6,2,2)", 64 * MIB, 4);
    let lost = [ChunkIndex(1)];
    let plan = update::delta(
        &setting.stripe(&lost),
        &setting.topology,
        &ranges[..1],
        32 * KIB,
    );
    setting.is_golden("degraded_update_lrc_6_2_2", plan);
}

#[test]
fn encoding() {
    let setting = Setting::new("rs(4,2)", 4 * MIB, 3);
    let plan = encode::direct(&setting.stripe(&[]), NodeId::CLIENT, 64 * KIB);
    setting.is_golden("encode_rs_4_2", plan);
}

#[test]
fn repairs() {
    let setting = Setting::new("rs(6,3)", 64 * MIB, 3);
    let star = setting.repair(4, 7, Scheme::Conventional);
    setting.is_golden("repair_conventional_rs_6_3", star);
    let chain = setting.repair(4, 7, Scheme::Pipeline);
    setting.is_golden("repair_pipeline_rs_6_3", chain);
    let tree = setting.repair(4, 7, Scheme::Ppr);
    setting.is_golden("repair_ppr_rs_6_3", tree);
    let setting = Setting::new("rs(3,2)", MIB + 5, 2);
    let chains = setting.repair(1, 7, Scheme::Cyclic);
    setting.is_golden("repair_cyclic_rs_3_2", chains);
}

#[test]
fn repairs_of_two_chunks() {
    let setting = Setting::new("rs(6,3)", 64 * MIB, 3);
    let lost = [ChunkIndex(4), ChunkIndex(8)];
    let stripe = setting.stripe(&lost);
    let requestors = [(lost[0], NodeId(7)), (lost[1], NodeId(11))];
    let helpers: Vec<ChunkIndex> = stripe.available().collect();
    for (name, scheme) in [
        ("repair_dedicated_two", MultiScheme::Dedicated),
        ("repair_pipeline_two", MultiScheme::Pipeline),
        ("repair_racks_two", MultiScheme::Racks(&setting.topology)),
    ] {
        let plan = repair_all(&stripe, &requestors, &helpers, scheme, 32 * KIB);
        setting.is_golden(name, plan);
    }
}

#[test]
fn repair_in_a_local_group() {
    let setting = Setting::new("lrc(6,2,2)", 64 * MIB, 4);
    let plan = setting.repair(1, 3, Scheme::Pipeline);
    setting.is_golden("repair_local_lrc_6_2_2", plan);
}

#[test]
fn degraded_read() {
    let setting = Setting::new("rs(4,2)", 4 * MIB, 3);
    let lost = [ChunkIndex(1)];
    let stripe = setting.stripe(&lost);
    let helpers = helpers_by_distance(&stripe, NodeId::CLIENT, &setting.topology);
    let ranges = [range(0, 0, 10), range(1, MIB, 128 * KIB)];
    let plan = read(
        &stripe,
        &ranges,
        NodeId::CLIENT,
        &helpers,
        Scheme::Pipeline,
        32 * KIB,
    );
    setting.is_golden("degraded_read_rs_4_2", plan);
}

/// `RackCU`'s figure 4: two updated chunks in each of three racks, four parity chunks in two others.
#[test]
fn rackcu_collects_in_one_rack() {
    let code: Code = "rs(6,4)".parse().unwrap();
    let layout = "3x2+2x2".parse().unwrap();
    let (topology, placement) = placement::grouped(layout, 6, 4).unwrap();
    let setting = Setting {
        geometry: Geometry::new(6, 4, 1, 4 * KIB).unwrap(),
        code,
        topology,
        placement,
    };
    let ranges: Vec<ChunkRange> = (0..6).map(|chunk| range(chunk, 0, 4 * KIB)).collect();
    let plan = update::rackcu(&setting.stripe(&[]), &setting.topology, &ranges, 4 * KIB);
    setting.is_golden("rackcu_figure_4", plan);
}

/// CAU's phases: one replica a chunk in another rack, then a commit. It sends data deltas, since no
/// rack has more updated chunks than the third has parity, and in two pieces, since one of the three
/// updates is shorter.
#[test]
fn cau_appends_and_commits() {
    let setting = Setting::new("rs(6,3)", MIB, 3);
    let (stripe, topology) = (setting.stripe(&[]), &setting.topology);
    let ranges = [range(0, 0, MIB), range(1, 0, MIB), range(3, 0, 64 * KIB)];
    let append = cau::append(&stripe, topology, &ranges, 1, 32 * KIB);
    setting.is_golden("cau_append", append);
    let selection = cau::Selection::Selective;
    let commit = cau::commit(&stripe, topology, &ranges, selection, 32 * KIB);
    setting.is_golden("cau_commit", commit);
}

/// PARIX: old bytes go only where they are not known, and the commit sends nothing.
#[test]
fn parix_appends_and_commits() {
    let setting = Setting::new("rs(6,3)", MIB, 3);
    let stripe = setting.stripe(&[]);
    let (ranges, known) = ([range(0, 0, 8 * KIB)], [range(0, 0, 4 * KIB)]);
    let append = parix::append(&stripe, &ranges, &known, 32 * KIB);
    setting.is_golden("parix_append", append);
    setting.is_golden("parix_commit", parix::commit(&stripe, &ranges, 32 * KIB));
}

#[test]
fn repair_of_a_rotated_code_reads_overlapping_rows_once() {
    let setting = Setting::new("rotated(4,2,2)", MIB, 2);
    let chains = setting.repair(1, 3, Scheme::Pipeline);
    setting.is_golden("repair_pipeline_rotated_4_2_2", chains);
    let star = setting.repair(1, 3, Scheme::Conventional);
    setting.is_golden("repair_conventional_rotated_4_2_2", star);
}
