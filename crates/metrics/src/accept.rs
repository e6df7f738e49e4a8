//! Errors of listeners that pass.

use std::io;
use std::time::Duration;
use tokio::time::sleep;

/// Pause after a shortage of descriptors or memory: an immediate retry would fail again.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Waits a moment after an error of `accept` that is not the listener's own.
///
/// # Errors
/// The others.
pub async fn passing(error: io::Error) -> Result<(), io::Error> {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    use rustix::io::Errno;
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    if matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    ) {
        return Ok(());
    }
    if shortages
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
    {
        sleep(SHORTAGE_PAUSE).await;
        return Ok(());
    }
    Err(error)
}
