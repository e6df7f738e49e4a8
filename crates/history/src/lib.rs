//! Whether what clients saw of the bytes of a file can have happened one operation after another, each at some
//! instant between its call and its answer (Herlihy and Wing, "Linearizability", 1990).
//!
//! It knows calls, answers, times and values. It does not know what bytes a value is, nor anything that the system
//! says of itself: the simulator and the torture test of real processes give it what their clients saw.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod block;
mod blocks;
mod choices;
mod contradiction;
mod order;

pub use block::Block;
pub use blocks::Blocks;
pub use contradiction::{Circle, Contradiction, Operation, Reason};
