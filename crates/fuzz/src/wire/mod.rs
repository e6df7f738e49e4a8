//! A peer's bytes: its hello, its frames, and the messages in them.

pub(crate) mod frames;
pub(crate) mod hello;
pub(crate) mod messages;
mod stream;
