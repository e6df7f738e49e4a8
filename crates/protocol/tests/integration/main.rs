//! The integration tests of `protocol`, linked once: a module for each subject.

mod coordinator;
mod leader;
mod model;
mod update;
