//! `gabion lab update-traffic`: cross-rack chunks or bytes of each update scheme on a trace.

use super::trace;
use crate::arguments::{Unit, UpdateTrafficOptions};
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, say, table};
use gabion_codec::Code;
use gabion_lab::update_traffic::{
    ByteReport, Options, Question, Report, Stripes, Volume, count, count_bytes,
};
use gabion_layout::Geometry;

pub(super) fn run(options: UpdateTrafficOptions, format: Format) -> Result<(), Failure> {
    if options.unit == Unit::Bytes {
        return run_in_bytes(&options, format);
    }
    let append = options.append_phase.spec()?;
    let scheme_options = Options {
        stripes_max: append.stripes_max,
        replicas: usize::from(append.replicas),
        grouping: append.grouping,
    };
    let question = Question {
        trace: options.trace.display().to_string(),
        code: options.code.parse().map_err(Failure::usage)?,
        racks: options.racks,
        layout: options.layout.parse().map_err(Failure::usage)?,
        chunk_bytes: options.chunk,
        schemes: options.scheme,
        options: scheme_options,
    };
    let requests = trace::open(&options.trace, &options.trace_form).map_err(trace::failure)?;
    let report = count(&question, requests).map_err(trace::failure)?;
    if format == Format::Json {
        return print_json(&report);
    }
    say(format!(
        "{}: {} writes touch {} chunks of {}; {} on {} racks, layout {}",
        report.trace,
        report.writes,
        report.chunk_updates,
        bytes(report.chunk_bytes),
        report.code,
        report.racks,
        report.layout
    ));
    print_schemes(&report);
    Ok(())
}

fn run_in_bytes(options: &UpdateTrafficOptions, format: Format) -> Result<(), Failure> {
    let code: Code = options.code.parse().map_err(Failure::usage)?;
    let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), options.chunk)
        .map_err(Failure::usage)?;
    let layout = options.layout.parse().map_err(Failure::usage)?;
    let stripes = Stripes::new(code, geometry, layout, options.racks).map_err(trace::failure)?;
    let phase = &options.append_phase;
    let requests = trace::open(&options.trace, &options.trace_form).map_err(trace::failure)?;
    let report = count_bytes(
        &options.trace.display().to_string(),
        &Volume::Laid(stripes),
        &options.scheme,
        phase.spec()?,
        phase.pace.into(),
        requests,
    );
    let report = report.map_err(trace::failure)?;
    if format == Format::Json {
        return print_json(&report);
    }
    say(format!(
        "{}: {} writes of {} bytes; {}, chunks of {}, layout {}",
        options.trace.display(),
        report.writes,
        report.written_bytes,
        options.code,
        bytes(options.chunk),
        options.layout
    ));
    print_bytes(&report);
    Ok(())
}

/// A row for each scheme: its bytes across racks, and their purposes.
fn print_bytes(report: &ByteReport) {
    let mut table = table(&[
        "scheme",
        "cross-rack bytes",
        "a byte written",
        "update",
        "replica",
        "commit",
        "grouping",
    ]);
    for (scheme, traffic) in &report.schemes {
        let share = traffic.cross_rack_bytes as f64 / report.written_bytes.max(1) as f64;
        let bytes = |count: Option<u128>| count.map_or_else(String::new, |c| c.to_string());
        table.add_row([
            (*scheme).to_owned(),
            traffic.cross_rack_bytes.to_string(),
            format!("{share:.3}"),
            traffic.update_bytes.to_string(),
            bytes(traffic.replica_bytes),
            bytes(traffic.commit_bytes),
            bytes(traffic.grouping_bytes),
        ]);
    }
    align_numbers(&mut table);
    println!("{table}");
}

/// A row for each scheme: its traffic, the purposes, and the distance from the lower bound.
fn print_schemes(report: &Report) {
    let mut table = table(&[
        "scheme",
        "cross-rack chunks",
        "a chunk update",
        "replica",
        "commit",
        "grouping",
        "bound",
        "over bound",
    ]);
    for (scheme, traffic) in &report.schemes {
        let share = traffic.cross_rack_chunks as f64 / (report.chunk_updates.max(1)) as f64;
        let bound = report.bounds[scheme];
        let chunks = |count: Option<u64>| count.map_or_else(String::new, |c| c.to_string());
        table.add_row([
            (*scheme).to_owned(),
            traffic.cross_rack_chunks.to_string(),
            format!("{share:.3}"),
            chunks(traffic.replica),
            chunks(traffic.commit),
            chunks(traffic.grouping),
            bound.cross_rack_chunks.to_string(),
            bound
                .ratio
                .map_or_else(String::new, |ratio| format!("{ratio:.3}")),
        ]);
    }
    align_numbers(&mut table);
    println!("{table}");
}
