//! Each target runs its corpus and mutations of it, and the harness notices what it must.

mod harness;
mod targets;

use gabion_fuzz::memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
