//! A peer's stream in memory, which arrives in pieces, and its reader.

use gabion_layout::{NodeId, RackId};
use gabion_meta::ClusterId;
use gabion_wire::{Hello, PeerIdentity, Role, Transcript};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a run-time of one thread needs no resources");
}

/// The reader's own hello.
pub(crate) const OURS: Hello = Hello {
    cluster: Some(ClusterId(0xfeed)),
    role: Role::Node,
    identity: PeerIdentity {
        node: Some(NodeId(3)),
        rack: Some(RackId(1)),
    },
};

/// A stream that returns at most `most` bytes at a time.
struct Pieces<'a> {
    bytes: &'a [u8],
    most: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let count = self.most.min(target.remaining()).min(self.bytes.len());
        let (piece, rest) = self.bytes.split_at(count);
        target.put_slice(piece);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

/// Reads a stream as a node does. Each read returns at most `most` bytes.
pub(crate) fn read(bytes: &[u8], most: usize) -> Transcript {
    let most = most.max(1);
    let pieces = Pieces { bytes, most };
    let stall_timeout = Duration::from_secs(15);
    RUNTIME.with(|runtime| runtime.block_on(Transcript::read(pieces, &OURS, stall_timeout)))
}
