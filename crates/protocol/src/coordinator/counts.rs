//! The last count of all files and stripes. A count takes time, so one runs at a time, and requests that it began after
//! share it. A request that allows some age gets an older one.

use crate::message::PoolUsage;
use futures::lock::Mutex as AsyncMutex;
use gabion_layout::PoolId;
use gabion_meta::MetaError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The last count.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Held while another one is made.
    last: AsyncMutex<Option<Count>>,
    /// Counts that have begun.
    begun_count: AtomicU64,
}

/// Files and chunks of each pool.
#[derive(Clone, Debug)]
struct Count {
    /// The number of counts that had begun with it.
    number: u64,
    begun_ms: u64,
    pools: BTreeMap<PoolId, PoolUsage>,
}

impl Counts {
    /// The last count, if it has begun since this call, or not more than `age_ms` before it; otherwise another one.
    ///
    /// # Errors
    /// Those of the count.
    pub(super) async fn last_or<F>(
        &self,
        age_ms: Option<u64>,
        now_ms: impl Fn() -> u64,
        count: impl FnOnce() -> F,
    ) -> Result<BTreeMap<PoolId, PoolUsage>, MetaError>
    where
        F: Future<Output = Result<BTreeMap<PoolId, PoolUsage>, MetaError>>,
    {
        // By number, because several requests come at the same time of the clock.
        let before = self.begun_count.load(Ordering::Acquire);
        let asked_ms = now_ms();
        let mut last = self.last.lock().await;
        if let Some(known) = &*last {
            let is_recent = |age_ms| asked_ms.saturating_sub(known.begun_ms) <= age_ms;
            if known.number > before || age_ms.is_some_and(is_recent) {
                return Ok(known.pools.clone());
            }
        }
        let number = self.begun_count.fetch_add(1, Ordering::AcqRel) + 1;
        let begun_ms = now_ms();
        let pools = count().await?;
        *last = Some(Count {
            number,
            begun_ms,
            pools: pools.clone(),
        });
        Ok(pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::channel::oneshot;
    use std::cell::Cell;
    use std::pin::pin;

    #[test]
    fn one_count_runs_at_a_time_and_requests_before_its_begin_share_it() {
        let (counts, made) = (Counts::default(), Cell::new(0));
        let count = || {
            made.set(made.get() + 1);
            async { Ok(BTreeMap::new()) }
        };
        let (open, gate) = oneshot::channel::<()>();
        let slow = || {
            made.set(made.get() + 1);
            gate.map(|_| Ok(BTreeMap::new()))
        };
        let now = || 7;
        let mut first = pin!(counts.last_or(None, now, slow));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = pin!(counts.last_or(None, now, count));
        let mut third = pin!(counts.last_or(None, now, count));
        for waiting in [second.as_mut(), third.as_mut()] {
            assert!(waiting.now_or_never().is_none());
        }
        assert_eq!(made.get(), 1);
        open.send(()).expect("the first count waits");
        assert!(first.now_or_never().is_some());
        assert!(second.now_or_never().is_some());
        assert!(third.now_or_never().is_some());
        assert_eq!(made.get(), 2, "the first count began too early for them");
        let aged = counts.last_or(Some(0), now, count).now_or_never();
        assert!(aged.is_some() && made.get() == 2);
    }
}
