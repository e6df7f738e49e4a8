//! A budget of bytes that operations of one client hold at the same time.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The budget. Operations get their bytes in the order of their arrival.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    limit_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held_bytes: u64,
    next_ticket: u64,
    /// In the order of arrival.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    bytes: u64,
    waker: Option<Waker>,
}

/// Bytes that are held, or waited for, until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes<'b> {
    budget: &'b ByteBudget,
    ticket: u64,
    bytes: u64,
}

impl ByteBudget {
    /// A budget of `limit_bytes` bytes, but at least one byte.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes: limit_bytes.max(1),
            state: Mutex::default(),
        }
    }

    /// Waits until the bytes fit. An operation that needs more than the whole budget gets all of it.
    pub(crate) async fn hold(&self, bytes: u64) -> HeldBytes<'_> {
        let bytes = bytes.min(self.limit_bytes);
        // From here on, a caller that stops waiting gives its ticket back.
        let held = self.enqueue(bytes);
        poll_fn(|context| match self.state().waiting.get_mut(&held.ticket) {
            Some(waiting) => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        })
        .await;
        held
    }

    fn enqueue(&self, bytes: u64) -> HeldBytes<'_> {
        let mut state = self.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let waiting = Waiting { bytes, waker: None };
        state.waiting.insert(ticket, waiting);
        state.admit(self.limit_bytes);
        HeldBytes {
            budget: self,
            ticket,
            bytes,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is consistent after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives those in front their bytes, as far as these fit.
    fn admit(&mut self, limit_bytes: u64) {
        while let Some(first) = self.waiting.first_entry()
            && self.held_bytes + first.get().bytes <= limit_bytes
        {
            let admitted = first.remove();
            self.held_bytes += admitted.bytes;
            if let Some(waker) = admitted.waker {
                waker.wake();
            }
        }
    }
}

impl Drop for HeldBytes<'_> {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        if state.waiting.remove(&self.ticket).is_none() {
            state.held_bytes -= self.bytes;
        }
        state.admit(self.budget.limit_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::pin::pin;

    #[test]
    fn bytes_wait_for_room_in_their_order() {
        let budget = ByteBudget::new(10);
        let first = budget.hold(6).now_or_never().expect("free");
        let second = budget.hold(4).now_or_never().expect("free");
        let mut large = pin!(budget.hold(50));
        assert!(large.as_mut().now_or_never().is_none());
        let mut small = pin!(budget.hold(1));
        drop(first);
        assert!(small.as_mut().now_or_never().is_none(), "it is behind");
        assert!(large.as_mut().now_or_never().is_none());
        drop(second);
        let large = large.now_or_never().expect("the whole budget is free");
        assert!(small.as_mut().now_or_never().is_none());
        drop(large);
        drop(small.now_or_never().expect("free"));
        assert_eq!(budget.state().held_bytes, 0);
    }

    #[test]
    fn an_operation_that_stops_waiting_leaves_its_place() {
        let budget = ByteBudget::new(10);
        let first = budget.hold(10).now_or_never().expect("free");
        {
            let mut waiting = pin!(budget.hold(10));
            assert!(waiting.as_mut().now_or_never().is_none());
            let mut behind = pin!(budget.hold(1));
            assert!(behind.as_mut().now_or_never().is_none());
            // The first of them gets its bytes and is dropped before it learns of them.
            drop(first);
        }
        assert!(budget.hold(10).now_or_never().is_some());
        assert!(budget.state().waiting.is_empty());
    }
}
