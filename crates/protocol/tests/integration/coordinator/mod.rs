//! The coordinator's role on scripted nodes: what it asks of whom, in which order, and what its
//! metadata say afterwards.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod append;
mod bed;
mod catch_up;
mod changes;
mod condition;
mod exclusive;
mod files;
mod former_holders;
mod grouping;
mod identity;
mod joins;
mod leases;
mod letting_in;
mod lifecycle;
mod links;
mod locks;
mod manager;
mod membership;
mod names;
mod open_files;
mod puts;
mod recovery;
mod repair;
mod repair_edges;
mod replace;
mod resume;
mod second_processes;
mod snapshots;
mod suspicion;
mod tickets;
mod together;
