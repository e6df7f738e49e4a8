//! The operator's console: a page for browsers, and the HTTP API behind it.
//!
//! It is a gateway: a process of its own that asks the coordinator by the same requests as the command line. [`view`]
//! has what both show. `guard` and `session` decide about requests, `api` answers them, `watch` asks the cluster once
//! for all browsers, `server` has the connections with their limits, `places` and `stream`, and `page` the embedded
//! files. docs/console.md has the use, docs/security.md what it trusts.

mod api;
mod app;
mod guard;
mod page;
mod places;
mod problem;
mod server;
mod session;
mod stream;
pub mod view;
mod watch;

pub use api::open_api;
pub use server::{Console, ConsoleOptions};
