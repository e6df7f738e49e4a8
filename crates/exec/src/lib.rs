//! The executor of one node's part of a plan: a sans-IO state machine.
//!
//! [`Executor`] takes [`Event`]s (fetched bytes, received slices, a receiver's credit) and returns
//! [`Command`]s (fetch, send, store). It makes no decisions: the plan determines all reads, sums,
//! sends and writes. It has no clock, sockets or threads, so the servers and the simulator drive
//! the same code.
//!
//! All steps of a part run at once, slice by slice. Each value has a ring of [`RING_SLICES`]
//! slices: a step that makes a value stops when its ring is full, and a receiver grants its sender
//! more credit once half of its ring is free. So a part needs memory for its rings only, however
//! long its chunk, and a slow link slows all steps before it. A part that runs *in turn*
//! ([`gabion_plan::StepOrder`]) has no such overlap: one slice, one step after another.
//!
//! Parts and events come from peers and are not trusted. A part that needs more than
//! [`MAX_BUFFER_BYTES`] is refused before any read, and so is a slice without credit, or credit for
//! a slice that was not sent. The driver keeps the order of each link; fetches and stores may end
//! in any order.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod command;
mod executor;
mod graph;
mod in_turn;
mod ring;
mod streamed;

pub use command::{Command, Event, Sink, Source};
pub use executor::{ExecError, Executor};
pub use graph::{MAX_BUFFER_BYTES, MAX_SLICE_BYTES, MAX_STEPS, MAX_TERMS, MalformedPart};
pub use ring::RING_SLICES;
