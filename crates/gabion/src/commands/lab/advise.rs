//! `gabion lab advise`: recommends a scheme, code and chunk size for a trace.

use crate::arguments::AdviseOptions;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, table};
use gabion_codec::Code;
use gabion_lab::TraceReader;
use gabion_lab::advise::{AdviceQuestion, advise, usual_codes};
use gabion_lab::update_traffic::Options;

pub(super) fn run(options: AdviseOptions, format: Format) -> Result<(), Failure> {
    let codes = options.code.iter().map(|code| code.parse::<Code>());
    let codes: Vec<Code> = codes.collect::<Result<_, _>>().map_err(Failure::usage)?;
    let question = AdviceQuestion {
        trace: options.trace.display().to_string(),
        racks: options.racks,
        survive: options.survive.parse().map_err(Failure::usage)?,
        codes: if codes.is_empty() {
            usual_codes(options.racks)
        } else {
            codes
        },
        chunk_bytes: options.chunk,
        schemes: options.scheme,
        options: Options {
            stripes_max: options.append_phase.us,
            replicas: options.append_phase.replicas,
            grouping: None,
        },
    };
    let choices =
        advise(&question, || TraceReader::open(&options.trace)).map_err(Failure::failed)?;
    if format == Format::Json {
        return print_json(&choices);
    }
    let mut table = table(&[
        "scheme",
        "code",
        "chunk",
        "GiB across racks",
        "a byte written",
        "exposure, h",
        "longest wait, h",
        "loss",
        "stored a byte",
    ]);
    for choice in &choices {
        table.add_row([
            choice.scheme.to_owned(),
            choice.code.clone(),
            bytes(choice.chunk_bytes),
            format!("{:.3}", choice.cross_rack_bytes as f64 / f64::from(1 << 30)),
            format!("{:.2}", choice.amplification),
            format!("{:.1}", choice.exposure_hours),
            format!("{:.2}", choice.longest_wait_hours),
            format!("{:.2e}", choice.loss_probability),
            format!("{:.2}", choice.storage),
        ]);
    }
    align_numbers(&mut table);
    println!("{table}");
    Ok(())
}
