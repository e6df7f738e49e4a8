//! The integration tests of `sim`, linked once: a module for each subject.

mod conversions;
mod holes;
mod names;
mod races;
mod registers;
mod seeds;
mod sizes;
