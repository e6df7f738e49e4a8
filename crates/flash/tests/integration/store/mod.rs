//! The flash store against a model of files, with power loss at any operation, lost and replaced
//! devices, bit rot, and threads.

mod crash;
mod devices;
mod machine;
mod model;
mod space;
mod threads;
