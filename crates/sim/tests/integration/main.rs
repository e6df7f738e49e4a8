//! The integration tests of `sim`, linked once: a module for each subject.

mod cached_hole;
mod conversions;
mod cut_node;
mod filled_holes;
mod flush_in_doubt;
mod holes;
mod names;
mod races;
mod registers;
mod seeds;
mod silent_node;
mod sizes;
mod taken_twice;
mod zeroed_twice;
