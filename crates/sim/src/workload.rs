//! What clients do in a simulation: read and update the same few places of a few files, put new
//! files and remove them, and go on with old layouts until they learn better.

use crate::attempt::Failed;
use crate::cells::{UpdateId, cell_count};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::read::ReadFailed;
use crate::world::lock;
use gabion_layout::{ReserveSpec, Smoothing, StripeId};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, FileLayout, FormOrder, PoolWish, Refusal, RunFate,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// How often an update is tried again.
const ATTEMPT_COUNT_MAX: u32 = 6;
/// How long after its answer a write is made once more, in runs in which it is.
const TWICE_AFTER_US: u64 = 2_000_000;
/// Names of files: few, so that they are taken again.
const NAME_COUNT: u64 = 6;
/// Files that are left alone when there are no more.
const FILE_COUNT_MIN: usize = 2;

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
    // Some keep a layout until they are told that it is old.
    let keeps_layouts = world.roll(|dice| dice.one_in(3));
    while !files.is_over.load(Ordering::Relaxed) {
        let wait_us = world.roll(|dice| dice.below(250_000));
        world.sleep(wait_us).await;
        let names = files.names();
        if names.is_empty() {
            continue;
        }
        let (name, deed) = world.roll(|dice| (dice.pick(&names).clone(), dice.below(100)));
        let Some(layout) = layout_of(&client, &mut known, &name, deed < 5 && !keeps_layouts).await
        else {
            continue;
        };
        if cluster.shape.lifecycle.is_some() && world.roll(|dice| dice.one_in(40)) {
            order_form(&cluster, &client, &name).await;
        }
        match deed {
            5..8 => change_files(&cluster, &client, &files).await,
            8..10 => {
                client.list().await;
            }
            0..60 => update(&cluster, &client, &layout, &mut known).await,
            _ => {
                let is_old = read(&cluster, &client, &layout).await;
                if is_old == Some(true) || is_old.is_none() && !keeps_layouts {
                    known.remove(&name);
                }
            }
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
    let write = (client.ledger.name(), cells.as_slice());
    match client.update(layout, record, write).await {
        Ok(sequence) => {
            world.note(&format!("{}: {sequence} is acknowledged", record.id));
            if cluster.shape.writes_twice {
                world.sleep(TWICE_AFTER_US).await;
                // Whatever comes of it: the client has had its answer.
                let _ = client.update(layout, record, write).await;
            }
        }
        Err(failed) => {
            let refusal = &failed.refusal;
            world.note(&format!("{}: an update fails: {refusal}", record.id));
            if world.roll(|dice| dice.one_in(2)) {
                known.remove(&layout.file.name);
                update_again(client, layout, record.id, write, failed).await;
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

/// Makes a write that failed again, each time after it is known that the last attempt was not made.
async fn update_again(
    client: &Client,
    layout: &FileLayout,
    stripe: StripeId,
    write: (UpdateId, &[Range<u64>]),
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
        if let Some(open) = failed.open.take() {
            match client.close(&layout, record, &open).await {
                Ok(RunFate::Never) => {}
                Ok(fate) => {
                    world.note(&format!("{stripe}: an update is over: {fate:?}"));
                    return;
                }
                Err(refusal) => {
                    world.note(&format!("{stripe}: an update is not closed: {refusal}"));
                    failed.open = Some(open);
                    continue;
                }
            }
        }
        match client.update(&layout, record, write).await {
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

/// Reads somewhere. Whether the layout turned out to be old; none when it may be.
async fn read(cluster: &Cluster, client: &Client, layout: &FileLayout) -> Option<bool> {
    let world = &cluster.world;
    let (record, cells) = world.roll(|dice| {
        let record = dice.pick(&layout.stripes);
        (record, choose(dice, cell_count(layout, record)))
    });
    match client.read(layout, record, cells).await {
        Ok(as_of) => {
            world.note(&format!("{}: read as of {as_of}", record.id));
            Some(false)
        }
        Err(failed) => {
            world.note(&format!("{}: a read fails: {failed:?}", record.id));
            match failed {
                ReadFailed::NoAgreement => Some(false),
                ReadFailed::LookAgain(_) => Some(true),
                ReadFailed::NotNow(_) | ReadFailed::TooFew(_) => None,
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

async fn change_files(cluster: &Cluster, client: &Client, files: &Files) {
    let world = &cluster.world;
    let name = draw_name(cluster);
    let known = files.names();
    if known.contains(&name) && known.len() > FILE_COUNT_MIN {
        // From here on nobody expects it to be there; whether it is removed is another matter.
        lock(&files.names).remove(&name);
        let removed = client.remove(&name).await;
        world.note(&format!("removing {name}: {removed:?}"));
        return;
    }
    put(cluster, client, files, name).await;
}

fn draw_name(cluster: &Cluster) -> String {
    let number = cluster.world.roll(|dice| dice.below(NAME_COUNT));
    format!("file{number}")
}

async fn put(cluster: &Cluster, client: &Client, files: &Files, name: String) {
    let world = &cluster.world;
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
    create_pool(cluster, client).await;
    let count = cluster.world.roll(|dice| dice.between(1, 3));
    while (files.names().len() as u64) < count {
        put(cluster, client, files, draw_name(cluster)).await;
        cluster.world.sleep(100_000).await;
    }
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
