//! Runs inputs of a target under its limits: panics, also those that the product catches, memory and time.
//!
//! Without coverage; `cargo xtask fuzz` adds that.

use crate::corpus::corpus;
use crate::memory;
use crate::mutation::{Dice, mutated};
use crate::target::Target;
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

/// The longest time of one input. Inputs take milliseconds; a busy machine may stop a process for a while.
const INPUT_SECONDS_MAX: u64 = 60;

thread_local! {
    /// Panics of this thread.
    static PANIC_COUNT: Cell<u64> = const { Cell::new(0) };
    /// The input that runs, and its target.
    static RUNNING: RefCell<(&'static str, Vec<u8>)> = const { RefCell::new(("", Vec::new())) };
}

/// The failure of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// Its place in the run, from 0.
    pub number: u64,
}

/// The result of a run without a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Inputs that ran.
    pub input_count: u64,
    /// The most bytes that one of them held.
    pub memory_bytes_max: usize,
}

/// Runs the corpus of a target, then `count` mutations of it from `seed`.
///
/// # Errors
/// The first input that panicked. An input that holds too much memory or does not end stops the process, and its bytes
/// are printed.
///
/// # Panics
/// When the corpus cannot be read.
pub fn run(target: &'static Target, count: u64, seed: u64) -> Result<Summary, Failure> {
    let inputs = corpus(target).unwrap_or_else(|error: io::Error| {
        panic!("cannot read the corpus of {}: {error}", target.name);
    });
    // State that is made once belongs to no input.
    catch(target, &[]);
    let mut dice = Dice::new(seed);
    let watch = Watch::begin(target.name);
    let mut summary = Summary {
        input_count: 0,
        memory_bytes_max: 0,
    };
    let mutations = (0..count).map(|_| mutated(&inputs, target.input_bytes_max, &mut dice));
    for input in inputs.iter().cloned().chain(mutations) {
        watch.next();
        let number = summary.input_count;
        let held = run_one(target, &input).ok_or(Failure { input, number })?;
        summary.input_count += 1;
        summary.memory_bytes_max = summary.memory_bytes_max.max(held);
    }
    Ok(summary)
}

/// Runs one input under the target's limit of memory, and returns the most bytes that it held. `None` if it panicked,
/// even if the product caught the panic.
pub fn run_one(target: &'static Target, input: &[u8]) -> Option<usize> {
    RUNNING.with_borrow_mut(|running| {
        running.0 = target.name;
        running.1.clear();
        running.1.extend_from_slice(input);
    });
    memory::limit(target.memory_bytes_max, report_memory);
    let is_whole = catch(target, input);
    let held = memory::unlimit();
    is_whole.then_some(held)
}

/// Whether the input ran without any panic.
fn catch(target: &Target, input: &[u8]) -> bool {
    count_panics();
    let before = PANIC_COUNT.get();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    outcome.is_ok() && PANIC_COUNT.get() == before
}

/// Counts panics from now on, before the hook that prints them.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANIC_COUNT.set(PANIC_COUNT.get() + 1);
            // A backtrace takes memory too.
            memory::unlimit();
            print(panic);
        }));
    });
}

fn report_memory(bytes: usize) {
    RUNNING.with_borrow(|(name, input)| {
        eprintln!(
            "fuzz target {name} holds {bytes} bytes, which is too much, for the input {}",
            hexadecimal(input)
        );
    });
}

/// An input for people.
pub fn hexadecimal(input: &[u8]) -> String {
    let mut text = String::new();
    for byte in input {
        write!(text, "{byte:02x}").expect("writes to a string succeed");
    }
    text
}

/// Ends the process if an input does not end.
struct Watch {
    begun: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Watch {
    fn begin(name: &'static str) -> Self {
        let watch = Self {
            begun: Arc::default(),
            is_over: Arc::default(),
        };
        let (begun, is_over) = (Arc::clone(&watch.begun), Arc::clone(&watch.is_over));
        thread::spawn(move || {
            let (mut last, mut seconds) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_secs(1));
                let now = begun.load(Ordering::Relaxed);
                seconds = if now == last { seconds + 1 } else { 0 };
                last = now;
                if seconds > INPUT_SECONDS_MAX {
                    eprintln!("fuzz target {name} does not end for input {}", now - 1);
                    std::process::abort();
                }
            }
        });
        watch
    }

    fn next(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
