//! The state that an agent's runs share: the plugin's address, the places of runs in which it helps, and the numbers of
//! new ones.

use crate::frame::{Reading, Writing};
use gabion_layout::{NodeId, RunId};
use gabion_protocol::locks::lock;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most runs in which an agent takes part as a helper at a time.
const RUN_COUNT_MAX: usize = 64;
/// Most rebuilds at a time.
const REBUILD_COUNT_MAX: usize = 64;
/// Most connections of other helpers of one run that wait for it.
const JOIN_COUNT_MAX: usize = 255;

/// A connection of another helper, for a run.
pub(crate) type Joined = (NodeId, Reading, Writing);

/// The runs of an agent.
pub(crate) struct Runs {
    plugin: String,
    /// The runs in which it helps, and where other helpers' connections go.
    helping: Mutex<BTreeMap<RunId, Sender<Joined>>>,
    /// The places of rebuilds.
    rebuilds: Semaphore,
    /// Draws the numbers of runs. An agent that knows a run's number may join it, so it must not be guessed.
    random: Mutex<ChaCha20Rng>,
}

/// A run's place among those in which the agent helps.
pub(crate) struct RunPlace {
    runs: Arc<Runs>,
    run: RunId,
    pub(crate) joins: Receiver<Joined>,
}

impl Drop for RunPlace {
    fn drop(&mut self) {
        lock(&self.runs.helping).remove(&self.run);
    }
}

impl Runs {
    /// No runs, of an agent that asks the plugin at `plugin` (`host:port`) for blocks.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub(crate) fn new(plugin: String) -> io::Result<Arc<Self>> {
        let mut seed = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Arc::new(Self {
            plugin,
            helping: Mutex::default(),
            rebuilds: Semaphore::new(REBUILD_COUNT_MAX),
            random: Mutex::new(ChaCha20Rng::from_seed(seed)),
        }))
    }

    /// Passes another helper's connection to its run. Without such a run it is closed.
    pub(crate) fn join(&self, run: RunId, joined: Joined) {
        let joins = lock(&self.helping).get(&run).cloned();
        if let Some(joins) = joins {
            let _ = joins.try_send(joined);
        }
    }

    /// Takes a place for a run, if there is one.
    pub(crate) fn place(self: &Arc<Self>, run: RunId) -> Option<RunPlace> {
        let (sender, joins) = channel(JOIN_COUNT_MAX);
        let mut helping = lock(&self.helping);
        if helping.len() >= RUN_COUNT_MAX || helping.contains_key(&run) {
            return None;
        }
        helping.insert(run, sender);
        let runs = Arc::clone(self);
        Some(RunPlace { runs, run, joins })
    }

    /// Takes a place for a rebuild, if there is one.
    pub(crate) fn rebuild_place(&self) -> Option<SemaphorePermit<'_>> {
        self.rebuilds.try_acquire().ok()
    }

    /// The plugin's address.
    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }

    /// The number of a new run.
    pub(crate) fn new_run(&self) -> RunId {
        RunId(lock(&self.random).next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_rebuilds_have_limits() {
        let runs = Runs::new(String::new()).unwrap();
        let places: Vec<RunPlace> = (0..64).map(|run| runs.place(RunId(run)).unwrap()).collect();
        assert!(runs.place(RunId(64)).is_none());
        drop(places);
        assert!(runs.place(RunId(64)).is_some());
        let rebuilds: Vec<_> = (0..64).map(|_| runs.rebuild_place().unwrap()).collect();
        assert!(runs.rebuild_place().is_none());
        drop(rebuilds);
        assert!(runs.rebuild_place().is_some());
    }
}
