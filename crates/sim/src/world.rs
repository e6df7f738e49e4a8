//! One thread, one seed, virtual time. The seed selects the next of the ready tasks; when none is ready,
//! time jumps to the next timer. No other event occurs, so a seed gives the same run on every machine.
//!
//! Tasks belong to processes, and a process is killed by dropping its tasks at any point of their work.

use crate::dice::Dice;
use crate::journal::Journal;
use crate::steps::Steps;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::task::{ArcWake, waker};
pub(crate) use gabion_protocol::locks::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// A run of a process: a restarted process has a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ProcessId(u64);

/// Polls after which a run counts as an endless loop.
const POLL_COUNT_MAX: u64 = 20_000_000;
/// Virtual time after which a run counts as waiting for ever.
const NOW_US_MAX: u64 = 3_600_000_000;

/// The scheduler, the clock and the random numbers of one simulation.
#[derive(Debug)]
pub(crate) struct World {
    state: Mutex<State>,
    ready: Arc<Ready>,
    pub(crate) steps: Steps,
}

struct State {
    now_us: u64,
    next_id: u64,
    tasks: BTreeMap<u64, Task>,
    timers: BTreeMap<(u64, u64), Timer>,
    alive: BTreeSet<ProcessId>,
    paused: BTreeMap<ProcessId, Pause>,
    /// Virtual time that clocks of processes have not counted.
    uncounted_us: BTreeMap<ProcessId, u64>,
    dice: Dice,
    journal: Journal,
    failure: Option<String>,
    /// Whether a broken promise does not end the run.
    is_forgiving: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("now_us", &self.now_us)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// A stopped process.
struct Pause {
    since_us: u64,
    /// Whether its clock continues.
    clock_goes_on: bool,
    /// Tasks that were woken since.
    woken: Vec<u64>,
}

struct Task {
    process: ProcessId,
    /// Taken out while the task runs.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
}

enum Timer {
    Wake(Waker),
    Act(Box<dyn FnOnce() + Send>),
}

/// Ready tasks, in the order in which they were woken; each is there once.
#[derive(Debug, Default)]
struct Ready(Mutex<Vec<u64>>);

struct TaskWaker {
    task: u64,
    ready: Arc<Ready>,
}

impl ArcWake for TaskWaker {
    fn wake_by_ref(this: &Arc<Self>) {
        let mut ready = lock(&this.ready.0);
        if !ready.contains(&this.task) {
            ready.push(this.task);
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64, kept_line_count: usize) -> Arc<Self> {
        let state = State {
            now_us: 0,
            next_id: 1,
            tasks: BTreeMap::new(),
            timers: BTreeMap::new(),
            alive: BTreeSet::new(),
            paused: BTreeMap::new(),
            uncounted_us: BTreeMap::new(),
            dice: Dice::new(seed),
            journal: Journal::new(kept_line_count),
            failure: None,
            is_forgiving: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            ready: Arc::default(),
            steps: Steps::default(),
        })
    }

    /// Microseconds since the start.
    pub(crate) fn now_us(&self) -> u64 {
        lock(&self.state).now_us
    }

    /// Draws from the dice.
    pub(crate) fn roll<R>(&self, ask: impl FnOnce(&mut Dice) -> R) -> R {
        ask(&mut lock(&self.state).dice)
    }

    /// A unique number.
    pub(crate) fn fresh(&self) -> u64 {
        let mut state = lock(&self.state);
        state.next_id += 1;
        state.next_id
    }

    /// Adds a line to the event log.
    pub(crate) fn note(&self, line: &str) {
        let state = &mut *lock(&self.state);
        state.journal.add(state.now_us, line);
    }

    /// From now on broken promises do not end the run.
    pub(crate) fn forgive(&self) {
        lock(&self.state).is_forgiving = true;
    }

    /// Whether broken promises do not end the run.
    pub(crate) fn is_forgiving(&self) -> bool {
        lock(&self.state).is_forgiving
    }

    /// Ends the run: a promise was broken. Only the first reason counts.
    pub(crate) fn fail(&self, reason: String) {
        if !self.is_forgiving() {
            self.stop(reason);
        }
    }

    /// Ends the run, whether it forgives broken promises or not.
    pub(crate) fn stop(&self, reason: String) {
        let state = &mut *lock(&self.state);
        if state.failure.is_none() {
            state
                .journal
                .add(state.now_us, &format!("FAILURE: {reason}"));
            state.failure = Some(reason);
        }
    }

    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.state).failure.clone()
    }

    pub(crate) fn take_journal(&self) -> Journal {
        std::mem::take(&mut lock(&self.state).journal)
    }

    /// Starts a process without tasks.
    pub(crate) fn begin(&self) -> ProcessId {
        let process = ProcessId(self.fresh());
        lock(&self.state).alive.insert(process);
        process
    }

    /// Ends a process at any point of its tasks. Must not be called by one of them.
    pub(crate) fn kill(&self, process: ProcessId) {
        let killed: Vec<Task> = {
            let mut state = lock(&self.state);
            state.alive.remove(&process);
            state.paused.remove(&process);
            state.uncounted_us.remove(&process);
            let of_process = |_: &u64, task: &mut Task| task.process == process;
            let killed = state.tasks.extract_if(.., of_process);
            killed.map(|(_, task)| task).collect()
        };
        // Dropping a task's state may wake others or stop timers, so no lock is held here.
        drop(killed);
    }

    /// Stops a process at any point of its tasks, unless it is stopped or has ended.
    pub(crate) fn pause(&self, process: ProcessId, clock_goes_on: bool) {
        let state = &mut *lock(&self.state);
        if state.alive.contains(&process) {
            let since_us = state.now_us;
            state.paused.entry(process).or_insert(Pause {
                since_us,
                clock_goes_on,
                woken: Vec::new(),
            });
        }
    }

    /// Continues a process: all timers that have become due run at once.
    pub(crate) fn resume(&self, process: ProcessId) {
        let state = &mut *lock(&self.state);
        let Some(pause) = state.paused.remove(&process) else {
            return;
        };
        if !pause.clock_goes_on {
            let stood_us = state.now_us - pause.since_us;
            *state.uncounted_us.entry(process).or_default() += stood_us;
        }
        for task in pause.woken {
            if let Some(task) = state.tasks.get(&task) {
                task.waker.wake_by_ref();
            }
        }
    }

    /// The virtual time that the clock of a process has not counted since its start.
    pub(crate) fn uncounted_us(&self, process: ProcessId) -> u64 {
        let state = lock(&self.state);
        state.uncounted_us.get(&process).copied().unwrap_or(0)
    }

    /// Ends everything, so that only the owner keeps the world alive.
    pub(crate) fn end(&self) {
        let (tasks, timers) = {
            let mut state = lock(&self.state);
            state.alive.clear();
            (
                std::mem::take(&mut state.tasks),
                std::mem::take(&mut state.timers),
            )
        };
        drop(tasks);
        drop(timers);
    }

    /// Adds a task to a process; an ended process ignores it.
    pub(crate) fn spawn(&self, process: ProcessId, future: BoxFuture<'static, ()>) {
        let mut state = lock(&self.state);
        if !state.alive.contains(&process) {
            drop(state);
            drop(future);
            return;
        }
        state.next_id += 1;
        let id = state.next_id;
        let ready = Arc::clone(&self.ready);
        let waker = waker(Arc::new(TaskWaker { task: id, ready }));
        waker.wake_by_ref();
        let future = Some(future);
        state.tasks.insert(
            id,
            Task {
                process,
                future,
                waker,
            },
        );
    }

    /// Runs a task later, even if the caller is dropped.
    pub(crate) fn after(&self, delay_us: u64, act: impl FnOnce() + Send + 'static) {
        let state = &mut *lock(&self.state);
        state.next_id += 1;
        let at = (state.now_us.saturating_add(delay_us), state.next_id);
        state.timers.insert(at, Timer::Act(Box::new(act)));
    }

    /// Waits.
    pub(crate) fn sleep(self: &Arc<Self>, delay_us: u64) -> Sleep {
        let until_us = self.now_us().saturating_add(delay_us);
        Sleep {
            world: Arc::clone(self),
            until_us,
            timer: None,
        }
    }

    /// Runs until `main` is done or the run has failed.
    pub(crate) fn run(&self, main: impl Future<Output = ()> + Send + 'static) {
        let process = self.begin();
        let is_done = Arc::new(Mutex::new(false));
        let done = Arc::clone(&is_done);
        self.spawn(process, main.map(move |()| *lock(&done) = true).boxed());
        let mut poll_count = 0;
        while !*lock(&is_done) && self.failure().is_none() {
            let picked = self.pick();
            if picked.is_some_and(|task| self.poll(task)) {
                poll_count += 1;
                if poll_count > POLL_COUNT_MAX {
                    self.stop(format!("no end in sight after {POLL_COUNT_MAX} steps"));
                }
            } else if picked.is_none() && !self.advance() {
                self.stop("all tasks wait for ever".to_owned());
            }
        }
    }

    fn pick(&self) -> Option<u64> {
        let mut ready = lock(&self.ready.0);
        if ready.is_empty() {
            return None;
        }
        let at = self.roll(|dice| dice.below(ready.len() as u64)) as usize;
        Some(ready.swap_remove(at))
    }

    /// Runs a task until it waits. False when it has ended.
    fn poll(&self, id: u64) -> bool {
        let taken = {
            let state = &mut *lock(&self.state);
            let task = state.tasks.get_mut(&id);
            task.and_then(|task| {
                if let Some(pause) = state.paused.get_mut(&task.process) {
                    pause.woken.push(id);
                    return None;
                }
                Some((task.future.take()?, task.waker.clone()))
            })
        };
        let Some((mut future, waker)) = taken else {
            return false;
        };
        let ended = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = lock(&self.state);
        match (ended, state.tasks.get_mut(&id)) {
            (Poll::Pending, Some(task)) => task.future = Some(future),
            (ended, _) => {
                if ended.is_ready() {
                    state.tasks.remove(&id);
                }
                drop(state);
                drop(future);
            }
        }
        true
    }

    /// Jumps to the next timer. False when there is none.
    fn advance(&self) -> bool {
        let timer = {
            let mut state = lock(&self.state);
            match state.timers.pop_first() {
                Some(((at_us, _), timer)) if at_us < NOW_US_MAX => {
                    state.now_us = state.now_us.max(at_us);
                    timer
                }
                _ => return false,
            }
        };
        match timer {
            Timer::Wake(waker) => waker.wake(),
            Timer::Act(act) => act(),
        }
        true
    }
}

/// A wait in virtual time.
#[derive(Debug)]
pub(crate) struct Sleep {
    world: Arc<World>,
    until_us: u64,
    timer: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = Arc::clone(&self.world);
        let mut state = lock(&world.state);
        if state.now_us >= self.until_us {
            return Poll::Ready(());
        }
        let key = self.timer.unwrap_or_else(|| {
            state.next_id += 1;
            (self.until_us, state.next_id)
        });
        self.timer = Some(key);
        state
            .timers
            .insert(key, Timer::Wake(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            lock(&self.world.state).timers.remove(&key);
        }
    }
}
