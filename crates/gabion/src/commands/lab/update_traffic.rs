//! `gabion lab update-traffic`: cross-rack chunks of each update scheme on a trace.

use crate::arguments::UpdateTrafficOptions;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, table};
use gabion_lab::TraceReader;
use gabion_lab::update_traffic::{Question, count};

pub(super) fn run(options: UpdateTrafficOptions, format: Format) -> Result<(), Failure> {
    let question = Question {
        trace: options.trace.display().to_string(),
        code: options.code.parse().map_err(Failure::usage)?,
        racks: options.racks,
        layout: options.layout.parse().map_err(Failure::usage)?,
        chunk_bytes: options.chunk,
        schemes: options.scheme,
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
    let mut table = table(&["scheme", "cross-rack chunks", "a chunk update"]);
    for (scheme, traffic) in &report.schemes {
        let share = traffic.cross_rack_chunks as f64 / (report.chunk_updates.max(1)) as f64;
        let chunks = traffic.cross_rack_chunks.to_string();
        table.add_row([(*scheme).to_owned(), chunks, format!("{share:.3}")]);
    }
    align_numbers(&mut table);
    println!("{table}");
    Ok(())
}
