//! The store through its public interface: against a model, through crashes, damage and full disks.

#![expect(
    clippy::unwrap_used,
    reason = "a test's own helpers fail the test where they stand"
)]

mod appended;
mod crash;
mod crashes;
mod damage;
mod disks;
mod failing;
mod flash;
mod fsync;
mod inventory;
mod keeping;
mod late_appends;
mod model;
mod position;
mod protocol;
mod real;
mod reserve;
mod reserve_damage;
mod runs;
mod space;
mod trash;

use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Keeping, RunId, Sequence, StripeId,
};
use gabion_store::{
    ChunkSpec, Cut, Lsn, Options, Piece, Record, RecordKind, RecoveryReport, SimDisk, Store,
    StoreError, UpdateStamp,
};
use std::sync::Arc;

/// Small segments, so that tests rotate and reclaim them.
const OPTIONS: Options = Options {
    segment_bytes: 64 << 10,
    free_bytes: 0,
    segment_count_max: 4,
    log_bytes: 20_000,
};

fn chunk(stripe: u64, index: u8) -> ChunkId {
    ChunkId {
        stripe: StripeId(stripe),
        index: ChunkIndex(index),
    }
}

fn spec(generation: u64, chunk_bytes: u64, base: u64) -> ChunkSpec {
    ChunkSpec {
        generation: Generation(generation),
        chunk_bytes,
        base: Sequence(base),
        keeping: Keeping::InPlace,
    }
}

fn stamp(epoch: u64, sequence: u64) -> UpdateStamp {
    UpdateStamp {
        epoch: Epoch(epoch),
        sequence: Sequence(sequence),
    }
}

/// A recognizable byte pattern.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed ^ 0x5eed);
    (0..length).map(|_| random.next() as u8).collect()
}

/// A small generator for tests.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Whether a path is that of a journal segment in use.
fn is_segment(path: &str) -> bool {
    path.starts_with("journal/") && path != "journal/spare"
}

fn open(disk: &SimDisk) -> (Store, RecoveryReport) {
    Store::open(Arc::new(disk.clone()), OPTIONS).unwrap()
}

/// Writes a chunk in slices of an odd size.
fn write_chunk(
    store: &Store,
    id: ChunkId,
    spec: ChunkSpec,
    bytes: &[u8],
) -> Result<(), StoreError> {
    let mut writer = store.create(id, spec)?;
    for (at, slice) in bytes.chunks(3000).enumerate() {
        writer.write_at(at as u64 * 3000, slice)?;
    }
    writer.finish()
}

/// Appends a record of one piece.
fn append(
    store: &Store,
    id: ChunkId,
    stamp: UpdateStamp,
    kind: RecordKind,
    offset: u64,
    bytes: &[u8],
) -> Result<Lsn, StoreError> {
    store.append(&Record {
        chunk: id,
        generation: Generation(1),
        stamp,
        runs: vec![RunId(stamp.sequence.0)],
        participants: vec![ChunkIndex(0), ChunkIndex(4)],
        kind,
        pieces: vec![Piece {
            data: ChunkIndex(0),
            offset,
            bytes,
        }],
    })
}

fn read(
    store: &Store,
    id: ChunkId,
    offset: u64,
    length: u64,
    cut: Cut,
) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    store.read(id, ByteRange::new(offset, length), cut, &mut bytes)?;
    Ok(bytes)
}
