//! The integration tests of `meta`, linked once: a module for each subject.

mod attributes;
mod by_model;
mod conversions;
mod directories;
mod directory_quotas;
mod engines;
mod exclusive;
mod fixture;
mod ids;
mod inline;
mod locks;
mod metadata_log;
mod model;
mod names;
mod operations;
mod placed_anew;
mod quotas;
mod replacements;
mod sizes;
mod snapshots;
mod transactions;
