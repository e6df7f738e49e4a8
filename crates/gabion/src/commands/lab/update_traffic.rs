//! `gabion lab update-traffic`: cross-rack chunks of each update scheme on a trace.

use crate::arguments::UpdateTrafficOptions;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, table};
use gabion_lab::TraceReader;
use gabion_lab::update_traffic::{Options, Question, Report, count};

pub(super) fn run(options: UpdateTrafficOptions, format: Format) -> Result<(), Failure> {
    let grouping = match options.grouping.as_str() {
        "off" => None,
        rule => Some(rule.parse().map_err(Failure::usage)?),
    };
    let scheme_options = Options {
        stripes_max: options.append_phase.us,
        replicas: options.append_phase.replicas,
        grouping,
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
    let requests = TraceReader::open(&options.trace).map_err(Failure::failed)?;
    let report = count(&question, requests).map_err(Failure::failed)?;
    if format == Format::Json {
        return print_json(&report);
    }
    println!(
        "{}: {} writes touch {} chunks of {}; {} on {} racks, layout {}",
        report.trace,
        report.writes,
        report.chunk_updates,
        bytes(report.chunk_bytes),
        report.code,
        report.racks,
        report.layout
    );
    print_schemes(&report);
    Ok(())
}

/// A row a scheme: its traffic, the purposes, and the distance from the lower bound.
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
