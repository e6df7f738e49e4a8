//! Replaces the connection to a process that is silent on it.
//!
//! TCP repeats lost bytes less and less often. If a link was cut for four seconds, its connections may carry nothing for
//! three more seconds after it works again. So while a process does not answer, others are tried beside the open connection,
//! one after another, each with the short waits of a new one.

use crate::connection::Connection;
use crate::peers::Peers;
use gabion_protocol::ports::Passage;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time limit of the peer's machine for an attempt.
const ATTEMPT: Duration = Duration::from_millis(500);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// Time in which a replaced connection that moves no bytes and has no open calls is closed.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// An open connection, as it was when a call began.
pub(crate) struct Watched {
    address: String,
    connection: Arc<Connection>,
    begun: Passage,
}

impl Peers {
    /// The open connection to `address`, at the beginning of a call; none if the call has to open one.
    pub(crate) fn watch(&self, address: &str) -> Option<Watched> {
        let connection = self.open_to(address)?;
        Some(Watched {
            address: address.to_owned(),
            begun: connection.passage(),
            connection,
        })
    }

    /// Begins to replace a connection on which a call was late, if it has shown no life since the call began. Attempts end
    /// when one succeeds, when the open connection shows life or closes, and after the stall timeout. Returns at once.
    pub(crate) fn note_late(self: &Arc<Self>, watched: Watched) {
        let Watched {
            address,
            connection: silent,
            begun,
        } = watched;
        if silent.passage().shows_life_since(begun) || !silent.begin_replacing() {
            return;
        }
        let peers = Arc::clone(self);
        tokio::spawn(async move {
            if peers.replace(&address, &silent).await {
                retire(&silent).await;
            } else {
                silent.end_replacing();
            }
        });
    }

    /// Whether another connection took the place of the silent one.
    async fn replace(&self, address: &str, silent: &Arc<Connection>) -> bool {
        let begun = silent.passage();
        let until = Instant::now() + self.endpoint().options.stall_timeout;
        let is_silent = || !silent.is_closed() && !silent.passage().shows_life_since(begun);
        while is_silent() && Instant::now() < until {
            let attempt = Connection::connect_within(ATTEMPT, address, self.endpoint());
            match attempt.await {
                Ok(connection) => return self.put_in_place_of(address, silent, &connection).await,
                Err(_) => sleep(PAUSE).await,
            }
        }
        false
    }
}

/// Closes a replaced connection once it is idle: its calls may still be answered.
async fn retire(replaced: &Connection) {
    let mut before = replaced.passage();
    while !replaced.is_closed() {
        sleep(IDLE_FOR).await;
        let now = replaced.passage();
        if now == before && !replaced.has_open_calls() {
            replaced.close("a newer connection has taken its place");
        }
        before = now;
    }
}
