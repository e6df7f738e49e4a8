//! The workload-aware management of the space that is reserved behind parity chunks: Algorithm 1 of
//! the TWEEN thesis (section 4.1.2), the order of its victims (section 7.2.2), and growth, which the
//! thesis does not have.
//!
//! Pure: a node tells what its reserves were used for and is told what to do; the lab tells what
//! they would have been used for. How space is given back and how deltas are merged is the store's.

mod agenda;
mod policy;

pub use agenda::{Agenda, Budget, Task};
pub use policy::{Growth, Policy, Reserve, Review, Usage};
