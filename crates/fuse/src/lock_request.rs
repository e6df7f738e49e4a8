//! The kind of a lock request. The kernel marks those of `flock` with a flag that `fuser` does not hand over, and its
//! other fields are the same for both kinds.
//!
//! `fuser` calls the file system while the kernel's message is in its buffer, and its `Request` is the header in that
//! buffer. So the message is read again from there, by the file of this process's memory: an address that is wrong
//! gives an error or other bytes. All fields that `fuser` has decoded must be those of the message; else the request is
//! refused. docs/dependencies.md has the versions for which this holds.

use crate::errno::Errno;
use fuser::{FileHandle, INodeNo, LockOwner, Request};
use gabion_meta::LockKind;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes of a lock request: the header and its fields.
const MESSAGE_BYTES: usize = 88;
/// Linux's numbers of the operations.
const OPERATIONS: [u32; 2] = [32, 33];
/// Linux's flag of requests by `flock`.
const FLOCK: u32 = 1;

/// A lock request as `fuser` has decoded it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockCall {
    pub(crate) inode: INodeNo,
    pub(crate) handle: FileHandle,
    pub(crate) owner: LockOwner,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) mode: i32,
    pub(crate) process: u32,
}

/// This process's memory, as a file.
#[derive(Debug)]
pub(crate) struct OwnMemory(File);

impl OwnMemory {
    pub(crate) fn open() -> io::Result<Self> {
        File::open("/proc/self/mem").map(Self)
    }

    /// The kind of a request to change a lock.
    pub(crate) fn kind(&self, request: &Request, call: &LockCall) -> Result<LockKind, Errno> {
        let mut message = [0; MESSAGE_BYTES];
        let address = std::ptr::from_ref(request).addr() as u64;
        let read = self.0.read_exact_at(&mut message, address);
        let kind = read.ok().and_then(|()| kind_of(&message, request, call));
        kind.ok_or_else(|| {
            tracing::warn!("a lock request is refused: its message is not where it should be");
            Errno::NoLocks
        })
    }
}

fn kind_of(message: &[u8; MESSAGE_BYTES], request: &Request, call: &LockCall) -> Option<LockKind> {
    let short = |at: usize| Some(u32::from_ne_bytes(*message[at..].first_chunk()?));
    let long = |at: usize| Some(u64::from_ne_bytes(*message[at..].first_chunk()?));
    let is_whole = short(0)? as usize == MESSAGE_BYTES && OPERATIONS.contains(&short(4)?);
    let is_request = (long(8)?, long(16)?) == (request.unique().0, call.inode.0);
    let is_call = (long(40)?, long(48)?) == (call.handle.0, call.owner.0)
        && (long(56)?, long(64)?) == (call.first, call.last)
        && (short(72)?, short(76)?) == (call.mode.cast_unsigned(), call.process);
    let flags = short(80)?;
    if !(is_whole && is_request && is_call) {
        return None;
    }
    Some(if flags & FLOCK == 0 {
        LockKind::Range
    } else {
        LockKind::Whole
    })
}
