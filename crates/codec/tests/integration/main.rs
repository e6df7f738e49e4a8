//! The integration tests of `codec`, linked once: a module for each subject.

mod codes;
mod isal;
mod kernel;
