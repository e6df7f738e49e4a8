//! The sending side of a connection: whole replies, one after another, to a peer that takes them in time.

use crate::pace::Pace;
use bytes::{Bytes, BytesMut};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout_at;

/// Replies up to this size are copied into one buffer, and sent by one call.
const JOINED_BYTES_MAX: usize = 64 << 10;

/// Shared by all requests of a connection.
#[derive(Debug)]
pub(crate) struct Outgoing<W> {
    writer: Mutex<W>,
    /// The longest time in which the peer takes no byte. A message has a limit too.
    stall_limit: Duration,
    has_failed: watch::Sender<bool>,
}

/// The peer has gone, or takes no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerGone;

impl<W: AsyncWrite + Unpin> Outgoing<W> {
    pub(crate) fn new(writer: W, stall_limit: Duration) -> Self {
        Self {
            writer: Mutex::new(writer),
            stall_limit,
            has_failed: watch::Sender::new(false),
        }
    }

    /// Sends buffers as one message. After an error, the stream may end within a message, so nothing more is sent.
    ///
    /// # Errors
    /// [`PeerGone`], also when an earlier message failed.
    pub(crate) async fn send(&self, buffers: Vec<Bytes>) -> Result<(), PeerGone> {
        let mut writer = self.writer.lock().await;
        if *self.has_failed.borrow() {
            return Err(PeerGone);
        }
        let message_bytes: usize = buffers.iter().map(Bytes::len).sum();
        let pace = Pace::begin(message_bytes as u64, self.stall_limit);
        for buffer in joined(buffers) {
            let mut rest = &buffer[..];
            while !rest.is_empty() {
                match self.in_time(pace, writer.write(rest)).await {
                    Ok(count) if count > 0 => rest = &rest[count..],
                    _ => return Err(self.fail()),
                }
            }
        }
        self.in_time(pace, writer.flush()).await
    }

    /// A step of sending, which fails if the peer takes no byte in time, or an earlier step has failed.
    async fn in_time<T>(
        &self,
        pace: Pace,
        step: impl Future<Output = io::Result<T>>,
    ) -> Result<T, PeerGone> {
        tokio::select! {
            done = timeout_at(pace.deadline(), step) => match done {
                Ok(Ok(done)) => Ok(done),
                _ => Err(self.fail()),
            },
            () = self.failed() => Err(PeerGone),
        }
    }

    /// Sends nothing any more, and no rest of a message either.
    pub(crate) fn cut(&self) {
        self.fail();
    }

    /// Waits until a message could not be sent, or [`Outgoing::cut`].
    pub(crate) async fn failed(&self) {
        let mut has_failed = self.has_failed.subscribe();
        // The sender lives as long as this.
        let _ = has_failed.wait_for(|has_failed| *has_failed).await;
    }

    /// Tells the peer that nothing more comes.
    pub(crate) async fn close(&self) {
        let mut writer = self.writer.lock().await;
        if *self.has_failed.borrow() {
            // The peer takes nothing, and would make this wait as long again.
            return;
        }
        // The peer may have gone.
        let pace = Pace::begin(0, self.stall_limit);
        let _ = self.in_time(pace, writer.shutdown()).await;
    }

    fn fail(&self) -> PeerGone {
        self.has_failed.send_replace(true);
        PeerGone
    }
}

/// Joins the buffers if they are small.
fn joined(buffers: Vec<Bytes>) -> Vec<Bytes> {
    let bytes: usize = buffers.iter().map(Bytes::len).sum();
    if buffers.len() < 2 || bytes > JOINED_BYTES_MAX {
        return buffers;
    }
    let mut whole = BytesMut::with_capacity(bytes);
    for buffer in &buffers {
        whole.extend_from_slice(buffer);
    }
    vec![whole.freeze()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn messages_arrive_whole_and_a_peer_that_stalls_is_abandoned() {
        let (near, mut far) = tokio::io::duplex(8);
        let outgoing = Outgoing::new(near, Duration::from_millis(20));
        let message = vec![Bytes::from_static(b"abc"), Bytes::from_static(b"defgh")];
        assert_eq!(outgoing.send(message).await, Ok(()));
        let mut got = [0; 8];
        far.read_exact(&mut got).await.expect("all of it");
        assert_eq!(&got, b"abcdefgh");
        let long = vec![Bytes::from_static(&[1; 9])];
        assert_eq!(outgoing.send(long.clone()).await, Err(PeerGone));
        outgoing.failed().await;
        far.read_exact(&mut got).await.expect("a part");
        assert_eq!(
            outgoing.send(long).await,
            Err(PeerGone),
            "the stream ends within a message"
        );
    }

    #[tokio::test]
    async fn a_cut_ends_a_message_that_the_peer_does_not_take() {
        let (near, _far) = tokio::io::duplex(8);
        let outgoing = Outgoing::new(near, Duration::from_hours(1));
        let long = vec![Bytes::from_static(&[1; 9])];
        let cut = async {
            tokio::task::yield_now().await;
            outgoing.cut();
        };
        let (sent, ()) = tokio::join!(outgoing.send(long), cut);
        assert_eq!(sent, Err(PeerGone));
        outgoing.close().await;
    }
}
