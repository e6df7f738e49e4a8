//! The checks of a whole and idle cluster: every file exists, every stripe reads as its history requires, the
//! stored chunks of each stripe match its code, and its bytes behind the end of the file are zero.

use crate::cells::cell_count;
use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::ports::SimPorts;
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, NodeId, Sequence, StripeId, StripeRecord};
use gabion_protocol::message::{FileLayout, Liveness, Refusal, Ticket, ask};
use gabion_protocol::ports::{Ask as _, NodeError, Ports as _};
use gabion_store::{Cut, Store, StoreError};
use std::collections::VecDeque;
use std::sync::Arc;

/// Interval of retries of an operation that a whole cluster should complete at once.
const TRY_COUNT_MAX: u32 = 100;
/// Interval of retries of the list of files.
const LIST_TRY_COUNT: u32 = 2;
/// Time limit of a primary's settlement of a stripe.
const MARK_DEADLINE_MS: u64 = 15_000;
/// Number of nodes that are asked for it.
const ASK_COUNT_MAX: usize = 16;

/// Checks all files. The first error ends the run.
pub(crate) async fn verify(cluster: &Cluster, client: &SimClient) {
    let mut names = client.list().await;
    for _ in 0..LIST_TRY_COUNT {
        if names.is_ok() {
            break;
        }
        // The coordinator may have been killed during the request.
        names = client.list().await;
    }
    let names = match names {
        Ok(names) => names,
        Err(error) => {
            let world = &cluster.world;
            world.fail(format!("the files cannot be listed: {error}"));
            return;
        }
    };
    let ports = cluster.ports(client.party, None);
    for name in names {
        if cluster.world.failure().is_some() {
            return;
        }
        if let Err(why) = verify_file(cluster, client, &ports, &name).await {
            cluster.world.fail(format!("{name}: {why}"));
        }
    }
}

async fn verify_file(
    cluster: &Cluster,
    client: &SimClient,
    ports: &SimPorts,
    name: &str,
) -> Result<(), String> {
    let file = client.open(name).await.map_err(|error| error.to_string())?;
    let all = 0..cell_count(file.size_bytes());
    let read = client.read(&file, &all).await;
    read.map_err(|error| error.to_string())?;
    verify_stored(cluster, client, ports, name).await
}

/// Checks the chunks of a file that is unknown to the checkers of all runs.
///
/// # Errors
/// The first error, in words.
pub(crate) async fn verify_file_of(
    cluster: &Cluster,
    client: &SimClient,
    name: &str,
) -> Result<(), String> {
    let ports = cluster.ports(client.party, None);
    verify_stored(cluster, client, &ports, name).await
}

async fn verify_stored(
    cluster: &Cluster,
    client: &SimClient,
    ports: &SimPorts,
    name: &str,
) -> Result<(), String> {
    let mut why = "the file is gone".to_owned();
    for _ in 0..TRY_COUNT_MAX {
        // A repair after a report may have changed the layout.
        if let Ok(layout) = client.client.layout(name).await {
            ports.learn_nodes(&layout.nodes);
            match verify_layout(cluster, ports, &layout).await {
                Ok(()) => return Ok(()),
                Err(Unverified::Wrong(wrong)) => {
                    // A conversion that has just ended removes chunks during the check.
                    let now = client.client.layout(name).await;
                    if now.is_ok_and(|now| now.stripes == layout.stripes) {
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

/// The result of a failed check.
enum Unverified {
    /// The check found an error.
    Wrong(String),
    /// A process does not answer.
    NotYet(String),
}

async fn verify_layout(
    cluster: &Cluster,
    ports: &SimPorts,
    layout: &FileLayout,
) -> Result<(), Unverified> {
    for (record, offset) in layout.stripes.iter().zip(&layout.offsets) {
        let not_yet = |why: String| Unverified::NotYet(format!("{}: {why}", record.id));
        // A settlement may leave out a node that is not up. Its chunk counts again after the node has joined.
        let is_up = |node: NodeId| {
            let mut known = layout.nodes.iter().filter(|status| status.node == node);
            known.all(|status| status.liveness == Liveness::Up)
        };
        if let Some(node) = record.nodes.iter().find(|&&node| !is_up(node)) {
            return Err(not_yet(format!("{node} is not up")));
        }
        let ticket = Ticket::find(&layout.tickets, record.id);
        let mark = settle(ports, record, ticket).await.map_err(not_yet)?;
        let left_bytes = layout.file.size_bytes.saturating_sub(*offset);
        verify_chunks(cluster, record, (mark, left_bytes))
            .map_err(|why| Unverified::Wrong(format!("{} as of {mark}: {why}", record.id)))?;
    }
    Ok(())
}

/// Settles a stripe anew, with parity up to date. Returns its mark.
async fn settle(
    ports: &SimPorts,
    record: &StripeRecord,
    ticket: Option<Ticket>,
) -> Result<Sequence, String> {
    let stripe = record.id;
    let (mut why, mut left) = (Vec::new(), VecDeque::from(record.nodes.clone()));
    // A node without a chunk of the stripe may still hold its lease.
    while let Some(node) = left.pop_front().filter(|_| why.len() < ASK_COUNT_MAX) {
        match settled_mark(ports, (node, stripe), ticket).await {
            Ok(sequence) => return Ok(sequence),
            Err(NodeError::Refused(Refusal::NotPrimary(other))) => {
                why.push(format!("{node} names {other}"));
                left.push_front(other);
            }
            Err(NodeError::Silent(error)) => why.push(error.to_string()),
            Err(other) => why.push(format!("{node}: {other:?}")),
        }
    }
    Err(why.join(", "))
}

/// The mark of a stripe that its primary has settled anew and committed.
async fn settled_mark(
    ports: &SimPorts,
    (node, stripe): (NodeId, StripeId),
    ticket: Option<Ticket>,
) -> Result<Sequence, NodeError> {
    let mark = |settle| ask::Mark {
        stripe,
        settle,
        decode: Vec::new(),
        ticket,
    };
    ports.ask_node(node, mark(true), MARK_DEADLINE_MS).await?;
    let commit = ask::Commit { stripe };
    ports.ask_node(node, commit, MARK_DEADLINE_MS).await?;
    let marked = ports.ask_node(node, mark(false), MARK_DEADLINE_MS).await;
    marked.map(|(_, sequence, _)| sequence)
}

/// Checks the chunks in their stores: as of the mark, with and without records applied. The file has
/// `left_bytes` from the beginning of the stripe on.
fn verify_chunks(
    cluster: &Cluster,
    record: &StripeRecord,
    (mark, left_bytes): (Sequence, u64),
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
    verify_code(cluster, record, &logged)?;
    let (_, geometry) = cluster.shape_of(record);
    if let Some(at) = first_padding(&logged[..geometry.k()], left_bytes) {
        return Err(format!(
            "byte {at} of the stripe is not zero, and the file has {left_bytes} bytes of it"
        ));
    }
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

/// The first byte of data chunks behind the end of the file that is not zero. Growth of the file shows it.
fn first_padding(data: &[Vec<u8>], left_bytes: u64) -> Option<usize> {
    let bytes = data.iter().flatten().enumerate();
    let mut behind = bytes.skip(left_bytes as usize);
    behind.find(|(_, byte)| **byte != 0).map(|(at, _)| at)
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

fn verify_code(cluster: &Cluster, record: &StripeRecord, chunks: &[Vec<u8>]) -> Result<(), String> {
    let (code, geometry) = cluster.shape_of(record);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_zero() {
        let data = [vec![1, 2, 3], vec![4, 0, 0]];
        assert_eq!(first_padding(&data, 4), None);
        assert_eq!(first_padding(&data, 3), Some(3));
        assert_eq!(first_padding(&data, 0), Some(0));
        assert_eq!(first_padding(&data, 100), None);
    }
}
