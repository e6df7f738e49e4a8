//! Background work that ends with its owner.

use futures::FutureExt;
use futures::future::RemoteHandle;
use gabion_protocol::ports::Ports;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A spawned task that is cancelled when its handle is dropped. If the task panics, its owner does too.
pub(crate) struct Task<T>(RemoteHandle<T>);

impl<T: Send + 'static> Task<T> {
    /// Starts `work`.
    pub(crate) fn spawn(ports: &dyn Ports, work: impl Future<Output = T> + Send + 'static) -> Self {
        let (work, handle) = work.remote_handle();
        ports.spawn(work.boxed());
        Self(handle)
    }
}

impl<T: 'static> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(context)
    }
}
