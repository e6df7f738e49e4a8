//! What gateways share: counts and times of their requests, as metrics of `gabion_metrics`, which serves them.
//!
//! It knows nothing of a gateway's protocol or of the cluster.

mod metrics;

pub use gabion_metrics::{Exposed, Form, passing, serve_metrics};
pub use metrics::{Presence, Present, RequestMetrics};
