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
    assert_eq!(savings.len(), 6, "two codes, two others; and by locality");
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
    assert_eq!(report.tables.len(), 4);
    let number = |cell: &Cell| match cell {
        Cell::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    };
    // Grouping moves chunks and spares commits: no rule spares more than commits are.
    for rule in &report.tables[1..3] {
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
    // The causes begin with the setting that is judged, and end with the paper.
    let causes = &report.tables[3].rows;
    assert_eq!(causes.len(), 5);
    let judged: Vec<f64> = report
        .findings
        .iter()
        .take(5)
        .filter_map(|f| f.ours_value)
        .collect();
    let first: Vec<f64> = causes[0][1..].iter().map(number).collect();
    assert_eq!(first, judged);
    assert!((number(&causes[4][1]) - 85.0).abs() < 1e-9);
}

/// Figures of the rule that the paper prints are shown, and those of the authors' decide.
#[test]
fn grouping_is_judged_by_one_rule() {
    let report = quick("CAU-F10");
    assert_eq!(report.readings.len(), 1);
    let (judged, others): (Vec<_>, Vec<_>) =
        report.findings.iter().partition(|f| f.reading.is_none());
    assert_eq!((judged.len(), others.len()), (5, 5));
    assert!(
        judged.iter().all(|f| f.what.ends_with("rule authors")),
        "{judged:?}"
    );
    assert_eq!(
        report.verdict(),
        judged.iter().filter_map(|f| f.verdict).max()
    );
}

#[test]
fn rackcu_never_sends_more_than_the_others() {
    let report = quick("RCU-A1");
    let (savings, _) = findings(&report, "RackCU sends less");
    assert_eq!(
        savings.len(),
        18,
        "four layouts and two sizes, three others"
    );
    assert!(savings.iter().all(|saving| *saving >= 0.0), "{savings:?}");
    let judged = report.findings.iter().filter(|f| f.reading.is_none());
    assert_eq!(judged.count(), 9, "one layout, and its halves");
    let (larger, _) = findings(&report, "RackCU sends less than baseline, larger");
    let (smaller, _) = findings(&report, "RackCU sends less than baseline, smaller");
    assert!(larger[0] >= smaller[0], "more chunks at once spare more");
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
