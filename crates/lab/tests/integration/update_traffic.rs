//! The update-traffic experiment against exact counts: those published for real traces, where the
//! traces are at hand, and those of a brute-force count of racks, always.

use crate::real_traces::open;
use gabion_codec::Code;
use gabion_lab::update_traffic::{self, Layout, Options, Question, Report};
use gabion_lab::workload;
use gabion_lab::{LabError, Request, RequestKind};

fn question(
    trace: &str,
    code: &str,
    racks: Option<u32>,
    layout: &str,
    chunk_bytes: u64,
) -> Question {
    Question {
        trace: trace.to_owned(),
        code: code.parse().unwrap(),
        racks,
        layout: layout.parse().unwrap(),
        chunk_bytes,
        schemes: vec!["baseline".to_owned()],
        options: Options::default(),
    }
}

fn baseline(report: &Report) -> u64 {
    report.schemes["baseline"].cross_rack_chunks
}

fn check_golden(
    code: &str,
    racks: Option<u32>,
    layout: &str,
    chunk_bytes: u64,
    expected: (u64, u64),
) {
    let Some(trace) = open("msr/wdev_1.csv") else {
        return;
    };
    let question = question("wdev_1", code, racks, layout, chunk_bytes);
    let report = update_traffic::count(&question, trace).unwrap();
    assert_eq!(
        (report.chunk_updates, baseline(&report)),
        expected,
        "{code} {layout}"
    );
    assert_eq!(report.writes, 1055);
}

const MIB: u64 = 1 << 20;

#[test]
fn wdev_1_costs_what_the_analysis_of_cau_says() {
    check_golden("rs(6,3)", Some(3), "rotate", MIB, (1056, 2400));
    check_golden("rs(12,4)", Some(4), "rotate", MIB, (1056, 4224));
}

#[test]
fn wdev_1_costs_what_the_setting_of_rackcu_says() {
    check_golden("rs(12,4)", None, "6x2+2x2", 4096, (1354, 5416));
}

#[test]
fn every_real_trace_reads_to_its_end() {
    for (path, rows) in [
        ("msr/wdev_1.csv", 1055),
        ("msr/rsrch_1.csv", 13780),
        ("msr/hm_0.part7016.csv.gz", 7016),
        ("msr/hm_1.writes13069.csv.gz", 13069),
        ("cloudphysics/cloudPhysicsIO.csv.gz", 113_872),
    ] {
        let Some(trace) = open(path) else { continue };
        assert_eq!(trace.map(Result::unwrap).count(), rows, "{path}");
    }
}

/// A stream with reads, unaligned writes, writes over several chunks and stripes, and far offsets.
fn mixed_requests() -> Vec<Request> {
    // A linear congruential generator is enough to scatter requests, and independent of the lab's.
    let mut state = 0x5eed_u64;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    (0..400)
        .map(|at| Request {
            at_ticks: at,
            kind: if next(4) == 0 {
                RequestKind::Read
            } else {
                RequestKind::Write
            },
            offset_bytes: next(1 << 24) * 131 + next(2) * (1 << 60),
            length_bytes: 1 + next(40_000),
        })
        .collect()
}

/// Whether a change of data chunk `data` changes parity chunk `parity` at all.
fn changes(code: &Code, data: u64, parity: u64) -> bool {
    let rows = || 0..code.sub_chunks();
    let cell = |to, from| code.coefficient(parity as usize, to, data as usize, from);
    rows().any(|to| rows().any(|from| cell(to, from) != 0))
}

/// Counts chunk updates, and changed parity chunks in other racks than the updated chunk, byte
/// address by byte address, with racks given by `rack(stripe, chunk)`.
fn brute_force(
    requests: &[Request],
    code: &Code,
    chunk_bytes: u64,
    rack: impl Fn(u64, u64) -> u64,
) -> (u64, u64) {
    let (k, n) = (code.k() as u64, code.n() as u64);
    let (mut updates, mut transfers) = (0, 0);
    for request in requests.iter().filter(|r| r.kind == RequestKind::Write) {
        let mut last_chunk = None;
        for byte in request.offset_bytes..request.offset_bytes + request.length_bytes {
            let chunk = byte / chunk_bytes;
            if last_chunk == Some(chunk) {
                continue;
            }
            last_chunk = Some(chunk);
            updates += 1;
            let (stripe, data) = (chunk / k, chunk % k);
            let home = rack(stripe, data);
            let crossing = |parity: &u64| rack(stripe, *parity) != home;
            let parities = (k..n).filter(|&parity| changes(code, data, parity));
            transfers += parities.filter(crossing).count() as u64;
        }
    }
    (updates, transfers)
}

/// Checks a scattered stream, and the synthetic twin of the volume of the published counts.
fn check_brute_force(
    code: &str,
    racks: Option<u32>,
    layout: &str,
    chunk_bytes: u64,
    rack: impl Fn(u64, u64) -> u64,
) {
    let twin: Vec<Request> = workload::wdev_1(1).requests().collect();
    for (name, requests) in [("mixed", mixed_requests()), ("twin", twin)] {
        let question = question(name, code, racks, layout, chunk_bytes);
        let report = update_traffic::count(&question, requests.iter().copied().map(Ok)).unwrap();
        let expected = brute_force(&requests, &question.code, chunk_bytes, &rack);
        let found = (report.chunk_updates, baseline(&report));
        assert_eq!(found, expected, "{name} {code} {layout}");
        assert!(
            expected.1 > 0 && expected.0 >= report.writes,
            "{name} is worth counting"
        );
    }
}

#[test]
fn rotation_agrees_with_brute_force() {
    for chunk_bytes in [512, 4096, MIB] {
        check_brute_force("rs(6,3)", Some(3), "rotate", chunk_bytes, |s, j| {
            (s + j) % 9 / 3
        });
        check_brute_force("rs(12,4)", Some(4), "rotate", chunk_bytes, |s, j| {
            (s + j) % 16 / 4
        });
        check_brute_force("rs(4,2)", Some(6), "rotate", chunk_bytes, |s, j| {
            (s + j) % 6
        });
    }
}

#[test]
fn array_codes_move_whole_chunks() {
    check_brute_force("rdp(4)", Some(3), "rotate", 4096, |s, j| (s + j) % 6 / 2);
    check_brute_force("evenodd(4)", Some(3), "rotate", 4096, |s, j| {
        (s + j) % 6 / 2
    });
}

#[test]
fn parities_that_a_chunk_is_not_in_get_nothing() {
    check_brute_force("lrc(4,2,2)", Some(4), "rotate", 4096, |s, j| {
        (s + j) % 8 / 2
    });
}

#[test]
fn data_racks_and_parity_racks_apart_agree_with_brute_force() {
    let rack = |_, j| if j < 12 { j / 2 } else { 6 + (j - 12) / 2 };
    check_brute_force("rs(12,4)", None, "6x2+2x2", 4096, rack);
    check_brute_force("rs(12,4)", Some(4), "3x4+1x4", 4096, |_, j| j / 4);
}

#[test]
fn random_layouts_agree_with_brute_force_over_their_placements() {
    let layout: Layout = "random:7".parse().unwrap();
    let question = question("mixed", "rs(6,3)", Some(3), "random:7", 4096);
    let geometry = gabion_layout::Geometry::new(6, 3, 1, 4096).unwrap();
    let stripes =
        update_traffic::Stripes::new(question.code.clone(), geometry, layout, Some(3)).unwrap();
    check_brute_force("rs(6,3)", Some(3), "random:7", 4096, |s, j| {
        u64::from(stripes.placement(s).unwrap()[j as usize].0) / 3
    });
}

#[test]
fn in_one_rack_nothing_crosses() {
    let question = question("mixed", "rs(6,3)", Some(1), "rotate", 4096);
    let report = update_traffic::count(&question, mixed_requests().into_iter().map(Ok)).unwrap();
    assert_eq!(baseline(&report), 0);
    assert!(report.chunk_updates > 0);
}

#[test]
fn the_json_form_begins_with_the_agreed_fields() {
    let write = Request {
        at_ticks: 0,
        kind: RequestKind::Write,
        offset_bytes: 4095,
        length_bytes: 2,
    };
    let question = question("two", "rs(6,3)", Some(9), "rotate", 4096);
    let report = update_traffic::count(&question, [Ok(write)]).unwrap();
    assert_eq!(
        serde_json::to_string(&report).unwrap(),
        "{\"trace\":\"two\",\"chunk_updates\":2,\
         \"schemes\":{\"baseline\":{\"cross_rack_chunks\":6}},\
         \"code\":\"rs(6,3)\",\"racks\":9,\"layout\":\"rotate\",\"chunk_bytes\":4096,\"writes\":1,\
         \"bounds\":{\"baseline\":{\"cross_rack_chunks\":4,\"is_exact\":true,\"ratio\":1.5}}}"
    );
}

#[test]
fn questions_without_an_answer_are_refused() {
    let mut wrong = question("none", "rs(6,3)", Some(3), "rotate", 4096);
    wrong.schemes = vec!["tortoise".to_owned()];
    let message = update_traffic::count(&wrong, []).unwrap_err().to_string();
    let first =
        "there is no update scheme 'tortoise'; choose from baseline, fo, fl, pl, plr, parix";
    let last = ", cau-data-delta, cau-parity-delta";
    assert!(
        message.starts_with(first) && message.ends_with(last),
        "{message}"
    );
    wrong.schemes.clear();
    let message = update_traffic::count(&wrong, []).unwrap_err().to_string();
    let expected = "no update scheme given; choose from baseline, fo, fl, pl, plr, parix";
    assert!(message.starts_with(expected), "{message}");

    for chunk_bytes in [0, 511, (1 << 30) + 1, u64::MAX] {
        let odd = question("none", "rs(6,3)", Some(3), "rotate", chunk_bytes);
        let message = update_traffic::count(&odd, []).unwrap_err().to_string();
        assert!(message.contains("use 512 to 1073741824"), "{message}");
    }

    let fine = question("none", "rs(6,3)", Some(3), "rotate", 4096);
    let bad = LabError::Target("stands for any error".to_owned());
    let error = update_traffic::count(&fine, [Err(bad)]).unwrap_err();
    assert!(matches!(error, LabError::Target(_)));
}
