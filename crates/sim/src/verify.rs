//! What must be true of a cluster that is whole and idle: every file is there, every stripe reads
//! as its history says, and every chunk as stored is what the code makes of the data.

use crate::cells::cell_count;
use crate::client::{Client, shape};
use crate::cluster::Cluster;
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Sequence, StripeRecord};
use gabion_meta::PoolRecord;
use gabion_protocol::message::FileLayout;
use gabion_store::{Cut, Store, StoreError};
use std::sync::Arc;

/// How often something is tried that a whole cluster should do at once.
const TRY_COUNT_MAX: u32 = 100;

/// Checks all files. The first thing that is wrong ends the run.
pub(crate) async fn verify(cluster: &Cluster, client: &Client) {
    let mut names = None;
    for _ in 0..TRY_COUNT_MAX {
        names = client.list().await;
        if names.is_some() {
            break;
        }
        cluster.world.sleep(100_000).await;
    }
    let Some(names) = names else {
        cluster
            .world
            .fail("the coordinator does not list the files".to_owned());
        return;
    };
    for name in names {
        if cluster.world.failure().is_some() {
            return;
        }
        if let Err(why) = verify_file(cluster, client, &name).await {
            cluster.world.fail(format!("{name}: {why}"));
        }
    }
}

async fn verify_file(cluster: &Cluster, client: &Client, name: &str) -> Result<(), String> {
    let mut why = "the file is gone".to_owned();
    for _ in 0..TRY_COUNT_MAX {
        // A repair that somebody's report has led to may have changed the layout meanwhile.
        if let Some(layout) = client.lookup(name).await {
            match verify_layout(cluster, client, &layout).await {
                Ok(()) => return Ok(()),
                Err(Unverified::Wrong(wrong)) => {
                    // A conversion that has just ended takes chunks away while they are looked at.
                    let now = client.lookup(name).await;
                    if now.is_some_and(|now| now.stripes == layout.stripes) {
                        return Err(wrong);
                    }
                    why = wrong;
                }
                Err(Unverified::NotYet(reason)) => why = reason,
            }
        }
        cluster.world.sleep(100_000).await;
    }
    Err(why)
}

/// Why a file is not known to be well.
enum Unverified {
    /// It is not.
    Wrong(String),
    /// Something does not answer.
    NotYet(String),
}

async fn verify_layout(
    cluster: &Cluster,
    client: &Client,
    layout: &FileLayout,
) -> Result<(), Unverified> {
    for record in &layout.stripes {
        let not_yet = |why: String| Unverified::NotYet(format!("{}: {why}", record.id));
        let mark = client.mark(record, (true, true)).await;
        let (_, mark) = mark.map_err(|refusal| not_yet(refusal.to_string()))?;
        let cells = 0..cell_count(layout, record);
        let read = client.read(layout, record, cells).await;
        read.map_err(|failed| not_yet(format!("{failed:?}")))?;
        verify_chunks(cluster, layout.pool_of(record), record, mark)
            .map_err(|why| Unverified::Wrong(format!("{} as of {mark}: {why}", record.id)))?;
    }
    Ok(())
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
    stores: &[Arc<Store>],
    record: &StripeRecord,
    cut: Cut,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let whole = ByteRange::new(0, record.chunk_bytes);
    let chunks = stores.iter().zip(record.chunks());
    let read = |(store, index): (&Arc<Store>, ChunkIndex)| {
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
