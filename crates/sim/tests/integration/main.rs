//! The integration tests of `sim`, linked once: a module for each subject.

mod holes;
mod model;
mod names;
mod race_crashes;
mod races;
mod registers;
mod seeds;
mod sizes;
