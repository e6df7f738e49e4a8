//! Counts and times of requests, as text that Prometheus reads.

use gabion_metrics::{Exposed, Form};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Shortest time of a request that is told from shorter ones, in seconds. Each bucket is twice as long as the one
/// before; the last one ends above a gateway's default limit of retries.
const FIRST_BUCKET_S: f64 = 0.000_125;
const BUCKET_COUNT: u16 = 21;

type Label = (&'static str, &'static str);

/// The metrics of a gateway: the time of each request by its operation, errors by operation and error, and numbers of
/// what is present.
#[derive(Debug)]
pub struct RequestMetrics {
    registry: Registry,
    seconds: Family<[Label; 1], Histogram>,
    errors: Family<[Label; 2], Counter>,
}

/// A number of things that are present now, such as connections.
#[derive(Clone, Debug)]
pub struct Presence(Gauge);

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Present(Gauge);

impl Presence {
    /// Counts one more.
    pub fn enter(&self) -> Present {
        self.0.inc();
        Present(self.0.clone())
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl RequestMetrics {
    /// All counts are zero; their names begin with this prefix.
    pub fn new(prefix: &str) -> Self {
        let histogram = || Histogram::new(exponential_buckets(FIRST_BUCKET_S, 2.0, BUCKET_COUNT));
        let mut metrics = Self {
            registry: Registry::with_prefix(prefix),
            seconds: Family::new_with_constructor(histogram),
            errors: Family::default(),
        };
        metrics.registry.register_with_unit(
            "request",
            "Duration of executed requests, from arrival to result",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        metrics.registry.register(
            "errors",
            "Requests that failed or were refused, by the error of the reply",
            metrics.errors.clone(),
        );
        metrics
    }

    /// A further number of this name.
    pub fn presence(&mut self, name: &'static str, help: &'static str) -> Presence {
        let gauge = Gauge::default();
        self.registry.register(name, help, gauge.clone());
        Presence(gauge)
    }

    /// Counts a request that was run.
    pub fn ran(&self, operation: &'static str, time: Duration) {
        let label = [("operation", operation)];
        let seconds = self.seconds.get_or_create(&label);
        seconds.observe(time.as_secs_f64());
    }

    /// Counts a request that failed.
    pub fn failed(&self, operation: &'static str, error: &'static str) {
        let labels = [("operation", operation), ("error", error)];
        self.errors.get_or_create(&labels).inc();
    }

    /// All metrics as text of `OpenMetrics`.
    pub fn text(&self) -> String {
        Form::OpenMetrics.text(&self.registry)
    }
}

impl Exposed for RequestMetrics {
    fn text(&self, form: Form) -> impl Future<Output = String> + Send {
        std::future::ready(form.text(&self.registry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_operation_and_error() {
        let mut metrics = RequestMetrics::new("gabion_test");
        let connections = metrics.presence("connections", "Clients that are attached");
        let attached = connections.enter();
        metrics.ran("write", Duration::from_micros(300));
        metrics.ran("write", Duration::from_millis(1));
        metrics.failed("write", "ENOSPC");
        let text = metrics.text();
        for expected in [
            "gabion_test_request_seconds_count{operation=\"write\"} 2\n",
            "gabion_test_request_seconds_bucket{le=\"0.0005\",operation=\"write\"} 1\n",
            "gabion_test_errors_total{operation=\"write\",error=\"ENOSPC\"} 1\n",
            "gabion_test_connections 1\n",
            "# EOF\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        drop(attached);
        assert!(metrics.text().contains("gabion_test_connections 0\n"));
    }
}
