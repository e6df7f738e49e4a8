//! Data-loss probabilities against CAU's figure 5 and its formulas, and against every combination of
//! failures told one by one.

use gabion_lab::reliability::{Counting, Model, RackShare, Redundancy, life_hours};

fn check_printed(redundancy: Redundancy, hours: f64, printed: &str) {
    let loss = Model::figure_5().loss(redundancy, hours, Counting::Paper);
    assert_eq!(
        format!("{loss:.2e}"),
        printed,
        "{redundancy:?} at {hours} h"
    );
}

#[test]
fn figure_5_at_18_hours() {
    check_printed(Redundancy::Replicas(1), 18.0, "9.83e-7");
    check_printed(Redundancy::Parity, 18.0, "2.24e-7");
}

#[test]
fn a_rack_that_fails_with_a_probability_of_0_0278_a_year_lives_35_47_years() {
    let years = life_hours(0.0278) / (365.0 * 24.0);
    assert_eq!(format!("{years:.2}"), "35.47");
}

#[test]
fn figure_5_rises_with_time_and_falls_with_replicas() {
    let model = Model::figure_5();
    for counting in [Counting::Paper, Counting::Exact] {
        let mut last = [0.0; 3];
        for hours in [1.0, 6.0, 12.0, 18.0, 200.0] {
            let now = [
                Redundancy::Replicas(0),
                Redundancy::Replicas(1),
                Redundancy::Parity,
            ]
            .map(|redundancy| model.loss(redundancy, hours, counting));
            assert!(now[0] > now[1] && now[1] > now[2], "{now:?}");
            assert!(
                now.iter().zip(last).all(|(now, last)| *now > last),
                "{now:?}"
            );
            last = now;
        }
    }
}

/// The paper's three formulas, term by term as section 3.5 writes them.
fn formulas(hours: f64) -> [f64; 3] {
    let (k, m, r) = (6u32, 3u32, 3u32);
    let year = 365.0 * 24.0;
    let f1 = 1.0 - f64::exp(-hours / (10.0 * year));
    let f2 = 1.0 - f64::exp(-hours / life_hours(0.0278));
    let choose =
        |n: u32, i: u32| (0..i).fold(1.0, |c, at| c * f64::from(n - at) / f64::from(at + 1));
    let some = |n: u32, i: u32, f: f64| {
        choose(n, i) * f.powi(i.cast_signed()) * (1.0 - f).powi((n - i).cast_signed())
    };
    let e = |i, j| some(k, i, f1) * some(m, j, f1) * (1.0 - f2).powi(r.cast_signed());
    let one_rack = some(r, 1, f2) * (1.0 - f1).powi(6);
    let pairs = (0..=3).flat_map(|i| (0..=3 - i).map(move |j| (i, j)));
    let ec: f64 = pairs.map(|(i, j)| e(i, j)).sum::<f64>() + one_rack;
    let cau_0 = (0..=3).map(|j| e(0, j)).sum::<f64>() + one_rack / 3.0;
    let alone: f64 = (1..=3).map(|i| e(i, 0) + e(0, i)).sum();
    [1.0 - cau_0, 1.0 - (e(0, 0) + alone + one_rack), 1.0 - ec]
}

#[test]
fn the_papers_formulas_are_its_counting() {
    let model = Model::figure_5();
    for hours in [18.0, 1_000.0, 20_000.0] {
        let found = [
            Redundancy::Replicas(0),
            Redundancy::Replicas(1),
            Redundancy::Parity,
        ]
        .map(|redundancy| model.loss(redundancy, hours, Counting::Paper));
        for (found, expected) in found.iter().zip(formulas(hours)) {
            assert!(
                (found - expected).abs() < 1e-13,
                "{found} {expected} at {hours} h"
            );
        }
    }
}

/// Sums over all sets of failed nodes and racks, and asks of each data node whether its newest bytes
/// are left anywhere.
fn brute_force(model: &Model, redundancy: Redundancy, hours: f64) -> f64 {
    let mut nodes: Vec<(usize, bool)> = Vec::new();
    for (rack, share) in model.racks.iter().enumerate() {
        nodes.extend(vec![(rack, true); share.data]);
        nodes.extend(vec![(rack, false); share.parity]);
    }
    let failed = |life: f64| 1.0 - f64::exp(-hours / life);
    let (node, rack) = (failed(model.node_life_hours), failed(model.rack_life_hours));
    let mut loss = 0.0;
    for set in 0u32..1 << (nodes.len() + model.racks.len()) {
        let has_failed = |at: usize| set >> at & 1 == 1;
        let mut probability = 1.0;
        for at in 0..nodes.len() + model.racks.len() {
            let share = if at < nodes.len() { node } else { rack };
            probability *= if has_failed(at) { share } else { 1.0 - share };
        }
        let gone: Vec<bool> = (0..nodes.len())
            .map(|at| has_failed(at) || has_failed(nodes.len() + nodes[at].0))
            .collect();
        let total = gone.iter().filter(|gone| **gone).count();
        let updates_lost = (0..nodes.len())
            .filter(|&at| nodes[at].1 && gone[at])
            .any(|data| {
                let keepers =
                    (0..nodes.len()).filter(|&at| !nodes[at].1 && nodes[at].0 != nodes[data].0);
                let gone_keepers = keepers.filter(|&at| gone[at]).count();
                matches!(redundancy, Redundancy::Replicas(replicas) if gone_keepers >= replicas)
            });
        if total > model.survived || updates_lost {
            loss += probability;
        }
    }
    loss
}

#[test]
fn any_stripe_agrees_with_all_failures_told_one_by_one() {
    let share = |data, parity| RackShare { data, parity };
    for (racks, survived) in [
        (vec![share(3, 0), share(3, 0), share(0, 3)], 3),
        (vec![share(2, 1), share(2, 1), share(2, 1)], 3),
        (vec![share(1, 2), share(3, 0), share(0, 1), share(1, 1)], 4),
        (vec![share(4, 0), share(0, 2)], 2),
    ] {
        let model = Model {
            racks,
            survived,
            node_life_hours: 1_000.0,
            rack_life_hours: 3_000.0,
        };
        for redundancy in [
            Redundancy::Parity,
            Redundancy::Replicas(0),
            Redundancy::Replicas(1),
            Redundancy::Replicas(2),
        ] {
            let found = model.loss(redundancy, 200.0, Counting::Exact);
            let expected = brute_force(&model, redundancy, 200.0);
            assert!((found - expected).abs() < 1e-12, "{model:?} {redundancy:?}");
        }
    }
}
