//! A client's operations have the results of a reference model, and a wrong model is found out.

use gabion_sim::model::{
    COVERING_COUNT, Kind, ModelCounts, ModelOptions, Modelled, Wrong, run_model,
};

/// Seeds of each test run, of 1,000 operations each.
const SEEDS: std::ops::Range<u64> = 1..11;

/// Causes of refusals that these seeds must reach.
const CAUSES: [&str; 13] = [
    "not_found",
    "exists",
    "not_a_directory",
    "is_a_directory",
    "not_empty",
    "stale",
    "invalid",
    "name_too_long",
    "is_a_symlink",
    "read_only",
    "in_use",
    "quota",
    "crosses_quota",
];

/// Seeds in one of which each fault of the model shows.
const WRONG_SEEDS: std::ops::Range<u64> = 1..4;

fn describe(seed: u64, modelled: &Modelled) -> String {
    let failure = modelled.failure.as_deref().unwrap_or("no failure");
    let log = modelled.log.join("\n");
    let cluster = &modelled.cluster;
    format!(
        "{log}\nseed {seed} ({cluster}): {failure}\nrun it again with: cargo xtask sim --model 1000 --seed {seed}"
    )
}

#[test]
fn the_cluster_answers_as_the_model_does() {
    let options = ModelOptions::default();
    let mut counts = ModelCounts::default();
    for seed in SEEDS {
        let modelled = run_model(seed, options);
        assert_eq!(modelled.failure, None, "{}", describe(seed, &modelled));
        counts += modelled.counts;
    }
    let seed_count = SEEDS.end - SEEDS.start;
    let expected_count = seed_count * options.operation_count;
    assert_eq!(counts.operation_count(), expected_count, "{counts:?}");
    assert!(expected_count >= COVERING_COUNT);
    assert_eq!(counts.missing(), [""; 0], "{counts:?}");
    // Operations that never occur, or are never refused, show nothing.
    for kind in Kind::ALL {
        let count = counts.operations.get(&kind).copied().unwrap_or(0);
        assert!(count >= 10, "{kind:?} has occurred {count} times");
    }
    for cause in CAUSES {
        let count = counts.refusals.get(cause).copied().unwrap_or(0);
        assert!(count >= 5, "{cause} was a refusal {count} times");
    }
    // At least a third of the operations succeed.
    assert!(
        counts.refusal_count() * 3 < expected_count * 2,
        "{counts:?}"
    );
    assert!(counts.old_handle_count >= 500, "{counts:?}");
    assert!(counts.coordinator_restart_count >= 5, "{counts:?}");
    assert!(counts.node_kill_count >= 5, "{counts:?}");
    // One of each quarter of a seed, and one at its end.
    assert!(counts.comparison_count >= 5 * seed_count, "{counts:?}");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let options = ModelOptions {
        operation_count: 300,
        wrong: None,
    };
    assert_eq!(run_model(2, options), run_model(2, options));
}

#[test]
fn a_wrong_model_is_found_out() {
    for wrong in Wrong::ALL {
        let options = ModelOptions {
            wrong: Some(wrong),
            ..ModelOptions::default()
        };
        let found = WRONG_SEEDS.into_iter().any(|seed| {
            let failure = run_model(seed, options).failure;
            failure.is_some_and(|why| why.starts_with("operation "))
        });
        assert!(found, "{wrong:?} was not found out");
    }
}
