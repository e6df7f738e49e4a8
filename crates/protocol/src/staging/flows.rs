//! The frames of a run on their way to its part: a queue with a limit, so that a peer that sends without credit
//! cannot fill the node's memory while the part waits.

use crate::locks::lock;
use crate::message::{Flow, RunId};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::{FusedStream, Stream};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// The most bytes of slices of a run that its part has not read. Credit limits the slices of well-behaved
/// peers to far fewer bytes.
pub(super) const QUEUED_BYTES_MAX_OF_RUN: u64 = 256 << 20;
/// The most frames of a run that its part has not read: short ones take memory too.
pub(super) const QUEUED_COUNT_MAX_OF_RUN: u64 = 1 << 20;

/// The load of a queue. Its lock is never held over a wait.
#[derive(Debug, Default)]
struct Queued {
    bytes: u64,
    count: u64,
    /// Whether a frame was refused. The part must not go on without it.
    is_over: bool,
}

/// The end of a queue that takes frames.
#[derive(Debug)]
pub(super) struct FlowSender {
    sender: UnboundedSender<Flow>,
    queued: Arc<Mutex<Queued>>,
}

/// The frames of a run for its part. After a refused frame it yields aborts only.
#[derive(Debug)]
pub(crate) struct Flows {
    run: RunId,
    receiver: UnboundedReceiver<Flow>,
    queued: Arc<Mutex<Queued>>,
}

/// A queue for the frames of a run.
pub(super) fn queue(run: RunId) -> (FlowSender, Flows) {
    let (sender, receiver) = unbounded();
    let queued = Arc::<Mutex<Queued>>::default();
    let flows = Flows {
        run,
        receiver,
        queued: Arc::clone(&queued),
    };
    (FlowSender { sender, queued }, flows)
}

/// Bytes of a frame's slice.
pub(super) fn slice_bytes(flow: &Flow) -> u64 {
    match flow {
        Flow::Slice { bytes, .. } => bytes.len() as u64,
        Flow::Credit { .. } | Flow::Abort { .. } => 0,
    }
}

impl FlowSender {
    /// Queues a frame. Returns whether this is the first one that the limit refuses: the part fails then.
    pub(super) fn send(&self, flow: Flow) -> bool {
        let bytes = slice_bytes(&flow);
        {
            let mut queued = lock(&self.queued);
            if queued.is_over {
                return false;
            }
            let has_room = queued.bytes + bytes <= QUEUED_BYTES_MAX_OF_RUN
                && queued.count < QUEUED_COUNT_MAX_OF_RUN;
            if has_room {
                queued.bytes += bytes;
                queued.count += 1;
            } else {
                queued.is_over = true;
                // It wakes the part, and is as short as a frame can be.
                let run = flow.run();
                let _ = self.sender.unbounded_send(Flow::Abort { run });
                return true;
            }
        }
        // Frames of a withdrawn run, or of a part that has ended, have no receiver.
        let _ = self.sender.unbounded_send(flow);
        false
    }
}

impl Flows {
    /// Whether a frame was refused because the part had too many unread ones.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.queued).is_over
    }
}

impl Stream for Flows {
    type Item = Flow;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Flow>> {
        if self.is_over() {
            return Poll::Ready(Some(Flow::Abort { run: self.run }));
        }
        let polled = Pin::new(&mut self.receiver).poll_next(context);
        if let Poll::Ready(Some(flow)) = &polled {
            let mut queued = lock(&self.queued);
            queued.bytes = queued.bytes.saturating_sub(slice_bytes(flow));
            queued.count = queued.count.saturating_sub(1);
        }
        polled
    }
}

impl FusedStream for Flows {
    fn is_terminated(&self) -> bool {
        self.receiver.is_terminated()
    }
}
