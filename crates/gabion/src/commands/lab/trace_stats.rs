//! `gabion lab trace-stats`: statistics of a trace.

use super::trace;
use crate::arguments::TraceStatsOptions;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, say, table, time};
use gabion_codec::Code;
use gabion_lab::trace::volumes;
use gabion_lab::{LabError, Profile};
use serde_json::json;
use std::num::NonZeroU64;

pub(super) fn run(options: &TraceStatsOptions, format: Format) -> Result<(), Failure> {
    let code: Code = options.code.parse().map_err(Failure::usage)?;
    let stripe_bytes = NonZeroU64::new(code.k() as u64)
        .and_then(|k| options.chunk.checked_mul(k))
        .ok_or_else(|| {
            let chunk = bytes(options.chunk.get());
            Failure::usage(format!(
                "stripes with chunks of {chunk} are too large; use a smaller chunk size"
            ))
        })?;
    let requests = trace::open(&options.file, &options.trace_form);
    let profile = requests.and_then(|requests| Profile::of(requests, stripe_bytes));
    if let Err(LabError::SeveralVolumes { .. }) = profile {
        return list_volumes(options, format);
    }
    let profile = profile.map_err(trace::failure)?;
    if format == Format::Json {
        return print_as_json(options, &profile);
    }
    print(options, &profile);
    Ok(())
}

/// The volumes of a trace with several, if none was chosen.
fn list_volumes(options: &TraceStatsOptions, format: Format) -> Result<(), Failure> {
    let found = volumes(&options.file, options.trace_form.trace_format).map_err(trace::failure)?;
    let trace = options.file.display().to_string();
    if format == Format::Json {
        let found = found.iter().map(|(name, volume)| {
            json!({
                "volume": name,
                "requests": volume.requests,
                "writes": volume.writes,
                "span_bytes": volume.span_bytes,
            })
        });
        return print_json(&json!({ "trace": trace, "volumes": found.collect::<Vec<_>>() }));
    }
    println!("{trace}: {} volumes; choose one with --volume", found.len());
    let mut table = table(&["volume", "requests", "writes", "span"]);
    for (name, volume) in found {
        table.add_row([
            name,
            volume.requests.to_string(),
            volume.writes.to_string(),
            bytes(volume.span_bytes),
        ]);
    }
    align_numbers(&mut table);
    println!("{table}");
    Ok(())
}

fn print_as_json(options: &TraceStatsOptions, profile: &Profile) -> Result<(), Failure> {
    let stats = &profile.stats;
    let sizes = profile.update_sizes.ranges();
    let sizes = sizes.map(|(up_to, count)| json!({ "up_to_bytes": up_to, "updates": count }));
    print_json(&json!({
        "trace": options.file.display().to_string(),
        "requests": profile.requests,
        "span_bytes": profile.span_bytes,
        "duration_s": seconds(profile),
        "writes": stats.writes,
        "working_set_gib": stats.working_set_gib(),
        "updated_working_set_pct": stats.updated_working_set_pct(),
        "updated_sectors_pct": stats.updated_sectors_pct(),
        "update_writes_pct": stats.update_writes_pct(),
        "counts": stats,
        "updates": profile.update_sizes.count(),
        "mean_update_bytes": profile.update_sizes.mean_bytes(),
        "update_sizes": sizes.collect::<Vec<_>>(),
        "code": options.code,
        "chunk_bytes": options.chunk,
        "locality": profile.locality,
    }))
}

fn print(options: &TraceStatsOptions, profile: &Profile) {
    say(format!(
        "{}: {} requests over {} and {}",
        options.file.display(),
        profile.requests,
        time(seconds(profile)),
        bytes(profile.span_bytes)
    ));
    let stats = &profile.stats;
    let locality = &profile.locality;
    let mut figures = table(&["figure", "value"]);
    figures.add_row(["writes".to_owned(), stats.writes.to_string()]);
    figures.add_row(["working set".to_owned(), gib(stats.working_set_gib())]);
    for (figure, pct) in [
        (
            "updated working set, by extents",
            stats.updated_working_set_pct(),
        ),
        (
            "updated working set, by sectors",
            stats.updated_sectors_pct(),
        ),
        ("update writes", stats.update_writes_pct()),
    ] {
        figures.add_row([figure.to_owned(), format!("{pct:.2}%")]);
    }
    figures.add_row([
        format!(
            "stripes that {} updates touch, {} of {}",
            locality.window_updates,
            options.code,
            bytes(options.chunk.get())
        ),
        format!("{:.1}", locality.stripes_per_window),
    ]);
    align_numbers(&mut figures);
    println!("{figures}");
    print_sizes(profile);
}

fn print_sizes(profile: &Profile) {
    let all = profile.update_sizes.count();
    println!(
        "{all} writes update data, {} on average",
        bytes(profile.update_sizes.mean_bytes().round() as u64)
    );
    let mut sizes = table(&["update size", "updates", "share"]);
    let mut from = 0;
    for (up_to, count) in profile.update_sizes.ranges() {
        let range = match up_to {
            Some(up_to) if from == 0 => format!("up to {}", bytes(up_to)),
            Some(up_to) => format!("to {}", bytes(up_to)),
            None => format!("above {}", bytes(from)),
        };
        let share = 100.0 * count as f64 / all.max(1) as f64;
        sizes.add_row([range, count.to_string(), format!("{share:.2}%")]);
        from = up_to.unwrap_or(from);
    }
    align_numbers(&mut sizes);
    println!("{sizes}");
}

fn seconds(profile: &Profile) -> f64 {
    profile.duration_ticks as f64 / 1e7
}

/// As in the table, but with more digits below 0.01.
pub(super) fn gib(value: f64) -> String {
    if value < 0.01 {
        format!("{value:.5} GiB")
    } else {
        format!("{value:.2} GiB")
    }
}
