//! Checks whether the clients' view of a file is linearizable: whether all operations could have
//! happened one after another, each at some instant between its call and its answer (Herlihy and
//! Wing, "Linearizability", 1990).
//!
//! It knows calls, answers, times and values only, neither the bytes of a value nor the system's
//! own state. The simulator and the torture test of real processes report their clients' operations
//! to it.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod block;
mod blocks;
mod choices;
mod contradiction;
mod order;

pub use block::Block;
pub use blocks::Blocks;
pub use contradiction::{Circle, Contradiction, Operation, Reason};
