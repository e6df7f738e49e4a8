//! Counts and times of requests, as text that Prometheus reads.

use crate::message::{Answer, Errno};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Shortest time of a request that is told from shorter ones, in seconds. Each bucket is twice as long as the one
/// before; the last one ends above the default limit of retries.
const FIRST_BUCKET_S: f64 = 0.000_125;
const BUCKET_COUNT: u16 = 21;

type Label = (&'static str, &'static str);

/// The metrics of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    seconds: Family<[Label; 1], Histogram>,
    errors: Family<[Label; 2], Counter>,
    connections: Gauge,
}

/// A connection that counts, until it is dropped.
#[derive(Debug)]
pub(crate) struct Attached(Gauge);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// All counts are zero.
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new(exponential_buckets(FIRST_BUCKET_S, 2.0, BUCKET_COUNT));
        let metrics = Self {
            registry: Registry::with_prefix("gabion_nbd"),
            seconds: Family::new_with_constructor(histogram),
            errors: Family::default(),
            connections: Gauge::default(),
        };
        metrics.registered()
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "request",
            "Times of requests that were run, from their arrival to their result",
            Unit::Seconds,
            self.seconds.clone(),
        );
        registry.register(
            "errors",
            "Requests that failed or were refused, by the error of the reply",
            self.errors.clone(),
        );
        registry.register(
            "connections",
            "Clients that are attached",
            self.connections.clone(),
        );
        self
    }

    /// Counts a request that was run.
    pub(crate) fn ran(&self, operation: &'static str, time: Duration, answer: &Answer) {
        let label = [("operation", operation)];
        self.seconds
            .get_or_create(&label)
            .observe(time.as_secs_f64());
        if let Answer::Failed(errno, _) = answer {
            self.failed(operation, *errno);
        }
    }

    /// Counts a request that failed.
    pub(crate) fn failed(&self, operation: &'static str, errno: Errno) {
        let labels = [("operation", operation), ("error", errno.name())];
        self.errors.get_or_create(&labels).inc();
    }

    /// Counts a client that attaches.
    pub(crate) fn attached(&self) -> Attached {
        self.connections.inc();
        Attached(self.connections.clone())
    }

    /// All metrics as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("strings take all text");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_operation_and_error() {
        let metrics = Metrics::new();
        let attached = metrics.attached();
        metrics.ran("write", Duration::from_micros(300), &Answer::Done);
        let failed = Answer::Failed(Errno::NoSpace, "full".to_owned());
        metrics.ran("write", Duration::from_millis(1), &failed);
        let text = metrics.text();
        for expected in [
            "gabion_nbd_request_seconds_count{operation=\"write\"} 2\n",
            "gabion_nbd_request_seconds_bucket{le=\"0.0005\",operation=\"write\"} 1\n",
            "gabion_nbd_errors_total{operation=\"write\",error=\"ENOSPC\"} 1\n",
            "gabion_nbd_connections 1\n",
            "# EOF\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        drop(attached);
        assert!(metrics.text().contains("gabion_nbd_connections 0\n"));
    }
}
