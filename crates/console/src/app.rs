//! The state that all requests share.

use crate::problem::Problem;
use crate::session::Sessions;
use crate::view::traffic::Sample;
use crate::watch::{Latest, Tail};
use gabion_client::{Client, ClientError};
use gabion_protocol::message::ClusterStatus;
use tokio::sync::Mutex;

/// The console's state.
pub(crate) struct App {
    pub(crate) client: Client,
    pub(crate) sessions: Sessions,
    /// The beginning of the names of sessions' cookies. Browsers do not tell ports apart, so it has the port.
    pub(crate) cookie: String,
    /// Host names beside loopback's by which a browser may reach the console.
    pub(crate) hosts: Vec<String>,
    /// Held while limits are read, merged and ordered, so that two operators do not undo each other's.
    pub(crate) limits: Mutex<()>,
    pub(crate) status: Latest<ClusterStatus>,
    pub(crate) traffic: Latest<Sample>,
    pub(crate) events: Tail,
}

impl App {
    /// The outcome of an order. Earlier cached answers count no more.
    ///
    /// # Errors
    /// The reason why it was not carried out, or perhaps not.
    pub(crate) fn ordered<T>(&self, outcome: Result<T, ClientError>) -> Result<T, Problem> {
        self.status.forget();
        self.traffic.forget();
        outcome.map_err(Problem::of_order)
    }
}
