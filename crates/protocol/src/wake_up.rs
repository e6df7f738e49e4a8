//! A wake-up for one waiting task. Sent any number of times before the task waits, it wakes the task
//! once; sent while no task waits, it wakes the next one that does.

use futures::future::poll_fn;
use futures::task::AtomicWaker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// Wakes the one task that waits for it.
#[derive(Debug, Default)]
pub struct WakeUp {
    is_pending: AtomicBool,
    waiting: AtomicWaker,
}

impl WakeUp {
    /// Wakes the task, now or when it next waits.
    pub fn wake(&self) {
        self.is_pending.store(true, Ordering::Release);
        self.waiting.wake();
    }

    /// Waits until a wake-up comes that no earlier wait has taken.
    pub async fn woken(&self) {
        poll_fn(|context| {
            // Registered before looking, so that a wake-up in between is not lost.
            self.waiting.register(context.waker());
            if self.is_pending.swap(false, Ordering::Acquire) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn wake_ups_are_kept_and_taken_once() {
        let wake_up = WakeUp::default();
        assert_eq!(wake_up.woken().now_or_never(), None);
        wake_up.wake();
        wake_up.wake();
        assert_eq!(wake_up.woken().now_or_never(), Some(()));
        assert_eq!(wake_up.woken().now_or_never(), None);
    }
}
