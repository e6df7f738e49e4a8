//! The time limit of a handshake. It counts the time in which the server waits for the client. The time in which
//! exports are found and opened does not count: a cluster has limits of its own there, at which the client gets an
//! answer.

use crate::device::{Device, ExportShape, Exports, OpenError};
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Longest time of a handshake that does not count.
const EXCUSED_MAX: Duration = Duration::from_mins(5);

/// The time of one handshake that its exports took.
#[derive(Debug, Default)]
pub(crate) struct Excused(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    ended: Duration,
    /// The beginning of the call that runs.
    began: Option<Instant>,
}

impl Excused {
    /// Runs a handshake that uses [`CountedExports`] of this time. Returns nothing if the client took more than
    /// `limit`.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        handshake: impl Future<Output = T>,
    ) -> Option<T> {
        let begun = Instant::now();
        tokio::pin!(handshake);
        loop {
            let deadline = begun + limit + self.total();
            if let Ok(done) = timeout_at(deadline, &mut handshake).await {
                return Some(done);
            }
            if Instant::now() >= begun + limit + self.total() {
                return None;
            }
        }
    }

    fn total(&self) -> Duration {
        let state = self.lock();
        let runs = state.began.map_or(Duration::ZERO, |began| began.elapsed());
        (state.ended + runs).min(EXCUSED_MAX)
    }

    /// Counts a call, which is over when the result is dropped.
    fn call(&self) -> Call<'_> {
        self.lock().began = Some(Instant::now());
        Call(self)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Call<'a>(&'a Excused);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let took = state.began.take().map(|began| began.elapsed());
        state.ended += took.unwrap_or_default();
    }
}

/// Exports whose calls are excused. A handshake makes one call after another.
pub(crate) struct CountedExports<'e> {
    pub(crate) exports: &'e dyn Exports,
    pub(crate) excused: &'e Excused,
}

impl CountedExports<'_> {
    fn counted<'a, T>(&'a self, call: BoxFuture<'a, T>) -> BoxFuture<'a, T>
    where
        T: Send + 'a,
    {
        Box::pin(async move {
            let _counted = self.excused.call();
            call.await
        })
    }
}

impl Exports for CountedExports<'_> {
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, OpenError>> {
        self.counted(self.exports.names())
    }

    fn look<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ExportShape, OpenError>> {
        self.counted(self.exports.look(name))
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Device>, OpenError>> {
        self.counted(self.exports.open(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    const SECOND: Duration = Duration::from_secs(1);

    /// An export that takes this long to be found.
    struct Slow(Duration);

    impl Exports for Slow {
        fn names(&self) -> BoxFuture<'_, Result<Vec<String>, OpenError>> {
            Box::pin(async {
                sleep(self.0).await;
                Ok(Vec::new())
            })
        }

        fn look<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<ExportShape, OpenError>> {
            Box::pin(async { Err(OpenError::Unknown) })
        }

        fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Arc<dyn Device>, OpenError>> {
            Box::pin(async { Err(OpenError::Unknown) })
        }
    }

    /// Whether a handshake ends in time whose exports take `opening` twice, and whose client takes `silence`.
    async fn ends(opening: Duration, silence: Duration) -> bool {
        let (slow, excused) = (Slow(opening), Excused::default());
        let exports = CountedExports {
            exports: &slow,
            excused: &excused,
        };
        let handshake = async {
            exports.names().await.expect("names");
            sleep(silence).await;
            exports.names().await.expect("names");
        };
        excused.within(30 * SECOND, handshake).await.is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_not_charged_for_an_export_that_is_slow_to_open() {
        assert!(ends(100 * SECOND, 29 * SECOND).await);
        assert!(!ends(100 * SECOND, 31 * SECOND).await);
        assert!(!ends(SECOND, 31 * SECOND).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_export_that_never_opens_ends_the_handshake() {
        assert!(!ends(EXCUSED_MAX * 2, SECOND).await);
    }
}
