//! `gabion lab replay`: runs a trace on a cluster. One stored file stands for the trace's volume.

mod report;

use super::trace;
use crate::arguments::{Pace, Place, ReplayOptions};
use crate::commands::connect_with;
use crate::failure::Failure;
use crate::output::{Format, Shown, bytes, remark};
use gabion_client::ClientOptions;
use gabion_lab::{LabError, RequestKind};
use gabion_layout::ByteRange;
use gabion_testbed::replay::{self, Access, Replay, Written};
use gabion_testbed::{EndSignals, TestbedError};
use report::Report;
use std::num::NonZeroU64;
use std::time::Duration;

pub(super) async fn run(
    options: ReplayOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    if options.pace == Pace::Fast && options.speed.is_some() {
        return Err(Failure::usage(
            "--speed has an effect only with --pace trace; add it",
        ));
    }
    // Reading the trace once before also checks it to its end.
    let (mut count, mut span_bytes) = (0, 0);
    let mut written = Written::default();
    for request in requests(&options)? {
        let request = request.map_err(trace::failure)?;
        count += 1;
        span_bytes = request.end_bytes().max(span_bytes);
        let request = options.size.map_or(request, |size| request.folded(size));
        let request = timed(request);
        written.add(request.access, request.range);
    }
    let client = connect_with(place, client_options(&options)).await?;
    let setting = setting(&options, place);
    let stores = |size_bytes| {
        if options.size.is_none() {
            remark(format_args!(
                "creating {} with {}, the span of {}; only the parts that the trace writes take space",
                setting.name,
                bytes(size_bytes),
                setting.trace
            ));
        }
    };
    let mut signals = EndSignals::listen()?;
    let span = (span_bytes, &written);
    let prepared = Replay::prepare(&client, &setting, span, stores, Shown::of, &mut signals);
    let replay = prepared.await?;
    let size = replay.size_bytes();
    let requests = requests(&options)?.map(|request| {
        let request = request.map_err(Failure::failed)?;
        Ok::<_, Failure>(timed(request.folded(size)))
    });
    let outcome = tokio::select! {
        outcome = replay.run(count, requests) => outcome?,
        () = signals.recv() => return Err(TestbedError::ReplayInterrupted.into()),
    };
    let cached = options.cache.map(|_| client.cache_counts());
    Report::new(&options, size, outcome, cached).print(format)
}

fn client_options(options: &ReplayOptions) -> ClientOptions {
    ClientOptions {
        cache_bytes: options.cache.map_or(0, NonZeroU64::get),
        read_ahead_bytes: options.read_ahead,
        ..ClientOptions::default()
    }
}

fn setting(options: &ReplayOptions, place: &Place) -> replay::Setting {
    replay::Setting {
        trace: options.trace.display().to_string(),
        name: options.name.clone(),
        pool: options.pool.clone(),
        size: options.size,
        disk: place.dir.clone(),
        pace: match options.pace {
            Pace::Fast => replay::Pace::Fast,
            Pace::Trace => replay::Pace::Trace(options.speed.unwrap_or(1.0)),
        },
        depth: options.depth as usize,
        is_cached: options.cache.is_some(),
        is_verified: options.verify,
    }
}

/// The requested part of the trace, in its order.
fn requests(
    options: &ReplayOptions,
) -> Result<impl Iterator<Item = Result<gabion_lab::Request, LabError>> + use<>, Failure> {
    let requests = trace::open(&options.trace, &options.trace_form).map_err(trace::failure)?;
    let first = options.first.map_or(usize::MAX, |first| {
        usize::try_from(first).unwrap_or(usize::MAX)
    });
    let writes_only = options.writes_only;
    let is_asked_for = move |request: &Result<gabion_lab::Request, LabError>| {
        let is_read = matches!(request, Ok(request) if request.kind == RequestKind::Read);
        !(writes_only && is_read)
    };
    Ok(requests.take(first).filter(is_asked_for))
}

/// A request in the testbed's form.
fn timed(request: gabion_lab::Request) -> replay::Request {
    replay::Request {
        at: Duration::from_nanos_u128(u128::from(request.at_ticks) * 100),
        access: match request.kind {
            RequestKind::Read => Access::Read,
            RequestKind::Write => Access::Write,
        },
        range: ByteRange::new(request.offset_bytes, request.length_bytes),
    }
}
