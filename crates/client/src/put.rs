//! Stores a file: stripe by stripe, encoded here, each chunk sent straight to its node. The file
//! becomes visible atomically when every chunk is durable. A stripe that a node does not take is
//! placed again.

use crate::client::{COORDINATOR_DEADLINE_MS, Client, code_of, topology};
use crate::encoder::Encoder;
use crate::error::{ClientError, passing};
use crate::extent::geometry;
use crate::keeper::Keeper;
use crate::progress::Progress;
use crate::storing_all::{Stored, StoringAll};
use bytes::{Bytes, BytesMut};
use futures::io::{AsyncRead, AsyncReadExt};
use gabion_layout::{Geometry, StripeRecord};
use gabion_meta::{
    DirectoryId, Existing, FileRecord, INLINE_BYTES_MAX, NewAttributes, PoolRecord, PutId,
    RelativePath,
};
use gabion_protocol::message::{
    BegunPut, Cause, OpenPut, Opener, PutPlaces, Ticket, WholeFile, ask,
};
use gabion_protocol::ports::Ask as _;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes for which a put of unknown size reserves places at first.
const FIRST_BYTES: u64 = 1 << 20;
/// Most stripes for which it reserves places at a time.
const MORE_COUNT_MAX: u64 = 256;

/// A file that is to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFile<'a> {
    /// The directory from which on the name is.
    pub directory: DirectoryId,
    /// The file's name.
    pub name: &'a str,
    /// The treatment of an existing file of the same name.
    pub existing: Existing,
    /// The pool; may be omitted when there is only one.
    pub pool: Option<&'a str>,
    /// The file's attributes. Directories above it that are missing get its owner.
    pub attributes: NewAttributes,
}

impl<'a> NewFile<'a> {
    /// A file of this name, owned by root and readable for all, in the only pool. A file that has the name already
    /// stays.
    pub const fn named(name: &'a str) -> Self {
        Self {
            directory: DirectoryId::ROOT,
            name,
            existing: Existing::Stays,
            pool: None,
            attributes: NewAttributes::FILE,
        }
    }
}

/// A stored file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutSummary {
    /// Distinguishes the file from earlier and later ones of the same name.
    pub put: PutId,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// Number of its stripes.
    pub stripe_count: u64,
    /// Stored bytes of all chunks, with parity and padding, or the inline bytes.
    pub stored_bytes: u64,
    /// Chunks that are not stored, since their nodes have failed and the others are too few. Each
    /// stripe survives the loss of one more; repairs make them.
    pub left_out_count: u64,
    /// The pool.
    pub pool: PoolRecord,
    /// The file, if it is inline.
    pub record: Option<Box<FileRecord>>,
    /// Whether this client has it open in its session.
    pub(crate) is_open: bool,
}

impl PutSummary {
    /// That of an inline file.
    fn inline(
        (put, record): (PutId, Option<Box<FileRecord>>),
        size_bytes: u64,
        (pool, is_open): (PoolRecord, bool),
    ) -> Self {
        Self {
            record,
            is_open,
            put,
            size_bytes,
            stripe_count: 0,
            stored_bytes: size_bytes,
            left_out_count: 0,
            pool,
        }
    }
}

/// The beginning of a source.
struct Head {
    bytes: Bytes,
    /// Whether the source has no more.
    is_whole: bool,
}

/// Reads the source as far as it may be a file that is stored inline: all of it if it is small, and nothing if it is
/// known to be large.
///
/// # Errors
/// [`ClientError::SourceTooShort`]; [`ClientError::Io`].
async fn read_head(
    source: &mut (impl AsyncRead + Unpin),
    size_bytes: Option<u64>,
) -> Result<Head, ClientError> {
    if size_bytes.is_some_and(|size_bytes| size_bytes > INLINE_BYTES_MAX) {
        return Ok(Head {
            bytes: Bytes::new(),
            is_whole: false,
        });
    }
    let limit_bytes = size_bytes.unwrap_or(INLINE_BYTES_MAX + 1);
    let mut bytes = BytesMut::zeroed(limit_bytes as usize);
    let found_bytes = fill(source, &mut bytes).await? as u64;
    match size_bytes {
        Some(size_bytes) if found_bytes < size_bytes => Err(ClientError::SourceTooShort {
            found_bytes,
            size_bytes,
        }),
        _ => {
            bytes.truncate(found_bytes as usize);
            Ok(Head {
                bytes: bytes.freeze(),
                is_whole: size_bytes.is_some() || found_bytes < limit_bytes,
            })
        }
    }
}

/// A put with stripes reserved by the coordinator.
struct Begun {
    put: OpenPut,
    pool: PoolRecord,
    stripes: Vec<StripeRecord>,
    /// The tickets to store them.
    tickets: Vec<Ticket>,
    encoder: Arc<Encoder>,
}

impl Client {
    /// Stores the next `size_bytes` bytes of `source` as a file; the pool may be omitted when there
    /// is only one. A file that has the name already stays, and then this is refused.
    ///
    /// The file becomes visible, complete and durable, when this returns without an error, and not
    /// before. If this fails or is dropped, stored chunks are reclaimed. A put may last as long as its source does: the
    /// client renews it. If the coordinator does not hear the client for 30 s, the put is refused at its end.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for invalid names, pools and sizes;
    /// [`ClientError::SourceTooShort`]; [`ClientError::Io`] of the source; [`ClientError::Node`]
    /// and [`ClientError::Late`] when nodes do not store their chunks, and others cannot in time;
    /// [`ClientError::NoCoordinator`], the only error after which the file may be stored
    /// nevertheless.
    pub async fn put(
        &self,
        name: &str,
        pool: Option<&str>,
        source: impl AsyncRead + Unpin,
        size_bytes: u64,
        progress: &dyn Progress,
    ) -> Result<PutSummary, ClientError> {
        let new = NewFile {
            pool,
            ..NewFile::named(name)
        };
        self.put_over(new, source, size_bytes, progress).await
    }

    /// As [`Client::put`], but a file that has the name already is replaced if `new` allows it: readers
    /// find it until the new one is complete and durable, and then that one, at no time neither.
    ///
    /// # Errors
    /// Those of [`Client::put`].
    pub async fn put_over(
        &self,
        new: NewFile<'_>,
        source: impl AsyncRead + Unpin,
        size_bytes: u64,
        progress: &dyn Progress,
    ) -> Result<PutSummary, ClientError> {
        self.put_all(new, (source, Some(size_bytes)), (progress, None))
            .await
    }

    /// As [`Client::put_over`], but stores all that `source` has until its end: the size is not known before. Places
    /// are reserved a few at a time, so that this may fail for want of space after much was read. `progress` gets
    /// the size so far as the total.
    ///
    /// # Errors
    /// Those of [`Client::put`].
    pub async fn put_stream(
        &self,
        new: NewFile<'_>,
        source: impl AsyncRead + Unpin,
        progress: &dyn Progress,
    ) -> Result<PutSummary, ClientError> {
        self.put_all(new, (source, None), (progress, None)).await
    }

    /// Stores a file. If it is stored inline, the client has it open in its session, if the `opener` says that.
    pub(crate) async fn put_all(
        &self,
        new: NewFile<'_>,
        (mut source, size_bytes): (impl AsyncRead + Unpin, Option<u64>),
        (progress, opener): (&dyn Progress, Option<Opener>),
    ) -> Result<PutSummary, ClientError> {
        let head = read_head(&mut source, size_bytes).await?;
        let size_bytes = size_bytes.or_else(|| head.is_whole.then_some(head.bytes.len() as u64));
        let mut reserved_bytes = size_bytes.unwrap_or(FIRST_BYTES);
        let whole = head.is_whole.then(|| head.bytes.clone());
        let begun = match self.begin_put(new, reserved_bytes, (whole, opener)).await {
            // The quota may have room for what the source has.
            Err(error) if error.cause() == Cause::Quota && size_bytes.is_none() => {
                reserved_bytes = 0;
                self.begin_put(new, reserved_bytes, (None, None)).await?
            }
            begun => begun?,
        };
        let mut begun = match begun {
            BegunPut::Places(places) => self.begun(*places)?,
            BegunPut::Stored {
                put,
                file,
                pool,
                is_open,
            } => {
                let size_bytes = head.bytes.len() as u64;
                progress.advanced(size_bytes, size_bytes);
                return Ok(PutSummary::inline(
                    (put, file),
                    size_bytes,
                    (*pool, is_open),
                ));
            }
        };
        let source = head.bytes.as_ref().chain(source);
        let mut keeper = Keeper::new(Arc::clone(&self.shared.ports), begun.put);
        let stored = match size_bytes {
            Some(size_bytes) => store_all((self, &mut begun), source, size_bytes, progress).await,
            None => store_stream((self, &mut begun), source, reserved_bytes, progress).await,
        };
        let done = match stored {
            Ok(stored) => self.commit_put(new.name, begun.put).await.map(|()| stored),
            Err(error) => Err(error),
        };
        let (size_bytes, stored) = match done {
            Ok(stored) => stored,
            Err(error) => {
                keeper.abort().await;
                return Err(error);
            }
        };
        keeper.release();
        Ok(PutSummary {
            put: begun.put.id,
            size_bytes,
            stripe_count: stored.count,
            stored_bytes: stored.bytes,
            left_out_count: stored.left_out_count,
            pool: begun.pool,
            record: None,
            is_open: false,
        })
    }

    async fn begin_put(
        &self,
        new: NewFile<'_>,
        size_bytes: u64,
        (whole, opener): (Option<Bytes>, Option<Opener>),
    ) -> Result<BegunPut, ClientError> {
        let (number, is_whole) = (self.draw_change(), whole.is_some());
        let request = ask::BeginPut {
            at: RelativePath::new(new.directory, new.name),
            existing: new.existing,
            pool: new.pool.map(str::to_owned),
            size_bytes,
            attributes: new.attributes,
            whole: whole.map(|bytes| WholeFile { bytes, number }),
            opener,
        };
        match self.ask(request).await {
            Ok(BegunPut::Stored { .. }) if !is_whole => {
                Err(ClientError::unexpected("the coordinator"))
            }
            begun => begun,
        }
    }

    fn begun(&self, places: PutPlaces) -> Result<Begun, ClientError> {
        let PutPlaces {
            put,
            pool,
            stripes,
            tickets,
            nodes,
        } = places;
        self.ports().learn_nodes(&nodes);
        let encoder = Encoder {
            client: self.clone(),
            code: code_of(&pool)?,
            pool: pool.spec.clone(),
            topology: topology(&nodes)?,
        };
        Ok(Begun {
            put,
            pool,
            stripes,
            tickets,
            encoder: Arc::new(encoder),
        })
    }

    /// Makes the file visible. If an answer was lost, a repetition gives the same one.
    async fn commit_put(&self, name: &str, put: OpenPut) -> Result<(), ClientError> {
        let mut attempts = self.attempts(format!("making {name} visible"), 0);
        loop {
            let commit = ask::CommitPut(put);
            let asked = self
                .ports()
                .ask_coordinator(commit, COORDINATOR_DEADLINE_MS);
            let missing = match asked.await {
                Ok(()) => return Ok(()),
                Err(error) => passing(error)?,
            };
            let why = missing.sentence.clone();
            let again = attempts.pause(missing).await;
            // An earlier request may have been carried out.
            again.map_err(|_| ClientError::NoCoordinator(why))?;
        }
    }
}

/// Encodes and stores all stripes while the source is being read. Those of a large file are reserved some at a time.
/// Returns the file's size.
async fn store_all(
    (client, begun): (&Client, &mut Begun),
    mut source: impl AsyncRead + Unpin,
    size_bytes: u64,
    progress: &dyn Progress,
) -> Result<(u64, Stored), ClientError> {
    let mut all = StoringAll::new(begun.put, &begun.encoder, progress);
    let (mut read_bytes, mut step) = (0, 0);
    progress.advanced(0, size_bytes);
    let mut rest = VecDeque::from(std::mem::take(&mut begun.stripes));
    loop {
        if rest.is_empty() && read_bytes < size_bytes {
            rest = begun.extend(client, (step, &mut all), size_bytes).await?;
            step += 1;
        }
        // Blocks behind the end of the file hold none of its bytes.
        let Some(record) = rest.pop_front() else {
            break;
        };
        let shape = geometry(&begun.pool.spec, &record)?;
        all.make_room(shape, size_bytes).await?;
        let data_bytes = shape.stripe_bytes().min(size_bytes - read_bytes);
        let (segment, filled_bytes) = read_segment(&mut source, shape, data_bytes).await?;
        read_bytes += filled_bytes;
        if filled_bytes < data_bytes {
            return Err(ClientError::SourceTooShort {
                found_bytes: read_bytes,
                size_bytes,
            });
        }
        let ticket = Ticket::find(&begun.tickets, record.id);
        all.store((record, ticket), shape, segment, data_bytes);
    }
    if read_bytes < size_bytes {
        return Err(ClientError::unexpected("the coordinator"));
    }
    Ok((size_bytes, all.finish(size_bytes).await?))
}

impl Begun {
    /// Reserves more places for a file of `size_bytes`. Returns the stripes behind those that were begun.
    async fn extend(
        &mut self,
        client: &Client,
        (step, all): (u64, &mut StoringAll<'_>),
        size_bytes: u64,
    ) -> Result<VecDeque<StripeRecord>, ClientError> {
        all.catch_up(size_bytes).await?;
        let request = ask::ExtendPut {
            put: self.put,
            step,
            stored_count: all.stored.first_count,
            kept_count: all.begun_count,
            size_bytes,
        };
        let places = client.ask(request).await?;
        client.ports().learn_nodes(&places.nodes);
        self.tickets = places.tickets;
        Ok(places.stripes.into())
    }
}

/// The same for a source whose size is not known: reserves more stripes as it is read, and at its end drops
/// those that were too many. The last stripe of a pool whose blocks are not replicated at first is as small as
/// its bytes allow.
async fn store_stream(
    (client, begun): (&Client, &mut Begun),
    mut source: impl AsyncRead + Unpin,
    reserved_bytes: u64,
    progress: &dyn Progress,
) -> Result<(u64, Stored), ClientError> {
    let mut all = StoringAll::new(begun.put, &begun.encoder, progress);
    let (mut read_bytes, mut step) = (0, 0);
    // The size for which places are reserved, if it is known.
    let (mut reserved_bytes, mut more_count) = (Some(reserved_bytes), 2);
    let mut rest = VecDeque::from(std::mem::take(&mut begun.stripes));
    let full = begun
        .pool
        .spec
        .geometry()
        .map_err(|error| ClientError::Broken(error.to_string()))?;
    loop {
        all.make_room(full, read_bytes).await?;
        let (segment, filled_bytes) = read_segment(&mut source, full, full.stripe_bytes()).await?;
        read_bytes += filled_bytes;
        let is_end = filled_bytes < full.stripe_bytes();
        let is_short = |next: Option<&StripeRecord>| {
            next.is_none_or(|next| next.chunk_bytes < begun.pool.spec.chunk_bytes)
        };
        if is_end || is_short(rest.front()) {
            let size_bytes = if is_end {
                read_bytes
            } else {
                more_count = (more_count * 2).min(MORE_COUNT_MAX);
                read_bytes.saturating_add(more_count * full.stripe_bytes())
            };
            if Some(size_bytes) != reserved_bytes || !is_end {
                // Blocks that become stripes come in whole segments.
                let can_be_less = size_bytes > read_bytes && begun.pool.lifecycle.is_none();
                reserved_bytes = Some(size_bytes);
                rest = match begun.extend(client, (step, &mut all), size_bytes).await {
                    // The quota may have room for what was read, if not for more.
                    Err(error) if can_be_less && error.cause() == Cause::Quota => {
                        // A late copy of the refused request may reserve more after all.
                        (reserved_bytes, more_count) = (None, 0);
                        begun.extend(client, (step, &mut all), read_bytes).await?
                    }
                    extended => extended?,
                };
                step += 1;
            }
        }
        let mut segment = segment.slice(..filled_bytes as usize);
        // At the end, the bytes may be those of several small blocks, and blocks behind them hold none.
        while !segment.is_empty() || (is_end && !rest.is_empty()) {
            let next = rest.pop_front();
            let next = next.ok_or_else(|| ClientError::unexpected("the coordinator"))?;
            let shape = geometry(&begun.pool.spec, &next)?;
            let length = segment.len().min(shape.stripe_bytes() as usize);
            let data = padded(segment.split_to(length), shape);
            all.make_room(shape, read_bytes).await?;
            let ticket = Ticket::find(&begun.tickets, next.id);
            all.store((next, ticket), shape, data, length as u64);
        }
        if is_end {
            return Ok((read_bytes, all.finish(read_bytes).await?));
        }
    }
}

/// Data of a stripe, with zeros behind it.
fn padded(data: Bytes, shape: Geometry) -> Bytes {
    if data.len() as u64 == shape.stripe_bytes() {
        return data;
    }
    let mut whole = BytesMut::zeroed(shape.stripe_bytes() as usize);
    whole[..data.len()].copy_from_slice(&data);
    whole.freeze()
}

/// The next bytes of the source, `data_bytes` or those until its end, padded with zeros to a whole stripe, and
/// how many they are.
async fn read_segment(
    source: &mut (impl AsyncRead + Unpin),
    shape: Geometry,
    data_bytes: u64,
) -> Result<(Bytes, u64), ClientError> {
    let mut segment = BytesMut::zeroed(shape.stripe_bytes() as usize);
    let filled = fill(source, &mut segment[..data_bytes as usize]).await?;
    Ok((segment.freeze(), filled as u64))
}

/// Reads the source until the buffer is full or the source ends. Returns the number of bytes.
async fn fill(
    source: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
) -> Result<usize, ClientError> {
    let mut filled = 0;
    while filled < buffer.len() {
        let read = source.read(&mut buffer[filled..]).await;
        let read = read.map_err(|source| ClientError::Io {
            operation: "read the bytes to store",
            source,
        })?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    Ok(filled)
}
