//! `gabion lab replay`: runs a trace on a cluster. One stored file stands for the trace's volume.

mod report;

use super::trace;
use crate::arguments::{Pace, Place, ReplayOptions};
use crate::commands::connect_with;
use crate::failure::Failure;
use crate::output::{Format, Shown};
use futures::io::AllowStdIo;
use gabion_client::{Client, ClientOptions, Progress as _};
use gabion_lab::{LabError, Request, RequestKind};
use gabion_layout::ByteRange;
use gabion_meta::PoolSpec;
use gabion_testbed::replay::{Access, Contents, Engine, INITIAL, Initial, Target, Traffic};
use report::{CacheReport, Kind, Report};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

pub(super) async fn run(
    options: ReplayOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    if options.pace == Pace::Fast && options.speed.is_some() {
        return Err(Failure::usage("--speed needs --pace trace"));
    }
    let total = Total::of(&options)?;
    let client = connect_with(place, client_options(&options)).await?;
    let (size, contents) = prepare(&client, &options, &total).await?;
    let stat = client.stat(&options.name).await?;
    let spec = &stat.layout.pool.spec;
    let file = client.open(&options.name).await?;
    let before = Traffic::now(&client).await?;
    let target = match options.cache {
        Some(_) => Target::Cached(client.open_cached(&options.name).await?),
        None => Target::Direct {
            file: file.clone(),
            stripe_bytes: stripe_bytes(spec)?,
        },
    };
    let engine = Engine::new(target, contents, options.depth as usize, options.verify);
    let begun = Instant::now();
    let engine = replay(&options, total.requests, size, engine).await?;
    let (writes, reads, contents) = engine.finish().await?;
    let seconds = begun.elapsed().as_secs_f64();
    let commit_seconds = commit(&client, spec).await?;
    let after = Traffic::now(&client).await?;
    let cache = options.cache.map(|size| {
        let counts = client.cache_counts();
        CacheReport::new(size.get(), options.read_ahead, &counts)
    });
    let verified_bytes = if options.verify {
        let progress = Shown::bytes("verifying");
        let verified = contents.verify(&file, |done, all| progress.advanced(done, all));
        Some(verified.await?)
    } else {
        None
    };
    let flows = after.since(&before);
    let report = Report {
        trace: options.trace.display().to_string(),
        file: options.name,
        file_bytes: size.get(),
        pool: spec.name.clone(),
        code: spec.code.clone(),
        depth: options.depth,
        seconds,
        commit_seconds,
        writes: Kind::new(&writes, seconds),
        reads: Kind::new(&reads, seconds),
        cache,
        cross_rack: Traffic::cross_rack(&flows),
        traffic: flows,
        unmetered_nodes: after.unmetered_nodes(&before),
        verified_bytes,
    };
    report.print(format)
}

fn stripe_bytes(spec: &PoolSpec) -> Result<NonZeroU64, Failure> {
    let geometry = spec.geometry().map_err(Failure::failed)?;
    Ok(NonZeroU64::new(geometry.stripe_bytes()).expect("a stripe has bytes"))
}

/// Commits what waits in the pool, so that the traffic of the writes is complete; the seconds that it took, if the pool
/// has append phases.
async fn commit(client: &Client, spec: &PoolSpec) -> Result<Option<f64>, Failure> {
    if spec.append.is_none() {
        return Ok(None);
    }
    let begun = Instant::now();
    client.commit_pool(&spec.name).await?;
    Ok(Some(begun.elapsed().as_secs_f64()))
}

fn client_options(options: &ReplayOptions) -> ClientOptions {
    ClientOptions {
        cache_bytes: options.cache.map_or(0, NonZeroU64::get),
        read_ahead_bytes: options.read_ahead,
        ..ClientOptions::default()
    }
}

/// The requested part of the trace, in its order.
fn requests(
    options: &ReplayOptions,
) -> Result<impl Iterator<Item = Result<Request, LabError>> + use<>, Failure> {
    let requests = trace::open(&options.trace, &options.trace_form).map_err(trace::failure)?;
    let first = options.first.map_or(usize::MAX, |first| {
        usize::try_from(first).unwrap_or(usize::MAX)
    });
    let writes_only = options.writes_only;
    let is_asked_for = move |request: &Result<Request, LabError>| {
        let is_read = matches!(request, Ok(request) if request.kind == RequestKind::Read);
        !(writes_only && is_read)
    };
    Ok(requests.take(first).filter(is_asked_for))
}

/// Totals of the trace needed before the replay; reading them also checks the trace to its end.
struct Total {
    requests: u64,
    span_bytes: u64,
}

impl Total {
    fn of(options: &ReplayOptions) -> Result<Self, Failure> {
        let mut total = Self {
            requests: 0,
            span_bytes: 0,
        };
        for request in requests(options)? {
            let request = request.map_err(trace::failure)?;
            total.requests += 1;
            total.span_bytes = total.span_bytes.max(request.end_bytes());
        }
        Ok(total)
    }
}

/// Finds or creates the file, and returns its size and its known contents.
async fn prepare(
    client: &Client,
    options: &ReplayOptions,
    total: &Total,
) -> Result<(NonZeroU64, Contents), Failure> {
    let name = &options.name;
    let files = client.ls(name).await?;
    if let Some(file) = files.iter().find(|file| &file.name == name) {
        let found = file.size_bytes;
        let usable = NonZeroU64::new(found).filter(|f| options.size.is_none_or(|s| s == *f));
        let Some(usable) = usable else {
            return Err(Failure::usage(format!(
                "{name} exists and has {found} bytes; fold the trace into it by omitting --size, \
                 or choose another --name"
            )));
        };
        check_pool(client, options).await?;
        return Ok((usable, Contents::default()));
    }
    let Some(size) = options.size.or_else(|| NonZeroU64::new(total.span_bytes)) else {
        let trace = options.trace.display();
        return Err(Failure::usage(format!(
            "{trace} has no requests to replay, and does not give the size of its volume"
        )));
    };
    let source = AllowStdIo::new(Initial::new(size.get()));
    let pool = options.pool.as_deref();
    let progress = Shown::bytes(&format!("storing {name}"));
    client
        .put(name, pool, source, size.get(), &progress)
        .await?;
    let mut contents = Contents::default();
    contents.overwrite(ByteRange::new(0, size.get()), INITIAL);
    Ok((size, contents))
}

async fn check_pool(client: &Client, options: &ReplayOptions) -> Result<(), Failure> {
    let Some(wanted) = &options.pool else {
        return Ok(());
    };
    let (name, stat) = (&options.name, client.stat(&options.name).await?);
    let found = stat.layout.pool.spec.name;
    if &found == wanted {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{name} exists in pool {found}, not {wanted}; choose another --name"
    )))
}

async fn replay(
    options: &ReplayOptions,
    count: u64,
    size: NonZeroU64,
    mut engine: Engine,
) -> Result<Engine, Failure> {
    let progress = Shown::count("replaying requests", count);
    let speed = options.speed.unwrap_or(1.0);
    let begun = Instant::now();
    let mut first_ticks = None;
    for request in requests(options)? {
        let request = request.map_err(Failure::failed)?;
        let first_ticks = *first_ticks.get_or_insert(request.at_ticks);
        let due = match options.pace {
            Pace::Fast => None,
            Pace::Trace => {
                // Requests with times out of the trace's order are due at once.
                let seconds = request.at_ticks.saturating_sub(first_ticks) as f64 / 1e7;
                let after = Duration::try_from_secs_f64(seconds / speed);
                let due = after.ok().and_then(|after| begun.checked_add(after));
                Some(due.ok_or_else(|| {
                    Failure::usage("the trace lasts too long for this clock; raise --speed")
                })?)
            }
        };
        let request = request.folded(size);
        let kind = match request.kind {
            RequestKind::Read => Access::Read,
            RequestKind::Write => Access::Write,
        };
        let range = ByteRange::new(request.offset_bytes, request.length_bytes);
        engine.start(kind, range, due).await?;
        progress.step();
    }
    Ok(engine)
}
