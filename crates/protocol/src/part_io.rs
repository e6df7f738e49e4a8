//! A part's own bytes at a node: the bytes that it reads, recalls and takes as input, and those that it
//! keeps until its end, when the participant makes records of them.

use crate::locks::lock;
use crate::message::{AttestedCut, ConversionSource, Effect, ReadCut, Refusal};
use crate::participant::Participant;
use crate::run::LocalIo;
use crate::staging::Inputs;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_exec::{Sink, Source};
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Sequence, StripeId};
use gabion_plan::Log;
use gabion_store::{ChunkWriter, Cut, Recalled, RecordKind, Store, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The most bytes that are read on a thread that must not wait.
const READ_NOW_BYTES_MAX: u64 = 16 << 10;

/// The bytes of one record so far: for each piece the data chunk whose change it is, where it goes
/// in the record's chunk, and its bytes.
pub(crate) type Pieces = Vec<(ChunkIndex, u64, Bytes)>;

/// The source of a record's pieces, in the order in which a record of copies has them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    NewBytes,
    Delta,
    Original,
    Appended,
}

/// The use of a part's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// For a reader: the newest bytes.
    Asker,
    /// For a record or a chunk: the bytes that parity covers.
    Code,
    /// Writes are kept for a record.
    CatchUp,
    /// They are appended; parity does not cover them yet.
    Append,
}

impl Use {
    pub(crate) fn of(effect: &Effect) -> Self {
        match effect {
            Effect::None => Self::Asker,
            Effect::Record { .. }
            | Effect::Install { .. }
            | Effect::Resume { .. }
            | Effect::Convert { .. } => Self::Code,
            Effect::CatchUp { .. } => Self::CatchUp,
            Effect::Append { .. } => Self::Append,
        }
    }
}

/// The chunk that a part writes. Its lock is held during writes, which wait for the disk: only threads that
/// may wait take it.
#[derive(Clone)]
pub(crate) struct WriterSlot(Arc<Mutex<Option<ChunkWriter>>>);

impl WriterSlot {
    pub(crate) fn new(writer: ChunkWriter) -> Self {
        Self(Arc::new(Mutex::new(Some(writer))))
    }

    /// Takes the writer, after the write that runs now. For a thread that may wait.
    pub(crate) fn take(&self) -> Option<ChunkWriter> {
        lock(&self.0).take()
    }

    /// Writes bytes of the chunk. For a thread that may wait.
    fn write(&self, range: ByteRange, bytes: &[u8]) -> Result<(), StoreError> {
        match &mut *lock(&self.0) {
            Some(writer) => writer.write_at(range.offset, bytes),
            None => Err(NO_WRITER),
        }
    }
}

/// The refusal of a write by a part that installs no chunk.
pub(crate) const NO_WRITER: StoreError = StoreError::Malformed {
    reason: "chunks are written by parts that install them",
};

/// The state of a running part until its end, without its writer. Its lock is never held over a wait.
#[derive(Default)]
pub(crate) struct Gathered {
    /// By the record's chunk.
    pub(crate) pieces: BTreeMap<(ChunkIndex, Part), Pieces>,
    /// The update as of which all reads were.
    pub(crate) read_at: Option<Sequence>,
}

impl Gathered {
    /// The records: one a chunk, since a part has no more than one for a chunk. Originals and new
    /// bytes of other chunks are one record.
    pub(crate) fn records(self) -> Vec<(ChunkIndex, RecordKind, Pieces)> {
        let mut records: Vec<(ChunkIndex, RecordKind, Pieces)> = Vec::new();
        for ((chunk, part), mut pieces) in self.pieces {
            let kind = match part {
                Part::NewBytes => RecordKind::NewBytes,
                Part::Delta => RecordKind::ParityDelta,
                Part::Original => RecordKind::Appended {
                    original_count: u16::try_from(pieces.len()).unwrap_or(u16::MAX),
                },
                Part::Appended => RecordKind::Appended { original_count: 0 },
            };
            match records.last_mut() {
                Some((last, RecordKind::Appended { .. }, earlier))
                    if *last == chunk && part == Part::Appended =>
                {
                    earlier.append(&mut pieces);
                }
                _ => records.push((chunk, kind, pieces)),
            }
        }
        records
    }
}

/// A part's bytes at this node.
pub(crate) struct NodeIo {
    pub(crate) participant: Participant,
    pub(crate) stripe: StripeId,
    /// The chunk of the stripe that is here.
    pub(crate) holds: Option<ChunkIndex>,
    pub(crate) cut: ReadCut,
    pub(crate) use_of: Use,
    /// The chunks of other stripes that are read instead of the stripe's own, when the stripe is made of
    /// them.
    pub(crate) sources: Option<Vec<ConversionSource>>,
    pub(crate) inputs: Inputs,
    pub(crate) gathered: Arc<Mutex<Gathered>>,
    /// None if the part installs no chunk.
    pub(crate) writer: Option<WriterSlot>,
}

impl NodeIo {
    /// The record of a step's bytes: its chunk, the kind of bytes, and the data chunk that they belong to.
    fn place(
        &self,
        log: Log,
        chunk: ChunkIndex,
    ) -> Result<((ChunkIndex, Part), ChunkIndex), Refusal> {
        let invalid = |why: &str| Refusal::Invalid(why.to_owned());
        let holder = || {
            let here = self
                .holds
                .ok_or("copies are kept by nodes that hold a chunk of the stripe");
            here.map_err(invalid)
        };
        match (log, self.use_of) {
            (Log::Journal, Use::Append) => Ok(((chunk, Part::Appended), chunk)),
            (Log::Replica, Use::Append) => Ok(((holder()?, Part::Appended), chunk)),
            (Log::Original, Use::Append) => Ok(((holder()?, Part::Original), chunk)),
            (Log::Journal, _) => Ok(((chunk, Part::NewBytes), chunk)),
            (Log::Parity { data }, Use::Code) => Ok(((chunk, Part::Delta), data)),
            // A note under the parity chunk itself may be for any data chunk.
            (Log::ParitySum, Use::Code) => Ok(((chunk, Part::Delta), chunk)),
            _ => Err(invalid("the part's effect has no such log")),
        }
    }

    fn put_aside(
        &self,
        place: (ChunkIndex, Part),
        data: ChunkIndex,
        range: ByteRange,
        bytes: Bytes,
    ) {
        let mut gathered = lock(&self.gathered);
        let pieces = gathered.pieces.entry(place).or_default();
        pieces.push((data, range.offset, bytes));
    }

    /// Reads bytes of a data chunk from another stripe's chunk.
    fn fetch_source(
        &self,
        sources: &[ConversionSource],
        index: ChunkIndex,
        range: ByteRange,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let Some(source) = sources.iter().find(|source| source.chunk == index).copied() else {
            let why = format!("nothing here has the bytes of {index}");
            return futures::future::ready(Err(Refusal::Invalid(why))).boxed();
        };
        let participant = self.participant.clone();
        let read = async move {
            let cut = Cut::Exactly(source.cut);
            let (_, bytes) = participant.read(source.held, range, cut).await?;
            Ok(bytes)
        };
        read.boxed()
    }

    /// Recalls bytes of a data chunk from this node's log.
    fn recall(
        &self,
        log: Log,
        data: ChunkIndex,
        range: ByteRange,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let (ReadCut::Exactly(upto) | ReadCut::Coded(upto), Some(index)) = (self.cut, self.holds)
        else {
            let why = "logged bytes are recalled exactly as of an update, where a chunk is";
            return futures::future::ready(Err(Refusal::Invalid(why.to_owned()))).boxed();
        };
        let (stripe, is_read) = (self.stripe, self.use_of == Use::Asker);
        let chunk = ChunkId { stripe, index };
        let wanted = Recalled {
            data,
            is_original: log == Log::Original,
            range,
        };
        let participant = self.participant.clone();
        let recalled = async move {
            let recalled = participant.with_store(move |store| {
                let mut bytes = Vec::new();
                store.recall(chunk, wanted, upto, &mut bytes)?;
                Ok(Bytes::from(bytes))
            });
            match recalled.await {
                // Another log may have what this one lacks.
                Err(Refusal::Invalid(_)) if is_read => Err(Refusal::Failed(format!(
                    "its log does not have the last updates of {data} of {stripe}"
                ))),
                recalled => recalled,
            }
        };
        recalled.boxed()
    }
}

impl Participant {
    /// Bytes of a chunk, and the update as of which they are. A few bytes that are in memory are read at
    /// once: a handover to another thread costs more than reading and checking them.
    async fn read(
        &self,
        chunk: ChunkId,
        range: ByteRange,
        cut: Cut,
    ) -> Result<(Sequence, Bytes), Refusal> {
        if range.length <= READ_NOW_BYTES_MAX {
            let mut bytes = Vec::new();
            if let Some(as_of) = self.store.read_now(chunk, range, cut, &mut bytes) {
                return Ok((as_of, Bytes::from(bytes)));
            }
        }
        // The memory is allocated on this thread, which also frees it: an allocator keeps freed memory for
        // the thread that allocated it, and many threads wait for disks.
        let mut bytes = Vec::with_capacity(range.length as usize);
        self.with_store(move |store| {
            let as_of = store.read(chunk, range, cut, &mut bytes)?;
            Ok((as_of, Bytes::from(bytes)))
        })
        .await
    }
}

impl LocalIo for NodeIo {
    fn fetch(
        &self,
        source: Source,
        range: ByteRange,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let index = match source {
            Source::Input(chunk) => {
                return futures::future::ready(self.inputs.read(chunk, range)).boxed();
            }
            Source::Log(log, data) => return self.recall(log, data, range),
            Source::Chunk(index) => index,
        };
        if let Some(sources) = &self.sources {
            return self.fetch_source(sources, index, range);
        }
        let chunk = ChunkId {
            stripe: self.stripe,
            index,
        };
        let cut = match (self.cut, self.use_of) {
            (ReadCut::Committed(_, at_least), _) => Cut::Committed { at_least },
            (
                ReadCut::Exactly(sequence)
                | ReadCut::Settled(sequence)
                | ReadCut::Attested(AttestedCut { mark: sequence, .. }),
                Use::Asker,
            ) => Cut::Newest(sequence),
            (
                ReadCut::Exactly(sequence)
                | ReadCut::Settled(sequence)
                | ReadCut::Attested(AttestedCut { mark: sequence, .. })
                | ReadCut::Coded(sequence),
                _,
            ) => Cut::Exactly(sequence),
        };
        let participant = self.participant.clone();
        let gathered = Arc::clone(&self.gathered);
        let read = async move {
            let (as_of, bytes) = participant.read(chunk, range, cut).await?;
            // An update that is committed between two slices must not be visible in the second alone.
            if *lock(&gathered).read_at.get_or_insert(as_of) == as_of {
                Ok(bytes)
            } else {
                Err(Refusal::CutPassed { asked: as_of })
            }
        };
        read.boxed()
    }

    fn store(
        &self,
        sink: Sink,
        range: ByteRange,
        bytes: Bytes,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        match sink {
            Sink::Append(log, chunk) => {
                let placed = self.place(log, chunk);
                let stored = placed.map(|(place, data)| self.put_aside(place, data, range, bytes));
                futures::future::ready(stored).boxed()
            }
            Sink::Write(chunk) if self.use_of == Use::CatchUp => {
                self.put_aside((chunk, Part::NewBytes), chunk, range, bytes);
                futures::future::ready(Ok(())).boxed()
            }
            Sink::Write(_) => {
                let writer = self.writer.clone();
                let participant = self.participant.clone();
                let write = async move {
                    let write = move |_: &Store| match writer {
                        Some(writer) => writer.write(range, &bytes),
                        None => Err(NO_WRITER),
                    };
                    participant.with_store(write).await
                };
                write.boxed()
            }
            Sink::Deliver(_) => {
                let refusal = Refusal::Invalid("only a client's part delivers bytes".to_owned());
                futures::future::ready(Err(refusal)).boxed()
            }
        }
    }
}
