//! The transmission phase of a connection: requests run concurrently, and are answered in any order.
//!
//! A client that vanishes leaves its requests running: an abandoned write may have any outcome, so each ends by
//! itself, within the device's own time limit, and then releases what it holds.

use crate::budget::Share;
use crate::device::Device;
use crate::execute::execute;
use crate::handshake::Agreed;
use crate::message::{
    Answer, Command, Context, Errno, Export, REQUEST_BYTES_MAX, Recipient, Request, Style, encode,
};
use crate::metrics::Metrics;
use crate::outgoing::Outgoing;
use crate::pace::Pace;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// The longest payload that is read and dropped. A longer one ends the connection.
const SKIPPED_BYTES_MAX: u64 = u32::MAX as u64;

/// The reason why a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The client ended it.
    Disconnected,
    /// The client vanished, or takes no replies.
    Gone,
    /// The client broke the protocol, or may not be attached any more: one plain sentence.
    Broken(String),
}

/// A connection in the transmission phase.
struct Session<R, W> {
    reader: R,
    outgoing: Arc<Outgoing<W>>,
    style: Style,
    export: Export,
    device: Arc<dyn Device>,
    contexts: Arc<[Context]>,
    share: Share,
    stall_limit: Duration,
    metrics: Arc<Metrics>,
    tasks: JoinSet<()>,
}

/// Serves requests until the connection ends or `barred` is done, and waits for those in flight. The result of
/// `barred` is the cause.
pub(crate) async fn serve<R, W>(
    reader: R,
    writer: W,
    agreed: Agreed,
    share: Share,
    (stall_limit, metrics): (Duration, Arc<Metrics>),
    barred: impl Future<Output = String>,
) -> Ended
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let outgoing = Arc::new(Outgoing::new(writer, stall_limit));
    let mut session = Session {
        reader,
        outgoing: Arc::clone(&outgoing),
        style: agreed.style,
        export: Export {
            size_bytes: agreed.shape.size_bytes,
            is_read_only: agreed.shape.is_read_only,
            has_contexts: !agreed.contexts.is_empty(),
        },
        device: agreed.device,
        contexts: agreed.contexts.into(),
        share,
        stall_limit,
        metrics,
        tasks: JoinSet::new(),
    };
    let mut barred = pin!(barred.fuse());
    let (mut ended, mut is_barred) = tokio::select! {
        ended = session.requests() => (ended, false),
        () = outgoing.failed() => (Ended::Gone, false),
        why = &mut barred => (Ended::Broken(why), true),
    };
    let rest = async {
        while let Some(done) = session.tasks.join_next().await {
            if let Err(error) = done {
                tracing::error!(%error, "a request of a network block device failed");
            }
        }
        outgoing.close().await;
    };
    let mut rest = pin!(rest);
    loop {
        if is_barred {
            // Requests in flight end, but the client learns nothing of them.
            outgoing.cut();
        }
        tokio::select! {
            () = &mut rest => return ended,
            why = &mut barred => (ended, is_barred) = (Ended::Broken(why), true),
        }
    }
}

impl<R, W> Session<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    async fn requests(&mut self) -> Ended {
        loop {
            match self.request().await {
                Ok(()) => {}
                Err(ended) => return ended,
            }
            // Requests that have ended are dropped.
            while self.tasks.try_join_next().is_some() {}
        }
    }

    /// Reads one request, and starts it.
    async fn request(&mut self) -> Result<(), Ended> {
        let mut header = [0; REQUEST_BYTES_MAX];
        let header = &mut header[..self.style.request_bytes()];
        let read = self.reader.read_exact(header).await;
        read.map_err(|_| Ended::Gone)?;
        let request = Request::decode(self.style, header)
            .ok_or_else(|| Ended::Broken("a request has no magic number".to_owned()))?;
        let payload_bytes = request.payload_bytes(self.style);
        let recipient = Recipient {
            cookie: request.cookie,
            offset: request.offset,
        };
        let command = match request.check(self.style, self.export) {
            Ok(command) => command,
            Err(errno) => {
                self.skip(payload_bytes).await?;
                self.metrics.failed("invalid", errno);
                let failed = Answer::Failed(errno, errno.sentence().to_owned());
                let reply = encode(self.style, recipient, failed);
                return self.outgoing.send(reply).await.map_err(|_| Ended::Gone);
            }
        };
        if command == Command::Disconnect {
            return Err(Ended::Disconnected);
        }
        let held = self.share.take(command).await;
        let payload = self.payload(payload_bytes).await?;
        let (device, contexts) = (Arc::clone(&self.device), Arc::clone(&self.contexts));
        let (outgoing, style) = (Arc::clone(&self.outgoing), self.style);
        let (metrics, arrived) = (Arc::clone(&self.metrics), Instant::now());
        self.tasks.spawn(async move {
            let executed = AssertUnwindSafe(execute(&*device, command, payload, &contexts));
            // The client gets an answer even if the server has a bug.
            let answer = executed.catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(?command, "a request panicked");
                Answer::Failed(Errno::Io, Errno::Io.sentence().to_owned())
            });
            metrics.ran(command.name(), arrived.elapsed(), &answer);
            // Without its peer, the session ends by itself.
            let _ = outgoing.send(encode(style, recipient, answer)).await;
            drop(held);
        });
        Ok(())
    }

    /// Reads a valid request's payload.
    async fn payload(&mut self, payload_bytes: u64) -> Result<Bytes, Ended> {
        let mut payload = BytesMut::with_capacity(payload_bytes as usize);
        let pace = Pace::begin(payload_bytes, self.stall_limit);
        while (payload.len() as u64) < payload_bytes {
            let left = payload_bytes - payload.len() as u64;
            let mut rest = (&mut self.reader).take(left);
            arrived(timeout_at(pace.deadline(), rest.read_buf(&mut payload)).await)?;
        }
        Ok(payload.freeze())
    }

    /// Reads and drops the payload of a refused request.
    async fn skip(&mut self, payload_bytes: u64) -> Result<(), Ended> {
        if payload_bytes > SKIPPED_BYTES_MAX {
            let sentence = format!("a request has {payload_bytes} bytes of payload");
            return Err(Ended::Broken(sentence));
        }
        let (mut left, mut dropped) = (payload_bytes, BytesMut::with_capacity(64 << 10));
        let pace = Pace::begin(payload_bytes, self.stall_limit);
        while left > 0 {
            dropped.clear();
            let mut rest = (&mut self.reader).take(left);
            left -= arrived(timeout_at(pace.deadline(), rest.read_buf(&mut dropped)).await)?;
        }
        Ok(())
    }
}

/// The number of bytes that have arrived, at least one.
fn arrived(
    read: Result<std::io::Result<usize>, tokio::time::error::Elapsed>,
) -> Result<u64, Ended> {
    let read = read.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
    match read {
        Ok(count) if count > 0 => Ok(count as u64),
        _ => Err(Ended::Gone),
    }
}
