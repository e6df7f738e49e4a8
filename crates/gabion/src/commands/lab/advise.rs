//! `gabion lab advise`: recommends a scheme, code and chunk size for a trace.

use super::trace;
use crate::arguments::{AdviseOptions, Place, Unit};
use crate::commands::connect;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, say, table, time};
use gabion_codec::Code;
use gabion_console::view::pools::Reserves;
use gabion_lab::advise::{
    self, AdviceQuestion, Choice, Placement, Terms, advise_stored, usual_codes,
};
use gabion_lab::update_traffic::StoredFile;
use gabion_layout::{Geometry, NodePlace, Topology};
use std::num::NonZeroU64;

pub(super) async fn run(
    options: AdviseOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let choices = match (&options.like, options.racks) {
        (Some(name), _) => of_stored(&options, name, place).await?,
        (None, Some(racks)) => of_racks(&options, racks)?,
        (None, None) => {
            return Err(Failure::usage(
                "the placement is missing; give --racks or --like",
            ));
        }
    };
    if choices.is_empty() {
        return Err(Failure::usage(
            "no combination of code, chunk size and scheme fits these racks and --survive; try other codes with \
            --code, or another number of --racks",
        ));
    }
    if format == Format::Json {
        return print_json(&choices);
    }
    print(&choices);
    Ok(())
}

fn of_racks(options: &AdviseOptions, racks: u32) -> Result<Vec<Choice>, Failure> {
    let codes = options.code.iter().map(|code| code.parse::<Code>());
    let codes: Vec<Code> = codes.collect::<Result<_, _>>().map_err(Failure::usage)?;
    let placement = match options.nodes_per_rack {
        None => Placement::Rotate,
        Some(_) if options.unit == Unit::Chunks => {
            return Err(Failure::usage(
                "pools are counted only in bytes; omit --nodes-per-rack or --unit chunks",
            ));
        }
        Some(nodes_per_rack) => Placement::Pools {
            nodes_per_rack,
            seeds: options.seeds,
        },
    };
    let question = AdviceQuestion {
        trace: options.trace.display().to_string(),
        racks,
        placement,
        codes: if codes.is_empty() {
            usual_codes(racks)
        } else {
            codes
        },
        chunk_bytes: options.chunk.clone(),
        unit: match options.unit {
            Unit::Bytes => advise::Unit::Bytes,
            Unit::Chunks => advise::Unit::Chunks,
        },
        terms: Terms {
            survive: options.survive.parse().map_err(Failure::usage)?,
            schemes: options.scheme.clone(),
            append: options.append_phase.spec()?,
            pace: options.append_phase.pace.into(),
            reserved_share: None,
        },
    };
    let open = || trace::open(&options.trace, &options.trace_form);
    advise::advise(&question, open).map_err(trace::failure)
}

/// The choices of schemes for a stored file. The trace's addresses are folded into the file as in a replay.
async fn of_stored(
    options: &AdviseOptions,
    name: &str,
    place: &Place,
) -> Result<Vec<Choice>, Failure> {
    let client = connect(place).await?;
    let layout = client.stat(name).await?.layout;
    let size = NonZeroU64::new(layout.file.size_bytes)
        .ok_or_else(|| Failure::usage(format!("{name} is empty; choose a file with bytes")))?;
    let spec = &layout.pool.spec;
    if layout.pool.lifecycle.is_some() {
        return Err(Failure::usage(format!(
            "{name} has replicated blocks; choose a file of a pool without --write"
        )));
    }
    let places = layout.nodes.iter().map(|status| NodePlace {
        node: status.node,
        rack: status.rack,
    });
    let stripes = layout.stripes.iter().zip(&layout.offsets);
    let stripes = stripes.map(|(stripe, &offset)| {
        let geometry = Geometry::new(spec.k, spec.m, spec.sub_chunks, stripe.chunk_bytes)?;
        Ok((offset, geometry, stripe.nodes.clone()))
    });
    let file = StoredFile::new(
        spec.code.parse().map_err(Failure::failed)?,
        Topology::new(places).map_err(Failure::failed)?,
        stripes
            .collect::<Result<_, gabion_layout::GeometryError>>()
            .map_err(Failure::failed)?,
    );
    let terms = Terms {
        survive: spec.survive,
        schemes: options.scheme.clone(),
        append: spec.append.unwrap_or_default(),
        pace: options.append_phase.pace.into(),
        reserved_share: match spec.reserve {
            Some(_) => {
                let usage = client.usage().await?;
                Some(Reserves::of(spec, usage.pools.get(&layout.pool.id)).share)
            }
            None => None,
        },
    };
    let requests = trace::open(&options.trace, &options.trace_form).map_err(trace::failure)?;
    let requests = requests.map(|request| Ok(request?.folded(size)));
    let trace = options.trace.display().to_string();
    advise_stored(&trace, &terms, file, requests).map_err(trace::failure)
}

fn print(choices: &[Choice]) {
    let mut table = table(&[
        "scheme",
        "code",
        "chunk",
        "across racks",
        "95 % of pools",
        "a byte written",
        "exposure",
        "longest wait",
        "loss",
        "stored a byte",
    ]);
    for choice in choices {
        let interval = choice.interval_bytes;
        let interval = interval.map(|[low, high]| format!("{} to {}", bytes(low), bytes(high)));
        table.add_row([
            choice.scheme.to_owned(),
            choice.code.clone(),
            bytes(choice.chunk_bytes),
            bytes(u64::try_from(choice.cross_rack_bytes).unwrap_or(u64::MAX)),
            interval.unwrap_or_default(),
            format!("{:.2}", choice.amplification),
            time(choice.exposure_hours * 3600.0),
            time(choice.longest_wait_hours * 3600.0),
            format!("{:.2e}", choice.loss_probability),
            format!("{:.2}", choice.storage),
        ]);
    }
    align_numbers(&mut table);
    println!("{table}");
    say(
        "stored a byte: chunks with parity, and reserves of schemes that have them; with --like the reserves that the \
        pool has now, otherwise the first reserve of every parity chunk",
    );
}
