//! `gabion lab bound`: the minimum cross-rack traffic of an update of whole chunks.

use super::trace;
use crate::arguments::BoundOptions;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, counted, print_json, say, table};
use gabion_lab::update_traffic::bound;
use gabion_layout::ChunkIndex;

pub(super) fn run(options: BoundOptions, format: Format) -> Result<(), Failure> {
    let code = options.code.parse().map_err(Failure::usage)?;
    let layout = options.layout.parse().map_err(Failure::usage)?;
    let updated: Vec<ChunkIndex> = options.update.into_iter().map(ChunkIndex).collect();
    let found = bound(&code, layout, options.racks, options.stripe, &updated);
    let found = found.map_err(trace::failure)?;
    if format == Format::Json {
        return print_json(&found);
    }
    let proof = match found.proof {
        "reached" => "this is the minimum of all plans, and one plan reaches it",
        "exhausted" => "all choices of collectors were tried",
        _ => "a bound by cuts; a plan may need more",
    };
    say(format!(
        "updating {} of stripe {} of {} in layout {} takes at least {} chunk transfers \
         across racks ({proof}); the bound by cuts for any plan is {}",
        counted(found.updated.len() as u64, "chunk", "chunks"),
        found.stripe,
        found.code,
        found.layout,
        found.bound,
        found.cut_bound,
    ));
    let mut table = table(&["scheme", "cross-rack chunks", "over bound"]);
    for (scheme, &chunks) in &found.schemes {
        let ratio = if found.bound > 0.0 {
            format!("{:.3}", chunks as f64 / found.bound)
        } else {
            String::new()
        };
        table.add_row([(*scheme).to_owned(), chunks.to_string(), ratio]);
    }
    align_numbers(&mut table);
    println!("{table}");
    Ok(())
}
