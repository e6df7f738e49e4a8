//! The integration tests of `planner`, linked once: a module for each subject.

mod checker_catches_mutations;
mod collectors_are_the_best;
mod conversions;
mod cross_rack_updates;
mod every_plan_checks;
mod golden_plans;
mod plans_move_bytes;
mod pools_keep_promises;
mod recovery;
mod repair_schemes;
mod replicas_become_stripes;
mod setting;
