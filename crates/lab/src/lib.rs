//! Trace readers, calibrated workloads and experiments: what each scheme would cost on a user's own
//! trace and topology.
//!
//! The lab counts by planning: it runs the planners that the cluster runs and adds up what their
//! plans cost. It prints nothing and keeps no state; experiments return data. See `docs/lab.md` for
//! what is counted and by which rules.

mod error;
mod extents;
pub mod stats;
pub mod trace;
pub mod update_traffic;
pub mod workload;

pub use error::{LabError, RowProblem};
pub use stats::Stats;
pub use trace::{Request, RequestKind, TraceReader};
