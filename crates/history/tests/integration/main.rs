//! The integration tests of `history`, linked once: a module for each subject.

mod blocks;
mod long;
mod oracle;
mod spanning;
