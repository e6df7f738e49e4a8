//! What gateways share: counts and times of their requests, and the HTTP server from which Prometheus reads them.
//!
//! It knows nothing of a gateway's protocol or of the cluster.

mod accept;
mod metrics;
mod scrape;

pub use accept::passing;
pub use metrics::{Presence, Present, RequestMetrics};
pub use scrape::serve_metrics;
