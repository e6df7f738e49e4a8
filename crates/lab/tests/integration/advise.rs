//! The adviser on a trace whose costs and waits can be told by hand.

use gabion_lab::advise::{AdviceQuestion, Choice, Placement, Terms, Unit, advise, usual_codes};
use gabion_lab::update_traffic::{self, Layout, Options, Pace, Question};
use gabion_lab::{LabError, Request, RequestKind, workload};
use gabion_layout::{AppendSpec, GroupingRule};
use std::collections::BTreeMap;

const HOUR_TICKS: u64 = 36_000_000_000;

/// Two hours apart, the first chunk of one stripe after another, then of the first one again.
fn requests() -> impl Iterator<Item = Result<Request, LabError>> {
    let stripe_bytes = 6 * 4096;
    let write = |(hour, stripe): (u64, u64)| Request {
        at_ticks: hour * HOUR_TICKS,
        kind: RequestKind::Write,
        offset_bytes: stripe * stripe_bytes,
        length_bytes: 4096,
    };
    [(0, 0), (2, 1), (4, 2), (6, 0)]
        .map(write)
        .into_iter()
        .map(Ok)
}

fn question(survive: &str) -> AdviceQuestion {
    AdviceQuestion {
        trace: "four".to_owned(),
        racks: 3,
        placement: Placement::Rotate,
        codes: vec!["rs(6,3)".parse().unwrap()],
        chunk_bytes: vec![4096],
        unit: Unit::Chunks,
        terms: Terms {
            survive: survive.parse().unwrap(),
            schemes: ["baseline", "cau"].map(str::to_owned).to_vec(),
            append: AppendSpec {
                stripes_max: 2,
                ..AppendSpec::default()
            },
            pace: Pace::Trace,
            reserved_share: None,
        },
    }
}

fn advice(question: &AdviceQuestion) -> Vec<Choice> {
    advise(question, || Ok(requests())).unwrap()
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

#[test]
fn in_chunks_waits_are_from_the_first_update_to_the_commit() {
    let choices = advice(&question("2-nodes"));
    assert_eq!(choices.len(), 2);
    let choice = |scheme| {
        choices
            .iter()
            .find(|choice| choice.scheme == scheme)
            .unwrap()
    };
    let (cau, baseline) = (choice("cau"), choice("baseline"));
    // Stripes 0 and 1 are committed at hour 4, after 4 and 2 hours, when stripe 2 comes. Stripes 2 and
    // 0 follow at the end, hour 6, after 2 and 0 hours.
    close(cau.longest_wait_hours, 4.0);
    close(cau.exposure_hours, 8.0);
    assert_eq!(
        (baseline.exposure_hours, baseline.longest_wait_hours),
        (0.0, 0.0)
    );
    assert!(cau.loss_probability > baseline.loss_probability);
    close(baseline.storage, 1.5);
    // Chunk 0 is in rack 0, where stripe 0 has no parity chunk, stripe 1 has one and stripe 2 two.
    assert_eq!(baseline.cross_rack_bytes, (3 + 2 + 1 + 3) * 4096);
    close(baseline.amplification, 2.25);
}

#[test]
fn stored_bytes_have_the_reserves_of_schemes_that_reserve_space() {
    let mut question = question("2-nodes");
    let schemes = ["baseline", "fo", "plr", "rackcu", "cau"];
    question.terms.schemes = schemes.map(str::to_owned).to_vec();
    let stored = |question: &AdviceQuestion| {
        let choices = advice(question).into_iter();
        let stored = choices.map(|choice| (choice.scheme, (choice.storage, choice.reserved)));
        stored.collect::<BTreeMap<_, _>>()
    };
    let first = stored(&question);
    for scheme in ["baseline", "fo", "cau"] {
        close(first[scheme].0, 1.5);
        close(first[scheme].1, 0.0);
    }
    for scheme in ["plr", "rackcu"] {
        // A chunk is reserved behind each of three parity chunks, for six of data.
        close(first[scheme].0, 2.0);
        close(first[scheme].1, 0.5);
    }
    question.terms.reserved_share = Some(0.125);
    let learnt = stored(&question);
    close(learnt["plr"].0, 1.625);
    close(learnt["fo"].0, 1.5);
}

/// Half a chunk is written each time, and each stripe has a primary of its own: chunk 0 of stripe `s` is on node `s`.
#[test]
fn in_bytes_the_written_ranges_count_and_each_primary_has_limits_of_its_own() {
    let mut question = question("2-nodes");
    question.unit = Unit::Bytes;
    let half = |request: Result<Request, LabError>| {
        request.map(|request| Request {
            offset_bytes: request.offset_bytes + 512,
            length_bytes: 2048,
            ..request
        })
    };
    let by_bytes = |question: &AdviceQuestion| {
        let choices = advise(question, || Ok(requests().map(half))).unwrap();
        let found = |name| choices.iter().find(|choice| choice.scheme == name).cloned();
        (found("baseline").unwrap(), found("cau").unwrap())
    };
    question.terms.append.age_max_s = u64::MAX / 1000;
    let (baseline, cau) = by_bytes(&question);
    assert_eq!(baseline.cross_rack_bytes, (3 + 2 + 1 + 3) * 2048);
    // No primary has more than one stripe, so all are committed at hour 6: after 6, 4 and 2 hours.
    close(cau.longest_wait_hours, 6.0);
    close(cau.exposure_hours, 12.0);
    // A replica in another rack for each write, and one delta to another rack for each commit.
    assert_eq!(cau.cross_rack_bytes, (4 + 3) * 2048);
    // With an age of an hour the second write to stripe 0 comes after a commit.
    question.terms.append.age_max_s = 3600;
    let (_, cau) = by_bytes(&question);
    assert_eq!(cau.cross_rack_bytes, (4 + 4) * 2048);
    // Each is committed an hour after its first update, and the last at the trace's end, at once.
    close(cau.longest_wait_hours, 1.0);
    close(cau.exposure_hours, 3.0);
    question.terms.pace = Pace::Fast;
    let (_, cau) = by_bytes(&question);
    assert_eq!(cau.cross_rack_bytes, (4 + 3) * 2048);
}

const LARGE_CHUNK: u64 = 16 << 20;

/// Bytes that a scheme sends for writes, two hours apart, to chunk 2 of stripe 1. It is in rack 1 without parity; rack
/// 2 has data chunk 5 and two parity chunks, and rack 0 the third.
fn sent_for_a_lone_chunk(scheme: &str, grouping: Option<GroupingRule>, lengths: &[u64]) -> u128 {
    let mut question = question("2-nodes");
    question.unit = Unit::Bytes;
    question.chunk_bytes = vec![LARGE_CHUNK];
    question.terms.schemes = vec![scheme.to_owned()];
    question.terms.append.grouping = grouping;
    let write = |(turn, &length_bytes): (u64, &u64)| {
        Ok(Request {
            at_ticks: 2 * turn * HOUR_TICKS,
            kind: RequestKind::Write,
            offset_bytes: (6 + 2) * LARGE_CHUNK,
            length_bytes,
        })
    };
    let requests = || Ok((0..).zip(lengths).map(write));
    advise(&question, requests).unwrap()[0].cross_rack_bytes
}

#[test]
fn in_bytes_exchanges_of_grouping_count_and_later_commits_find_chunks_at_their_new_places() {
    let sent = |scheme, grouping| sent_for_a_lone_chunk(scheme, grouping, &[2048; 3]);
    // A replica for each write, and a delta to each of two racks for each of three commits.
    assert_eq!(sent("cau", None), (3 + 6) * 2048);
    // The first commit sends as much. Chunks 2 and 5 then change places, so later commits send one delta each.
    let (authors, exchange) = (Some(GroupingRule::Authors), 2 * u128::from(LARGE_CHUNK));
    assert_eq!(sent("cau", authors), (3 + 2 + 1 + 1) * 2048 + exchange);
    // Algorithm 1 never moves a lone chunk, and no other scheme groups.
    let algorithm_1 = Some(GroupingRule::Algorithm1);
    assert_eq!(sent("cau", algorithm_1), sent("cau", None));
    for scheme in ["parix", "rackcu"] {
        assert_eq!(sent(scheme, authors), sent(scheme, None));
    }
}

/// Updates of more than 7.75 MiB do not fit into append logs. Equal ones are planned once at each place of a chunk.
#[test]
fn in_bytes_large_updates_are_made_at_the_new_places_too() {
    let large = 8 << 20;
    let lengths = [large, 2048, large, large];
    let of_large = |grouping| {
        let all = sent_for_a_lone_chunk("cau", grouping, &lengths);
        all - sent_for_a_lone_chunk("cau", grouping, &[2048])
    };
    // A delta for each parity chunk in another rack.
    assert_eq!(of_large(None), (3 + 3 + 3) * u128::from(large));
    let grouped = of_large(Some(GroupingRule::Authors));
    assert_eq!(grouped, (3 + 1 + 1) * u128::from(large));
}

#[test]
fn in_chunks_grouping_is_that_of_update_traffic() {
    let requests = || workload::wdev_1(1).requests().map(Ok);
    let bytes = |grouping| {
        let mut question = question("2-nodes");
        question.terms.schemes = vec!["cau".to_owned()];
        question.terms.append.grouping = grouping;
        let choices = advise(&question, || Ok(requests())).unwrap();
        let counted = Question {
            trace: question.trace,
            code: question.codes[0].clone(),
            racks: Some(question.racks),
            layout: Layout::Rotate,
            chunk_bytes: 4096,
            schemes: question.terms.schemes,
            options: Options {
                stripes_max: 2,
                replicas: 1,
                grouping,
            },
        };
        let report = update_traffic::count(&counted, requests()).unwrap();
        let chunks = report.schemes["cau"].cross_rack_chunks;
        assert_eq!(choices[0].cross_rack_bytes, u128::from(chunks) * 4096);
        chunks
    };
    assert_ne!(bytes(None), bytes(Some(GroupingRule::Authors)));
}

#[test]
fn the_fewest_bytes_come_first() {
    let choices = advice(&question("1-rack"));
    let is_sorted = choices.is_sorted_by_key(|choice| choice.cross_rack_bytes);
    assert!(is_sorted, "{choices:#?}");
    assert!(choices.iter().all(|choice| choice.exposure_hours == 0.0));
}

#[test]
fn codes_that_break_the_promise_are_left_out_and_at_least_one_must_be_left() {
    let mut question = question("3-nodes");
    question.codes = ["rs(4,2)", "rs(6,3)"]
        .map(|code| code.parse().unwrap())
        .to_vec();
    assert!(
        advice(&question)
            .iter()
            .all(|choice| choice.code == "rs(6,3)")
    );
    question.codes.pop();
    let error = advise(&question, || Ok(requests())).unwrap_err();
    assert!(error.to_string().contains("too few for 3-nodes"), "{error}");
}

#[test]
fn usual_codes_fill_the_racks_and_survive_one() {
    let codes: Vec<String> = usual_codes(4).iter().map(ToString::to_string).collect();
    assert_eq!(codes, ["rs(6,2)", "rs(9,3)", "rs(12,4)"]);
}

#[test]
fn a_trace_without_writes_is_refused() {
    for unit in [Unit::Bytes, Unit::Chunks] {
        let question = AdviceQuestion {
            unit,
            ..question("1-rack")
        };
        let error = advise(&question, || Ok(std::iter::empty())).unwrap_err();
        let expected = format!("{}: none of its 0 requests is a write", question.trace);
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

/// On as many nodes as a stripe has chunks, one a rack, each update of a chunk goes to `m` other racks wherever pools
/// place it; on larger racks it depends on the placement.
#[test]
fn advice_for_pools_has_an_interval_as_wide_as_placements_differ() {
    let on = |racks, nodes_per_rack, survive: &str| {
        let seeds = 6;
        let mut question = AdviceQuestion {
            racks,
            placement: Placement::Pools {
                nodes_per_rack,
                seeds,
            },
            unit: Unit::Bytes,
            chunk_bytes: vec![64 << 10],
            ..question(survive)
        };
        question.terms.schemes = ["fo", "rackcu"].map(str::to_owned).to_vec();
        let requests = || workload::wdev_1(1).requests().map(Ok);
        let choices = advise(&question, || Ok(requests())).unwrap();
        let choice = |scheme| choices.iter().find(|c| c.scheme == scheme).unwrap().clone();
        (choice("fo"), choice("rackcu"))
    };
    let (fixed, _) = on(9, 1, "1-rack");
    let written: u64 = workload::wdev_1(1)
        .requests()
        .filter(|request| request.kind == RequestKind::Write)
        .map(|request| request.length_bytes)
        .sum();
    assert_eq!(fixed.cross_rack_bytes, u128::from(3 * written));
    assert_eq!(fixed.interval_bytes, Some([3 * written, 3 * written]));
    let (random, grouped) = on(3, 4, "1-rack");
    let mean = random.cross_rack_bytes as u64;
    let [low, high] = random.interval_bytes.unwrap();
    assert!(low < mean && mean < high, "{random:?}");
    assert!(mean < 3 * written, "{random:?}");
    // The scheme keeps parity in one rack, so that less crosses.
    assert!(
        grouped.cross_rack_bytes < random.cross_rack_bytes,
        "{grouped:?}"
    );
    let refused = AdviceQuestion {
        placement: Placement::Pools {
            nodes_per_rack: 2,
            seeds: 2,
        },
        ..question("1-rack")
    };
    let error = advise(&refused, || Ok(requests())).unwrap_err();
    assert!(matches!(error, LabError::Plan(_)), "{error}");
}
