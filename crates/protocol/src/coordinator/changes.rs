//! The last changes of names and inodes, in memory, for clients that have cached them. A client asks for the changes
//! behind the place that it knows, and waits at the coordinator if there are none.
//!
//! No promise depends on it: what a client keeps ends by itself. So nothing here is durable. Another run of the
//! coordinator, and a place that the ring has passed, are answered with "anything may have changed".

use crate::locks::lock;
use crate::message::{CHANGES_WAIT_MS, Cause, Change, ChangePage, ChangePlace, Denial};
use crate::ports::Ports;
use futures::channel::oneshot::{Receiver, Sender, channel};
use futures::{FutureExt, select_biased};
use gabion_meta::{Changed, Observer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

/// Most changes that are kept. A name has at most 255 bytes, so they take a few megabytes.
const KEPT_COUNT: usize = 16_384;
/// Most changes of a reply.
const PAGE_COUNT: usize = 512;
/// Most requests that are waited with.
const ASKING_COUNT: u64 = 4_096;
/// Time in which further changes are gathered before a reply, in milliseconds.
const GATHER_MS: u64 = 10;
/// Requests for each millisecond of that: all clients together get at most 10,000 replies a second.
const ASKING_PER_MS: u64 = 10;

/// The last changes, and the requests that wait for the next.
#[derive(Debug)]
pub(super) struct Changes {
    run: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// All changes of this run.
    count: u64,
    /// The last of them.
    kept: VecDeque<Change>,
    /// Requests that are not answered yet.
    asking_count: u64,
    next_asking: u64,
    /// Those of them for which there are no changes yet.
    waiting: BTreeMap<u64, Sender<()>>,
}

/// A request that is not answered yet, until it is dropped.
struct Asking<'c> {
    changes: &'c Changes,
    number: u64,
    /// Woken by the next change, if there are none yet.
    woken: Option<Receiver<()>>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.changes.state);
        state.asking_count -= 1;
        state.waiting.remove(&self.number);
    }
}

impl Observer for Changes {
    fn changed(&self, number: Option<u64>, changed: BTreeSet<Changed>) {
        let mut state = lock(&self.state);
        state.count += changed.len() as u64;
        for changed in changed {
            state.kept.push_back(Change { number, changed });
        }
        let passed = state.kept.len().saturating_sub(KEPT_COUNT);
        state.kept.drain(..passed);
        for (_, waiter) in std::mem::take(&mut state.waiting) {
            // It may have its answer already.
            let _ = waiter.send(());
        }
    }
}

impl Changes {
    /// Those of a run that begins.
    pub(super) fn new(ports: &dyn Ports) -> Self {
        Self {
            run: ports.random(),
            state: Mutex::default(),
        }
    }

    /// Requests that are not answered yet: nearly all of them wait for changes.
    pub(super) fn asking_count(&self) -> u64 {
        lock(&self.state).asking_count
    }

    /// The changes behind a place. Waits for some if there are none, but not for ever.
    ///
    /// # Errors
    /// When too many requests wait.
    pub(super) async fn behind(
        &self,
        ports: &dyn Ports,
        place: ChangePlace,
    ) -> Result<ChangePage, Denial> {
        let mut asking = self.ask(place)?;
        if let Some(woken) = asking.woken.as_mut() {
            select_biased! {
                _ = woken.fuse() => {}
                () = ports.sleep_ms(CHANGES_WAIT_MS).fuse() => {}
            }
        }
        if let Some(gather_ms) = self.gather_ms(place) {
            ports.sleep_ms(gather_ms).await;
        }
        Ok(self.page(place))
    }

    /// A request begins.
    fn ask(&self, place: ChangePlace) -> Result<Asking<'_>, Denial> {
        let mut state = lock(&self.state);
        if state.asking_count >= ASKING_COUNT {
            let sentence = "too many clients wait for changes of files; ask again later";
            return Err(Denial::new(Cause::Failure, sentence));
        }
        let number = state.next_asking;
        state.next_asking += 1;
        state.asking_count += 1;
        let woken = (place == self.last(&state)).then(|| {
            let (sender, woken) = channel();
            state.waiting.insert(number, sender);
            woken
        });
        Ok(Asking {
            changes: self,
            number,
            woken,
        })
    }

    /// The time for further changes behind a place of this run; none if there are none, or a page of them.
    fn gather_ms(&self, place: ChangePlace) -> Option<u64> {
        let state = lock(&self.state);
        let behind = state.count.saturating_sub(place.count);
        let has_few = place.run == self.run && (1..PAGE_COUNT as u64).contains(&behind);
        has_few.then(|| GATHER_MS.max(state.asking_count / ASKING_PER_MS))
    }

    fn last(&self, state: &State) -> ChangePlace {
        ChangePlace {
            run: self.run,
            count: state.count,
        }
    }

    fn page(&self, place: ChangePlace) -> ChangePage {
        let state = lock(&self.state);
        let last = self.last(&state);
        let behind = state.count.checked_sub(place.count);
        let behind = behind.and_then(|behind| usize::try_from(behind).ok());
        let known = behind.filter(|&behind| place.run == self.run && behind <= state.kept.len());
        let Some(behind) = known else {
            return ChangePage {
                place: last,
                changes: None,
            };
        };
        let first = state.kept.len() - behind;
        let changes: Vec<Change> = state
            .kept
            .range(first..)
            .take(PAGE_COUNT)
            .cloned()
            .collect();
        ChangePage {
            place: ChangePlace {
                count: place.count + changes.len() as u64,
                ..last
            },
            changes: Some(changes),
        }
    }
}
