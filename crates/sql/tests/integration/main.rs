//! The engine on a `PostgreSQL` server of its own: the checks of all engines, lost answers, the leadership, outages.

mod conformance;
mod fixture;
mod leadership;
mod lost_answers;
#[path = "../../../meta/tests/integration/model/mod.rs"]
mod model;
mod outages;
#[path = "../../../meta/tests/integration/transactions.rs"]
mod transactions;
