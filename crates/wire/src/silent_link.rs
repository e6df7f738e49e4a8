//! Replaces the connection to a process that is silent on it.
//!
//! TCP repeats lost bytes less and less often. If a link was cut for four seconds, its connections may carry nothing
//! for three more seconds after it works again. So while a process does not answer, others are tried beside the open
//! connection, one after another, each with the short waits of a new one. A process that is merely slow sends bytes
//! now and then; it keeps its connection.

use crate::connection::Connection;
use crate::error::REPLACED;
use crate::peers::Peers;
use gabion_protocol::ports::Passage;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Least age of a connection that is replaced, in silence timeouts: an overloaded peer does not get ever more
/// handshakes.
const LEAST_AGE: u32 = 5;
/// Time limit of the peer's machine for an attempt.
const ATTEMPT: Duration = Duration::from_millis(500);
/// Pause between two attempts, and between two looks at the open connection during one.
const PAUSE: Duration = Duration::from_millis(200);

/// An open connection, as it was when a call began.
pub(crate) struct Watched {
    address: String,
    connection: Arc<Connection>,
    begun: (Instant, Passage),
}

impl Watched {
    fn is_silent(&self) -> bool {
        let now = self.connection.passage();
        !self.connection.is_closed() && !now.shows_life_since(self.begun.1)
    }

    /// Waits until the connection shows life or is closed.
    async fn life(&self) {
        while self.is_silent() {
            sleep(PAUSE).await;
        }
    }
}

impl Peers {
    /// The open connection to `address`, at the beginning of a call; none if the call has to open one.
    pub(crate) fn watch(&self, address: &str) -> Option<Watched> {
        let connection = self.open_to(address)?;
        Some(Watched {
            address: address.to_owned(),
            begun: (Instant::now(), connection.passage()),
            connection,
        })
    }

    /// Begins to replace a connection on which a call was late, if it shows no life for the silence timeout since the
    /// call began. Attempts end when one succeeds or is refused for good, when the open connection shows life or
    /// closes, and after the stall timeout. Returns at once.
    pub(crate) fn note_late(self: &Arc<Self>, watched: Watched) {
        let is_young =
            watched.connection.usage().age() < LEAST_AGE * self.endpoint().options.silence_timeout;
        if is_young || !watched.is_silent() || !watched.connection.usage().begin_replacing() {
            return;
        }
        let peers = Arc::clone(self);
        tokio::spawn(async move {
            if peers.replace(&watched).await {
                retire(&watched.connection, peers.endpoint().options.stall_timeout).await;
            } else {
                watched.connection.usage().end_replacing();
            }
        });
    }

    /// Whether another connection took the place of the silent one.
    async fn replace(&self, silent: &Watched) -> bool {
        let options = &self.endpoint().options;
        sleep_until(silent.begun.0 + options.silence_timeout).await;
        let until = Instant::now() + options.stall_timeout;
        while silent.is_silent() && Instant::now() < until {
            let attempt = Connection::connect_within(ATTEMPT, &silent.address, self.endpoint());
            let connected = tokio::select! {
                connected = attempt => connected,
                () = silent.life() => return false,
            };
            match connected {
                Ok(connection) if silent.is_silent() => {
                    let silent = (silent.address.as_str(), &silent.connection);
                    return self.put_in_place_of(silent, &connection).await;
                }
                Ok(connection) => connection.close(REPLACED),
                Err(error) if error.is_lasting() => return false,
                Err(_) => sleep(PAUSE).await,
            }
        }
        false
    }
}

/// Closes a replaced connection once it is idle: calls and streams on it may still end.
async fn retire(replaced: &Connection, idle_for: Duration) {
    let mut before = replaced.passage();
    while !replaced.is_closed() {
        sleep(idle_for).await;
        let now = replaced.passage();
        if now == before && !replaced.is_in_use() {
            replaced.close(REPLACED);
        }
        before = now;
    }
}
