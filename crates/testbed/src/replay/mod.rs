//! Runs requests on a stored file, several at a time, and keeps the order of those that touch the
//! same bytes.

mod latencies;
mod run;
mod traffic;
mod volume;

pub use latencies::Latencies;
pub use run::{Outcome, Pace, Replay, Request, Setting, SpaceTaken};
pub(crate) use traffic::Traffic;
pub use traffic::{Flow, Moved, cross_rack};
pub use volume::Written;

use crate::contents::{Contents, Piece, bytes_of, first_difference};
use crate::error::TestbedError;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use gabion_client::{CachedFile, ClientError, File};
use gabion_layout::ByteRange;
use std::mem;
use std::num::NonZeroU64;
use std::time::Instant;

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Bytes are read.
    Read,
    /// Bytes are overwritten.
    Write,
}

/// Measurements of one kind of request.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Bytes of all requests.
    pub bytes: u64,
    /// Their latencies.
    pub latencies: Latencies,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    number: u64,
    kind: Access,
    range: ByteRange,
    /// The start of its latency.
    since: Instant,
}

impl UnderWay {
    /// Whether the outcome depends on which of the two is first.
    fn conflicts(&self, kind: Access, range: ByteRange) -> bool {
        let overlap = self.range.offset < range.end() && range.offset < self.range.end();
        overlap && (self.kind == Access::Write || kind == Access::Write)
    }
}

/// The replayed file.
#[derive(Clone)]
pub(crate) enum Target {
    /// Each write is durable when it completes. It is made stripe by stripe, as a disk would.
    Direct {
        /// The file.
        file: File,
        /// Data bytes of a stripe.
        stripe_bytes: NonZeroU64,
    },
    /// Writes are durable when the file is flushed.
    Cached(CachedFile),
}

impl Target {
    fn name(&self) -> &str {
        match self {
            Self::Direct { file, .. } => file.name(),
            Self::Cached(file) => file.name(),
        }
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<u8>, ClientError> {
        match self {
            Self::Direct { file, .. } => file.read(range).await,
            Self::Cached(file) => file.read(range).await,
        }
    }

    async fn write(&self, offset: u64, bytes: Vec<u8>) -> Result<(), ClientError> {
        match self {
            Self::Direct { file, stripe_bytes } => {
                let (mut offset, mut rest) = (offset, Bytes::from(bytes));
                while !rest.is_empty() {
                    let room = stripe_bytes.get() - offset % stripe_bytes.get();
                    let length = room.min(rest.len() as u64);
                    file.write(offset, rest.split_to(length as usize)).await?;
                    offset += length;
                }
                Ok(())
            }
            Self::Cached(file) => file.write(offset, bytes.into()).await,
        }
    }

    async fn flush(&self) -> Result<(), ClientError> {
        match self {
            Self::Direct { .. } => Ok(()),
            Self::Cached(file) => file.flush().await,
        }
    }
}

/// A request's end: its number, and the bytes of a read.
type Ended = (u64, Result<Vec<u8>, ClientError>);

/// Requests in flight on a file.
pub(crate) struct Engine {
    file: Target,
    depth: usize,
    verify: bool,
    contents: Contents,
    futures: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// The requests of `futures`.
    under_way: Vec<UnderWay>,
    number: u64,
    writes: Measured,
    reads: Measured,
}

impl Engine {
    /// No request yet; at most `depth` at once. `verify` compares every read with the contents, as far as
    /// they are known.
    pub(crate) fn new(file: Target, contents: Contents, depth: usize, verify: bool) -> Self {
        Self {
            file,
            depth,
            verify,
            contents,
            futures: FuturesUnordered::new(),
            under_way: Vec::with_capacity(depth),
            number: 0,
            writes: Measured::default(),
            reads: Measured::default(),
        }
    }

    /// Starts a request, after the end of those that must come before it. Its latency counts from
    /// when it was `due`, or else from its start. Conflicting requests cannot overtake each other,
    /// since nothing starts before an earlier request has.
    pub(crate) async fn start(
        &mut self,
        kind: Access,
        range: ByteRange,
        due: Option<Instant>,
    ) -> Result<(), TestbedError> {
        if let Some(due) = due {
            self.go_on_until(due).await?;
        }
        while self.must_wait(kind, range) {
            self.end_one().await?;
        }
        self.number += 1;
        let number = self.number;
        self.under_way.push(UnderWay {
            number,
            kind,
            range,
            since: due.unwrap_or_else(Instant::now),
        });
        let file = self.file.clone();
        self.futures.push(match kind {
            Access::Write => {
                self.contents.overwrite(range, number);
                let bytes = bytes_of(Piece {
                    range,
                    write: number,
                });
                async move {
                    let written = file.write(range.offset, bytes).await;
                    (number, written.map(|()| Vec::new()))
                }
                .boxed()
            }
            Access::Read => async move { (number, file.read(range).await) }.boxed(),
        });
        Ok(())
    }

    /// Waits until no request is in flight and every write is durable. Returns the measurements of
    /// writes and reads, and the expected contents of the file.
    async fn finish(mut self) -> Result<(Measured, Measured, Contents), TestbedError> {
        let (writes, reads) = self.settle().await?;
        Ok((writes, reads, self.contents))
    }

    /// Waits until no request is in flight and every write is durable. Returns the measurements of writes and reads
    /// since the last call.
    pub(crate) async fn settle(&mut self) -> Result<(Measured, Measured), TestbedError> {
        while !self.under_way.is_empty() {
            self.end_one().await?;
        }
        self.file.flush().await?;
        Ok((mem::take(&mut self.writes), mem::take(&mut self.reads)))
    }

    /// Permits `depth` requests at once from now on.
    pub(crate) const fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
    }

    /// The contents that the file should have once no request is in flight.
    pub(crate) const fn contents(&self) -> &Contents {
        &self.contents
    }

    fn must_wait(&self, kind: Access, range: ByteRange) -> bool {
        let is_full = self.under_way.len() == self.depth;
        is_full || self.under_way.iter().any(|r| r.conflicts(kind, range))
    }

    /// Processes requests in flight until a given time.
    async fn go_on_until(&mut self, due: Instant) -> Result<(), TestbedError> {
        let sleep = tokio::time::sleep_until(due.into());
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.futures.next() => self.take(ended)?,
                () = &mut sleep => return Ok(()),
            }
        }
    }

    async fn end_one(&mut self) -> Result<(), TestbedError> {
        let ended = self.futures.next().await;
        self.take(ended.expect("a request that must be waited for is under way"))
    }

    fn take(&mut self, (number, outcome): Ended) -> Result<(), TestbedError> {
        let at = self.under_way.iter().position(|r| r.number == number);
        let ended = self
            .under_way
            .swap_remove(at.expect("a request ends once, after it was started"));
        let bytes = outcome?;
        if ended.kind == Access::Read && self.verify {
            // No write to these bytes has started since, so the expectation is the one at that
            // time.
            let known = self.contents.known(ended.range);
            if let Some(at) = first_difference(&known, ended.range.offset, &bytes) {
                let name = self.file.name().to_owned();
                return Err(TestbedError::Differs { name, at });
            }
        }
        let measured = match ended.kind {
            Access::Write => &mut self.writes,
            Access::Read => &mut self.reads,
        };
        measured.bytes += ended.range.length;
        measured.latencies.add(ended.since.elapsed());
        Ok(())
    }
}
