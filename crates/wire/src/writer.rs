//! The way out of a connection: two bounded queues and the task that empties them.
//!
//! Control frames (requests, replies, credits, aborts) go first, so that they do not wait behind
//! megabytes of slices. Slices, staged bytes and long messages are *bulk*: they keep their order among themselves
//! and pay for the emulated links, if there are any. Frames that are ready together leave in one
//! system call.

use bytes::{Buf, Bytes};
use gabion_protocol::message::Purpose;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use crate::body::Frame;
use crate::error::WireError;
use crate::frame::{HEADER_BYTES, Kind};

/// Messages longer than this are bulk.
const CONTROL_MAX_BYTES: usize = 16 << 10;
/// Unsent control frames that one connection may hold.
const CONTROL_QUEUE_BYTES: usize = 4 << 20;
/// A batch takes no further frame once it has this many bytes, so that control frames that arrive
/// while it is written need not wait long.
const BATCH_BYTES: usize = 256 << 10;
/// Most frames of a batch: each is two of the 64 buffers that one system call takes.
const BATCH_FRAMES: usize = 32;
/// A frame that may leave within this time leaves now: the run-time's timers are no finer.
const SHAPING_SLACK: Duration = Duration::from_millis(1);

/// A frame in a queue, with the room that it takes there until it is written.
struct Queued {
    frame: Frame,
    room: Option<OwnedSemaphorePermit>,
    /// For a reply: the place among the requests being served.
    _served: Option<OwnedSemaphorePermit>,
}

/// The queues' entry.
pub(crate) struct Outbox {
    control: UnboundedSender<Queued>,
    bulk: UnboundedSender<Queued>,
    control_room: Arc<Semaphore>,
    bulk_room: Arc<Semaphore>,
    bulk_queue_bytes: usize,
    /// The version of every frame: that of the connection.
    version: u16,
}

/// The queues' exit.
pub(crate) struct Outgoing {
    control: UnboundedReceiver<Queued>,
    bulk: UnboundedReceiver<Queued>,
}

/// Both ends of a connection's queues. Frames leave in the connection's `version`.
pub(crate) fn queues(bulk_queue_bytes: usize, version: u16) -> (Outbox, Outgoing) {
    let (control, control_out) = unbounded_channel();
    let (bulk, bulk_out) = unbounded_channel();
    let outbox = Outbox {
        control,
        bulk,
        control_room: Arc::new(Semaphore::new(CONTROL_QUEUE_BYTES)),
        bulk_room: Arc::new(Semaphore::new(bulk_queue_bytes)),
        bulk_queue_bytes,
        version,
    };
    (
        outbox,
        Outgoing {
            control: control_out,
            bulk: bulk_out,
        },
    )
}

/// The queue of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// First, and free.
    Control,
    /// In order, and after its delay on the emulated links.
    Bulk,
}

impl Lane {
    /// The lane of a frame without more information.
    pub(crate) fn of(frame: &Frame) -> Self {
        if frame.header.kind == Kind::Slice || frame.body.len() > CONTROL_MAX_BYTES {
            Self::Bulk
        } else {
            Self::Control
        }
    }
}

fn queue_closed() -> WireError {
    WireError::Closed("nothing more is sent on it".to_owned())
}

impl Outbox {
    /// Queues a frame, waiting for room. Cancel safe: a frame is queued whole or not at all.
    ///
    /// # Errors
    /// [`WireError::Closed`] when the connection is closed.
    pub(crate) async fn send(&self, mut frame: Frame, lane: Lane) -> Result<(), WireError> {
        frame.header.version = self.version;
        let (queue, room, queue_bytes) = match lane {
            Lane::Control => (&self.control, &self.control_room, CONTROL_QUEUE_BYTES),
            Lane::Bulk => (&self.bulk, &self.bulk_room, self.bulk_queue_bytes),
        };
        // A frame longer than the whole queue waits until it has the queue for itself.
        let taken = (HEADER_BYTES + frame.body.len()).min(queue_bytes) as u32;
        let permit = Arc::clone(room).acquire_many_owned(taken).await;
        let room = Some(permit.map_err(|_| queue_closed())?);
        queue
            .send(Queued {
                frame,
                room,
                _served: None,
            })
            .map_err(|_| queue_closed())
    }

    /// Queues a reply at once. There are never more of them than requests being served, and
    /// `served` keeps the place of this one until it is written.
    pub(crate) fn send_reply(&self, mut frame: Frame, served: Option<OwnedSemaphorePermit>) {
        frame.header.version = self.version;
        let queue = match Lane::of(&frame) {
            Lane::Control => &self.control,
            Lane::Bulk => &self.bulk,
        };
        // When the connection is closed, no caller waits for the reply any more.
        let _ = queue.send(Queued {
            frame,
            room: None,
            _served: served,
        });
    }

    /// Fails all senders that wait for room, now and later.
    pub(crate) fn close(&self) {
        self.control_room.close();
        self.bulk_room.close();
    }
}

/// The rule by which bulk frames wait.
pub(crate) trait Toll: Send {
    /// Counts a bulk frame that is about to leave; returns the duration of its transmission over the
    /// emulated links from now.
    fn pay(&mut self, frame_bytes: u64, slice: Option<(Purpose, u64)>) -> Duration;
}

/// The task that empties the queues.
pub(crate) struct Writer<W, T> {
    pub(crate) stream: W,
    pub(crate) outgoing: Outgoing,
    pub(crate) toll: T,
    /// A write that makes no progress for this time fails the connection.
    pub(crate) stall_timeout: Duration,
}

impl<W: AsyncWrite + Unpin, T: Toll> Writer<W, T> {
    /// Writes frames until writing fails or `closing` is done; returns the reason. The peer gets the result
    /// of `closing` if the stream is between two frames.
    pub(crate) async fn run(mut self, closing: impl Future<Output = Option<Frame>>) -> WireError {
        tokio::pin!(closing);
        let mut batch = Batch::default();
        let mut held: Option<(Instant, Queued)> = None;
        loop {
            let last_words = tokio::select! {
                biased;
                last_words = &mut closing => Some(last_words),
                () = self.gather(&mut batch, &mut held) => None,
            };
            if let Some(last_words) = last_words {
                return self.finish(last_words).await;
            }
            let written = tokio::select! {
                biased;
                written = write(&mut self.stream, &mut batch, self.stall_timeout) => written,
                _ = &mut closing => return queue_closed(),
            };
            if let Err(error) = written {
                return error;
            }
        }
    }

    /// Waits for at least one frame that may leave, and takes what may leave with it.
    async fn gather(&mut self, batch: &mut Batch, held: &mut Option<(Instant, Queued)>) {
        while batch.is_empty() {
            let ready_at = held.as_ref().map(|(ready_at, _)| *ready_at);
            tokio::select! {
                biased;
                Some(queued) = self.outgoing.control.recv() => batch.push(queued),
                () = reached(ready_at), if ready_at.is_some() => {
                    batch.extend(held.take().map(|(_, queued)| queued));
                }
                Some(queued) = self.outgoing.bulk.recv(), if ready_at.is_none() => {
                    self.admit(queued, batch, held);
                }
                // All senders are gone, so the connection is closing.
                else => std::future::pending().await,
            }
        }
        while batch.has_room() {
            if let Ok(queued) = self.outgoing.control.try_recv() {
                batch.push(queued);
            } else if let Some((_, queued)) =
                held.take_if(|(ready_at, _)| *ready_at <= Instant::now())
            {
                // Without this, a steady stream of control frames would hold it for ever.
                batch.push(queued);
            } else if held.is_some() {
                break;
            } else if let Ok(queued) = self.outgoing.bulk.try_recv() {
                self.admit(queued, batch, held);
            } else {
                break;
            }
        }
    }

    /// Reserves the links for a bulk frame; puts it into the batch, or holds it until its time comes.
    fn admit(&mut self, queued: Queued, batch: &mut Batch, held: &mut Option<(Instant, Queued)>) {
        let frame = &queued.frame;
        let slice = match frame.header.kind {
            Kind::Slice => Purpose::ALL
                .get(usize::from(frame.header.purpose))
                .map(|&purpose| (purpose, frame.body.len() as u64)),
            _ => None,
        };
        let wait = self
            .toll
            .pay((HEADER_BYTES + frame.body.len()) as u64, slice);
        if wait <= SHAPING_SLACK {
            batch.push(queued);
        } else {
            *held = Some((Instant::now() + wait - SHAPING_SLACK, queued));
        }
    }

    async fn finish(mut self, last_words: Option<Frame>) -> WireError {
        if let Some(frame) = last_words {
            let mut batch = Batch::default();
            batch.push(Queued {
                frame,
                room: None,
                _served: None,
            });
            // The peer detects the end in any case; the text is a courtesy.
            let _ = write(&mut self.stream, &mut batch, Duration::from_secs(1)).await;
        }
        let _ = timeout(Duration::from_secs(1), self.stream.shutdown()).await;
        queue_closed()
    }
}

async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Writes a batch and empties it.
async fn write<W: AsyncWrite + Unpin>(
    stream: &mut W,
    batch: &mut Batch,
    stall_timeout: Duration,
) -> Result<(), WireError> {
    let stalled = |_| WireError::DeadlinePassed {
        operation: "writing to the connection",
    };
    let failed = |source| WireError::io("write to the connection", source);
    while batch.has_remaining() {
        let progress = timeout(stall_timeout, stream.write_buf(batch)).await;
        if progress.map_err(stalled)?.map_err(failed)? == 0 {
            return Err(failed(std::io::ErrorKind::WriteZero.into()));
        }
    }
    timeout(stall_timeout, stream.flush())
        .await
        .map_err(stalled)?
        .map_err(failed)?;
    batch.clear();
    Ok(())
}

enum Part {
    Header([u8; HEADER_BYTES]),
    Body(Bytes),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Header(bytes) => bytes,
            Self::Body(bytes) => bytes,
        }
    }
}

/// Frames that leave together, as one buffer of many pieces.
#[derive(Default)]
struct Batch {
    parts: VecDeque<Part>,
    /// Invariant: shorter than the first part, or 0.
    first_offset: usize,
    /// Invariant: the sum of the parts' lengths, less `first_offset`.
    remaining_bytes: usize,
    frame_count: usize,
    /// The frames' room in their queues, kept until the last byte is written.
    rooms: Vec<(Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>)>,
}

impl Batch {
    fn push(&mut self, queued: Queued) {
        let Queued {
            frame,
            room,
            _served: served,
        } = queued;
        self.remaining_bytes += HEADER_BYTES + frame.body.len();
        self.frame_count += 1;
        self.parts.push_back(Part::Header(frame.header.encode()));
        if !frame.body.is_empty() {
            self.parts.push_back(Part::Body(frame.body));
        }
        if room.is_some() || served.is_some() {
            self.rooms.push((room, served));
        }
    }

    fn extend(&mut self, queued: Option<Queued>) {
        if let Some(queued) = queued {
            self.push(queued);
        }
    }

    fn is_empty(&self) -> bool {
        self.frame_count == 0
    }

    fn has_room(&self) -> bool {
        self.remaining_bytes < BATCH_BYTES && self.frame_count < BATCH_FRAMES
    }

    fn clear(&mut self) {
        assert!(
            self.parts.is_empty(),
            "a batch is cleared after its last byte is written"
        );
        self.frame_count = 0;
        self.rooms.clear();
    }
}

impl Buf for Batch {
    fn remaining(&self) -> usize {
        self.remaining_bytes
    }

    fn chunk(&self) -> &[u8] {
        self.parts
            .front()
            .map_or(&[], |part| &part.bytes()[self.first_offset..])
    }

    fn chunks_vectored<'a>(&'a self, target: &mut [IoSlice<'a>]) -> usize {
        let mut offset = self.first_offset;
        let mut count = 0;
        for (slot, part) in target.iter_mut().zip(&self.parts) {
            *slot = IoSlice::new(&part.bytes()[offset..]);
            offset = 0;
            count += 1;
        }
        count
    }

    fn advance(&mut self, count: usize) {
        assert!(
            count <= self.remaining_bytes,
            "a batch cannot advance past its end"
        );
        self.remaining_bytes -= count;
        self.first_offset += count;
        while let Some(first) = self.parts.front() {
            let first_bytes = first.bytes().len();
            if self.first_offset < first_bytes {
                break;
            }
            self.first_offset -= first_bytes;
            self.parts.pop_front();
        }
    }
}
