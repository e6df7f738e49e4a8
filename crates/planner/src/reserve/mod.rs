//! Workload-aware management of the space reserved behind parity chunks: Algorithm 1 of
//! the TWEEN thesis (section 4.1.2), the order of its victims (section 7.2.2), and growth and learnt first
//! sizes, which the thesis does not have.
//!
//! Pure: a node reports the use of its reserves and gets decisions; the lab reports simulated use. The store frees
//! space and merges deltas.

mod agenda;
mod demand;
mod policy;

pub use agenda::{Agenda, Budget, Task};
pub use demand::Demand;
pub use policy::{Growth, Policy, Reserve, Review, Usage};
