//! Calibrated workloads against the rows that they are calibrated to, with the counting rules that
//! reproduce those rows on the real volumes.

use gabion_lab::stats::StatsCount;
use gabion_lab::workload::{self, HARVARD, SizeShare, Target, VOLUMES, Workload};
use gabion_lab::{Request, Stats};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::num::NonZeroU64;

fn stats(requests: impl Iterator<Item = Request>) -> Stats {
    Stats::of(requests.map(Ok::<_, Infallible>)).unwrap()
}

/// Tolerances: 2 % of the working set, and a quarter of a point of both shares; the number of writes
/// is exact.
fn check_near(name: &str, target: &Target, stats: &Stats) {
    let [set, marked, updates] = [
        stats.working_set_gib() / target.working_set_gib - 1.0,
        stats.updated_working_set_pct() - target.updated_working_set_pct,
        stats.update_writes_pct() - target.update_writes_pct,
    ];
    println!(
        "{name}: working set {:+.2} %, updated {marked:+.3}, updates {updates:+.3}",
        set * 100.0
    );
    assert_eq!(stats.writes, target.writes, "{name}");
    assert!(
        set.abs() < 0.02,
        "{name}: working set off by {set}: {stats:?}"
    );
    assert!(
        marked.abs() < 0.25,
        "{name}: updated working set off by {marked}: {stats:?}"
    );
    assert!(
        updates.abs() < 0.25,
        "{name}: update writes off by {updates}: {stats:?}"
    );
}

fn check_volume(name: &str) {
    let target = workload::volume(name).unwrap().target;
    for seed in [1, 2] {
        let workload = Workload::new(target, seed).unwrap();
        check_near(name, &target, &stats(workload.requests()));
    }
}

#[test]
fn measured_volumes_are_met() {
    check_volume("wdev_1");
    check_volume("rsrch_1");
}

#[test]
fn small_volumes_of_all_kinds_are_met() {
    // Nearly no updates, nearly all updates, mostly reads, hardly anything updated.
    for name in [
        "wdev_3", "web_3", "hm_1", "wdev_2", "src2_1", "web_1", "rsrch_2",
    ] {
        check_volume(name);
    }
}

#[test]
fn every_volume_has_a_workload_that_starts() {
    for volume in VOLUMES {
        let workload = Workload::new(volume.target, 1).unwrap();
        assert!(
            workload.requests().take(1000).count() >= 671,
            "{}",
            volume.name
        );
    }
}

#[test]
fn equal_seeds_give_equal_requests() {
    let requests = |seed| workload::wdev_1(seed).requests().collect::<Vec<_>>();
    assert_eq!(requests(3), requests(3));
    assert_ne!(requests(3), requests(4));
}

#[test]
fn times_grow() {
    let times: Vec<u64> = workload::wdev_1(1).requests().map(|r| r.at_ticks).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn folding_into_a_file_keeps_sizes_and_statistics() {
    let file_bytes = 256 << 20;
    let workload = workload::wdev_1(1);
    let folded: Vec<Request> = workload.requests_within(file_bytes).unwrap().collect();
    let plain: Vec<Request> = workload.requests().collect();
    assert_eq!(folded.len(), plain.len());
    for (folded, plain) in folded.iter().zip(&plain) {
        assert_eq!(folded.length_bytes, plain.length_bytes);
        assert!(folded.end_bytes() <= file_bytes);
    }
    assert_eq!(stats(folded.into_iter()), stats(plain.into_iter()));
}

#[test]
fn folding_into_a_tiny_file_stays_inside() {
    let workload = workload::wdev_1(1);
    for file_bytes in [64 << 10, 100_000, 1 << 20] {
        let mut requests = workload.requests_within(file_bytes).unwrap();
        assert!(
            requests.all(|request| request.end_bytes() <= file_bytes),
            "{file_bytes}"
        );
    }
    let Err(error) = workload.requests_within((64 << 10) - 1) else {
        panic!("a request may be longer than the file");
    };
    assert!(
        error
            .to_string()
            .contains("too small for requests of 65536 bytes"),
        "{error}"
    );
}

macro_rules! mix {
    ($length_bytes:expr) => {
        &[SizeShare {
            length_bytes: $length_bytes,
            weight: 1,
        }]
    };
}

const PLAIN: Target = Target {
    writes: 1000,
    working_set_gib: 0.01,
    updated_working_set_pct: 10.0,
    update_writes_pct: 50.0,
    sizes: mix!(4096),
    area_count: 4,
    span_bytes: 1 << 30,
    shift_sectors: 0,
    duration_ticks: 1_000_000,
    files: None,
};

fn check_refused(target: Target, expected: &str) {
    let message = Workload::new(target, 1).unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn targets_that_make_no_sense_are_refused() {
    check_refused(Target { writes: 0, ..PLAIN }, "at least one write");
    check_refused(
        Target {
            working_set_gib: f64::NAN,
            ..PLAIN
        },
        "more than 0",
    );
    check_refused(
        Target {
            update_writes_pct: 101.0,
            ..PLAIN
        },
        "from 0 to 100",
    );
    check_refused(
        Target {
            sizes: &[],
            ..PLAIN
        },
        "weights",
    );
    check_refused(
        Target {
            area_count: 0,
            ..PLAIN
        },
        "at least one area",
    );
    check_refused(
        Target {
            sizes: mix!(1000),
            ..PLAIN
        },
        "multiples of 512",
    );
}

#[test]
fn targets_that_contradict_themselves_are_refused() {
    check_refused(
        Target {
            working_set_gib: 0.001,
            ..PLAIN
        },
        "use shorter writes",
    );
    check_refused(
        Target {
            update_writes_pct: 0.0,
            ..PLAIN
        },
        "cannot mark",
    );
    check_refused(
        Target {
            updated_working_set_pct: 0.0,
            ..PLAIN
        },
        "cannot mark",
    );
    let few = Target {
        writes: 100,
        updated_working_set_pct: 0.1,
        ..PLAIN
    };
    check_refused(
        Target {
            sizes: mix!(1 << 16),
            ..few
        },
        "longer than the 8 sectors",
    );
}

#[test]
fn streams_without_updates_or_without_cold_data_are_met() {
    let none = Target {
        updated_working_set_pct: 0.0,
        update_writes_pct: 0.0,
        ..PLAIN
    };
    let all = Target {
        updated_working_set_pct: 100.0,
        update_writes_pct: 90.0,
        ..PLAIN
    };
    for (name, target) in [("plain", PLAIN), ("no updates", none), ("all updated", all)] {
        let workload = Workload::new(target, 1).unwrap();
        check_near(name, &target, &stats(workload.requests()));
    }
}

#[test]
fn a_part_of_the_file_server_has_its_files() {
    let target = HARVARD.target.part(NonZeroU64::new(2000).unwrap());
    let files = target.files.unwrap();
    for seed in [1, 2] {
        let mut requests = Workload::new(target, seed).unwrap().requests();
        let mut count = StatsCount::default();
        // The place of each file and whether it was updated, by the requests themselves.
        let mut places: BTreeMap<u64, (u64, u64, bool)> = BTreeMap::new();
        let (mut update_bytes, mut updates, mut last_ticks) = (0, 0_u64, 0);
        while let Some(request) = requests.next() {
            let is_update = count.add(&request) > 0;
            if is_update {
                updates += 1;
                update_bytes += request.length_bytes;
            }
            let (start, end) = (request.offset_bytes, request.end_bytes());
            let place = places.entry(requests.file()).or_insert((start, end, false));
            *place = (place.0.min(start), place.1.max(end), place.2 | is_update);
            last_ticks = request.at_ticks;
        }
        check_near("harvard", &target, &count.stats());
        let accessed_off = places.len() as f64 / files.accessed as f64 - 1.0;
        assert!(
            accessed_off.abs() < 0.02,
            "files accessed off by {accessed_off}"
        );
        let changed = places.values().filter(|place| place.2).count();
        let updated_pct = 100.0 * changed as f64 / places.len() as f64;
        assert!(
            (updated_pct - 12.10).abs() < 0.25,
            "files updated {updated_pct}"
        );
        let mean_kib = update_bytes as f64 / updates as f64 / 1024.0;
        assert!((mean_kib - 10.58).abs() < 0.1, "mean update {mean_kib} KiB");
        let days = last_ticks as f64 / (24.0 * 3600.0 * 1e7);
        assert!((days - 41.0).abs() < 0.1, "{days} days");
        let mut spans: Vec<(u64, u64)> = places.values().map(|p| (p.0, p.1)).collect();
        spans.sort_unstable();
        let overlap = spans.windows(2).find(|pair| pair[0].1 > pair[1].0);
        assert_eq!(overlap, None, "no two files share bytes");
    }
}
