//! Coordinators and nodes over loopback, each with a run-time of its own, so that one of them can be stopped as a
//! killed process is.

mod cluster;
mod conventions;
mod events;
mod metrics;
mod page;
