//! Stores a file: stripe by stripe, encoded here, each chunk sent straight to its node. The file
//! becomes visible atomically when every chunk is durable. A stripe that a node does not take is
//! placed again.

use crate::client::{Client, code_of, topology};
use crate::elsewhere::{AvoidedNodes, Storing};
use crate::encoder::Encoder;
use crate::error::{ClientError, passing};
use crate::extent::geometry;
use crate::progress::Progress;
use crate::task::Task;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::io::{AsyncRead, AsyncReadExt};
use futures::stream::{FuturesUnordered, StreamExt};
use gabion_layout::{Geometry, StripeRecord};
use gabion_meta::{Existing, PoolRecord, PutId};
use gabion_protocol::client_ports::ClientPorts;
use gabion_protocol::message::{PutPlaces, ask};
use gabion_protocol::ports::Ask as _;
use std::sync::Arc;

/// Interval of the client's signs of life for a put, in milliseconds; well below the minute after
/// which the coordinator aborts the put.
const TOUCH_EVERY_MS: u64 = 10_000;
/// Time limit of the coordinator's answer about a put.
const COORDINATOR_DEADLINE_MS: u64 = 10_000;

/// A stored file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutSummary {
    /// Distinguishes the file from earlier and later ones of the same name.
    pub put: PutId,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// Number of its stripes.
    pub stripe_count: u64,
    /// Stored bytes of all chunks, with parity and padding.
    pub stored_bytes: u64,
    /// Chunks that are not stored, since their nodes have failed and the others are too few. Each
    /// stripe survives the loss of one more; repairs make them.
    pub left_out_count: u64,
    /// The pool.
    pub pool: PoolRecord,
}

/// A put with stripes reserved by the coordinator.
struct Begun {
    put: PutId,
    pool: PoolRecord,
    stripes: Vec<StripeRecord>,
    encoder: Arc<Encoder>,
}

impl Client {
    /// Stores the next `size_bytes` bytes of `source` as a file; the pool may be omitted when there
    /// is only one. A file that has the name already stays, and then this is refused.
    ///
    /// The file becomes visible, complete and durable, when this returns without an error, and not
    /// before. If this fails or is dropped, stored chunks are reclaimed.
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
        self.put_over((name, Existing::Stays), pool, source, size_bytes, progress)
            .await
    }

    /// As [`Client::put`], but a file that has the name already is replaced if `existing` allows it: readers
    /// find it until the new one is complete and durable, and then that one, at no time neither.
    ///
    /// # Errors
    /// Those of [`Client::put`].
    pub async fn put_over(
        &self,
        (name, existing): (&str, Existing),
        pool: Option<&str>,
        source: impl AsyncRead + Unpin,
        size_bytes: u64,
        progress: &dyn Progress,
    ) -> Result<PutSummary, ClientError> {
        let begun = self.begin_put((name, existing), pool, size_bytes).await?;
        let mut keeper = Keeper::new(Arc::clone(&self.shared.ports), begun.put, TOUCH_EVERY_MS);
        let stored = store_all(&begun, source, size_bytes, progress).await;
        let done = match stored {
            Ok(stripes) => self.commit_put(name, begun.put).await.map(|()| stripes),
            Err(error) => Err(error),
        };
        let stripes = match done {
            Ok(stripes) => stripes,
            Err(error) => {
                keeper.abort().await;
                return Err(error);
            }
        };
        keeper.release();
        let stored_bytes = stripes.iter().map(|stripe| {
            let chunk_count = stripe.nodes.len() - stripe.stale.len();
            stripe.chunk_bytes * chunk_count as u64
        });
        Ok(PutSummary {
            put: begun.put,
            size_bytes,
            stripe_count: stripes.len() as u64,
            stored_bytes: stored_bytes.sum(),
            left_out_count: stripes.iter().map(|s| s.stale.len() as u64).sum(),
            pool: begun.pool,
        })
    }

    async fn begin_put(
        &self,
        (name, existing): (&str, Existing),
        pool: Option<&str>,
        size_bytes: u64,
    ) -> Result<Begun, ClientError> {
        let request = ask::BeginPut {
            name: name.to_owned(),
            existing,
            pool: pool.map(str::to_owned),
            size_bytes,
        };
        let PutPlaces {
            put,
            pool,
            stripes,
            nodes,
        } = self.ask(request).await?;
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
            encoder: Arc::new(encoder),
        })
    }

    /// Makes the file visible. If an answer was lost, a repetition gives the same one.
    async fn commit_put(&self, name: &str, put: PutId) -> Result<(), ClientError> {
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
            attempts.pause(&missing).await?;
        }
    }
}

/// Encodes and stores all stripes, a few at a time, while the source is being read. Returns them as
/// they are stored, unordered.
async fn store_all(
    begun: &Begun,
    mut source: impl AsyncRead + Unpin,
    size_bytes: u64,
    progress: &dyn Progress,
) -> Result<Vec<StripeRecord>, ClientError> {
    let spec = &begun.pool.spec;
    let mut storing = FuturesUnordered::new();
    let (mut read_bytes, mut done_bytes) = (0, 0);
    let mut stored = Vec::with_capacity(begun.stripes.len());
    let avoided = Arc::new(AvoidedNodes::default());
    progress.advanced(0, size_bytes);
    for record in &begun.stripes {
        let shape = geometry(spec, record.chunk_bytes)?;
        // The stripe being read takes as much memory as one being stored.
        let in_flight_count = begun.encoder.client.in_flight_count(shape.stripe_bytes());
        while storing.len() >= in_flight_count {
            done_bytes += next_stored(&mut storing, &mut stored).await?;
            progress.advanced(done_bytes, size_bytes);
        }
        let data_bytes = shape.stripe_bytes().min(size_bytes - read_bytes);
        let segment = read_segment(&mut source, data_bytes, shape, read_bytes, size_bytes).await?;
        read_bytes += data_bytes;
        let one = Storing {
            put: begun.put,
            encoder: Arc::clone(&begun.encoder),
            avoided: Arc::clone(&avoided),
            record: record.clone(),
        };
        let ports = begun.encoder.client.ports();
        storing.push(Task::spawn(ports, async move {
            let record = one.store(shape, segment).await?;
            Ok((data_bytes, record))
        }));
    }
    if read_bytes < size_bytes {
        return Err(ClientError::unexpected("the coordinator"));
    }
    while !storing.is_empty() {
        done_bytes += next_stored(&mut storing, &mut stored).await?;
        progress.advanced(done_bytes, size_bytes);
    }
    Ok(stored)
}

/// Waits for a stripe that is being stored. Returns its bytes of the file.
async fn next_stored(
    storing: &mut FuturesUnordered<Task<Result<(u64, StripeRecord), ClientError>>>,
    stored: &mut Vec<StripeRecord>,
) -> Result<u64, ClientError> {
    let Some(one) = storing.next().await else {
        return Ok(0);
    };
    let (data_bytes, record) = one?;
    stored.push(record);
    Ok(data_bytes)
}

/// The next `data_bytes` bytes of the source, padded with zeros to a whole stripe.
async fn read_segment(
    source: &mut (impl AsyncRead + Unpin),
    data_bytes: u64,
    shape: Geometry,
    read_bytes: u64,
    size_bytes: u64,
) -> Result<Bytes, ClientError> {
    let mut segment = BytesMut::zeroed(shape.stripe_bytes() as usize);
    let mut filled = 0;
    while filled < data_bytes as usize {
        let read = source.read(&mut segment[filled..data_bytes as usize]).await;
        let read = read.map_err(|source| ClientError::Io {
            operation: "read what is to be stored",
            source,
        })?;
        if read == 0 {
            let found_bytes = read_bytes + filled as u64;
            return Err(ClientError::SourceTooShort {
                found_bytes,
                size_bytes,
            });
        }
        filled += read;
    }
    Ok(segment.freeze())
}

/// Keeps a put alive, and aborts it unless it is released.
pub(crate) struct Keeper {
    ports: Arc<dyn ClientPorts>,
    put: PutId,
    /// Ends with the keeper.
    _touching: Task<()>,
    is_owed: bool,
}

impl Keeper {
    /// Sends a sign of life of the put at this interval.
    pub(crate) fn new(ports: Arc<dyn ClientPorts>, put: PutId, touch_every_ms: u64) -> Self {
        let touching = Arc::clone(&ports);
        let touching = Task::spawn(&*ports, async move {
            loop {
                touching.sleep_ms(touch_every_ms).await;
                // A lost one is replaced by the next; if the put is gone, its commit reports that.
                let touch = ask::TouchPut(put);
                let _ = touching
                    .ask_coordinator(touch, COORDINATOR_DEADLINE_MS)
                    .await;
            }
        });
        Self {
            ports,
            put,
            _touching: touching,
            is_owed: true,
        }
    }

    /// Releases a committed put.
    pub(crate) fn release(&mut self) {
        self.is_owed = false;
    }

    /// Aborts the put, and waits briefly until the coordinator knows.
    pub(crate) async fn abort(&mut self) {
        self.is_owed = false;
        let abort = ask::AbortPut(self.put);
        // If the coordinator does not receive this, it aborts the put at its timeout.
        let _ = self.ports.ask_coordinator(abort, 1_000).await;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.is_owed {
            let abort = ask::AbortPut(self.put);
            let told = self.ports.ask_coordinator(abort, COORDINATOR_DEADLINE_MS);
            self.ports.spawn(told.map(|_| ()).boxed());
        }
    }
}
