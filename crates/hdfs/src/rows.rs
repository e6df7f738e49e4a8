//! The rebuilt bytes on their way to the plugin: rows with the same positions of all rebuilt blocks, in order.

use crate::error::HdfsError;
use crate::frame::{Kind, Writing};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use gabion_exec::{Sink, Source};
use gabion_layout::{ByteRange, ChunkIndex};
use gabion_protocol::message::Refusal;
use gabion_protocol::run::LocalIo;
use std::collections::BTreeMap;
use tokio::sync::{mpsc, oneshot};

/// A rebuilt slice, and the receiver of the notice that it was passed on.
struct Piece {
    chunk: ChunkIndex,
    offset: u64,
    bytes: Bytes,
    passed_on: oneshot::Sender<()>,
}

/// The requestor's own bytes: it stores rebuilt slices, and reads blocks without bytes as zeros.
pub(crate) struct RowIo {
    pieces: mpsc::UnboundedSender<Piece>,
    empty: Vec<ChunkIndex>,
}

/// Puts rebuilt slices in order.
pub(crate) struct Rows {
    /// The rebuilt blocks, each with the position behind its last wanted byte.
    targets: Vec<(ChunkIndex, u64)>,
    slice_bytes: u64,
    /// Bytes before this position were sent.
    position: u64,
}

impl Rows {
    /// Rows of these blocks from `position` on, each up to its end.
    pub(crate) fn new(targets: Vec<(ChunkIndex, u64)>, position: u64, slice_bytes: u64) -> Self {
        Self {
            targets,
            slice_bytes,
            position,
        }
    }

    /// The missing part of each block.
    pub(crate) fn missing(&self) -> Vec<(ChunkIndex, ByteRange)> {
        let targets = self.targets.iter();
        let missing = targets.filter(|(_, end)| *end > self.position);
        missing
            .map(|&(chunk, end)| {
                let range = ByteRange::new(self.position, end - self.position);
                (chunk, range)
            })
            .collect()
    }

    /// Runs `rebuild` with a sink for its slices, and sends rows as they are complete. A slice counts as stored when
    /// its row was sent, so a slow plugin holds the run back.
    ///
    /// # Errors
    /// The plugin's connection has ended.
    pub(crate) async fn during<R>(
        &mut self,
        plugin: &Writing,
        empty: Vec<ChunkIndex>,
        rebuild: impl AsyncFnOnce(RowIo) -> R,
    ) -> Result<R, HdfsError> {
        let (sender, mut pieces) = mpsc::unbounded_channel();
        let io = RowIo {
            pieces: sender,
            empty,
        };
        let passing = async {
            let mut waiting: BTreeMap<(u64, ChunkIndex), Piece> = BTreeMap::new();
            while let Some(piece) = pieces.recv().await {
                waiting.insert((piece.offset, piece.chunk), piece);
                self.pass_on(plugin, &mut waiting).await?;
            }
            Ok(())
        };
        // The passing ends when the run has dropped the sink.
        let (done, passed) = tokio::join!(rebuild(io), passing);
        passed.map(|()| done)
    }

    /// Sends the complete rows.
    async fn pass_on(
        &mut self,
        plugin: &Writing,
        waiting: &mut BTreeMap<(u64, ChunkIndex), Piece>,
    ) -> Result<(), HdfsError> {
        loop {
            let position = self.position;
            let missing = self.missing();
            let is_here =
                |(chunk, _): &(ChunkIndex, ByteRange)| waiting.contains_key(&(position, *chunk));
            if missing.is_empty() || !missing.iter().all(is_here) {
                return Ok(());
            }
            let mut row = Vec::with_capacity(self.targets.len());
            let mut passed_on = Vec::with_capacity(self.targets.len());
            for (chunk, _) in &self.targets {
                let piece = waiting.remove(&(position, *chunk));
                let (bytes, told) = piece.map(|piece| (piece.bytes, piece.passed_on)).unzip();
                row.push(bytes.unwrap_or_default());
                passed_on.extend(told);
            }
            let mut parts = vec![Bytes::copy_from_slice(&position.to_be_bytes())];
            for bytes in row {
                let length = (bytes.len() as u32).to_be_bytes();
                parts.extend([Bytes::copy_from_slice(&length), bytes]);
            }
            plugin.send(Kind::Row, parts).await?;
            self.position += self.slice_bytes;
            for told in passed_on {
                // The run may have failed since the row began.
                let _ = told.send(());
            }
        }
    }
}

impl LocalIo for RowIo {
    fn fetch(
        &self,
        source: Source,
        range: ByteRange,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let is_empty = matches!(source, Source::Chunk(chunk) if self.empty.contains(&chunk));
        let zeros = if is_empty {
            Ok(Bytes::from(vec![0; range.length as usize]))
        } else {
            Err(Refusal::Invalid("the requestor has no block".to_owned()))
        };
        ready(zeros).boxed()
    }

    fn store(
        &self,
        sink: Sink,
        range: ByteRange,
        bytes: Bytes,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let Sink::Deliver(chunk) = sink else {
            let reason = "a rebuild delivers its bytes".to_owned();
            return ready(Err(Refusal::Invalid(reason))).boxed();
        };
        let (passed_on, done) = oneshot::channel();
        let piece = Piece {
            chunk,
            offset: range.offset,
            bytes,
            passed_on,
        };
        let sent = self.pieces.send(piece).is_ok();
        async move {
            if sent && done.await.is_ok() {
                Ok(())
            } else {
                Err(Refusal::Unavailable("the plugin".to_owned()))
            }
        }
        .boxed()
    }
}
