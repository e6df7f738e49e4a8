//! The integration tests of `gabion-nbd`, linked once: a module for each subject. All run the server on memory.

mod conversation;
mod hostile;
mod memory;
mod messages;
mod serving;
mod tls;
mod tools;
