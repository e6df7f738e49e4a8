//! `gabion pool`: make and list pools.

use super::connect;
use crate::arguments::{Place, PoolCommand, PoolOptions};
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, table};
use gabion_codec::Code;
use gabion_layout::UpdateScheme;
use gabion_meta::{PoolRecord, PoolSpec};
use gabion_planner::pool::PoolCost;
use gabion_planner::update;
use gabion_protocol::message::PoolWish;
use serde_json::json;

pub(crate) async fn run(
    command: PoolCommand,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    match command {
        PoolCommand::Create(options) => {
            let wish = wish(options)?;
            let client = connect(place).await?;
            show(&[client.create_pool(wish).await?], format)
        }
        PoolCommand::Ls => show(&connect(place).await?.pools().await?, format),
        PoolCommand::Commit { name } => Ok(connect(place).await?.commit_pool(&name).await?),
    }
}

/// What the user asks for, as far as it can be checked without a cluster.
fn wish(options: PoolOptions) -> Result<PoolWish, Failure> {
    if let Some(code) = &options.code {
        code.parse::<Code>().map_err(Failure::usage)?;
    }
    let reserve = options.reserve().map_err(Failure::usage)?;
    let append = options.append().map_err(Failure::usage)?;
    Ok(PoolWish {
        name: options.name,
        survive: options.survive,
        code: options.code,
        chunk_bytes: options.chunk,
        update: options.update,
        reserve,
        append,
    })
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
                "update": pool.spec.update.to_string(),
                "reserve_bytes": reserve_bytes(&pool.spec),
                "reserve_period_s": pool.spec.reserve.map(|reserve| reserve.period_s),
                "reserve_alpha": pool.spec.reserve.map(|reserve| reserve.smoothing.factor()),
                "replicas": pool.spec.append.map(|append| append.replicas),
                "commit_stripes": pool.spec.append.map(|append| append.stripes_max),
                "commit_bytes": pool.spec.append.map(|append| append.log_bytes_max),
                "commit_age_s": pool.spec.append.map(|append| append.age_max_s),
                "grouping": grouping(&pool.spec),
                "append_phase_survives": phase_survives(&pool.spec),
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
        "updates",
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
            updates(spec),
        ]);
    }
    align_numbers(&mut table);
    println!("{table}");
    Ok(())
}

/// Space behind each parity chunk of a full stripe at first.
fn reserve_bytes(spec: &PoolSpec) -> Option<u64> {
    spec.reserve
        .map(|reserve| reserve.initial_bytes(spec.chunk_bytes))
}

/// What is reserved at first, as a share of the data: it comes on top of the pool's cost until the
/// reviews have taken away what updates do not use.
fn reserved_share(spec: &PoolSpec, initial_bytes: u64) -> f64 {
    (spec.m as f64 * initial_bytes as f64) / (spec.k as f64 * spec.chunk_bytes as f64)
}

/// The update scheme, with its reserved space if it has any.
fn updates(spec: &PoolSpec) -> String {
    match (spec.reserve, reserve_bytes(spec)) {
        (Some(reserve), Some(initial)) => format!(
            "{}: {} behind parity at first (+{:.0}% of the data), reviewed each {} s (weight {})",
            spec.update,
            bytes(initial),
            reserved_share(spec, initial) * 100.0,
            reserve.period_s,
            reserve.smoothing
        ),
        _ => match (spec.append, phase_survives(spec)) {
            (Some(append), Some(survives)) => format!(
                "{}: survives {survives} failures while parity is to follow, after {} stripes, {} or {} s \
                 at the latest; grouping {}",
                spec.update,
                append.stripes_max,
                bytes(append.log_bytes_max),
                append.age_max_s,
                append
                    .grouping
                    .map_or("off".to_owned(), |rule| rule.to_string())
            ),
            _ => spec.update.to_string(),
        },
    }
}

/// How many failures stripes survive while updates of them wait for their parity.
fn phase_survives(spec: &PoolSpec) -> Option<usize> {
    let phase = update::scheme(spec.update).appending().zip(spec.append);
    let code: Option<Code> = spec.code.parse().ok();
    let (appending, append) = phase?;
    Some(appending.survives(&code?, &append))
}

/// When data grouping moves chunks, for pools of CAU.
fn grouping(spec: &PoolSpec) -> Option<String> {
    let append = spec.append.filter(|_| spec.update == UpdateScheme::Cau)?;
    let rule = append.grouping.map(|rule| rule.to_string());
    Some(rule.unwrap_or_else(|| "off".to_owned()))
}
