//! The metrics of a coordinator's and a node's process, for Prometheus.
//!
//! A process counts the reports of its role (`measured`) and adds the role's state at each scrape. The names and their
//! meaning are in `docs/monitoring.md`.

mod coordinator;
mod labels;
mod listener;
mod node;
mod requests;
mod timed_disk;

pub(crate) use coordinator::{CoordinatorMetrics, CoordinatorWork};
pub(crate) use listener::MetricsListener;
pub(crate) use node::{Counting, NodeMetrics, NodeParts, NodeWork};
pub(crate) use timed_disk::TimedDisk;
