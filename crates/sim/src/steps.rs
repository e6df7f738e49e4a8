//! The steps of a run: an onlooker checks the disks after changes, and a test may place an event at one step.
//! A step is the arrival of a message or the start of a disk operation.

use crate::world::lock;
use std::sync::{Mutex, OnceLock};

/// Called when a disk may have changed.
type Onlooker = Box<dyn Fn() + Send + Sync>;

/// The event to run.
pub(crate) type Act = Box<dyn FnOnce() + Send>;

/// The steps of a run. Until they are counted, no event runs.
#[derive(Default)]
pub(crate) struct Steps {
    onlooker: OnceLock<Onlooker>,
    counted: Mutex<Option<Counted>>,
}

#[derive(Default)]
struct Counted {
    step_count: u64,
    at: Option<(u64, Act)>,
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

impl Steps {
    /// Calls `onlooker` after each change until the run ends.
    ///
    /// # Panics
    /// If there is an onlooker already.
    pub(crate) fn watch_with(&self, onlooker: Onlooker) {
        let is_first = self.onlooker.set(onlooker).is_ok();
        assert!(is_first, "one onlooker sees everything");
    }

    /// A disk, or the metadata, may have changed.
    pub(crate) fn changed(&self) {
        if let Some(look) = self.onlooker.get() {
            look();
        }
    }

    /// Counts steps from now on, the next being number 0, and runs an event before the step of this number.
    pub(crate) fn count(&self, at: Option<(u64, Act)>) {
        *lock(&self.counted) = Some(Counted { step_count: 0, at });
    }

    /// Stops counting. Returns the number of steps.
    pub(crate) fn end(&self) -> u64 {
        let counted = lock(&self.counted).take();
        counted.map_or(0, |counted| counted.step_count)
    }

    /// A step begins. Returns the event to run before it, if there is one.
    pub(crate) fn step(&self) -> Option<Act> {
        let mut counted = lock(&self.counted);
        let counted = counted.as_mut()?;
        let number = counted.step_count;
        counted.step_count += 1;
        let (_, act) = counted.at.take_if(|(at, _)| *at == number)?;
        Some(act)
    }
}
