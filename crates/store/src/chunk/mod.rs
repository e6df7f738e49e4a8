//! The files of chunks: their layout, writing, reading, merging, checking and removing.

pub(crate) mod apply;
pub(crate) mod file;
pub(crate) mod fragments;
pub(crate) mod open_files;
pub(crate) mod read;
mod scrub;
pub(crate) mod trash;
pub(crate) mod writer;
