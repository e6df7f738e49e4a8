//! The clients' work in a simulation: they read and write a few places of a few files, put and remove
//! files, write across stripes, let files grow and shrink, and use a cache. They keep files open until these are gone.
//! Several clients work concurrently, on several machines, and each may be killed at any instant.

use crate::cached::Cached;
use crate::cells::{cell_count, known_cells};
use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::directories::move_directory;
use crate::snapshots::{Snapshots, work_with_snapshots};
use crate::sole_writer::write_alone;
use crate::trees::work_with_trees;
use crate::world::lock;
use futures::FutureExt;
use futures::future::join_all;
use gabion_client::{ClientError, ClientOptions, File};
use gabion_layout::{ReserveSpec, Smoothing};
use gabion_planner::update::descriptor;
use gabion_protocol::message::{FormOrder, PoolRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Delay between the answer of a write and its repetition, in runs with repeated writes.
const TWICE_AFTER_US: u64 = 2_000_000;
/// Names of files: few, so that they are used again.
const NAME_COUNT: u64 = 6;
/// The last files of this number are never removed.
const FILE_COUNT_MIN: usize = 2;
/// Files of about this many stripes no longer grow.
const GROWN_STRIPE_COUNT: u64 = 5;
/// The most cells of a write through the cache.
const CACHED_CELLS_MAX: u64 = 12;

/// The files that clients know.
#[derive(Default)]
pub(crate) struct Files {
    names: Mutex<BTreeSet<String>>,
    pub(crate) snapshots: Snapshots,
    is_over: AtomicBool,
}

impl Files {
    /// The names, in order.
    fn names(&self) -> Vec<String> {
        lock(&self.names).iter().cloned().collect()
    }

    /// Tells the clients to stop.
    pub(crate) fn close(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Starts a client on its machine, which works until it is told to stop.
pub(crate) fn start_worker(cluster: &Arc<Cluster>, files: &Arc<Files>, number: usize) {
    let party = cluster.begin_client(number);
    let (options, hand_count) = cluster.world.roll(|dice| {
        let options = ClientOptions {
            deadline: Duration::from_millis(dice.between(2_000, 12_000)),
            cache_bytes: *dice.pick(&[4 << 10, 64 << 10]),
            read_ahead_bytes: *dice.pick(&[0, 512]),
            ..ClientOptions::default()
        };
        (options, dice.between(1, 2))
    });
    let (own, files) = (Arc::clone(cluster), Arc::clone(files));
    let work = async move {
        let client = own.client(party, options).await;
        let hands = (0..hand_count).map(|_| Hand::new(&own, &client, &files).work());
        join_all(hands).await;
    };
    cluster.world.spawn(party.process, work.boxed());
}

/// A client's operations, one after another.
struct Hand {
    cluster: Arc<Cluster>,
    client: SimClient,
    files: Arc<Files>,
    /// Its open files.
    open: BTreeMap<String, File>,
    cached: BTreeMap<String, Cached>,
}

impl Hand {
    fn new(cluster: &Arc<Cluster>, client: &SimClient, files: &Arc<Files>) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            client: client.clone(),
            files: Arc::clone(files),
            open: BTreeMap::new(),
            cached: BTreeMap::new(),
        }
    }

    async fn work(mut self) {
        let cluster = Arc::clone(&self.cluster);
        let world = &cluster.world;
        // Some keep a file open until they are told that it is gone.
        let keeps_open = world.roll(|dice| dice.one_in(3));
        while !self.files.is_over() {
            let wait_us = world.roll(|dice| dice.below(250_000));
            world.sleep(wait_us).await;
            let names = self.files.names();
            if names.is_empty() {
                continue;
            }
            let (name, kind) = world.roll(|dice| (dice.pick(&names).clone(), dice.below(100)));
            if kind < 5 && !keeps_open {
                self.open.remove(&name);
                self.cached.remove(&name);
            }
            if cluster.shape.lifecycle.is_some() && world.roll(|dice| dice.one_in(40)) {
                self.order_form(&name).await;
            }
            let done = match kind {
                0..45 => self.write(&name).await,
                45..47 => self.change_files().await,
                47..48 => self.replace_files().await,
                48..49 => self.client.list().await.map(drop),
                49..50 => move_directory(&cluster, &self.client).await,
                50..52 => self.client.get(&name).await,
                52..64 => self.work_cached(&name).await,
                64..66 => write_alone(&cluster, &self.client, &name).await,
                66..79 if cluster.shape.grows() => self.resize(&name).await,
                79..82 if cluster.shape.lifecycle.is_none() => {
                    work_with_snapshots(&cluster, &self.client, (&name, &self.files.snapshots))
                        .await
                }
                82..83 if cluster.shape.lifecycle.is_none() => {
                    work_with_trees(&cluster, &self.client).await
                }
                _ => self.read(&name).await,
            };
            if let Err(error) = done {
                world.note(&format!("{name}: {error}"));
                if !matches!(
                    error,
                    ClientError::Late { .. } | ClientError::NoCoordinator(_)
                ) {
                    self.open.remove(&name);
                    self.cached.remove(&name);
                }
            }
        }
    }

    async fn file(&mut self, name: &str) -> Result<File, ClientError> {
        if let Some(file) = self.open.get(name) {
            return Ok(file.clone());
        }
        let file = self.client.open(name).await?;
        self.open.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    async fn write(&mut self, name: &str) -> Result<(), ClientError> {
        let file = self.file(name).await?;
        let (cluster, client) = (&self.cluster, &self.client);
        let Some(cells) = choose_in(cluster, &file) else {
            return Ok(());
        };
        let bytes = client.write(&file, &cells).await?;
        if cluster.shape.writes_twice {
            cluster.world.sleep(TWICE_AFTER_US).await;
            // Any result will do: the client has had its answer.
            let _ = file
                .write(cells.start * crate::cells::CELL_BYTES, bytes)
                .await;
        }
        Ok(())
    }

    async fn read(&mut self, name: &str) -> Result<(), ClientError> {
        let file = self.file(name).await?;
        match choose_in(&self.cluster, &file) {
            Some(cells) => self.client.read(&file, &cells).await,
            None => Ok(()),
        }
    }

    /// Lets a file grow or shrink, or asks for its holes.
    async fn resize(&mut self, name: &str) -> Result<(), ClientError> {
        let file = self.file(name).await?;
        let (client, shape) = (&self.client, &self.cluster.shape);
        let (stripe_cells, between) = (cell_count(shape.stripe_bytes), shape.cells_between_ends());
        let total = known_cells(file.size_bytes());
        let may_grow = total < GROWN_STRIPE_COUNT * stripe_cells;
        let kinds = if shape.shrinks { 12 } else { 9 };
        let (kind, more) = self.cluster.world.roll(|dice| {
            let most = if dice.one_in(3) { stripe_cells } else { 40 };
            (dice.below(kinds), dice.between(1, most))
        });
        match kind {
            0..2 if may_grow => {
                let cells = self.cluster.world.roll(|dice| behind(dice, total, more));
                client.write(&file, &cells).await.map(drop)
            }
            2..5 if may_grow => client.append(&file, more, between).await,
            5..7 => {
                let cells = self.cluster.world.roll(|dice| {
                    let all = total.max(1);
                    if may_grow && dice.one_in(4) {
                        behind(dice, total, more)
                    } else {
                        dice.cells(all)
                    }
                });
                client.write_pieces(&file, &cells, between).await
            }
            7 if may_grow => client.grow(&file, total + more).await,
            9 => {
                let left = self.cluster.world.roll(|dice| match dice.below(8) {
                    0 => 0,
                    1 => total / stripe_cells * stripe_cells,
                    _ => dice.below(total + 1),
                });
                client.truncate(&file, left).await
            }
            10 if total > 0 => {
                let stripe = self
                    .cluster
                    .world
                    .roll(|dice| dice.below(total.div_ceil(stripe_cells)) * stripe_cells);
                let cells = stripe..(stripe + stripe_cells).min(total);
                self.punch_and_fill(&file, &cells).await
            }
            11 if total > 0 => {
                let cells = self.cluster.world.roll(|dice| {
                    let stripe = dice.below(total.div_ceil(stripe_cells)) * stripe_cells;
                    if dice.one_in(2) {
                        stripe..(stripe + stripe_cells).min(total)
                    } else {
                        dice.cells(total)
                    }
                });
                client.punch(&file, &cells).await
            }
            _ => client.read_holes(&file).await,
        }
    }

    /// Punches a hole, and fills all or a part of it perhaps before the hole is acknowledged. Then a reader reads
    /// that, chunk by chunk, whose layout is from before.
    async fn punch_and_fill(&self, file: &File, hole: &Range<u64>) -> Result<(), ClientError> {
        let (world, client) = (&self.cluster.world, &self.client);
        let (reader, writer) = (client.open(file.name()), client.open(file.name()));
        let (reader, writer) = (reader.await?, writer.await?);
        let (wait_us, cells) = world.roll(|dice| {
            let part = dice.cells(hole.end - hole.start);
            let part = hole.start + part.start..hole.start + part.end;
            let cells = if dice.one_in(2) { hole.clone() } else { part };
            (dice.below(500_000), cells)
        });
        let chunk_cells = cell_count(self.cluster.shape.chunk_bytes);
        let filling = async {
            world.sleep(wait_us).await;
            client.write(&writer, &cells).await?;
            let mut at = cells.start;
            while at < cells.end {
                let end = (at / chunk_cells + 1) * chunk_cells;
                let some = at..end.min(at + 8).min(cells.end);
                client.read(&reader, &some).await?;
                at = end;
            }
            Ok(())
        };
        let (punched, filled) = futures::join!(client.punch(file, hole), filling);
        punched.and(filled)
    }

    /// Writes and reads through the cache, and then flushes the writes or leaves them there.
    async fn work_cached(&mut self, name: &str) -> Result<(), ClientError> {
        let cached = match self.cached.get(name) {
            Some(cached) => cached.clone(),
            None => self.client.open_cached(name).await?,
        };
        self.cached.insert(name.to_owned(), cached.clone());
        let world = &self.cluster.world;
        let total = known_cells(cached.file.size_bytes());
        if total == 0 {
            return Ok(());
        }
        for _ in 0..world.roll(|dice| dice.between(1, 4)) {
            let (mut cells, writes) = world.roll(|dice| (dice.cells(total), dice.one_in(2)));
            if writes {
                cells.end = cells.end.min(cells.start + CACHED_CELLS_MAX);
                self.client.write_cached(&cached, &cells).await?;
            } else {
                self.client.read_cached(&cached, &cells).await?;
            }
        }
        if world.roll(|dice| dice.one_in(2)) {
            self.client.flush(&cached).await?;
        }
        Ok(())
    }

    /// Requests that a file is encoded, or replicated again.
    async fn order_form(&self, name: &str) {
        let world = &self.cluster.world;
        let is_encoded = world.roll(|dice| dice.one_in(2));
        let order = FormOrder {
            pool: "pool".to_owned(),
            file: Some(name.to_owned()),
            is_encoded,
        };
        let is_ordered = self.client.client.order_form(order).await.is_ok();
        world.note(&format!(
            "{name} is to be encoded: {is_encoded}: {is_ordered}"
        ));
    }

    async fn change_files(&self) -> Result<(), ClientError> {
        let name = draw_name(&self.cluster);
        let known = self.files.names();
        if known.contains(&name) && known.len() > FILE_COUNT_MIN {
            // From here on no client expects the file, whether or not the removal succeeds.
            lock(&self.files.names).remove(&name);
            return self.client.remove(&name).await;
        }
        put(&self.cluster, &self.client, &self.files, &name).await
    }

    /// Stores a file over another one, or renames one, perhaps over another.
    async fn replace_files(&self) -> Result<(), ClientError> {
        let names = self.files.names();
        let (from, renames) =
            (self.cluster.world).roll(|dice| (dice.pick(&names).clone(), dice.one_in(2)));
        if !renames {
            let cells = draw_size(&self.cluster);
            return self.client.put_over(&from, cells).await;
        }
        let to = draw_name(&self.cluster);
        if from != to {
            // Clients expect the file under both names until the operation is acknowledged.
            self.client.rename(&from, &to).await?;
            let mut names = lock(&self.files.names);
            names.remove(&from);
            names.insert(to);
        }
        Ok(())
    }
}

pub(crate) fn draw_size(cluster: &Cluster) -> u64 {
    let stripe_cells = cell_count(cluster.shape.stripe_bytes);
    cluster.world.roll(|dice| dice.between(1, 2 * stripe_cells))
}

fn draw_name(cluster: &Cluster) -> String {
    let number = cluster.world.roll(|dice| dice.below(NAME_COUNT));
    // Some lie in a directory that the first put makes.
    if number.is_multiple_of(2) {
        format!("file{number}")
    } else {
        format!("some/files/{number}")
    }
}

async fn put(
    cluster: &Cluster,
    client: &SimClient,
    files: &Files,
    name: &str,
) -> Result<(), ClientError> {
    let shape = &cluster.shape;
    let is_sparse = shape.grows() && cluster.world.roll(|dice| dice.one_in(4));
    let cells = if is_sparse {
        cluster.world.roll(|dice| dice.between(1, 40))
    } else {
        draw_size(cluster)
    };
    client.put(name, cells).await?;
    lock(&files.names).insert(name.to_owned());
    if is_sparse {
        let file = client.open(name).await?;
        let stripe_cells = cell_count(shape.stripe_bytes);
        let far = cluster.world.roll(|dice| {
            let first = dice.between(cells, 4 * stripe_cells);
            first..first + dice.between(1, 40)
        });
        client.write(&file, &far).await?;
    }
    Ok(())
}

/// Reviewed often, so that reserves shrink, grow and are removed within a fault period.
const RESERVE: ReserveSpec = ReserveSpec {
    initial_chunks: 2,
    period_s: 3,
    smoothing: Smoothing::THESIS,
};

/// Creates the cluster's pool as soon as there are enough nodes.
pub(crate) async fn create_pool(cluster: &Cluster, client: &SimClient) {
    create_pool_as(cluster, client, ("pool", cluster.shape.inline_bytes)).await;
}

/// Creates a pool with this name and this size of the largest inline file.
pub(crate) async fn create_pool_as(
    cluster: &Cluster,
    client: &SimClient,
    (name, inline_bytes): (&str, u64),
) {
    let shape = &cluster.shape;
    loop {
        cluster.world.sleep(100_000).await;
        let request = PoolRequest {
            name: name.to_owned(),
            survive: shape.survive,
            code: Some(shape.code.clone()),
            chunk_bytes: shape.chunk_bytes,
            update: shape.update,
            reserve: descriptor(shape.update).reserves_space().then_some(RESERVE),
            append: shape.append,
            inline_bytes,
            lifecycle: shape.lifecycle,
        };
        // Refused until all nodes have joined.
        if client.client.create_pool(request).await.is_ok() {
            return;
        }
    }
}

/// Creates the cluster's pool and first files, before any fault.
pub(crate) async fn prepare(cluster: &Cluster, client: &SimClient, files: &Files) {
    create_pool(cluster, client).await;
    let count = cluster.world.roll(|dice| dice.between(1, 3));
    while (files.names().len() as u64) < count {
        if let Err(error) = put(cluster, client, files, &draw_name(cluster)).await {
            cluster.world.note(&format!("a first put fails: {error}"));
        }
        cluster.world.sleep(100_000).await;
    }
}

/// Cells of a file, mostly of one stripe; none if the file is empty.
pub(crate) fn choose_in(cluster: &Cluster, file: &File) -> Option<Range<u64>> {
    let total = known_cells(file.size_bytes());
    if total == 0 {
        return None;
    }
    let stripe_cells = cell_count(cluster.shape.stripe_bytes).min(total);
    Some(cluster.world.roll(|dice| {
        if dice.one_in(12) {
            return dice.cells(total);
        }
        let first = dice.below(total.div_ceil(stripe_cells)) * stripe_cells;
        let cells = dice.cells(stripe_cells.min(total - first));
        first + cells.start..first + cells.end
    }))
}

/// Cells that reach behind the end of a file of `total` cells, in part, just there, or with a gap.
fn behind(dice: &mut Dice, total: u64, more: u64) -> Range<u64> {
    let first = match dice.below(4) {
        0 => total.saturating_sub(dice.below(40)),
        1 => total,
        _ => total + dice.below(2 * more + 40),
    };
    first..(first + more).max(total + 1)
}
