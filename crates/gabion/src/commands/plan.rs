//! `gabion plan show`: the plan of an operation, step by step, with its cost.

use super::connect;
use crate::arguments::{Place, PlanCommand, PlanShowOptions};
use crate::failure::Failure;
use crate::output::{Format, print_json, wrapped_lines};
use gabion_client::Planned;
use gabion_layout::{ByteRange, ChunkIndex, parse_bytes};
use gabion_planner::repair::Scheme;
use serde_json::json;

pub(crate) async fn run(
    command: PlanCommand,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let PlanCommand::Show(options) = command;
    let PlanShowOptions {
        name,
        update,
        repair,
        scheme,
        graphviz,
    } = options;
    let planned = match (update, repair) {
        (Some(_), None) if scheme.is_some() => {
            return Err(Failure::usage(
                "--scheme selects a repair scheme, but an update follows its pool's scheme; omit --scheme, or use \
                --repair",
            ));
        }
        (Some(update), None) => {
            let (offset, length) = pair(&update, "OFFSET:LENGTH, such as 4096:100")?;
            if length == 0 {
                return Err(Failure::usage(format!(
                    "'{update}' has no bytes to update; give a length of at \
                     least 1"
                )));
            }
            let client = connect(place).await?;
            let planned = client
                .plan_update(&name, ByteRange::new(offset, length))
                .await?;
            if planned.is_empty() {
                return Err(Failure::usage(format!(
                    "no stripe of {name} has bytes {offset} to {}: they are a hole, or inline in the metadata; name bytes \
                     of a stripe, see 'gabion stat'",
                    offset.saturating_add(length - 1)
                )));
            }
            planned
        }
        (None, Some(repair)) => {
            let (stripe, chunk) = pair(&repair, "STRIPE:CHUNK, such as 0:2")?;
            let scheme = scheme.map_or(Ok(Scheme::default()), |scheme| scheme.parse());
            let scheme: Scheme = scheme.map_err(Failure::usage)?;
            let chunk = u8::try_from(chunk).ok().filter(|&chunk| chunk < u8::MAX);
            let chunk = chunk.ok_or_else(|| {
                Failure::usage(
                    "the chunk's index is too large; a stripe has at most 255 \
            chunks",
                )
            })?;
            let stripe = usize::try_from(stripe).map_err(Failure::usage)?;
            let client = connect(place).await?;
            vec![
                client
                    .plan_repair(&name, stripe, ChunkIndex(chunk), scheme)
                    .await?,
            ]
        }
        _ => {
            return Err(Failure::usage(
                "no operation given; use --update OFFSET:LENGTH or --repair STRIPE:CHUNK",
            ));
        }
    };
    print(&planned, graphviz, format)
}

/// Prints plans, as text or as digraphs.
fn print(planned: &[Planned], graphviz: bool, format: Format) -> Result<(), Failure> {
    let text = |planned: &Planned| {
        if graphviz {
            gabion_plan::graphviz(&planned.plan, &planned.topology)
        } else {
            gabion_plan::text(&planned.plan, &planned.code, &planned.topology)
        }
    };
    if format == Format::Json {
        let plans = planned
            .iter()
            .map(|planned| json!({ "code": planned.code.to_string(), "plan": text(planned) }));
        return print_json(&plans.collect::<Vec<_>>());
    }
    for planned in planned {
        if graphviz {
            print!("{}", text(planned));
        } else {
            print!("{}", wrapped_lines(&text(planned), 6));
        }
    }
    Ok(())
}

fn pair(text: &str, expected: &str) -> Result<(u64, u64), Failure> {
    let parts = text
        .split_once(':')
        .and_then(|(a, b)| Some((parse_bytes(a).ok()?, parse_bytes(b).ok()?)));
    parts.ok_or_else(|| Failure::usage(format!("'{text}' is not {expected}")))
}
