//! The parts that gateways share: counts and times of their requests, as metrics that `gabion_metrics` serves.
//!
//! It does not know a gateway's protocol or the cluster.

mod metrics;

pub use gabion_metrics::{Exposed, Form, passing, serve_metrics};
pub use metrics::{Presence, Present, RequestMetrics};
