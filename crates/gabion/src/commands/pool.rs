//! `gabion pool`: make and list pools.

use super::connect;
use crate::arguments::{Place, PoolCommand};
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, table};
use gabion_codec::Code;
use gabion_meta::PoolRecord;
use gabion_planner::pool::PoolCost;
use serde_json::json;

pub(crate) async fn run(
    command: PoolCommand,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let client = connect(place).await?;
    match command {
        PoolCommand::Create {
            name,
            survive,
            code,
            chunk,
        } => {
            if let Some(code) = &code {
                code.parse::<Code>().map_err(Failure::usage)?;
            }
            let pool = client
                .create_pool(&name, survive, code.as_deref(), chunk)
                .await?;
            show(&[pool], format)
        }
        PoolCommand::Ls => show(&client.pools().await?, format),
    }
}

fn show(pools: &[PoolRecord], format: Format) -> Result<(), Failure> {
    let costs: Vec<(&PoolRecord, PoolCost)> = pools
        .iter()
        .map(|pool| {
            let code: Code = pool.spec.code.parse().map_err(Failure::failed)?;
            Ok((pool, PoolCost::of(&code)))
        })
        .collect::<Result<_, Failure>>()?;
    if format == Format::Json {
        let rows = costs.iter().map(|(pool, cost)| {
            json!({
                "name": pool.spec.name,
                "code": pool.spec.code,
                "survive": pool.spec.survive.to_string(),
                "chunk_bytes": pool.spec.chunk_bytes,
                "chunks_per_rack": pool.spec.chunks_per_rack,
                "usable_share": cost.usable_share,
                "share_of_three_replicas": cost.share_of_three_replicas,
                "chunk_writes_per_update": cost.chunk_writes_per_update,
            })
        });
        return print_json(&rows.collect::<Vec<_>>());
    }
    let mut table = table(&[
        "pool",
        "code",
        "survives",
        "chunk",
        "a rack holds",
        "usable",
        "cost against 3 replicas",
        "chunk writes a small update",
    ]);
    for (pool, cost) in costs {
        let spec = &pool.spec;
        table.add_row([
            spec.name.clone(),
            spec.code.clone(),
            spec.survive.to_string(),
            bytes(spec.chunk_bytes),
            format!(
                "at most {} of {}",
                spec.chunks_per_rack.min(spec.k + spec.m),
                spec.k + spec.m
            ),
            format!("{:.1}%", cost.usable_share * 100.0),
            format!("{:.1}%", cost.share_of_three_replicas * 100.0),
            cost.chunk_writes_per_update.to_string(),
        ]);
    }
    align_numbers(&mut table);
    println!("{table}");
    Ok(())
}
