//! Trace readers, calibrated workloads and experiments: the cost of each scheme on a user's own
//! trace and topology.
//!
//! The lab counts by planning: it runs the cluster's planners and adds up the cost of their plans.
//! It prints nothing and keeps no state; experiments return data. `docs/lab.md` has the counting
//! rules.
//!
//! ```
//! use gabion_lab::update_traffic::{Options, Question, count};
//! use gabion_lab::workload;
//!
//! let question = Question {
//!     trace: "after wdev_1".to_owned(),
//!     code: "rs(12,4)".parse().unwrap(),
//!     racks: None,
//!     layout: "6x2+2x2".parse().unwrap(),
//!     chunk_bytes: 4096,
//!     schemes: vec!["baseline".to_owned()],
//!     options: Options::default(),
//! };
//! let report = count(&question, workload::wdev_1(1).requests().map(Ok)).unwrap();
//!
//! // Data racks and parity racks are apart, so each update crosses racks four times.
//! let baseline = report.schemes["baseline"];
//! assert_eq!(baseline.cross_rack_chunks, 4 * report.chunk_updates);
//! ```

pub mod advise;
mod box_parts;
pub mod clusters;
pub mod disk_model;
mod error;
mod experiment;
pub mod experiments;
mod extents;
pub mod flow;
pub mod mttdl;
pub mod plot;
pub mod profile;
pub mod reliability;
mod sample;
pub mod stats;
pub mod storage;
pub mod trace;
mod trace_writer;
pub mod update_traffic;
pub mod workload;

pub use error::{LabError, RowProblem};
pub use profile::Profile;
pub use stats::Stats;
pub use trace::{Request, RequestKind, TraceOptions, TraceReader};
pub use trace_writer::TraceWriter;
