//! The planners: pure functions from a stripe, a topology and a goal to a checked plan.
//!
//! One file is one scheme, named as in its paper. Planners do no I/O and hold no state; those that choose at random
//! take a seeded generator, so equal inputs give equal plans. Their plans pass [`gabion_plan::check`]; `tests/`
//! verifies this for random codes, layouts, ranges and failures.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod bound;
pub mod encode;
pub mod endurance;
mod error;
pub mod manager;
pub mod placement;
pub mod pool;
pub mod port;
pub mod repair;
pub mod reserve;
mod stripe;
pub mod update;

pub use error::PlanError;
pub use stripe::Stripe;
