//! All update schemes on traces, against exact counts: those published for a real trace, where it is
//! at hand, and those of counting rules without any planner, always.

use crate::real_traces::open;
use gabion_lab::update_traffic::{self, Layout, Options, Question, Report, SchemeTraffic};
use gabion_lab::{LabError, Request, RequestKind, workload};
use gabion_layout::{ChunkIndex, GroupingRule};
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;
const ALL: [&str; 7] = [
    "baseline",
    "parix",
    "cau",
    "cau-data-delta",
    "cau-parity-delta",
    "cau-selective",
    "rackcu",
];

fn question(code: &str, racks: Option<u32>, layout: &str, chunk_bytes: u64) -> Question {
    Question {
        trace: "test".to_owned(),
        code: code.parse().unwrap(),
        racks,
        layout: layout.parse().unwrap(),
        chunk_bytes,
        schemes: ALL.map(str::to_owned).to_vec(),
        options: Options::default(),
    }
}

fn with_us(mut question: Question, stripes_max: u64) -> Question {
    question.options.stripes_max = stripes_max;
    question
}

fn chunks(report: &Report, scheme: &str) -> u64 {
    report.schemes[scheme].cross_rack_chunks
}

#[test]
fn wdev_1_costs_what_the_analysis_of_cau_says_under_each_scheme() {
    for (code, racks, us, baseline, parix, commit) in [
        ("rs(6,3)", 3, 2, 2400, 2417, 689),
        ("rs(6,3)", 3, 10, 2400, 2417, 10),
        ("rs(6,3)", 3, 20, 2400, 2417, 10),
        ("rs(6,3)", 3, 100, 2400, 2417, 10),
        ("rs(12,4)", 4, 2, 4224, 4252, 905),
        ("rs(12,4)", 4, 10, 4224, 4252, 9),
        ("rs(12,4)", 4, 20, 4224, 4252, 9),
        ("rs(12,4)", 4, 100, 4224, 4252, 9),
    ] {
        let Some(trace) = open("msr/wdev_1.csv") else {
            return;
        };
        let question = with_us(question(code, Some(racks), "rotate", MIB), us);
        let report = update_traffic::count(&question, trace).unwrap();
        let expected = SchemeTraffic {
            cross_rack_chunks: 1056 + commit,
            replica: Some(1056),
            commit: Some(commit),
            grouping: Some(0),
        };
        assert_eq!(report.schemes["cau"], expected, "{code} u_s {us}");
        let found = (chunks(&report, "baseline"), chunks(&report, "parix"));
        assert_eq!(found, (baseline, parix), "{code}");
    }
}

/// The figures of an independent count of the authors' rule.
#[test]
fn wdev_1_costs_what_the_authors_rule_of_grouping_says() {
    for (code, racks, us, commit, grouping) in [
        ("rs(6,3)", 3, 2, 562, 10),
        ("rs(6,3)", 3, 10, 10, 0),
        ("rs(12,4)", 4, 2, 558, 6),
        ("rs(12,4)", 4, 10, 9, 0),
    ] {
        let Some(trace) = open("msr/wdev_1.csv") else {
            return;
        };
        let mut question = with_us(question(code, Some(racks), "rotate", MIB), us);
        question.options.grouping = Some(GroupingRule::Authors);
        let cau = update_traffic::count(&question, trace).unwrap().schemes["cau"];
        let found = (cau.commit, cau.grouping);
        assert_eq!(found, (Some(commit), Some(grouping)), "{code} u_s {us}");
    }
}

#[test]
fn wdev_1_costs_what_the_setting_of_rackcu_says_under_each_scheme() {
    let Some(trace) = open("msr/wdev_1.csv") else {
        return;
    };
    let question = question("rs(12,4)", None, "6x2+2x2", 4096);
    let report = update_traffic::count(&question, trace).unwrap();
    assert_eq!(report.chunk_updates, 1354);
    let found = ["baseline", "parix", "cau-selective", "rackcu"];
    let found = found.map(|scheme| chunks(&report, scheme));
    assert_eq!(found, [5416, 6892, 2708, 2579]);
    let bound = report.bounds["rackcu"];
    assert_eq!((bound.cross_rack_chunks, bound.ratio), (2579, Some(1.0)));
}

#[test]
fn with_parity_in_one_rack_rackcu_is_cau() {
    let Some(trace) = open("msr/wdev_1.csv") else {
        return;
    };
    let question = question("rs(12,4)", None, "3x4+1x4", 4096);
    let report = update_traffic::count(&question, trace).unwrap();
    assert_eq!(chunks(&report, "rackcu"), chunks(&report, "cau-selective"));
    assert_eq!(chunks(&report, "rackcu"), 1354);
}

#[test]
fn the_papers_example_takes_8_chunks_under_rackcu_and_24_under_the_baseline() {
    let code = "rs(6,4)".parse().unwrap();
    let layout: Layout = "3x2+2x2".parse().unwrap();
    let found = update_traffic::bound(&code, layout, None, 0, &[]).unwrap();
    let expected = BTreeMap::from([("baseline", 24), ("cau-selective", 12), ("rackcu", 8)]);
    assert_eq!(found.schemes, expected);
    assert!((found.bound - 8.0).abs() < 1e-9, "{found:?}");
    assert_ne!(found.proof, "cuts");
    let one = update_traffic::bound(&code, layout, None, 0, &[ChunkIndex(3)]).unwrap();
    assert_eq!(one.schemes["rackcu"], 2);
    let parity = update_traffic::bound(&code, layout, None, 0, &[ChunkIndex(6)]);
    let is_named = matches!(
        parity,
        Err(LabError::NoDataChunk {
            chunk: 6,
            last: 5,
            ..
        })
    );
    assert!(is_named);
}

/// Counts by the rules alone, chunk by chunk, for a Reed-Solomon code: `rack(stripe, chunk)` says
/// where chunks are.
struct Rules<R> {
    k: u64,
    n: u64,
    chunk_bytes: u64,
    stripes_max: usize,
    rack: R,
}

impl<R: Fn(u64, u64) -> u64> Rules<R> {
    fn touched(&self, request: &Request) -> impl Iterator<Item = (u64, u64)> + use<R> {
        let (k, size) = (self.k, self.chunk_bytes);
        let last = (request.offset_bytes + request.length_bytes - 1) / size;
        (request.offset_bytes / size..=last).map(move |chunk| (chunk / k, chunk % k))
    }

    fn remote_parities(&self, stripe: u64, data: u64) -> u64 {
        let home = (self.rack)(stripe, data);
        let remote = (self.k..self.n).filter(|&p| (self.rack)(stripe, p) != home);
        remote.count() as u64
    }

    /// Sums a formula of updated chunks in one rack and parity chunks in another over ordered pairs.
    fn over_pairs(&self, stripe: u64, set: &BTreeSet<u64>, formula: fn(u64, u64) -> u64) -> u64 {
        let mut racks: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for &data in set {
            racks.entry((self.rack)(stripe, data)).or_default().0 += 1;
        }
        for parity in self.k..self.n {
            racks.entry((self.rack)(stripe, parity)).or_default().1 += 1;
        }
        let pairs = racks.iter().flat_map(|a| racks.iter().map(move |b| (a, b)));
        let apart = pairs.filter(|(a, b)| a.0 != b.0);
        apart.map(|(a, b)| formula(a.1.0, b.1.1)).sum()
    }

    /// Baseline, PARIX, and the commits under the three selections.
    fn count(&self, requests: &[Request]) -> [u64; 5] {
        let formulas: [fn(u64, u64) -> u64; 3] = [
            u64::min,
            |u, t| u * u64::from(t > 0),
            |u, t| t * u64::from(u > 0),
        ];
        let mut counts = [0; 5];
        let mut known: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut logged: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let commit = |logged: &mut BTreeMap<u64, BTreeSet<u64>>, counts: &mut [u64; 5]| {
            for (stripe, set) in std::mem::take(logged) {
                for (at, formula) in formulas.into_iter().enumerate() {
                    counts[2 + at] += self.over_pairs(stripe, &set, formula);
                }
            }
        };
        for request in requests.iter().filter(|r| r.kind == RequestKind::Write) {
            for (stripe, data) in self.touched(request) {
                let remote = self.remote_parities(stripe, data);
                counts[0] += remote;
                counts[1] += remote * if known.insert((stripe, data)) { 2 } else { 1 };
                if !logged.contains_key(&stripe) && logged.len() == self.stripes_max {
                    commit(&mut logged, &mut counts);
                }
                logged.entry(stripe).or_default().insert(data);
            }
        }
        commit(&mut logged, &mut counts);
        counts
    }
}

fn check_rules(
    (k, m): (u64, u64),
    racks: Option<u32>,
    layout: &str,
    chunk_bytes: u64,
    rack: impl Fn(u64, u64) -> u64,
) {
    let requests: Vec<Request> = workload::wdev_1(1).requests().collect();
    for stripes_max in [1, 3, 50] {
        let rules = Rules {
            k,
            n: k + m,
            chunk_bytes,
            stripes_max,
            rack: &rack,
        };
        let question = question(&format!("rs({k},{m})"), racks, layout, chunk_bytes);
        let question = with_us(question, stripes_max as u64);
        let report = update_traffic::count(&question, requests.iter().copied().map(Ok)).unwrap();
        let commit = |scheme: &str| report.schemes[scheme].commit.unwrap();
        let found = [
            chunks(&report, "baseline"),
            chunks(&report, "parix"),
            commit("cau"),
            commit("cau-data-delta"),
            commit("cau-parity-delta"),
        ];
        assert_eq!(found, rules.count(&requests), "{layout} u_s {stripes_max}");
        assert_eq!(report.schemes["cau"].replica, Some(report.chunk_updates));
        for (scheme, bound) in &report.bounds {
            assert!(
                bound.cross_rack_chunks <= chunks(&report, scheme),
                "{scheme}"
            );
        }
        let rackcu = report.bounds["rackcu"];
        assert!(!rackcu.is_exact || rackcu.ratio == Some(1.0));
    }
}

#[test]
fn rotation_agrees_with_the_rules() {
    check_rules((6, 3), Some(3), "rotate", 4096, |s, j| (s + j) % 9 / 3);
    check_rules((12, 4), Some(4), "rotate", 64 << 10, |s, j| {
        (s + j) % 16 / 4
    });
}

#[test]
fn data_racks_and_parity_racks_apart_agree_with_the_rules() {
    let rack = |_, j| if j < 12 { j / 2 } else { 6 + (j - 12) / 2 };
    check_rules((12, 4), None, "6x2+2x2", 4096, rack);
}

#[test]
fn grouping_by_algorithm_1_never_moves_a_chunk_of_rs_6_3_on_three_racks() {
    let requests: Vec<Request> = workload::wdev_1(1).requests().collect();
    let mut question = with_us(question("rs(6,3)", Some(3), "rotate", 4096), 2);
    let count = |question: &Question| {
        update_traffic::count(question, requests.iter().copied().map(Ok)).unwrap()
    };
    let without = count(&question).schemes["cau"];
    question.options.grouping = Some(GroupingRule::Algorithm1);
    assert_eq!(count(&question).schemes["cau"], without);
}

/// Two chunks in two racks of a stripe are written again and again: moving one of them costs two
/// transfers once, and halves every later commit.
#[test]
fn grouping_pays_when_the_same_chunks_come_back() {
    let write = |at_ticks, chunk: u64| Request {
        at_ticks,
        kind: RequestKind::Write,
        offset_bytes: chunk * 4096,
        length_bytes: 4096,
    };
    // Chunks 0 and 4 of two stripes in turn: with a u_s of 1 each turn is a commit.
    let rounds = (0..10).flat_map(|round| [0, 4, 80, 84].map(|chunk| write(round, chunk)));
    let requests: Vec<Request> = rounds.collect();
    // Two racks of four data chunks, four racks of one parity chunk.
    let mut question = with_us(question("rs(8,4)", None, "2x4+4x1", 4096), 1);
    let count = |question: &Question| {
        let report = update_traffic::count(question, requests.iter().copied().map(Ok)).unwrap();
        let cau = report.schemes["cau"];
        (cau.replica, cau.commit, cau.grouping)
    };
    assert_eq!(count(&question), (Some(40), Some(20 * 8), Some(0)));
    for rule in [GroupingRule::Algorithm1, GroupingRule::Authors] {
        question.options.grouping = Some(rule);
        let expected = (Some(40), Some(2 * 8 + 18 * 4), Some(2 * 2));
        assert_eq!(count(&question), expected, "{rule}");
    }
}
