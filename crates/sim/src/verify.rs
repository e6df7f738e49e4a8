//! What must be true of a cluster that is whole and idle: every file is there, every stripe reads
//! as its history says, and every chunk as stored is what the code makes of the data.

use crate::client::{Client, shape};
use crate::cluster::Cluster;
use crate::workload::{Files, cell_count};
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Sequence, StripeRecord};
use gabion_meta::PoolRecord;
use gabion_protocol::message::FileLayout;
use gabion_store::{Cut, SimDisk, Store, StoreError};
use std::sync::Arc;

/// How often something is tried that a whole cluster should do at once.
const TRY_COUNT_MAX: u32 = 100;

/// Checks all files. The first thing that is wrong ends the run.
pub(crate) async fn verify(cluster: &Cluster, client: &Client, files: &Files) {
    for name in files.names() {
        if cluster.world.failure().is_some() {
            return;
        }
        if let Err(why) = verify_file(cluster, client, &name).await {
            cluster.world.fail(format!("{name}: {why}"));
        }
    }
}

async fn verify_file(cluster: &Cluster, client: &Client, name: &str) -> Result<(), String> {
    let mut layout = None;
    for _ in 0..TRY_COUNT_MAX {
        layout = client.lookup(name).await;
        if layout.is_some() {
            break;
        }
        cluster.world.sleep(100_000).await;
    }
    let layout = layout.ok_or("the file is gone")?;
    for record in &layout.stripes {
        let mark = settle(cluster, client, record).await?;
        read_all(cluster, client, &layout, record).await?;
        verify_chunks(cluster, &layout.pool, record, mark)
            .map_err(|why| format!("{} as of {mark}: {why}", record.id))?;
    }
    Ok(())
}

async fn settle(
    cluster: &Cluster,
    client: &Client,
    record: &StripeRecord,
) -> Result<Sequence, String> {
    let mut why = String::new();
    for _ in 0..TRY_COUNT_MAX {
        match client.mark(record, true).await {
            Ok((_, mark)) => return Ok(mark),
            Err(refusal) => why = refusal.to_string(),
        }
        cluster.world.sleep(200_000).await;
    }
    Err(format!("{} cannot be settled: {why}", record.id))
}

async fn read_all(
    cluster: &Cluster,
    client: &Client,
    layout: &FileLayout,
    record: &StripeRecord,
) -> Result<(), String> {
    let cells = 0..cell_count(layout, record);
    let mut why = String::new();
    for _ in 0..TRY_COUNT_MAX {
        match client.read(layout, record, cells.clone()).await {
            Ok(_) => return Ok(()),
            Err(failed) => why = format!("{failed:?}"),
        }
        cluster.world.sleep(100_000).await;
    }
    Err(format!("{} cannot be read: {why}", record.id))
}

/// Checks the chunks as their stores have them: as of the mark, with and without records applied.
fn verify_chunks(
    cluster: &Cluster,
    pool: &PoolRecord,
    record: &StripeRecord,
    mark: Sequence,
) -> Result<(), String> {
    let mut stores = Vec::new();
    for chunk in record.chunks() {
        let node = record.nodes[chunk.at()];
        let slot = cluster.slot_of(node);
        let store = slot.and_then(|slot| cluster.sound_store(slot));
        stores.push(store.ok_or_else(|| format!("{node} of {chunk} is not there"))?);
    }
    let failed = |error: StoreError| error.to_string();
    let logged = contents(&stores, record, Cut::Exactly(mark)).map_err(failed)?;
    verify_code(pool, record, &logged)?;
    let settled = Cut::Committed { at_least: mark };
    contents(&stores, record, settled).map_err(failed)?;
    for (store, index) in stores.iter().zip(record.chunks()) {
        store.apply(record.id).map_err(failed)?;
        let stripe = record.id;
        let damage = store.scrub(ChunkId { stripe, index }).map_err(failed)?;
        if !damage.is_empty() {
            return Err(format!("a scrub finds {damage:?}"));
        }
    }
    let applied = contents(&stores, record, settled).map_err(failed)?;
    if logged != applied {
        return Err("applying records has changed the bytes".to_owned());
    }
    Ok(())
}

fn contents(
    stores: &[Arc<Store<SimDisk>>],
    record: &StripeRecord,
    cut: Cut,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let whole = ByteRange::new(0, record.chunk_bytes);
    let chunks = stores.iter().zip(record.chunks());
    let read = |(store, index): (&Arc<Store<SimDisk>>, ChunkIndex)| {
        let mut bytes = Vec::new();
        let stripe = record.id;
        store.read(ChunkId { stripe, index }, whole, cut, &mut bytes)?;
        Ok(bytes)
    };
    chunks.map(read).collect()
}

fn verify_code(pool: &PoolRecord, record: &StripeRecord, chunks: &[Vec<u8>]) -> Result<(), String> {
    let (code, geometry) = shape(pool, record);
    let (data, parity) = chunks.split_at(geometry.k());
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut made = vec![vec![0; record.chunk_bytes as usize]; geometry.m()];
    let mut rows: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
    code.encode(&data, &mut rows)
        .map_err(|error| error.to_string())?;
    let wrong = made
        .iter()
        .zip(parity)
        .position(|(made, stored)| made != stored);
    match wrong {
        None => Ok(()),
        Some(at) => Err(format!("parity chunk {at} is not what the code makes")),
    }
}
