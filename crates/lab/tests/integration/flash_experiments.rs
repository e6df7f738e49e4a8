//! The experiments on flash on their smallest setting: what they say must be so at any size.

use gabion_lab::experiments::{Cell, Report, Table, Verdict};

/// An experiment with nothing but calibrated workloads.
fn quick(id: &str) -> Report {
    crate::quick::quick(id, None)
}

fn column(table: &Table, name: &str) -> Vec<f64> {
    let at = table
        .columns
        .iter()
        .position(|column| column == name)
        .unwrap();
    let number = |cell: &Cell| match cell {
        Cell::Count(count) => Some(*count as f64),
        Cell::Number(number) => Some(*number),
        Cell::Text(_) => None,
    };
    table
        .rows
        .iter()
        .filter_map(|row| number(&row[at]))
        .collect()
}

#[test]
fn twe_1_tween_writes_nothing_in_part_and_programs_less_than_in_place() {
    let report = quick("TWE-1");
    for finding in &report.findings {
        assert_eq!(finding.verdict, Some(Verdict::Near), "{finding:?}");
    }
    // How much longer SSDs live depends on the volume; the other goals hold for any that is hot.
    assert!(report.goals.len() >= 2);
    for goal in &report.goals {
        let lives_longer = goal.ours_value.is_some_and(|lifetime| lifetime > 1.0);
        assert!(goal.is_met || lives_longer, "{goal:?}");
    }
    let partial = column(&report.tables[0], "partial stripes");
    assert!(partial[0] > 0.0 && partial[1] > 0.0, "in place there are");
    assert_eq!(partial[2..5], [0.0; 3]);
}

#[test]
fn twe_2_tells_groups_apart_by_what_they_move() {
    let report = quick("TWE-2");
    let moved = column(&report.tables[0], "moved %");
    assert_eq!(moved.len(), 5, "one volume, five numbers of groups");
    assert!(moved.iter().all(|&moved| moved > 0.0), "{moved:?}");
    assert!(
        moved.windows(2).any(|pair| pair[0] > pair[1]),
        "more groups move less: {moved:?}"
    );
    let blocks = column(&report.tables[1], "partial blocks");
    assert!(blocks.iter().all(|&count| count == 0.0), "{blocks:?}");
}

#[test]
fn twe_3_fuller_arrays_cost_more() {
    let report = quick("TWE-3");
    let table = &report.tables[0];
    let (used, total) = (column(table, "used %"), column(table, "total WA"));
    // Rows of TWEEN and in place take turns.
    let last = used.len() - 2;
    assert!(used[last] > used[0] + 20.0, "{used:?}");
    assert!(
        total[last] > total[0] && total[last + 1] >= total[1],
        "{total:?}"
    );
}

#[test]
fn twe_4_lazy_collection_stalls_writes_and_files_can_be_measured() {
    let report = quick("TWE-4");
    let stalls = column(&report.tables[0], "stalls");
    let [in_place, active, .., lazy] = stalls[..5] else {
        panic!("five ways to collect: {stalls:?}");
    };
    assert!(in_place <= 0.0, "nothing is collected in place");
    assert!(
        lazy > 20.0 * active.max(1.0),
        "lazy collection begins when a write finds no stripe: {stalls:?}"
    );
    let files = &report.tables[1];
    for contender in ["TWEEN /s", "in place /s"] {
        assert!(column(files, contender).iter().all(|&rate| rate > 0.0));
    }
}

#[test]
fn twe_5_one_ssd_copies_nothing_through_tween() {
    let report = quick("TWE-5");
    let ssd = column(&report.tables[0], "SSD WA");
    assert!(ssd[0] > 1.05, "straight, it copies: {ssd:?}");
    assert!((ssd[1] - 1.0).abs() < 1e-9, "{ssd:?}");
}
