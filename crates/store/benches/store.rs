//! Measures the cost of durability and checksums: the store beside the bare file operations that it
//! needs. `--quick` gives a first estimate; files go below the temporary directory.

use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Keeping, RunId, Sequence, StripeId,
};
use gabion_store::{
    ChunkSpec, Cut, Options, Piece, RealDisk, Record, RecordKind, Store, StoreCounts, StoreError,
    UpdateStamp,
};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const MIB: usize = 1 << 20;
/// Records that a thread appends before the bare writes have their turn.
const TURN: usize = 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let scale = if is_quick { 1 } else { 8 };
    let directory = tempfile::tempdir()?;
    let disk = RealDisk::open(directory.path().join("store"))?;
    let (store, _) = Store::open(Arc::new(disk), Options::default())?;
    let raw = directory.path();
    for chunk_bytes in [MIB, 64 * MIB] {
        let count = if chunk_bytes == MIB {
            32 * scale
        } else {
            scale
        };
        create(&store, raw, chunk_bytes, count)?;
    }
    read(&store, raw, 20 * scale)?;
    for threads in [1, 16] {
        append(&store, raw, threads, 100 * scale)?;
    }
    for threads in [1, 16] {
        keep(&store, threads, 400 * scale)?;
    }
    Ok(())
}

fn id(stripe: usize) -> ChunkId {
    ChunkId {
        stripe: StripeId(stripe as u64),
        index: ChunkIndex(0),
    }
}

fn write_chunk(
    store: &Store,
    id: ChunkId,
    bytes: &[u8],
    keeping: Keeping,
) -> Result<(), StoreError> {
    let spec = ChunkSpec {
        generation: Generation(1),
        chunk_bytes: bytes.len() as u64,
        base: Sequence(0),
        keeping,
    };
    let mut writer = store.create(id, spec)?;
    for (at, slice) in bytes.chunks(MIB).enumerate() {
        writer.write_at((at * MIB) as u64, slice)?;
    }
    writer.finish()
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    for slice in bytes.chunks(MIB) {
        file.write_all(slice)?;
    }
    file.sync_all()
}

/// Both sides take turns, so that a slow moment of the disk affects both.
fn create(store: &Store, raw: &Path, chunk_bytes: usize, count: usize) -> Outcome<()> {
    let bytes = vec![0x5a; chunk_bytes];
    let (mut ours, mut plain) = (0.0, 0.0);
    for at in 0..count {
        let begun = Instant::now();
        write_chunk(
            store,
            id(chunk_bytes / MIB * 100_000 + at),
            &bytes,
            Keeping::InPlace,
        )?;
        ours += begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        write_file(&raw.join(format!("{chunk_bytes}-{at}")), &bytes)?;
        plain += begun.elapsed().as_secs_f64();
    }
    let rate = |seconds: f64| (chunk_bytes * count) as f64 / 1e6 / seconds;
    println!(
        "create {:>3} MiB chunks: {:7.0} MB/s; write and fsync: {:7.0} MB/s; ratio {:.2}",
        chunk_bytes / MIB,
        rate(ours),
        rate(plain),
        plain / ours
    );
    Ok(())
}

fn read(store: &Store, raw: &Path, rounds: usize) -> Outcome<()> {
    let chunk = id(64 * 100_000);
    let file = File::open(raw.join(format!("{}-0", 64 * MIB)))?;
    let cut = Cut::Exactly(Sequence(0));
    let mut output = Vec::new();
    for length in [4 << 10, MIB, 64 * MIB] {
        let count = (rounds * 64 * MIB / length).min(100_000);
        let offset_of = |at: usize| (at * length % (64 * MIB)) as u64;
        let mut buffer = vec![0; length];
        let begun = Instant::now();
        for at in 0..count {
            let range = ByteRange::new(offset_of(at), length as u64);
            store.read(chunk, range, cut, &mut output)?;
            black_box(&output);
        }
        let ours = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        for at in 0..count {
            file.read_exact_at(&mut buffer, offset_of(at))?;
            black_box(&buffer);
        }
        let plain = begun.elapsed().as_secs_f64();
        let rate = |seconds: f64| (count * length) as f64 / 1e9 / seconds;
        println!(
            "read {:>5} KiB verified: {:6.2} GB/s; plain read: {:6.2} GB/s; ratio {:.2}",
            length / 1024,
            rate(ours),
            rate(plain),
            plain / ours
        );
    }
    Ok(())
}

fn append(store: &Store, raw: &Path, threads: usize, count: usize) -> Outcome<()> {
    let bytes = [0xa5; 4096];
    let next = AtomicU64::new(1);
    let chunk_of = |thread: usize| id(10_000_000 + threads * 100 + thread);
    for thread in 0..threads {
        write_chunk(store, chunk_of(thread), &vec![0; MIB], Keeping::InPlace)?;
    }
    let one = &|thread: usize, turn: usize| -> Result<(), StoreError> {
        for at in turn * TURN..(turn + 1) * TURN {
            let lsn = store.append(&Record {
                chunk: chunk_of(thread),
                generation: Generation(1),
                stamp: UpdateStamp {
                    epoch: Epoch(1),
                    sequence: Sequence(next.fetch_add(1, Ordering::Relaxed)),
                },
                runs: vec![RunId(at as u64)],
                participants: vec![ChunkIndex(0), ChunkIndex(6), ChunkIndex(7)],
                kind: RecordKind::NewBytes,
                pieces: vec![Piece {
                    data: ChunkIndex(0),
                    offset: (at * 4096 % MIB) as u64,
                    bytes: &bytes,
                }],
            })?;
            store.sync(lsn)?;
        }
        Ok(())
    };
    let file = File::create(raw.join(format!("log-{threads}")))?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 64 << 20)?;
    file.sync_all()?;
    let (mut ours, mut plain) = (0.0, 0.0);
    for turn in 0..count / TURN {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let spawn = |thread| scope.spawn(move || one(thread, turn));
            let running: Vec<_> = (0..threads).map(spawn).collect();
            running
                .into_iter()
                .try_for_each(|thread| thread.join().expect("an appender does not panic"))
        })?;
        ours += begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        for at in turn * TURN..(turn + 1) * TURN {
            file.write_all_at(&bytes, (at * 4096) as u64)?;
            file.sync_data()?;
        }
        plain += begun.elapsed().as_secs_f64();
    }
    let plain = count as f64 / plain;
    let rate = (count * threads) as f64 / ours;
    println!(
        "append and sync 4 KiB, {threads:>2} threads: {rate:7.0} records/s; one thread's write \
         and fdatasync: {plain:7.0}/s; ratio {:.2}",
        rate / plain
    );
    Ok(())
}

/// Committed updates of 4 KiB for each keeping of their chunks, merges included. All keepings take
/// turns.
fn keep(store: &Store, threads: usize, count: usize) -> Outcome<()> {
    let keepings = [
        ("in place", Keeping::InPlace),
        ("at once", Keeping::AtOnce),
        ("log", Keeping::Log),
        ("reserve", Keeping::Reserve { bytes: MIB as u64 }),
    ];
    let chunk_of = |at: usize, thread: usize| id(20_000_000 + (threads * 4 + at) * 100 + thread);
    for (at, (_, keeping)) in keepings.iter().enumerate() {
        for thread in 0..threads {
            write_chunk(store, chunk_of(at, thread), &vec![0; 4 * MIB], *keeping)?;
        }
    }
    let mut seconds = [0.0; 4];
    let mut spent = [StoreCounts::default(); 4];
    for turn in 0..count / TURN {
        for at in 0..keepings.len() {
            let before = store.counts();
            let begun = Instant::now();
            std::thread::scope(|scope| {
                let one = |thread| scope.spawn(move || update(store, chunk_of(at, thread), turn));
                let running: Vec<_> = (0..threads).map(one).collect();
                running
                    .into_iter()
                    .try_for_each(|thread| thread.join().expect("an updater does not panic"))
            })?;
            store.apply_pending(u64::MAX)?;
            seconds[at] += begun.elapsed().as_secs_f64();
            spent[at] = sum(spent[at], before, store.counts());
        }
    }
    let update_count = (count / TURN * TURN * threads) as f64;
    for (at, (name, _)) in keepings.iter().enumerate() {
        let each = |total: u64| total as f64 / update_count;
        println!(
            "keep {name:>8}, {threads:>2} threads: {:6.0} updates/s; an update: {:.2} syncs, bytes \
             {:.0} journal, {:.0} reserve, {:.0} image, {:.0} in place",
            update_count / seconds[at],
            each(spent[at].sync_count),
            each(spent[at].journal_bytes),
            each(spent[at].reserve_bytes),
            each(spent[at].image_bytes),
            each(spent[at].in_place_bytes),
        );
    }
    Ok(())
}

/// A turn's updates of one chunk, each durable and then committed.
fn update(store: &Store, chunk: ChunkId, turn: usize) -> Result<(), StoreError> {
    let bytes = [0x5a; 4096];
    for at in turn * TURN..(turn + 1) * TURN {
        let sequence = Sequence(at as u64 + 1);
        // A step that shares no factor with the number of places visits all of them.
        let offset = (at * 389 % 1024 * 4096) as u64;
        let lsn = store.append(&Record {
            chunk,
            generation: Generation(1),
            stamp: UpdateStamp {
                epoch: Epoch(1),
                sequence,
            },
            runs: vec![RunId(at as u64)],
            participants: vec![ChunkIndex(0), ChunkIndex(6), ChunkIndex(7)],
            kind: RecordKind::ParityDelta,
            pieces: vec![Piece {
                data: ChunkIndex(0),
                offset,
                bytes: &bytes,
            }],
        })?;
        store.sync(lsn)?;
        store.commit(chunk.stripe, sequence)?;
    }
    Ok(())
}

/// Adds the counts between two readings to earlier ones.
fn sum(known: StoreCounts, from: StoreCounts, to: StoreCounts) -> StoreCounts {
    StoreCounts {
        sync_count: known.sync_count + to.sync_count - from.sync_count,
        journal_bytes: known.journal_bytes + to.journal_bytes - from.journal_bytes,
        reserve_bytes: known.reserve_bytes + to.reserve_bytes - from.reserve_bytes,
        image_bytes: known.image_bytes + to.image_bytes - from.image_bytes,
        in_place_bytes: known.in_place_bytes + to.in_place_bytes - from.in_place_bytes,
        ..known
    }
}
