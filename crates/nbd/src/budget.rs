//! The memory that requests in flight may hold, of one connection and of all.

use crate::message::{Command, PAYLOAD_BYTES_MAX};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that any request counts for, whatever it moves: its task, header and reply.
const REQUEST_BYTES: u64 = 4 << 10;
/// Bytes of a request that writes zeros, or replies with states.
const WORK_BYTES: u64 = 4 << 20;

/// The budget of a server, shared by its connections.
#[derive(Debug)]
pub(crate) struct Budget {
    all: Arc<Semaphore>,
    connection_bytes: usize,
    request_count: usize,
}

/// The budget of one connection.
#[derive(Debug)]
pub(crate) struct Share {
    all: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

/// The memory of one request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    _permits: [OwnedSemaphorePermit; 3],
}

impl Budget {
    /// A budget of bytes in all, and of bytes and requests of a connection.
    ///
    /// # Panics
    /// If the largest request does not fit.
    pub(crate) fn new(all_bytes: usize, connection_bytes: usize, request_count: usize) -> Self {
        let largest = (PAYLOAD_BYTES_MAX + REQUEST_BYTES) as usize;
        assert!(largest <= connection_bytes && largest <= all_bytes && request_count > 0);
        Self {
            all: Arc::new(Semaphore::new(all_bytes)),
            connection_bytes,
            request_count,
        }
    }

    /// The share of a new connection.
    pub(crate) fn share(&self) -> Share {
        Share {
            all: Arc::clone(&self.all),
            bytes: Arc::new(Semaphore::new(self.connection_bytes)),
            requests: Arc::new(Semaphore::new(self.request_count)),
        }
    }
}

impl Share {
    /// Waits until the request may hold its memory.
    pub(crate) async fn take(&self, command: Command) -> Held {
        let bytes = bytes_of(command) as u32;
        // The server's budget comes last: a connection over its own share takes nothing from the others while it waits.
        let request = Arc::clone(&self.requests).acquire_owned().await;
        let own = Arc::clone(&self.bytes).acquire_many_owned(bytes).await;
        let all = Arc::clone(&self.all).acquire_many_owned(bytes).await;
        let permits = [request, own, all].map(|permit| permit.expect("it is never closed"));
        Held { _permits: permits }
    }
}

/// The memory of a request and its reply. Never more than the payload limit and a request's own.
fn bytes_of(command: Command) -> u64 {
    let moved = match command {
        Command::Read { range, .. } | Command::Write { range } => range.length,
        Command::Zero { range, .. } => range.length.min(WORK_BYTES),
        Command::Trim { .. } | Command::Status { .. } => WORK_BYTES,
        Command::Disconnect | Command::Flush | Command::Cache { .. } => 0,
    };
    moved + REQUEST_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use gabion_layout::ByteRange;

    const MIB: u64 = 1 << 20;

    fn read(length: u64) -> Command {
        let range = ByteRange::new(0, length);
        let is_whole = false;
        Command::Read { range, is_whole }
    }

    #[test]
    fn requests_wait_for_their_connections_bytes_and_for_the_servers() {
        let budget = Budget::new(100 << 20, 66 << 20, 3);
        let (one, other) = (budget.share(), budget.share());
        let first = one.take(read(32 * MIB)).now_or_never().expect("free");
        let second = one.take(read(32 * MIB)).now_or_never().expect("free");
        assert!(one.take(read(32 * MIB)).now_or_never().is_none(), "its own");
        let third = other.take(read(32 * MIB)).now_or_never().expect("free");
        assert!(other.take(read(8 * MIB)).now_or_never().is_none(), "of all");
        drop(first);
        assert!(other.take(read(8 * MIB)).now_or_never().is_some());
        drop((second, third));
        let small: Vec<Held> = (0..3)
            .map(|_| one.take(Command::Flush).now_or_never().expect("free"))
            .collect();
        assert!(
            one.take(Command::Flush).now_or_never().is_none(),
            "requests are counted too"
        );
        drop(small);
    }
}
