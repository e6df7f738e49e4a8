//! The experiments of EAR on their smallest setting: what they say must be so at any size.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod quick;

use gabion_lab::experiments::{Cell, Report, experiment, registry};

/// Runs an experiment on its quick setting, without traces.
fn quick(id: &str) -> Report {
    let report = quick::quick(id, None);
    assert!(!report.scaled.is_empty(), "{id} says what is smaller");
    report
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(number) => *number,
        Cell::Count(count) => *count as f64,
        Cell::Text(text) => panic!("'{text}' is no number"),
    }
}

/// Encode gain and write gain of each row of the first table.
fn gains(report: &Report) -> Vec<(f64, f64)> {
    let rows = report.tables[0].rows.iter();
    rows.map(|row| (number(&row[3]), number(&row[8]))).collect()
}

/// More than the gain of the paper's worst point is not asked of two seeds and a few stripes.
#[test]
fn ear_encodes_faster_in_every_part_of_figure_13() {
    let ids: Vec<&str> = registry()
        .iter()
        .map(|e| e.id)
        .filter(|id| id.starts_with("EAR-F13"))
        .collect();
    assert_eq!(ids.len(), 6);
    for id in ids {
        let report = quick(id);
        let gains = gains(&report);
        assert_eq!(gains.len(), 1, "{id}");
        assert!(gains[0].0 > 20.0, "{id}: {gains:?}");
        assert_eq!(report.plots.len(), 2);
    }
}

#[test]
fn figure_13a_says_what_the_open_choices_do() {
    let report = quick("EAR-F13a");
    let choices = &report.tables[1].rows;
    assert_eq!(choices.len(), 11);
    for row in choices {
        assert!(
            number(&row[1]) > 0.0,
            "EAR encodes faster, whatever is chosen: {row:?}"
        );
    }
    assert_ne!(choices[0][1..], choices[1][1..], "a choice has an effect");
}

#[test]
fn equal_seeds_give_equal_reports_on_any_number_of_processors() {
    assert_eq!(quick("EAR-F13c"), quick("EAR-F13c"));
    assert_eq!(experiment("ear-f13C").unwrap().id, "EAR-F13c");
}

#[test]
fn replicas_and_reads_are_as_even_as_random_replications() {
    let report = quick("EAR-C1");
    assert_eq!(report.tables[0].rows.len(), 20);
    quick::check_findings(&report);
    quick::check_findings(&quick("EAR-C2"));
}

#[test]
fn layouts_keep_the_bound_and_send_no_data_across_racks() {
    let report = quick("EAR-LAYOUTS");
    quick::check_findings(&report);
    for row in &report.tables[1].rows {
        assert!(
            number(&row[2]) <= number(&row[3]),
            "a matching moves the fewest: {row:?}"
        );
    }
    let crossing: Vec<f64> = report.tables[2]
        .rows
        .iter()
        .map(|row| number(&row[2]))
        .collect();
    let [random, .., flat, two, four] = crossing[..] else {
        panic!("{crossing:?}");
    };
    assert!(
        random > flat && flat > two && two >= four && four < 0.5,
        "{crossing:?}"
    );
}

#[test]
fn stripes_within_their_rack_limit_live_longer() {
    assert_eq!(quick("EAR-LIVES").findings[0].is_reached, Some(true));
}
