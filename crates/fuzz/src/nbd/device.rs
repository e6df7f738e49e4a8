//! Small devices in memory: one usual, one read-only, one whose size is no multiple of anything.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use gabion_layout::ByteRange;
use gabion_nbd::{
    Context, Descriptor, Device, DeviceError, Errno, ExportShape, Exports, OpenError, Part,
};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes whose state is the same.
const SEGMENT_BYTES: u64 = 4096;

/// A device.
struct Memory {
    is_read_only: bool,
    bytes: Mutex<Vec<u8>>,
}

impl Memory {
    fn new(size_bytes: usize, is_read_only: bool) -> Arc<Self> {
        Arc::new(Self {
            is_read_only,
            bytes: Mutex::new(vec![0; size_bytes]),
        })
    }

    /// Runs `body` on the bytes of a range, which the server keeps within the device.
    fn with<T>(&self, range: ByteRange, body: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        body(&mut bytes[range.offset as usize..range.end() as usize])
    }
}

impl Device for Memory {
    fn shape(&self) -> ExportShape {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        ExportShape {
            size_bytes: bytes.len() as u64,
            is_read_only: self.is_read_only,
        }
    }

    fn read(&self, range: ByteRange) -> BoxFuture<'_, Result<Vec<Part>, DeviceError>> {
        let bytes = self.with(range, |bytes| Bytes::copy_from_slice(bytes));
        let mut parts = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + SEGMENT_BYTES as usize);
            let part = bytes.slice(at..end);
            parts.push(if part.iter().all(|&byte| byte == 0) {
                Part::Hole(part.len() as u64)
            } else {
                Part::Bytes(part)
            });
            at = end;
        }
        ready(Ok(parts)).boxed()
    }

    fn write(&self, offset: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), DeviceError>> {
        if bytes.first() == Some(&13) {
            let sentence = "the disk is full".to_owned();
            let errno = Errno::NoSpace;
            return ready(Err(DeviceError { errno, sentence })).boxed();
        }
        let range = ByteRange::new(offset, bytes.len() as u64);
        self.with(range, |stored| stored.copy_from_slice(&bytes));
        ready(Ok(())).boxed()
    }

    fn zero(&self, range: ByteRange, _: bool) -> BoxFuture<'_, Result<(), DeviceError>> {
        self.with(range, |bytes| bytes.fill(0));
        ready(Ok(())).boxed()
    }

    fn zeroes_fast(&self, range: ByteRange) -> bool {
        range.length.is_multiple_of(SEGMENT_BYTES)
    }

    fn trim(&self, range: ByteRange) -> BoxFuture<'_, Result<(), DeviceError>> {
        self.zero(range, false)
    }

    fn status(
        &self,
        context: Context,
        range: ByteRange,
        count_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Descriptor>, DeviceError>> {
        let mut all = Vec::new();
        let mut at = range.offset;
        while at < range.end() && all.len() < count_max {
            let end = range.end().min((at / SEGMENT_BYTES + 1) * SEGMENT_BYTES);
            let status = match context {
                Context::Allocation => (at / SEGMENT_BYTES % 4) as u32,
                Context::FailuresLeft => 2,
            };
            all.push(Descriptor {
                length: end - at,
                status,
            });
            at = end;
        }
        ready(Ok(all)).boxed()
    }
}

/// The exports.
pub(super) struct Shelf([Arc<Memory>; 3]);

impl Shelf {
    /// Their names.
    pub(super) const NAMES: [&'static str; 3] = ["vm/disk", "vm/odd", "vm/iso"];

    pub(super) fn new() -> Self {
        Self([
            Memory::new(1 << 20, false),
            Memory::new(77_777, false),
            Memory::new(64 << 10, true),
        ])
    }

    fn find(&self, name: &str) -> Result<Arc<Memory>, OpenError> {
        let at = Self::NAMES.iter().position(|known| *known == name);
        at.map(|at| Arc::clone(&self.0[at]))
            .ok_or(OpenError::Unknown)
    }
}

impl Exports for Shelf {
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, OpenError>> {
        let names = Self::NAMES.iter().map(|&name| name.to_owned()).collect();
        ready(Ok(names)).boxed()
    }

    fn look<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ExportShape, OpenError>> {
        ready(self.find(name).map(|device| device.shape())).boxed()
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Device>, OpenError>> {
        ready(self.find(name).map(|device| device as Arc<dyn Device>)).boxed()
    }
}
