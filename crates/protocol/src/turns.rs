//! A first-come, first-served queue. The lock of `futures` lets latecomers overtake waiting tasks, so under
//! steady load some updates of a stripe would wait many times longer than others. This is the queue alone;
//! the guarded state is elsewhere.

use futures::channel::oneshot::{Sender, channel};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A queue.
#[derive(Default)]
pub(crate) struct Turns(Arc<Mutex<Line>>);

#[derive(Default)]
struct Line {
    /// Whether a task has the turn.
    is_taken: bool,
    /// The waiting tasks, some of which may have left. Invariant: empty unless the turn is taken.
    waiting: VecDeque<Sender<Turn>>,
}

/// The turn; dropping it passes it on.
pub(crate) struct Turn {
    /// Taken by the drop alone.
    line: Option<Arc<Mutex<Line>>>,
}

impl Turns {
    /// Waits for the turn. A cancelled wait leaves the queue.
    pub(crate) async fn wait(&self) -> Turn {
        let place = {
            let mut line = lock(&self.0);
            if line.is_taken {
                let (sender, receiver) = channel();
                line.waiting.push_back(sender);
                Some(receiver)
            } else {
                line.is_taken = true;
                None
            }
        };
        match place {
            Some(place) => place.await.expect("every waiting task gets its turn"),
            None => Turn::of(Arc::clone(&self.0)),
        }
    }
}

impl Turn {
    fn of(line: Arc<Mutex<Line>>) -> Self {
        Self { line: Some(line) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        while let Some(line) = self.line.take() {
            let next = {
                let mut line = lock(&line);
                let next = line.waiting.pop_front();
                line.is_taken = next.is_some();
                next
            };
            // The turn comes back from a task that has left the queue.
            let refused = next.and_then(|next| next.send(Self::of(line)).err());
            self.line = refused.and_then(|mut turn| turn.line.take());
        }
    }
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    // A queue is consistent after every step, even if a caller panics between two of them.
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn the_turn_goes_to_those_who_wait_in_their_order_and_to_no_latecomer() {
        let turns = Turns::default();
        let first = turns.wait().now_or_never().expect("the turn is free");
        let (mut second, mut third) = (Box::pin(turns.wait()), Box::pin(turns.wait()));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        assert!(turns.wait().now_or_never().is_none(), "a latecomer");
        assert!(third.as_mut().now_or_never().is_none());
        let second = second.now_or_never().expect("it is the second's turn");
        drop(second);
        let third = third
            .now_or_never()
            .expect("the latecomer has left the line");
        drop(third);
        assert!(turns.wait().now_or_never().is_some(), "it is free");
    }

    #[test]
    fn a_turn_is_passed_on_if_its_waiter_is_cancelled() {
        let turns = Turns::default();
        let first = turns.wait().now_or_never().expect("the turn is free");
        let (mut second, mut third) = (Box::pin(turns.wait()), Box::pin(turns.wait()));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        // It is the second's already when the second is cancelled.
        drop(second);
        assert!(third.now_or_never().is_some());
    }
}
