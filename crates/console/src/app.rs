//! The state that all requests share.

use crate::session::Sessions;
use crate::view::traffic::Sample;
use crate::watch::{Latest, Tail};
use gabion_client::Client;
use gabion_protocol::message::ClusterStatus;

/// The console's state.
pub(crate) struct App {
    pub(crate) client: Client,
    pub(crate) sessions: Sessions,
    /// The name of the session's cookie. Browsers do not tell ports apart, so it has the port.
    pub(crate) cookie: String,
    /// Host names beside loopback's by which a browser may reach the console.
    pub(crate) hosts: Vec<String>,
    pub(crate) status: Latest<ClusterStatus>,
    pub(crate) traffic: Latest<Sample>,
    pub(crate) events: Tail,
}
