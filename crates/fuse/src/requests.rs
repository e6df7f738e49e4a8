//! Requests in flight: each is a task of the run-time, and all together hold a bounded number of bytes.

use crate::errno::Errno;
use gabion_gateway::RequestMetrics;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Requests in flight. The kernel queues further ones.
const REQUEST_COUNT: u32 = 256;
/// Bytes that requests in flight move.
const ALL_BYTES: u32 = 128 << 20;

/// Requests for locks in flight, with those that wait. Further ones are refused.
const LOCKING_COUNT: usize = 4_096;

/// Starts requests within the limits, and counts them.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    runtime: Handle,
    places: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    locking: Arc<Semaphore>,
    metrics: Arc<RequestMetrics>,
}

impl Requests {
    /// Requests as tasks of this run-time.
    pub(crate) fn new(runtime: Handle, metrics: Arc<RequestMetrics>) -> Self {
        Self {
            runtime,
            places: Arc::new(Semaphore::new(REQUEST_COUNT as usize)),
            bytes: Arc::new(Semaphore::new(ALL_BYTES as usize)),
            locking: Arc::new(Semaphore::new(LOCKING_COUNT)),
            metrics,
        }
    }

    /// Starts a request that moves bytes, and replies with its result. Blocks the calling thread, which reads the
    /// kernel's requests, while too much is in flight: requests in flight need no other request to end.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        operation: &'static str,
        moved_bytes: usize,
        work: impl Future<Output = Result<T, Errno>> + Send + 'static,
        reply: impl FnOnce(Result<T, fuser::Errno>) + Send + 'static,
    ) {
        let held = self.take(moved_bytes);
        self.run(operation, work, reply, held);
    }

    /// Starts a request for a lock. It takes no place of other requests, whose end it may wait for: others release the
    /// lock, and reads end before the kernel forgets their pages.
    pub(crate) fn start_locking<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, Errno>> + Send + 'static,
        reply: impl FnOnce(Result<T, fuser::Errno>) + Send + 'static,
    ) {
        if let Ok(held) = Arc::clone(&self.locking).try_acquire_owned() {
            self.run(operation, work, reply, held);
        } else {
            self.metrics.failed(operation, Errno::NoLocks.name());
            reply(Err(Errno::NoLocks.number()));
        }
    }

    fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, Errno>> + Send + 'static,
        reply: impl FnOnce(Result<T, fuser::Errno>) + Send + 'static,
        held: impl Send + 'static,
    ) {
        let metrics = Arc::clone(&self.metrics);
        let begun = Instant::now();
        self.runtime.spawn(async move {
            let done = work.await;
            metrics.ran(operation, begun.elapsed());
            if let Err(errno) = done {
                metrics.failed(operation, errno.name());
            }
            reply(done.map_err(Errno::number));
            drop(held);
        });
    }

    fn take(&self, moved_bytes: usize) -> [OwnedSemaphorePermit; 2] {
        let moved_bytes = u32::try_from(moved_bytes).unwrap_or(ALL_BYTES);
        let moved_bytes = moved_bytes.min(ALL_BYTES);
        [(&self.places, 1), (&self.bytes, moved_bytes)].map(|(semaphore, count)| {
            let semaphore = Arc::clone(semaphore);
            match Arc::clone(&semaphore).try_acquire_many_owned(count) {
                Ok(permit) => permit,
                Err(_) => self
                    .runtime
                    .block_on(semaphore.acquire_many_owned(count))
                    .expect("it is never closed"),
            }
        })
    }

    /// Waits until nothing is in flight but requests for locks, not longer than this. None if something is then. No
    /// other request begins before the result is dropped.
    pub(crate) async fn drain(&self, limit: Duration) -> Option<SemaphorePermit<'_>> {
        let idle = self.places.acquire_many(REQUEST_COUNT);
        timeout(limit, idle).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn requests_beyond_the_limit_wait_and_all_are_answered_and_counted() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a run-time");
        let metrics = Arc::new(RequestMetrics::new("gabion_test"));
        let requests = Requests::new(runtime.handle().clone(), Arc::clone(&metrics));
        let (done, results) = mpsc::channel();
        let gate = Arc::new(Semaphore::new(0));
        let starter = {
            let (requests, gate) = (requests.clone(), Arc::clone(&gate));
            std::thread::spawn(move || {
                for number in 0..300_u32 {
                    let (gate, done) = (Arc::clone(&gate), done.clone());
                    let work = async move {
                        gate.acquire().await.expect("it is open").forget();
                        if number == 7 {
                            Err(Errno::Stale)
                        } else {
                            Ok(number)
                        }
                    };
                    let reply = move |result: Result<u32, fuser::Errno>| {
                        done.send(result.is_ok()).expect("the test waits");
                    };
                    requests.start("test", 1 << 20, work, reply);
                }
            })
        };
        runtime.block_on(async {
            // As many as the bytes allow are in flight, and the starter waits.
            while requests.bytes.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            gate.add_permits(300);
            while !starter.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let drained = requests.drain(Duration::from_mins(1)).await;
            assert!(drained.is_some());
            let late = requests.places.try_acquire();
            assert!(late.is_err(), "no request begins until the places are free");
        });
        starter.join().expect("it has ended");
        let results: Vec<bool> = results.try_iter().collect();
        assert_eq!(
            (results.len(), results.iter().filter(|ok| !**ok).count()),
            (300, 1)
        );
        let text = metrics.text();
        let errors = "gabion_test_errors_total{operation=\"test\",error=\"ESTALE\"} 1";
        assert!(text.contains(errors), "{text}");
    }
}
