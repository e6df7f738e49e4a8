//! The statistics of whole volumes to the last digit that Table 3.2 of the thesis prints.

use gabion_lab::stats::Stats;

fn check(path: &str, writes: u64, expected: [&str; 4]) {
    let Some(trace) = crate::real_traces::open(path) else {
        return;
    };
    let stats = Stats::of(trace).unwrap();
    let printed = [
        format!("{:.4}", stats.working_set_gib()),
        format!("{:.2}", stats.updated_working_set_pct()),
        format!("{:.2}", stats.update_writes_pct()),
        format!("{:.2}", stats.updated_sectors_pct()),
    ];
    assert_eq!(stats.writes, writes, "{path}");
    assert_eq!(printed, expected, "{path}");
}

#[test]
fn rsrch_1_has_the_row_that_the_table_prints() {
    check(
        "msr/rsrch_1.csv",
        13_738,
        ["0.1080", "10.42", "32.27", "4.66"],
    );
}

#[test]
fn wdev_1_has_the_row_that_the_table_prints() {
    check("msr/wdev_1.csv", 1055, ["0.0014", "3.52", "72.71", "3.52"]);
}

#[test]
fn the_virtual_disk_of_cloud_physics_is_read_to_its_end() {
    let Some(trace) = crate::real_traces::open("cloudphysics/cloudPhysicsIO.csv.gz") else {
        return;
    };
    assert_eq!(trace.format().to_string(), "msr");
    assert_eq!(trace.map(Result::unwrap).count(), 113_872);
}
