//! The start of the kernel's requests and their answers, by the kind of their replies.

use crate::directory::Entry;
use crate::errno::Errno;
use crate::extended::{Fitted, fit};
use crate::gateway::{Gateway, Stat};
use crate::lock_request::OwnMemory;
use crate::requests::Requests;
use fuser::{
    FileHandle, Generation, ReplyAttr, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyXattr,
};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a page of a directory holds, for the limit of requests in flight.
const PAGE_BYTES: usize = 128 << 10;
/// An inode's number is never used again.
pub(crate) const GENERATION: Generation = Generation(0);

/// A reply that only tells the end of a request.
pub(crate) trait Ends {
    fn end(self, done: Result<(), fuser::Errno>);
}

macro_rules! ends {
    ($($reply:ty),+) => {
        $(impl Ends for $reply {
            fn end(self, done: Result<(), fuser::Errno>) {
                match done {
                    Ok(()) => self.ok(),
                    Err(errno) => self.error(errno),
                }
            }
        })+
    };
}
ends!(ReplyEmpty, ReplyDirectory, ReplyDirectoryPlus);

/// The kernel's side of a mount.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) requests: Requests,
    pub(crate) memory: Arc<OwnMemory>,
}

impl Served {
    /// The state of the mount.
    pub(crate) fn gateway(&self) -> Arc<Gateway> {
        Arc::clone(&self.gateway)
    }

    /// For how long the kernel may go by what it is told.
    pub(crate) fn kept(&self) -> Duration {
        self.gateway.kept
    }

    /// Starts a request that only succeeds or fails.
    pub(crate) fn start_plain(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<(), Errno>> + Send + 'static,
        reply: ReplyEmpty,
    ) {
        let end = |done| reply.end(done);
        self.requests.start(operation, 0, work, end);
    }

    /// Starts to make a file's bytes and the time of its last write durable, and then to close an owner of its locks,
    /// if one closes it.
    pub(crate) fn start_settling(
        &self,
        operation: &'static str,
        (handle, owner): (FileHandle, Option<u64>),
        reply: ReplyEmpty,
    ) {
        let gateway = self.gateway();
        let work = async move {
            let handle = gateway.handles.get(handle)?;
            let stored = match owner {
                Some(_) => gateway.settle_bytes(&handle).await,
                None => gateway.sync_bytes(&handle).await,
            };
            let settled = gateway.settle_times(&handle.shared).await;
            if let Some(owner) = owner {
                gateway.close_owner(&handle, owner).await?;
            }
            stored.and(settled)
        };
        self.start_plain(operation, work, reply);
    }

    /// Starts a listing behind a number, whose entries `add` gives to the reply while that has room.
    pub(crate) fn start_listing<R: Ends + Send + 'static>(
        &self,
        operation: &'static str,
        (handle, offset): (FileHandle, u64),
        (mut reply, mut add): (R, impl FnMut(&mut R, Entry) -> bool + Send + 'static),
    ) {
        let gateway = self.gateway();
        let work = async move {
            let add = |entry| add(&mut reply, entry);
            let listed = gateway.list(handle, offset, add).await;
            // The reply goes with the result: the number of the error is known there only.
            Ok((listed, reply))
        };
        self.requests.start(operation, PAGE_BYTES, work, |done| {
            if let Ok((listed, reply)) = done {
                reply.end(listed.map_err(Errno::number));
            }
        });
    }

    /// Starts a request for a lock, which may wait for other requests and takes no place of theirs.
    pub(crate) fn start_locking(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<(), Errno>> + Send + 'static,
        reply: ReplyEmpty,
    ) {
        let end = |done| reply.end(done);
        self.requests.start_locking(operation, work, end);
    }

    /// Starts a request whose reply is an inode's attributes.
    pub(crate) fn start_stat(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<Stat, Errno>> + Send + 'static,
        reply: ReplyAttr,
    ) {
        let kept = self.kept();
        self.requests
            .start(operation, 0, work, move |done| match done {
                Ok(stat) => reply.attr(&kept, &stat),
                Err(errno) => reply.error(errno),
            });
    }

    /// Starts a request whose reply is what has a name.
    pub(crate) fn start_entry(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<Stat, Errno>> + Send + 'static,
        reply: ReplyEntry,
    ) {
        let kept = self.kept();
        self.requests
            .start(operation, 0, work, move |done| match done {
                Ok(stat) => reply.entry(&kept, &stat, GENERATION),
                Err(errno) => reply.error(errno),
            });
    }

    /// Starts a request whose reply is a value or names of attributes.
    pub(crate) fn start_attribute(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<Vec<u8>, Errno>> + Send + 'static,
        (room, reply): (u32, ReplyXattr),
    ) {
        let work = async move { fit(work.await?, room) };
        self.requests.start(operation, 0, work, |done| match done {
            Ok(Fitted::Size(size)) => reply.size(size),
            Ok(Fitted::Bytes(bytes)) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        });
    }
}
