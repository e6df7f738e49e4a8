//! A counting allocator: it ends the process when one input holds more memory than its target may.
//!
//! It counts the memory of each thread for itself, since a target runs on one thread. It says nothing about memory that
//! the system keeps for a stack.

#![expect(
    unsafe_code,
    reason = "an allocator hands the system's memory through and counts it"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator. A program chooses it with `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    /// Bytes that this thread holds, since its input began.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// The most that it held.
    static PEAK: Cell<isize> = const { Cell::new(0) };
    /// The most that it may hold.
    static LIMIT: Cell<isize> = const { Cell::new(isize::MAX) };
    /// Names the input when the limit is exceeded.
    static REPORT: Cell<fn(usize)> = const { Cell::new(|_| {}) };
}

/// Limits the memory of this thread from now on. `report` gets the bytes that exceed the limit, and the process ends.
pub fn limit(bytes: usize, report: fn(usize)) {
    HELD.set(0);
    PEAK.set(0);
    REPORT.set(report);
    LIMIT.set(isize::try_from(bytes).unwrap_or(isize::MAX));
}

/// Ends the limit, and returns the most bytes that the thread held at a time.
pub fn unlimit() -> usize {
    LIMIT.set(isize::MAX);
    PEAK.get().unsigned_abs()
}

fn count(more: isize) {
    // A thread that ends has no counters any more.
    let _ = HELD.try_with(|held| {
        let now = held.get().saturating_add(more);
        held.set(now);
        if more > 0 {
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
            let is_over = LIMIT.try_with(|limit| now > limit.get()).unwrap_or(false);
            if is_over {
                exceeded(now);
            }
        }
    });
}

/// Names the input, and ends the process before the memory is there.
#[cold]
fn exceeded(held: isize) {
    LIMIT.set(isize::MAX);
    REPORT.get()(held.unsigned_abs());
    std::process::abort();
}

// SAFETY: every call is handed to the system's allocator unchanged. Counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the rules of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the memory is the system's, and the caller keeps the rules of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the memory is the system's, and the caller keeps the rules of `realloc`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}
