//! The integration tests of `plan`, linked once: a module for each subject.

mod hostile_plans;
