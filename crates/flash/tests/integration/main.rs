//! The integration tests of `flash`, linked once: a module for each subject.

mod sigkill;
mod ssd;
mod store;
