//! Snapshots and clones under all faults. A new one has the bytes that a read of its file could have shown while it
//! was made. From then on a snapshot keeps its bytes, and a clone has those that its own writes gave it, whatever
//! happens to the other files that share its stripes.

use crate::cells::{CELL_BYTES, UpdateId, cell_count, fill, known_cells};
use crate::client::{SimClient, byte_range};
use crate::cluster::Cluster;
use crate::names::SNAPSHOTS;
use crate::world::lock;
use gabion_client::{ClientError, File};
use gabion_meta::Inode;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Fewer files are kept at a time.
const COUNT_MAX: usize = 4;

/// The snapshots and clones whose bytes are known. A client takes one out while it uses it.
#[derive(Default)]
pub(crate) struct Snapshots {
    known: Mutex<BTreeMap<String, Known>>,
}

struct Known {
    bytes: Vec<u8>,
    is_read_only: bool,
}

impl Snapshots {
    fn take(&self, cluster: &Cluster) -> Option<(String, Known)> {
        let mut known = lock(&self.known);
        let names: Vec<String> = known.keys().cloned().collect();
        if names.is_empty() {
            return None;
        }
        let name = cluster.world.roll(|dice| dice.pick(&names).clone());
        let taken = known.remove(&name)?;
        Some((name, taken))
    }

    fn put(&self, name: String, known: Known) {
        lock(&self.known).insert(name, known);
    }

    fn is_full(&self) -> bool {
        lock(&self.known).len() >= COUNT_MAX
    }

    /// The last check of a run.
    pub(crate) async fn verify(&self, client: &SimClient) -> Result<(), String> {
        let known = std::mem::take(&mut *lock(&self.known));
        for (name, known) in known {
            let file = client.client.open(&name).await;
            let file = file.map_err(|error| format!("{name}: {error}"))?;
            let read = read_all(&file).await;
            let read = read.map_err(|error| format!("{name}: {error}"))?;
            if let Some(wrong) = difference(&read, &known.bytes) {
                return Err(format!("{name}: {wrong}"));
            }
        }
        Ok(())
    }
}

/// Takes a snapshot or a clone of a file, or uses one that is there.
pub(crate) async fn work_with_snapshots(
    cluster: &Cluster,
    client: &SimClient,
    (name, snapshots): (&str, &Snapshots),
) -> Result<(), ClientError> {
    if !snapshots.is_full() && cluster.world.roll(|dice| dice.one_in(2)) {
        return make(cluster, client, (name, snapshots)).await;
    }
    let Some((name, mut known)) = snapshots.take(cluster) else {
        return Ok(());
    };
    // After an error its bytes are unknown.
    if work(cluster, client, (&name, &mut known)).await? {
        snapshots.put(name, known);
    }
    Ok(())
}

/// Takes a snapshot or a clone of a file.
pub(crate) async fn make(
    cluster: &Cluster,
    client: &SimClient,
    (name, snapshots): (&str, &Snapshots),
) -> Result<(), ClientError> {
    let (file, world) = (client.open(name).await?, &cluster.world);
    let is_read_only = world.roll(|dice| dice.one_in(2));
    let to = format!("{SNAPSHOTS}{}", world.fresh());
    cluster.ledger.shared(file.put_id());
    let called_us = client.now_us();
    let made = client
        .client
        .snapshot(Inode::File(file.put_id()), to.as_str(), is_read_only);
    made.await?;
    let answered_us = client.now_us();
    client.count(|coverage| coverage.snapshot_count += 1);
    let opened = client.client.open(&to).await?;
    let bytes = read_all(&opened).await?;
    let times = (called_us, answered_us);
    cluster.ledger.copied(file.put_id(), &bytes, times);
    let known = Known {
        bytes,
        is_read_only,
    };
    snapshots.put(to, known);
    Ok(())
}

/// Reads a snapshot or a clone, and perhaps changes or removes it. Returns whether it is there, with known bytes.
async fn work(
    cluster: &Cluster,
    client: &SimClient,
    (name, known): (&str, &mut Known),
) -> Result<bool, ClientError> {
    let (world, file) = (&cluster.world, client.client.open(name).await?);
    if let Some(wrong) = difference(&read_all(&file).await?, &known.bytes) {
        client.fail(format!("{name}: {wrong}"));
        return Ok(false);
    }
    let total = cell_count(known.bytes.len() as u64);
    match world.roll(|dice| dice.below(6)) {
        0 => {
            client.client.rm(name).await?;
            Ok(false)
        }
        1..4 if total > 0 => {
            let cells = world.roll(|dice| dice.cells(total));
            let write = UpdateId(world.fresh() as u32);
            let bytes = fill(write, cells.start, cells.end - cells.start);
            let at = byte_range(&cells);
            let written = file.write(at.offset, bytes.clone().into()).await;
            if known.is_read_only {
                if written.is_ok() {
                    client.fail(format!("{name} is a snapshot, and was written"));
                }
                return Ok(true);
            }
            written?;
            client.count(|coverage| coverage.clone_write_count += 1);
            known.bytes[at.offset as usize..at.end() as usize].copy_from_slice(&bytes);
            Ok(true)
        }
        4 if total > 0 && !known.is_read_only && cluster.shape.shrinks => {
            let left = world.roll(|dice| dice.below(total)) * CELL_BYTES;
            file.truncate(left).await?;
            known.bytes.truncate(left as usize);
            Ok(true)
        }
        _ => Ok(true),
    }
}

async fn read_all(file: &File) -> Result<Vec<u8>, ClientError> {
    let cells = 0..known_cells(file.size_bytes());
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    file.read(byte_range(&cells)).await
}

/// The places in which bytes are not the known ones.
fn difference(read: &[u8], known: &[u8]) -> Option<String> {
    if read.len() != known.len() {
        return Some(format!(
            "it has {} bytes instead of {}",
            read.len(),
            known.len()
        ));
    }
    let at = read
        .iter()
        .zip(known)
        .position(|(read, known)| read != known)?;
    let cell = at as u64 / CELL_BYTES;
    Some(format!("cell {cell} has changed"))
}
