//! A device in memory, with segments that may be holes, and exports of several of them.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use gabion_layout::ByteRange;
use gabion_nbd::{
    Context, Descriptor, Device, DeviceError, Errno, ExportShape, Exports, OpenError, Part,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Semaphore;

/// Bytes of a segment.
pub(crate) const SEGMENT: u64 = 64 << 10;

/// On an odd device, a write to this byte fails for want of space, and a read of it with an input error.
pub(crate) const BAD_BYTE: u64 = 3 << 20;

/// On an odd device, a write that begins at this byte waits until the test lets it go on.
pub(crate) const GATED_BYTE: u64 = 4 << 20;

/// The kind of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Usual,
    ReadOnly,
    /// With a bad byte, and a gate.
    Odd,
}

/// The device.
pub(crate) struct Memory {
    size_bytes: u64,
    kind: Kind,
    /// Stored segments by their index; the others are holes.
    segments: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// A permit lets one write at [`GATED_BYTE`] go on.
    pub(crate) gate: Semaphore,
}

impl Memory {
    pub(crate) fn new(size_bytes: u64, kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            size_bytes,
            kind,
            segments: Mutex::default(),
            gate: Semaphore::new(0),
        })
    }

    fn segments(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<u8>>> {
        self.segments.lock().expect("no test panics with it")
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        let mut segments = self.segments();
        for range in cut(ByteRange::new(offset, bytes.len() as u64)) {
            let segment = segments.entry(range.offset / SEGMENT);
            let segment = segment.or_insert_with(|| vec![0; SEGMENT as usize]);
            let (at, from) = (range.offset % SEGMENT, range.offset - offset);
            segment[at as usize..][..range.length as usize]
                .copy_from_slice(&bytes[from as usize..][..range.length as usize]);
        }
    }

    /// Bytes of a range, without any check.
    pub(crate) fn bytes(&self, range: ByteRange) -> Vec<u8> {
        let segments = self.segments();
        let mut bytes = Vec::with_capacity(range.length as usize);
        for part in cut(range) {
            let length = part.length as usize;
            match segments.get(&(part.offset / SEGMENT)) {
                Some(segment) => {
                    bytes.extend(&segment[(part.offset % SEGMENT) as usize..][..length]);
                }
                None => bytes.resize(bytes.len() + length, 0),
            }
        }
        bytes
    }

    fn has_bad_byte(&self, range: ByteRange) -> bool {
        self.kind == Kind::Odd && (range.offset..range.end()).contains(&BAD_BYTE)
    }

    fn punch(&self, range: ByteRange) {
        let first = range.offset.div_ceil(SEGMENT);
        let last = if range.end() == self.size_bytes {
            range.end().div_ceil(SEGMENT)
        } else {
            range.end() / SEGMENT
        };
        self.segments()
            .retain(|&at, _| !(first..last).contains(&at));
    }

    /// The parts of a range by segments, and whether each is stored.
    fn parts(&self, range: ByteRange) -> Vec<(ByteRange, bool)> {
        let segments = self.segments();
        let is_stored = |part: &ByteRange| segments.contains_key(&(part.offset / SEGMENT));
        cut(range).map(|part| (part, is_stored(&part))).collect()
    }
}

/// Cuts a range at the borders of segments.
fn cut(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let mut at = range.offset;
    std::iter::from_fn(move || {
        let end = range.end().min((at / SEGMENT + 1) * SEGMENT);
        let part = (at < end).then(|| ByteRange::new(at, end - at));
        at = end;
        part
    })
}

fn failure(errno: Errno, sentence: &str) -> DeviceError {
    let sentence = sentence.to_owned();
    DeviceError { errno, sentence }
}

impl Device for Memory {
    fn shape(&self) -> ExportShape {
        ExportShape {
            size_bytes: self.size_bytes,
            is_read_only: self.kind == Kind::ReadOnly,
        }
    }

    fn read(&self, range: ByteRange) -> BoxFuture<'_, Result<Vec<Part>, DeviceError>> {
        if self.has_bad_byte(range) {
            return ready(Err(failure(Errno::Io, "the byte is bad"))).boxed();
        }
        let parts = self.parts(range).into_iter();
        let parts = parts.map(|(part, is_stored)| {
            if is_stored {
                Part::Bytes(self.bytes(part).into())
            } else {
                Part::Hole(part.length)
            }
        });
        ready(Ok(parts.collect())).boxed()
    }

    fn write(&self, offset: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), DeviceError>> {
        let range = ByteRange::new(offset, bytes.len() as u64);
        let write = async move {
            if self.has_bad_byte(range) {
                return Err(failure(Errno::NoSpace, "the disk is full"));
            }
            if self.kind == Kind::Odd && offset == GATED_BYTE {
                self.gate.acquire().await.expect("it stays").forget();
            }
            self.store(offset, &bytes);
            Ok(())
        };
        write.boxed()
    }

    fn zero(&self, range: ByteRange, keeps_space: bool) -> BoxFuture<'_, Result<(), DeviceError>> {
        if !keeps_space {
            self.punch(range);
        }
        for (part, is_stored) in self.parts(range) {
            if keeps_space || is_stored {
                self.store(part.offset, &vec![0; part.length as usize]);
            }
        }
        ready(Ok(())).boxed()
    }

    fn zeroes_fast(&self, range: ByteRange) -> bool {
        range.offset.is_multiple_of(SEGMENT) && range.end().is_multiple_of(SEGMENT)
    }

    fn trim(&self, range: ByteRange) -> BoxFuture<'_, Result<(), DeviceError>> {
        self.punch(range);
        ready(Ok(())).boxed()
    }

    fn status(
        &self,
        context: Context,
        range: ByteRange,
        count_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Descriptor>, DeviceError>> {
        let (stored, hole) = match context {
            Context::Allocation => (0, 3),
            Context::FailuresLeft => (2, 1 << 30),
        };
        let mut all: Vec<Descriptor> = Vec::new();
        for (part, is_stored) in self.parts(range) {
            let status = if is_stored { stored } else { hole };
            match all.last_mut() {
                Some(last) if last.status == status => last.length += part.length,
                _ => all.push(Descriptor {
                    length: part.length,
                    status,
                }),
            }
        }
        all.truncate(count_max);
        ready(Ok(all)).boxed()
    }
}

/// Exports by their names.
#[derive(Default)]
pub(crate) struct Shelf(pub(crate) BTreeMap<String, Arc<Memory>>);

impl Shelf {
    fn find(&self, name: &str) -> Result<Arc<Memory>, OpenError> {
        if name == "vm/broken" {
            let sentence = "the coordinator does not answer";
            return Err(OpenError::Failed(sentence.to_owned()));
        }
        self.0.get(name).cloned().ok_or(OpenError::Unknown)
    }
}

impl Exports for Shelf {
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, OpenError>> {
        ready(Ok(self.0.keys().cloned().collect())).boxed()
    }

    fn look<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ExportShape, OpenError>> {
        ready(self.find(name).map(|device| device.shape())).boxed()
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Device>, OpenError>> {
        ready(self.find(name).map(|device| device as Arc<dyn Device>)).boxed()
    }
}
