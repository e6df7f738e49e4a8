//! `gabion pool`: create and list pools, convert their files, and limit them.

use super::connect;
use super::repair_status::restraints;
use crate::arguments::{FormOptions, Place, PoolCommand, PoolOptions, QuotaOptions};
use crate::failure::Failure;
use crate::output::{
    Format, align_numbers, bytes, counted, limit_row, print_json, remark, say, table,
};
use gabion_client::{Client, ClientError};
use gabion_codec::Code;
use gabion_console::view::pools::{
    PoolView, Reserves, cost_of, free_bytes, free_data_bytes, phase_survives, reserve_bytes,
};
use gabion_layout::duration;
use gabion_meta::{PoolRecord, PoolSpec, PutId, QuotaChange};
use gabion_planner::pool::PoolCost;
use gabion_protocol::message::{
    Cause, ClusterStatus, ClusterUsage, FormOrder, LifecycleStatus, PoolRequest, PoolUsage,
};
use serde_json::json;
use std::time::{Duration, Instant};

pub(crate) async fn run(
    command: PoolCommand,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    match command {
        PoolCommand::Create(options) => {
            let request = request(options)?;
            let client = connect(place).await?;
            let created = client.create_pool(request).await.map_err(refused)?;
            // The pool is made, whether or not its space is known.
            let usage = client.usage().await.unwrap_or_default();
            show(&[created], &usage, format)
        }
        PoolCommand::Ls => {
            let client = connect(place).await?;
            let pools = client.pools().await?;
            // Pools are shown, whether or not their space is known.
            let usage = client.recent_usage().await.unwrap_or_default();
            show(&pools, &usage, format)
        }
        PoolCommand::Quota(options) => quota(options, place, format).await,
        PoolCommand::Encode(options) => order(options, true, place, format).await,
        PoolCommand::Promote(options) => order(options, false, place, format).await,
        PoolCommand::Commit { name } => commit(&name, place, format).await,
    }
}

/// The failure of a request for a new pool or a quota. A refused name or parameter is a usage error.
pub(super) fn refused(error: ClientError) -> Failure {
    match error.cause() {
        Cause::Invalid | Cause::Exists => Failure::usage(error.to_string()),
        _ => error.into(),
    }
}

/// Changes the quota of a pool if told to, and shows it.
async fn quota(options: QuotaOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let QuotaOptions { name, bytes, files } = options;
    let client = connect(place).await?;
    let change = QuotaChange { bytes, files };
    if change != QuotaChange::default() {
        client.set_quota(&name, change).await.map_err(refused)?;
    }
    // The quota and what is used of it are those of now.
    let usage = client.recent_usage().await?;
    let known = usage.pools.values().find(|known| known.name == name);
    let known = known.ok_or_else(|| {
        Failure::failed(format!(
            "there is no pool '{name}' with files; use one from 'gabion df'"
        ))
    })?;
    if format == Format::Json {
        return print_json(&quota_as_json(known));
    }
    let mut table = table(&["pool", "", "used", "quota", "left"]);
    let (used, quota) = (known.used, known.quota);
    table.add_row(limit_row(
        &name,
        "data",
        (used.bytes, quota.bytes),
        crate::output::bytes,
    ));
    let count = |count: u64| count.to_string();
    table.add_row(limit_row(&name, "files", (used.files, quota.files), count));
    align_numbers(&mut table);
    println!("{table}");
    say(
        "data: whole stripes of files and of unfinished puts, without parity, and inline bytes; holes use nothing",
    );
    Ok(())
}

/// The part of its quota that a pool uses.
pub(super) fn quota_as_json(pool: &PoolUsage) -> serde_json::Value {
    json!({
        "pool": pool.name,
        "used_bytes": pool.used.bytes,
        "used_files": pool.used.files,
        "quota_bytes": pool.quota.bytes.number(),
        "quota_files": pool.quota.files.number(),
    })
}

/// Commits a pool's appended updates.
async fn commit(name: &str, place: &Place, format: Format) -> Result<(), Failure> {
    let client = connect(place).await?;
    client.commit_pool(name).await?;
    if format == Format::Json {
        return print_json(&json!({ "pool": name, "committed": true }));
    }
    say(format!("the parity of pool {name} includes every update"));
    Ok(())
}

/// Interval of checks for the requested form of files.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Longest wait for the counts of conversions that are done.
const COUNT_PATIENCE: Duration = Duration::from_secs(5);

/// Interval of printing progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Orders the encoding of files, or the replication of their blocks, and waits for completion unless `--no-wait` is
/// given.
async fn order(
    options: FormOptions,
    is_encoded: bool,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let FormOptions {
        name: pool,
        file,
        no_wait,
    } = options;
    let client = connect(place).await?;
    let before = client.status().await?.lifecycle;
    let order = FormOrder {
        pool: pool.clone(),
        file: file.clone(),
        is_encoded,
    };
    client.order_form(order).await?;
    if no_wait {
        return Ok(());
    }
    let mut left = of_pool(&client, &pool, file).await?;
    let mut progress = Progress::new(format);
    while let Some(&file) = left.last() {
        match client.layout_of(file).await? {
            Some(layout) if layout.has_form(is_encoded) => drop(left.pop()),
            // It was removed in the meantime.
            None => drop(left.pop()),
            Some(_) => {
                progress.tell(&client, &before, left.len()).await?;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
    let after = when_counted(&client).await?;
    show_converted(&before, &after, format)
}

/// The counts when no conversion runs, because one counts a moment after its file has the new form. Those of other
/// files may run for long, so the wait is short.
async fn when_counted(client: &Client) -> Result<LifecycleStatus, Failure> {
    let end = Instant::now() + COUNT_PATIENCE;
    loop {
        let status = client.status().await?.lifecycle;
        if status.running_count == 0 || Instant::now() >= end {
            return Ok(status);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Prints progress on standard error.
struct Progress {
    is_told: bool,
    told: String,
    next: Instant,
}

impl Progress {
    fn new(format: Format) -> Self {
        Self {
            is_told: format != Format::Json,
            told: String::new(),
            next: Instant::now() + TELL_EVERY,
        }
    }

    /// Prints progress if it has changed and was not printed recently.
    async fn tell(
        &mut self,
        client: &Client,
        before: &LifecycleStatus,
        file_count: usize,
    ) -> Result<(), Failure> {
        if !self.is_told || Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + TELL_EVERY;
        let status = client.status().await?;
        let text = progress(&status, before, file_count);
        if text != self.told {
            remark(&text);
            self.told = text;
        }
        Ok(())
    }
}

/// The progress of conversions since `before`, and reasons for delays.
fn progress(status: &ClusterStatus, before: &LifecycleStatus, file_count: usize) -> String {
    let (now, repair) = (&status.lifecycle, &status.repair);
    let done = |status: &LifecycleStatus| status.encoded_count + status.promoted_count;
    // A restarted coordinator has counters from zero.
    let done_count = done(now).saturating_sub(done(before));
    let done_bytes = now.converted_bytes.saturating_sub(before.converted_bytes);
    let mut words = vec![
        format!("{done_count} segments done ({})", bytes(done_bytes)),
        format!("{} in progress", now.running_count),
        format!(
            "{} to do",
            now.waiting_count.saturating_sub(now.running_count)
        ),
        counted(file_count as u64, "file left", "files left"),
    ];
    words.extend(restraints(repair));
    if repair.running_count + repair.queued_chunk_count > 0 {
        words.push("waiting for repairs".to_owned());
    }
    if let Some(error) = &now.last_error {
        words.push(format!("last failure: {error}"));
    }
    words.join(", ")
}

/// The files of an order of conversions.
async fn of_pool(client: &Client, pool: &str, file: Option<String>) -> Result<Vec<PutId>, Failure> {
    if let Some(file) = file {
        return Ok(vec![client.layout(&file).await?.file.put]);
    }
    let pools = client.pools().await?;
    let id = pools
        .iter()
        .find(|known| known.spec.name == pool)
        .map(|known| known.id);
    let files = client.ls("").await?.into_iter();
    Ok(files
        .filter(|file| Some(file.pool) == id)
        .map(|file| file.put)
        .collect())
}

/// The conversions since `before`.
fn show_converted(
    before: &LifecycleStatus,
    after: &LifecycleStatus,
    format: Format,
) -> Result<(), Failure> {
    // A restarted coordinator has counters from zero.
    let since = |count: fn(&LifecycleStatus) -> u64| count(after).saturating_sub(count(before));
    let rows = [
        ("encoded", since(|status| status.encoded_count)),
        ("promoted", since(|status| status.promoted_count)),
        ("data_bytes", since(|status| status.converted_bytes)),
        (
            "encode_cross_rack_bytes",
            since(|status| status.planned_encode_cross_rack_bytes),
        ),
        (
            "encode_cross_rack_download_bytes",
            since(|status| status.planned_download_cross_rack_bytes),
        ),
        (
            "promote_cross_rack_bytes",
            since(|status| status.planned_promote_cross_rack_bytes),
        ),
    ];
    if format == Format::Json {
        let rows = rows
            .into_iter()
            .map(|(name, count)| (name.to_owned(), json!(count)));
        return print_json(&rows.collect::<serde_json::Map<_, _>>());
    }
    let [
        (_, encoded),
        (_, promoted),
        (_, data),
        (_, across),
        (_, down),
        (_, copies),
    ] = rows;
    say(format!(
        "{} encoded and {promoted} replicated again, {} of data; across racks {} for \
         parity, {} of data to encode, {} of copies",
        counted(encoded, "segment", "segments"),
        bytes(data),
        bytes(across.saturating_sub(down)),
        bytes(down),
        bytes(copies),
    ));
    Ok(())
}

/// The requested pool, checked as far as possible without a cluster.
fn request(options: PoolOptions) -> Result<PoolRequest, Failure> {
    if let Some(code) = &options.code {
        code.parse::<Code>().map_err(Failure::usage)?;
    }
    let reserve = options.reserve().map_err(Failure::usage)?;
    let append = options.append().map_err(Failure::usage)?;
    let inline_bytes = options.inline_bytes().map_err(Failure::usage)?;
    let lifecycle = options.lifecycle().map_err(Failure::usage)?;
    Ok(PoolRequest {
        name: options.name,
        survive: options.survive,
        code: options.code,
        chunk_bytes: options.chunk,
        update: options.update,
        reserve,
        append,
        inline_bytes,
        lifecycle,
    })
}

fn show(pools: &[PoolRecord], usage: &ClusterUsage, format: Format) -> Result<(), Failure> {
    let costs = pools
        .iter()
        .map(|pool| Ok((pool, cost_of(pool, usage).map_err(Failure::failed)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    if format == Format::Json {
        let rows = costs.iter();
        let rows = rows.map(|(pool, cost)| PoolView::of(pool, usage, *cost));
        return print_json(&rows.collect::<Vec<_>>());
    }
    let mut table = table(&[
        "pool",
        "code",
        "survives",
        "chunk",
        "a rack holds",
        "usable",
        "cost relative to 3 replicas",
        "chunk writes per small update",
        "updates",
        "encoded after",
    ]);
    for (pool, cost) in &costs {
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
            spec.update.to_string(),
            pool.lifecycle
                .map_or_else(String::new, |lifecycle| lifecycle.after.to_string()),
        ]);
    }
    align_numbers(&mut table);
    println!("{table}");
    let spaces = costs.iter().map(|(pool, cost)| space(pool, usage, *cost));
    spaces.flatten().for_each(say);
    let sentences = costs.iter().filter_map(|(pool, _)| updates(&pool.spec));
    sentences.for_each(say);
    let inline = costs.iter().filter_map(|(pool, _)| inline(&pool.spec));
    inline.for_each(say);
    Ok(())
}

/// The space of a pool, and the free space for it, if both are known.
fn space(pool: &PoolRecord, usage: &ClusterUsage, cost: PoolCost) -> Option<String> {
    let known = usage.pools.get(&pool.id)?;
    let free = free_bytes(usage)?;
    let reserves = Reserves::of(&pool.spec, Some(known));
    let of_reserves = if reserves.is_learnt {
        "with the reserves that it has now"
    } else if reserves.share > 0.0 {
        "if every parity chunk has its first reserve"
    } else {
        "without reserves"
    };
    Some(format!(
        "{}: {} logical, {} raw, {} reserved; {} free on all nodes, about {} of data {of_reserves}",
        pool.spec.name,
        bytes(known.logical_bytes),
        bytes(known.raw_bytes),
        bytes(known.reserved_bytes),
        bytes(free),
        bytes(free_data_bytes(free, cost)),
    ))
}

/// The limit of inline files, if there are any.
fn inline(spec: &PoolSpec) -> Option<String> {
    let limit = bytes(spec.inline_bytes);
    (spec.inline_bytes > 0).then(|| {
        format!(
            "{}: files up to {limit} are inline in the metadata",
            spec.name
        )
    })
}

/// The reserve or the append phases of the update scheme, if any.
fn updates(spec: &PoolSpec) -> Option<String> {
    if let (Some(reserve), Some(initial)) = (spec.reserve, reserve_bytes(spec)) {
        return Some(format!(
            "{}: a parity chunk reserves {} at its first update, until its node has learnt what the pool needs; \
            usable and cost include reserves; reviewed every {} (weight {})",
            spec.name,
            bytes(initial),
            duration(reserve.period_s),
            reserve.smoothing
        ));
    }
    let (append, survives) = (spec.append?, phase_survives(spec)?);
    let grouping = append.grouping;
    Some(format!(
        "{}: survives {survives} failures until a commit, which starts after {} stripes, {} or {}; grouping {}",
        spec.name,
        append.stripes_max,
        bytes(append.log_bytes_max),
        duration(append.age_max_s),
        grouping.map_or("off".to_owned(), |rule| rule.to_string())
    ))
}
