//! The flash store against a model of files, with power loss at any operation, failed syncs, lost
//! and replaced devices, bit rot, and threads.

mod crash;
mod devices;
mod failed_sync;
mod machine;
mod model;
mod replacing;
mod space;
mod threads;
mod unreadable;
