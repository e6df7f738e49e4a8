//! The integration tests of `exec`, linked once: a module for each subject.

mod hostile_peers;
mod network;
mod plans_run;
#[path = "../../../planner/tests/integration/setting/mod.rs"]
mod setting;
