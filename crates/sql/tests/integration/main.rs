//! The engine on a `PostgreSQL` server of its own: the checks of all engines, lost answers, the leadership, outages.

#![expect(
    clippy::unwrap_used,
    reason = "a test's own helpers fail the test where they stand"
)]

mod conformance;
mod fixture;
mod leadership;
mod lost_answers;
#[path = "../../../meta/tests/integration/model/mod.rs"]
mod model;
mod outages;
#[path = "../../../meta/tests/integration/transactions.rs"]
mod transactions;
