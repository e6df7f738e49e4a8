//! Work that goes on while its owner does something else, and ends with it.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::{JoinError, JoinHandle};

/// A spawned task that is aborted when nobody waits for it any more.
pub(crate) struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    /// Starts `work`.
    pub(crate) fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|done| done.unwrap_or_else(raise))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The task panicked, and so does its owner: nothing aborts a task that is still waited for.
fn raise<T>(error: JoinError) -> T {
    std::panic::resume_unwind(error.into_panic())
}
