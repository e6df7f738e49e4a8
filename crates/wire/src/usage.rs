//! The use of a connection, by which it is decided whether it may be replaced or closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The use of a connection.
pub(crate) struct Usage {
    established: Instant,
    /// Whether another connection is to take its place.
    is_being_replaced: AtomicBool,
    /// Streams of flows that this process sends on it.
    stream_count: Arc<AtomicUsize>,
}

/// A stream of flows that goes on.
pub(crate) struct OpenStream(Arc<AtomicUsize>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Usage {
    /// The use of a connection that is established now.
    pub(crate) fn new() -> Self {
        Self {
            established: Instant::now(),
            is_being_replaced: AtomicBool::new(false),
            stream_count: Arc::default(),
        }
    }

    /// The connection's age.
    pub(crate) fn age(&self) -> Duration {
        self.established.elapsed()
    }

    /// Notes that another connection is to take its place; false if that is noted already.
    pub(crate) fn begin_replacing(&self) -> bool {
        !self.is_being_replaced.swap(true, Ordering::AcqRel)
    }

    /// Notes that no other connection took its place.
    pub(crate) fn end_replacing(&self) {
        self.is_being_replaced.store(false, Ordering::Release);
    }

    /// Counts a stream until the guard is dropped.
    pub(crate) fn begin_stream(&self) -> OpenStream {
        self.stream_count.fetch_add(1, Ordering::AcqRel);
        OpenStream(Arc::clone(&self.stream_count))
    }

    pub(crate) fn has_streams(&self) -> bool {
        self.stream_count.load(Ordering::Acquire) > 0
    }
}
