//! A whole replay: the file in place of a trace's volume, the requests at their times, and the measurements.

use super::traffic::{Flow, Traffic};
use super::volume::{self, Place, Written};
use super::{Access, Engine, Measured, Target};
use crate::contents::Contents;
use crate::error::TestbedError;
use crate::progress::{Bars, Unit};
use crate::signals::EndSignals;
use gabion_client::Client;
use gabion_layout::ByteRange;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// When requests are due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Each as soon as the requests in flight permit.
    Fast,
    /// At the trace's times, divided by this.
    Trace(f64),
}

/// The parameters of a trace's replay.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Name of the trace, for errors.
    pub trace: String,
    /// The stored file that stands for the volume; it is created if it does not exist.
    pub name: String,
    /// Its pool; may be omitted if there is only one.
    pub pool: Option<String>,
    /// Its size; by default the span of the trace.
    pub size: Option<NonZeroU64>,
    /// A directory on the disk of all nodes, if they share one that is known: a new file must fit there.
    pub disk: Option<PathBuf>,
    /// When requests are due.
    pub pace: Pace,
    /// Most requests in flight.
    pub depth: usize,
    /// Whether requests go through the client's cache.
    pub is_cached: bool,
    /// Whether every read, and finally the whole file, are compared with the expected bytes.
    pub is_verified: bool,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its time in the trace.
    pub at: Duration,
    /// Its kind.
    pub access: Access,
    /// Its bytes, within the file.
    pub range: ByteRange,
}

/// The measurements of a replay.
pub struct Outcome {
    /// Pool of the file.
    pub pool: String,
    /// Its code.
    pub code: String,
    /// Time from the first request to the last reply and flush.
    pub seconds: f64,
    /// Time of the commit of appended updates at the end, if the pool has append phases.
    pub commit_seconds: Option<f64>,
    /// The writes.
    pub writes: Measured,
    /// The reads.
    pub reads: Measured,
    /// The traffic between racks.
    pub flows: Vec<Flow>,
    /// Nodes whose metered bytes are missing or too low.
    pub unmetered_nodes: Vec<u32>,
    /// Compared bytes of the file, if it was compared.
    pub verified_bytes: Option<u64>,
    /// The space of the file after the replay; none if it could not be asked for.
    pub space: Option<SpaceTaken>,
}

/// The space of a replayed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceTaken {
    /// Bytes that the replay has written, each counted once.
    pub written_bytes: u64,
    /// Bytes of the file that stripes hold: whole segments, or up to the file's end.
    pub stored_bytes: u64,
    /// Disk space of these stripes, parity included, without reserves.
    pub raw_bytes: u64,
    /// Disk space of their reserves; none if a node has not told of its own.
    pub reserved_bytes: Option<u64>,
}

impl SpaceTaken {
    async fn of(client: &Client, name: &str, contents: &Contents) -> Result<Self, TestbedError> {
        let layout = client.stat(name).await?.layout;
        let space = client.space_of(&layout).await?;
        let (raw_bytes, reserved_bytes) = space.total();
        let stripes = layout.stripes.iter().zip(&layout.offsets);
        let stored = stripes.map(|(stripe, &offset)| {
            let data_bytes = layout.pool_of(stripe).spec.data_bytes(stripe.chunk_bytes);
            data_bytes.min(layout.file.size_bytes.saturating_sub(offset))
        });
        Ok(Self {
            written_bytes: contents.written_bytes(),
            stored_bytes: stored.sum(),
            raw_bytes,
            reserved_bytes: space.silent_nodes.is_empty().then_some(reserved_bytes),
        })
    }
}

/// A replay on a file that exists.
pub struct Replay<'a> {
    client: &'a Client,
    setting: &'a Setting,
    size: NonZeroU64,
    contents: Contents,
    bars: Bars,
}

impl<'a> Replay<'a> {
    /// Finds or creates the file. The trace writes these places of its first `span_bytes`; the rest of a new file
    /// is a hole. `stores` is told the size of a file that is about to be created. A signal ends the creation, and
    /// nothing is left of the file; a second one also ends its removal.
    ///
    /// # Errors
    /// [`TestbedError::ReplayInterrupted`] after a signal, [`TestbedError::OtherSize`] or [`TestbedError::OtherPool`]
    /// if the file exists and is not as wanted, [`TestbedError::NoRequests`] if its size is not known,
    /// [`TestbedError::Client`].
    pub async fn prepare(
        client: &'a Client,
        setting: &'a Setting,
        (span_bytes, written): (u64, &Written),
        stores: impl FnOnce(u64),
        bars: Bars,
        signals: &mut EndSignals,
    ) -> Result<Self, TestbedError> {
        let name = &setting.name;
        let found = client.find(name).await?;
        let mut contents = Contents::default();
        let size = if let Some(file) = found {
            let has = file.size_bytes;
            let usable = NonZeroU64::new(has).filter(|f| setting.size.is_none_or(|s| s == *f));
            let name = name.clone();
            let usable = usable.ok_or(TestbedError::OtherSize { name, has })?;
            check_pool(client, setting).await?;
            usable
        } else {
            let size = setting.size.or_else(|| NonZeroU64::new(span_bytes));
            let size = size.ok_or_else(|| TestbedError::NoRequests(setting.trace.clone()))?;
            let place = Place::check(client, setting).await?;
            stores(size.get());
            let volume = (size, written);
            contents = volume::store((client, &place), setting, volume, &bars, signals).await?;
            size
        };
        Ok(Self {
            client,
            setting,
            size,
            contents,
            bars,
        })
    }

    /// Bytes of the file.
    #[must_use]
    pub const fn size_bytes(&self) -> NonZeroU64 {
        self.size
    }

    /// Replays `count` requests, then commits what the pool has appended, so that its traffic is complete.
    ///
    /// # Errors
    /// [`TestbedError::Differs`] for wrong bytes, [`TestbedError::TooLong`], [`TestbedError::Client`], and those of the
    /// requests.
    pub async fn run<E: From<TestbedError>>(
        self,
        count: u64,
        requests: impl Iterator<Item = Result<Request, E>>,
    ) -> Result<Outcome, E> {
        let (client, name) = (self.client, &self.setting.name);
        let spec = client.stat(name).await.map_err(TestbedError::from)?;
        let spec = spec.layout.pool.spec;
        let before = Traffic::now(client).await?;
        let geometry = spec.geometry();
        let geometry = geometry.map_err(|error| TestbedError::Wrong(error.to_string()))?;
        let target = self.target(geometry.stripe_bytes()).await?;
        let (depth, is_verified) = (self.setting.depth, self.setting.is_verified);
        let mut engine = Engine::new(target, self.contents, depth, is_verified);
        let begun = Instant::now();
        let progress = (self.bars)("replaying requests", Unit::Items);
        let mut first = None;
        for (done, request) in (1..).zip(requests) {
            let request = request?;
            let first = *first.get_or_insert(request.at);
            let due = self.setting.pace.due(begun, first, request.at)?;
            engine.start(request.access, request.range, due).await?;
            progress.advanced(done, count);
        }
        drop(progress);
        let (writes, reads, contents) = engine.finish().await?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut commit_seconds = None;
        if spec.append.is_some() {
            let begun = Instant::now();
            let commit = client.commit_pool(&spec.name).await;
            commit.map_err(TestbedError::from)?;
            commit_seconds = Some(begun.elapsed().as_secs_f64());
        }
        let after = Traffic::now(client).await?;
        // The replay's other results count also without it.
        let space = SpaceTaken::of(client, name, &contents).await.ok();
        let mut verified_bytes = None;
        if self.setting.is_verified {
            let file = client.open(name).await.map_err(TestbedError::from)?;
            let progress = (self.bars)("verifying", Unit::Bytes);
            let verified = contents.verify(&file, |done, all| progress.advanced(done, all));
            verified_bytes = Some(verified.await?);
        }
        Ok(Outcome {
            pool: spec.name,
            code: spec.code,
            seconds,
            commit_seconds,
            writes,
            reads,
            flows: after.since(&before),
            unmetered_nodes: after.unmetered_nodes(&before),
            verified_bytes,
            space,
        })
    }

    async fn target(&self, stripe_bytes: u64) -> Result<Target, TestbedError> {
        let name = &self.setting.name;
        Ok(if self.setting.is_cached {
            Target::Cached(self.client.open_cached(name).await?)
        } else {
            Target::Direct {
                file: self.client.open(name).await?,
                stripe_bytes: NonZeroU64::new(stripe_bytes).expect("a stripe has bytes"),
            }
        })
    }
}

impl Pace {
    /// When a request at `at` is due, if the first was at `first` and began at `begun`. Requests with times out of the
    /// trace's order are due at once.
    fn due(
        self,
        begun: Instant,
        first: Duration,
        at: Duration,
    ) -> Result<Option<Instant>, TestbedError> {
        let Self::Trace(speed) = self else {
            return Ok(None);
        };
        let after = Duration::try_from_secs_f64(at.saturating_sub(first).as_secs_f64() / speed);
        let due = after.ok().and_then(|after| begun.checked_add(after));
        due.map(Some).ok_or(TestbedError::TooLong)
    }
}

async fn check_pool(client: &Client, setting: &Setting) -> Result<(), TestbedError> {
    let Some(wants) = &setting.pool else {
        return Ok(());
    };
    let has = client.stat(&setting.name).await?.layout.pool.spec.name;
    if &has == wants {
        return Ok(());
    }
    Err(TestbedError::OtherPool {
        name: setting.name.clone(),
        has,
        wants: wants.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_the_times_of_the_trace_at_its_speed() {
        let begun = Instant::now();
        let (first, at) = (Duration::from_secs(5), Duration::from_secs(9));
        let due = |pace: Pace, at| pace.due(begun, first, at).unwrap();
        assert_eq!(due(Pace::Fast, at), None);
        let after = |seconds| Some(begun + Duration::from_secs(seconds));
        assert_eq!(due(Pace::Trace(1.0), at), after(4));
        assert_eq!(due(Pace::Trace(2.0), at), after(2));
        assert_eq!(
            due(Pace::Trace(1.0), Duration::ZERO),
            after(0),
            "out of order"
        );
        let never = Pace::Trace(f64::MIN_POSITIVE).due(begun, first, at);
        assert!(matches!(never, Err(TestbedError::TooLong)));
    }
}
