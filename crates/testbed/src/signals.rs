//! The signals that end a program from outside: an interrupt (Ctrl-C), a termination, and a closed
//! terminal. A command that has started processes listens for them and stops these first.

use crate::error::{Context, TestbedError};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for the signals. From its creation on, none of them ends this process by itself.
#[derive(Debug)]
pub struct EndSignals {
    interrupt: Signal,
    termination: Signal,
    hang_up: Signal,
}

impl EndSignals {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`TestbedError::Cannot`] if the system refuses.
    pub fn listen() -> Result<Self, TestbedError> {
        let listen = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            termination: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Returns at the next of these signals.
    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.termination.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
