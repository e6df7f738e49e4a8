//! What clients do in a simulation: read and update the same few places of a few files, put new
//! files and remove them, and go on with old layouts until they learn better.

use crate::attempt::Failed;
use crate::cells::CELL_BYTES;
use crate::client::{Client, shape};
use crate::cluster::Cluster;
use crate::read::ReadFailed;
use crate::world::lock;
use gabion_layout::{ReserveSpec, Smoothing, StripeId, StripeRecord};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, FileLayout, FormOrder, PoolWish, Refusal,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// How often an update is tried again.
const ATTEMPT_COUNT_MAX: u32 = 6;
/// Most files at a time.
const FILE_COUNT_MAX: usize = 5;

/// The files that clients know to be there.
#[derive(Default)]
pub(crate) struct Files {
    names: Mutex<BTreeSet<String>>,
    is_over: AtomicBool,
}

impl Files {
    pub(crate) fn add(&self, name: String) {
        lock(&self.names).insert(name);
    }

    /// The names, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        lock(&self.names).iter().cloned().collect()
    }

    /// Tells the clients to stop.
    pub(crate) fn close(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// One client at work until it is told to stop.
pub(crate) async fn work(cluster: Arc<Cluster>, client: Arc<Client>, files: Arc<Files>) {
    let world = &cluster.world;
    let mut known: BTreeMap<String, FileLayout> = BTreeMap::new();
    while !files.is_over.load(Ordering::Relaxed) {
        let wait_us = world.roll(|dice| dice.below(250_000));
        world.sleep(wait_us).await;
        let names = files.names();
        if names.is_empty() {
            continue;
        }
        let (name, deed) = world.roll(|dice| (dice.pick(&names).clone(), dice.below(100)));
        let Some(layout) = layout_of(&client, &mut known, &name, deed < 5).await else {
            continue;
        };
        if cluster.shape.lifecycle.is_some() && world.roll(|dice| dice.one_in(40)) {
            order_form(&cluster, &client, &name).await;
        }
        match deed {
            5..7 => change_files(&cluster, &client, &files, &name).await,
            0..60 => update(&cluster, &client, &layout, &mut known).await,
            _ => read(&cluster, &client, &layout, &mut known).await,
        }
    }
}

async fn layout_of(
    client: &Client,
    known: &mut BTreeMap<String, FileLayout>,
    name: &str,
    anew: bool,
) -> Option<FileLayout> {
    if anew {
        known.remove(name);
    }
    if let Some(layout) = known.get(name) {
        return Some(layout.clone());
    }
    let layout = client.lookup(name).await?;
    known.insert(name.to_owned(), layout.clone());
    Some(layout)
}

async fn update(
    cluster: &Cluster,
    client: &Client,
    layout: &FileLayout,
    known: &mut BTreeMap<String, FileLayout>,
) {
    let world = &cluster.world;
    let (record, cells) = world.roll(|dice| {
        let record = dice.pick(&layout.stripes);
        let total = cell_count(layout, record);
        let count = dice.between(1, 3);
        let cells: Vec<Range<u64>> = (0..count).map(|_| choose(dice, total)).collect();
        (record, without_overlaps(cells))
    });
    match client.update(layout, record, &cells).await {
        Ok(sequence) => {
            world.note(&format!("{}: {sequence} is acknowledged", record.id));
        }
        Err(failed) => {
            let refusal = &failed.refusal;
            world.note(&format!("{}: an update fails: {refusal}", record.id));
            if world.roll(|dice| dice.one_in(2)) {
                known.remove(&layout.file.name);
                update_again(client, layout, record.id, &cells, failed).await;
                return;
            }
            // Whoever goes on with an old layout does not learn that a node has been given up.
            let looks_again = world.roll(|dice| dice.one_in(3));
            if looks_again || !matches!(refusal, Refusal::NotPrimary(_) | Refusal::Unavailable(_)) {
                known.remove(&layout.file.name);
            }
        }
    }
}

/// Makes an update that failed again, each time after closing the last attempt.
async fn update_again(
    client: &Client,
    layout: &FileLayout,
    stripe: StripeId,
    cells: &[Range<u64>],
    mut failed: Failed,
) {
    let world = client.ports.world();
    for _ in 0..ATTEMPT_COUNT_MAX {
        let wait_us = world.roll(|dice| dice.between(10_000, 1_000_000));
        world.sleep(wait_us).await;
        let Some(layout) = client.lookup(&layout.file.name).await else {
            continue;
        };
        let Some(record) = layout.stripes.iter().find(|record| record.id == stripe) else {
            return;
        };
        if let Some(open) = &failed.open
            && let Err(refusal) = client.close(&layout, record, open).await
        {
            world.note(&format!("{stripe}: an update is not closed: {refusal}"));
            continue;
        }
        match client.update(&layout, record, cells).await {
            Ok(sequence) => {
                world.note(&format!("{stripe}: {sequence} is acknowledged at last"));
                return;
            }
            Err(again) => failed = again,
        }
        let refusal = &failed.refusal;
        world.note(&format!("{stripe}: an update fails again: {refusal}"));
    }
}

async fn read(
    cluster: &Cluster,
    client: &Client,
    layout: &FileLayout,
    known: &mut BTreeMap<String, FileLayout>,
) {
    let world = &cluster.world;
    let (record, cells) = world.roll(|dice| {
        let record = dice.pick(&layout.stripes);
        (record, choose(dice, cell_count(layout, record)))
    });
    match client.read(layout, record, cells).await {
        Ok(as_of) => world.note(&format!("{}: read as of {as_of}", record.id)),
        Err(failed) => {
            world.note(&format!("{}: a read fails: {failed:?}", record.id));
            if !matches!(failed, ReadFailed::NoAgreement) {
                known.remove(&layout.file.name);
            }
        }
    }
}

/// Has a file encoded, or its blocks replicated again.
async fn order_form(cluster: &Cluster, client: &Client, name: &str) {
    let world = &cluster.world;
    let is_encoded = world.roll(|dice| dice.one_in(2));
    let order = CoordinatorRequest::OrderForm(FormOrder {
        pool: "pool".to_owned(),
        file: Some(name.to_owned()),
        is_encoded,
    });
    let ordered = client.ask(order).await;
    world.note(&format!(
        "{name} is to be encoded: {is_encoded}: {}",
        ordered.is_ok()
    ));
}

async fn change_files(cluster: &Cluster, client: &Client, files: &Files, old: &str) {
    let world = &cluster.world;
    if files.names().len() >= FILE_COUNT_MAX {
        // From here on nobody expects it to be there; whether it is removed is another matter.
        lock(&files.names).remove(old);
        let name = old.to_owned();
        let removed = client.ask(CoordinatorRequest::RemoveFile { name }).await;
        world.note(&format!("removing {old}: {}", removed.is_ok()));
        return;
    }
    let name = format!("file{}", world.fresh());
    let size = world.roll(|dice| dice.between(1, 2 * cluster.shape.stripe_bytes));
    let put = client.put(&name, size).await;
    world.note(&format!("putting {name}: {put:?}"));
    if put.is_ok() {
        files.add(name);
    }
}

/// Reviewed so often that reserves shrink, grow and go within a storm.
const RESERVE: ReserveSpec = ReserveSpec {
    initial_chunks: 2,
    period_s: 3,
    smoothing: Smoothing::THESIS,
};

/// Makes the cluster's pool as soon as there are nodes enough.
pub(crate) async fn create_pool(cluster: &Cluster, client: &Client) {
    let shape = &cluster.shape;
    loop {
        cluster.world.sleep(100_000).await;
        let request = CoordinatorRequest::CreatePool(PoolWish {
            name: "pool".to_owned(),
            survive: shape.survive,
            code: Some(shape.code.clone()),
            chunk_bytes: shape.chunk_bytes,
            update: shape.update,
            reserve: shape.update.reserves_space().then_some(RESERVE),
            append: shape.append,
            lifecycle: shape.lifecycle,
        });
        // Refused until all nodes have joined.
        if let Ok(CoordinatorReply::Pool(_)) = client.ask(request).await {
            return;
        }
    }
}

/// Makes the cluster's pool and first files; nothing goes wrong yet.
pub(crate) async fn prepare(cluster: &Cluster, client: &Client, files: &Files) {
    let world = &cluster.world;
    let shape = &cluster.shape;
    create_pool(cluster, client).await;
    let count = world.roll(|dice| dice.between(1, 3));
    while (files.names().len() as u64) < count {
        let name = format!("file{}", world.fresh());
        let size = world.roll(|dice| dice.between(1, 2 * shape.stripe_bytes));
        match client.put(&name, size).await {
            Ok(()) => files.add(name),
            Err(why) => world.note(&format!("putting {name}: {why}")),
        }
        world.sleep(100_000).await;
    }
}

/// Cells of a stripe.
pub(crate) fn cell_count(layout: &FileLayout, record: &StripeRecord) -> u64 {
    let (_, geometry) = shape(layout.pool_of(record), record);
    geometry.stripe_bytes() / CELL_BYTES
}

/// A range of cells. Most are short, and begin at few places so that many meet.
fn choose(dice: &mut crate::dice::Dice, total: u64) -> Range<u64> {
    let place = total / 16;
    let first = match dice.below(4) {
        0 => dice.below(total),
        1 => dice.below(16) * place,
        _ => dice.below(2) * place + dice.below(8),
    };
    let length = match dice.below(10) {
        0 => dice.between(1, total),
        1..4 => dice.between(1, place * 2),
        _ => dice.between(1, 24),
    };
    first..(first + length).min(total)
}

fn without_overlaps(mut cells: Vec<Range<u64>>) -> Vec<Range<u64>> {
    cells.sort_unstable_by_key(|range| range.start);
    let mut apart: Vec<Range<u64>> = Vec::new();
    for range in cells {
        if apart.last().is_none_or(|last| last.end <= range.start) {
            apart.push(range);
        }
    }
    apart
}
