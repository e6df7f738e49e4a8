//! Counts and times of requests and connections.

use crate::message::{Answer, Errno};
use gabion_gateway::{Presence, Present, RequestMetrics};
use std::sync::Arc;
use std::time::Duration;

/// The metrics of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Arc<RequestMetrics>,
    connections: Presence,
}

impl Metrics {
    /// All counts are zero.
    pub(crate) fn new() -> Self {
        let mut requests = RequestMetrics::new("gabion_nbd");
        let connections = requests.presence("connections", "Clients that are attached");
        Self {
            requests: Arc::new(requests),
            connections,
        }
    }

    /// Those that are served.
    pub(crate) fn requests(&self) -> Arc<RequestMetrics> {
        Arc::clone(&self.requests)
    }

    /// Counts a request that was run.
    pub(crate) fn ran(&self, operation: &'static str, time: Duration, answer: &Answer) {
        self.requests.ran(operation, time);
        if let Answer::Failed(errno, _) = answer {
            self.failed(operation, *errno);
        }
    }

    /// Counts a request that failed.
    pub(crate) fn failed(&self, operation: &'static str, errno: Errno) {
        self.requests.failed(operation, errno.name());
    }

    /// Counts a client that attaches.
    pub(crate) fn attached(&self) -> Present {
        self.connections.enter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_failed_counts_as_run_and_as_an_error() {
        let metrics = Metrics::new();
        let attached = metrics.attached();
        metrics.ran("write", Duration::from_micros(300), &Answer::Done);
        let failed = Answer::Failed(Errno::NoSpace, "full".to_owned());
        metrics.ran("write", Duration::from_millis(1), &failed);
        let text = metrics.requests().text();
        for expected in [
            "gabion_nbd_request_seconds_count{operation=\"write\"} 2\n",
            "gabion_nbd_errors_total{operation=\"write\",error=\"ENOSPC\"} 1\n",
            "gabion_nbd_connections 1\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        drop(attached);
    }
}
