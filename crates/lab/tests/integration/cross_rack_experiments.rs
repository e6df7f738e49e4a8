//! The experiments of CAU and `RackCU` that need no cluster, on their smallest setting: what they say
//! must be so at any size.

use gabion_lab::experiments::{Cell, Report, Verdict};

/// Runs an experiment on its quick setting, without traces.
fn quick(id: &str) -> Report {
    let report = crate::quick::quick(id, None);
    assert!(!report.scaled.is_empty(), "{id} says what is smaller");
    report
}

/// The findings whose name begins so: their numbers, and whether all are near.
fn findings(report: &Report, what: &str) -> (Vec<f64>, bool) {
    let found: Vec<_> = report
        .findings
        .iter()
        .filter(|f| f.what.starts_with(what))
        .collect();
    assert!(
        !found.is_empty(),
        "no finding {what} in {:#?}",
        report.findings
    );
    let numbers = found
        .iter()
        .filter_map(|finding| finding.ours_value)
        .collect();
    (
        numbers,
        found
            .iter()
            .all(|finding| finding.verdict == Some(Verdict::Near)),
    )
}

#[test]
fn figure_5_is_as_printed() {
    let report = quick("CAU-F5");
    assert!(findings(&report, "").1, "{:#?}", report.findings);
}

#[test]
fn cau_sends_less_than_baseline_and_parix() {
    let report = quick("CAU-F8");
    let (savings, _) = findings(&report, "CAU sends less");
    assert_eq!(savings.len(), 4);
    assert!(savings.iter().all(|saving| *saving > 0.0), "{savings:?}");
}

#[test]
fn selective_commits_never_send_more_than_one_kind_of_delta() {
    let report = quick("CAU-F9");
    assert!(findings(&report, "selective commits never").1);
}

#[test]
fn grouping_is_counted_under_both_rules() {
    let report = quick("CAU-F10");
    assert_eq!(report.tables.len(), 3);
    let number = |cell: &Cell| match cell {
        Cell::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    };
    // Grouping moves chunks and spares commits: no rule spares more than commits are.
    for rule in &report.tables[1..] {
        for (commits, savings) in report.tables[0].rows.iter().zip(&rule.rows) {
            assert_eq!(commits[0], savings[0], "the same volume");
            for (share, saving) in commits[1..].iter().zip(&savings[1..]) {
                assert!(number(saving) <= number(share), "{commits:?} {savings:?}");
            }
        }
    }
    let (worst, _) = findings(&report, "worst case of grouping");
    let (best, _) = findings(&report, "most that grouping spares");
    assert!(best.iter().all(|best| *best >= worst[0].min(worst[1])));
}

#[test]
fn rackcu_never_sends_more_than_the_others() {
    let report = quick("RCU-A1");
    let (savings, _) = findings(&report, "RackCU sends less");
    assert_eq!(savings.len(), 12, "four layouts, three others");
    assert!(savings.iter().all(|saving| *saving >= 0.0), "{savings:?}");
    let (savings, _) = findings(&quick("RCU-A2"), "RackCU sends less");
    assert!(savings.iter().all(|saving| *saving > 0.0), "{savings:?}");
}

#[test]
fn baseline_and_parix_do_not_care_for_the_number_of_racks() {
    let report = quick("RCU-A3");
    assert!(findings(&report, "baseline").1 && findings(&report, "parix").1);
}

#[test]
fn the_worked_example_is_as_printed() {
    let report = quick("RCU-EX");
    let (chunks, is_exact) = findings(&report, "");
    assert_eq!(chunks, [24.0, 10.0, 8.0, 8.0]);
    assert!(is_exact, "{:#?}", report.findings);
}
