//! `gabion plan show`: the plan of an operation, step by step, with its cost.

use super::connect;
use crate::arguments::{Place, PlanCommand, PlanShowOptions};
use crate::failure::Failure;
use crate::output::{parse_bytes, wrapped_lines};
use gabion_client::Planned;
use gabion_layout::{ByteRange, ChunkIndex};
use gabion_planner::repair::Scheme;

pub(crate) async fn run(command: PlanCommand, place: &Place) -> Result<(), Failure> {
    let PlanCommand::Show(options) = command;
    let PlanShowOptions {
        name,
        update,
        repair,
        scheme,
        graphviz,
    } = options;
    let planned = match (update, repair) {
        (Some(update), None) => {
            let (offset, length) = pair(&update, "OFFSET:LENGTH, such as 4096:100")?;
            if length == 0 {
                return Err(Failure::usage(format!(
                    "'{update}' has no bytes to update; give a length of at \
                     least 1"
                )));
            }
            let client = connect(place).await?;
            client
                .plan_update(&name, ByteRange::new(offset, length))
                .await?
        }
        (None, Some(repair)) => {
            let (stripe, chunk) = pair(&repair, "STRIPE:CHUNK, such as 0:2")?;
            let scheme: Scheme = scheme.parse().map_err(Failure::usage)?;
            let chunk = u8::try_from(chunk).ok().filter(|&chunk| chunk < u8::MAX);
            let chunk = chunk.ok_or_else(|| Failure::usage("a stripe has at most 255 chunks"))?;
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
                "say which plan: --update OFFSET:LENGTH or --repair STRIPE:CHUNK",
            ));
        }
    };
    for Planned {
        plan,
        code,
        topology,
    } in planned
    {
        if graphviz {
            print!("{}", gabion_plan::graphviz(&plan, &topology));
        } else {
            let text = gabion_plan::text(&plan, &code, &topology);
            print!("{}", wrapped_lines(&text, 6));
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
