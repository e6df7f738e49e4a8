//! A bell that wakes one waiting task. Rung any number of times before it is heard, it is heard
//! once; rung while nobody waits, it is heard by the next who does.

use futures::future::poll_fn;
use futures::task::AtomicWaker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// Wakes the one task that listens.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: AtomicBool,
    listener: AtomicWaker,
}

impl Bell {
    /// Wakes the listener, now or when it next listens.
    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.listener.wake();
    }

    /// Waits until the bell has been rung since it was last heard.
    pub(super) async fn heard(&self) {
        poll_fn(|context| {
            // Registered before looking, so that a ring in between is not lost.
            self.listener.register(context.waker());
            if self.rung.swap(false, Ordering::Acquire) {
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
    fn rings_are_kept_and_heard_once() {
        let bell = Bell::default();
        assert_eq!(bell.heard().now_or_never(), None);
        bell.ring();
        bell.ring();
        assert_eq!(bell.heard().now_or_never(), Some(()));
        assert_eq!(bell.heard().now_or_never(), None);
    }
}
