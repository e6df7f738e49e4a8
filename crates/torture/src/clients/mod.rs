//! The load: clients that write and read the same bytes, and store, list, read and remove files.

mod cached;
mod direct;
mod names;
mod verify;

pub(crate) use names::Kept;
pub(crate) use verify::read_all;

use crate::cells::CELL_BYTES;
use crate::dice::Dice;
use crate::recorder::{Recorder, Span};
use gabion_client::{Client, ClientError, ClientOptions};
use gabion_layout::ByteRange;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Limit of an operation, whatever the clients' own deadlines are; a longer one hangs.
const HANG_LIMIT: Duration = Duration::from_mins(4);
/// Longest pause between operations, in milliseconds: the clients share two cores with the cluster.
const PAUSE_MS_MAX: u64 = 30;
const CACHE_BYTES: u64 = 8 << 20;

/// A file that clients share.
#[derive(Clone, Debug)]
pub(crate) struct SharedFile {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) cell_count: u64,
    /// Cells of a full stripe.
    pub(crate) stripe_cells: u64,
}

/// The work of the clients.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) coordinator: String,
    pub(crate) files: Vec<SharedFile>,
    /// The pool for whole files.
    pub(crate) pool: String,
    pub(crate) seed: u64,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) signals: Arc<Signals>,
}

/// Signals from the fault driver to the clients.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) is_over: AtomicBool,
    /// Whether whole files must not be stored or removed: an old database is in use, which will be
    /// replaced again.
    pub(crate) names_rest: AtomicBool,
    /// The client of whole files has acknowledged that, and has no operation in flight.
    pub(crate) names_are_at_rest: AtomicBool,
}

/// Clients that run in a thread of their own.
#[derive(Debug)]
pub(crate) struct Working {
    thread: JoinHandle<Vec<Kept>>,
    signals: Arc<Signals>,
}

impl Working {
    /// Starts the clients.
    ///
    /// # Errors
    /// A sentence of the operating system.
    pub(crate) fn start(load: Load) -> std::io::Result<Self> {
        let signals = Arc::clone(&load.signals);
        let thread = std::thread::Builder::new().name("clients".to_owned());
        let thread = thread.spawn(move || run(&load))?;
        Ok(Self { thread, signals })
    }

    /// Stops the clients, waits for their operations in flight, and returns the files that exist.
    pub(crate) fn stop(self) -> Vec<Kept> {
        self.signals.is_over.store(true, Ordering::Release);
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn run(load: &Load) -> Vec<Kept> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a run-time for clients");
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for number in 1..=3 {
            tasks.push(tokio::spawn(direct::run(One::new(load, number))));
        }
        for number in 4..=5 {
            tasks.push(tokio::spawn(cached::run(One::new(load, number))));
        }
        let names = tokio::spawn(names::run(One::new(load, 6)));
        for task in tasks {
            task.await.expect("clients do not panic");
        }
        names.await.expect("clients do not panic")
    })
}

/// One client.
struct One {
    load: Load,
    number: u32,
    dice: Dice,
}

impl One {
    fn new(load: &Load, number: u32) -> Self {
        Self {
            load: load.clone(),
            number,
            dice: Dice::new(load.seed, 100 + u64::from(number)),
        }
    }

    fn is_over(&self) -> bool {
        self.load.signals.is_over.load(Ordering::Acquire)
    }

    async fn pause(&mut self) {
        let pause = Duration::from_millis(self.dice.below(PAUSE_MS_MAX));
        tokio::time::sleep(pause).await;
    }

    /// A new client; half of the clients have short deadlines.
    async fn connect(&mut self, cache_bytes: u64) -> Client {
        let deadline = Duration::from_secs(self.dice.pick(&[8, 30]));
        loop {
            let options = ClientOptions {
                deadline,
                cache_bytes,
                read_ahead_bytes: 0,
                ..ClientOptions::default()
            };
            match gabion_wire::connect(&self.load.coordinator, options).await {
                Ok(client) => return client,
                Err(error) => self.load.recorder.note_error(&error.to_string()),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A range of cells: mostly a few of a stripe's first ones, where clients meet; sometimes many,
    /// and sometimes across a border of stripes.
    fn draw_span(&mut self) -> Span {
        let file = self.dice.below(self.load.files.len() as u64) as u32;
        self.draw_span_of(file)
    }

    /// Whether a range lies within one stripe.
    fn is_within_a_stripe(&self, span: &Span) -> bool {
        let stripe_cells = self.load.files[span.file as usize].stripe_cells;
        span.cells.start / stripe_cells == (span.cells.end - 1) / stripe_cells
    }

    /// A range of cells of one file.
    fn draw_span_of(&mut self, file: u32) -> Span {
        let file = &self.load.files[file as usize];
        let stripe_count = file.cell_count.div_ceil(file.stripe_cells);
        let stripe = self.dice.below(stripe_count) * file.stripe_cells;
        let count = match self.dice.below(10) {
            0 => self.dice.between(17, 128),
            1..4 => self.dice.between(5, 16),
            _ => self.dice.between(1, 4),
        };
        let first = match self.dice.below(12) {
            0 => self.dice.below(file.cell_count),
            1 => stripe.saturating_sub(1 + self.dice.below(count)),
            _ => stripe + self.dice.below(48),
        };
        let first = first.min(file.cell_count - 1);
        Span {
            file: file.number,
            cells: first..(first + count).min(file.cell_count),
        }
    }
}

/// The bytes of cells.
fn range(span: &Span) -> ByteRange {
    let count = span.cells.end - span.cells.start;
    ByteRange::new(span.cells.start * CELL_BYTES, count * CELL_BYTES)
}

/// Waits for an operation; one that does not end is a failure of the cluster.
async fn within_limit<T>(
    recorder: &Recorder,
    what: &str,
    operation: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, String> {
    if let Ok(ended) = tokio::time::timeout(HANG_LIMIT, operation).await {
        return ended.map_err(|error| error.to_string());
    }
    let sentence = format!("{what} hangs: it has not ended after {HANG_LIMIT:?}");
    recorder.broken(sentence.clone());
    Err(sentence)
}
