//! The update protocol's roles, free of any run-time: what a primary, a participant and a settler
//! do, as `async` code over ports. A server gives the ports sockets, a disk and a clock; the
//! simulator gives them a seed. See docs of each module for its part of the protocol.

pub mod message;
