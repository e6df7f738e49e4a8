//! Bit rot is noticed and reported, and never served.

use crate::{Random, append, chunk, is_segment, open, pattern, read, spec, stamp, write_chunk};
use gabion_layout::{ByteRange, ChunkId, Epoch, Generation, Sequence, StripeId};
use gabion_store::{Cut, Damage, RecordKind, SimDisk, Store, StoreError};
use std::sync::Arc;

const CHUNK_BYTES: usize = 20_000;
/// Offset of the data of a chunk of this size in its file.
const DATA_OFFSET: u64 = 8192;

fn path_of(disk: &SimDisk, id: ChunkId) -> String {
    let name = format!("{:016x}-{:02x}", id.stripe.0, id.index.0);
    disk.files()
        .into_iter()
        .find(|path| path.ends_with(&name))
        .unwrap()
}

#[test]
fn only_sound_bytes_in_memory_without_records_are_read_at_once() {
    let disk = SimDisk::new(7);
    let (store, _) = open(&disk);
    let (id, whole) = (chunk(1, 0), pattern(1, CHUNK_BYTES));
    write_chunk(&store, id, spec(1, CHUNK_BYTES as u64, 0), &whole).unwrap();
    let mut bytes = Vec::new();
    let mut read_now = |offset: u64, cut: u64| {
        let range = ByteRange::new(offset, 1000);
        let as_of = store.read_now(id, range, Cut::Exactly(Sequence(cut)), &mut bytes);
        as_of.map(|as_of| (as_of, bytes.clone()))
    };
    assert_eq!(read_now(100, 0), None, "the file is not open yet");
    read(&store, id, 0, 1, Cut::Exactly(Sequence(0))).unwrap();
    // The first and the third of these pages are cached, the second is not.
    for offset in [100, 9000] {
        let expected = whole[offset..offset + 1000].to_vec();
        assert_eq!(read_now(offset as u64, 0), Some((Sequence(0), expected)));
    }
    assert_eq!(read_now(5000, 0), None, "it is on the disk");
    append(&store, id, stamp(1, 1), RecordKind::NewBytes, 500, b"new").unwrap();
    assert_eq!(read_now(100, 1), None, "a record lies over it");
    assert!(read_now(100, 0).is_some() && read_now(9000, 1).is_some());
    disk.flip_bit(&path_of(&disk, id), (DATA_OFFSET + 9100) * 8);
    assert_eq!(read_now(9000, 0), None, "it is damaged");
}

/// A disk with two chunks, each with one applied and one pending record, closed in order.
fn prepare() -> (SimDisk, Vec<(ChunkId, Vec<u8>)>) {
    let disk = SimDisk::new(7);
    let (store, _) = open(&disk);
    let mut expected = Vec::new();
    for stripe in 1..=2 {
        let bytes = pattern(stripe, CHUNK_BYTES);
        write_chunk(
            &store,
            chunk(stripe, 0),
            spec(1, CHUNK_BYTES as u64, 0),
            &bytes,
        )
        .unwrap();
    }
    for stripe in 1..=2 {
        let id = chunk(stripe, 0);
        let mut bytes = pattern(stripe, CHUNK_BYTES);
        for (sequence, offset) in [(1, 100), (2, 12_000)] {
            let new = pattern(sequence + stripe, 3000);
            append(
                &store,
                id,
                stamp(1, sequence),
                RecordKind::NewBytes,
                offset,
                &new,
            )
            .unwrap();
            bytes[offset as usize..][..3000].copy_from_slice(&new);
            store.sync_all().unwrap();
            if sequence == 1 {
                store.commit(StripeId(stripe), Sequence(1)).unwrap();
                store.apply(StripeId(stripe)).unwrap();
            }
        }
        expected.push((id, bytes));
    }
    store.sync_all().unwrap();
    store.log_witnesses().unwrap();
    (disk, expected)
}

fn whole(store: &Store, id: ChunkId) -> Result<Vec<u8>, StoreError> {
    read(store, id, 0, CHUNK_BYTES as u64, Cut::Exactly(Sequence(2)))
}

#[test]
fn no_flipped_bit_of_any_file_is_ever_served() {
    let (disk, expected) = prepare();
    let mut random = Random(3);
    let mut refused_count = 0;
    for path in disk.files() {
        let bits = disk.contents(&path).unwrap().len() as u64 * 8;
        for round in 0..150 {
            let copy = disk.after_crash(1);
            // Headers are small, so every other flip goes there.
            let reach = if round % 2 == 0 {
                bits
            } else {
                bits.min(64 * 8)
            };
            copy.flip_bit(&path, random.below(reach));
            let Ok((store, _)) = Store::open(Arc::new(copy), crate::OPTIONS) else {
                assert_eq!(path, "format");
                continue;
            };
            for (id, bytes) in &expected {
                match whole(&store, *id) {
                    Ok(found) => assert!(found == *bytes, "{path}: rot was served"),
                    Err(StoreError::Corrupt { chunk, .. }) => {
                        assert_eq!(chunk, *id);
                        assert_ne!(store.scrub(*id).unwrap(), []);
                        refused_count += 1;
                    }
                    Err(error) => panic!("{path}: {error}"),
                }
            }
        }
    }
    assert!(
        refused_count > 100,
        "only {refused_count} flips were noticed"
    );
}

#[test]
fn scrub_names_chunk_and_blocks() {
    let (disk, expected) = prepare();
    let (id, bytes) = &expected[0];
    let path = path_of(&disk, *id);
    // A bit of block 1, of block 2, and of the checksum of block 4, which is short.
    for bit in [
        (DATA_OFFSET + 4096) * 8,
        (DATA_OFFSET + 8192 + 77) * 8 + 3,
        (4096 + 16) * 8,
    ] {
        disk.flip_bit(&path, bit);
    }
    let (store, report) = open(&disk);
    assert_eq!(report.damage, []);
    let damage = |offset, length| Damage {
        chunk: *id,
        range: ByteRange::new(offset, length),
    };
    let expected_damage = [damage(4096, 8192), damage(16_384, 3616)];
    assert_eq!(store.scrub(*id).unwrap(), expected_damage);
    assert_eq!(store.scrub(expected[1].0).unwrap(), []);
    let found = read(&store, *id, 0, 4096, Cut::Exactly(Sequence(2))).unwrap();
    assert_eq!(found, bytes[..4096]);
    // A repair in place restores it.
    write_chunk(&store, *id, spec(1, CHUNK_BYTES as u64, 2), bytes).unwrap();
    assert_eq!(store.scrub(*id).unwrap(), []);
    assert_eq!(whole(&store, *id).unwrap(), *bytes);
}

#[test]
fn a_rotten_header_condemns_its_chunk_alone_until_repair() {
    let (disk, expected) = prepare();
    let (id, bytes) = &expected[0];
    disk.flip_bit(&path_of(&disk, *id), 300);
    let (store, _) = open(&disk);
    let damage = Damage {
        chunk: *id,
        range: Damage::WHOLE,
    };
    assert_eq!(store.scrub(*id).unwrap(), [damage]);
    assert_eq!(store.chunk_info(*id).unwrap().spec, None);
    assert!(whole(&store, expected[1].0).is_ok());
    write_chunk(&store, *id, spec(1, CHUNK_BYTES as u64, 2), bytes).unwrap();
    assert_eq!(whole(&store, *id).unwrap(), *bytes);
}

/// The offset in the journal of the first byte of `needle`.
fn find_in_journal(disk: &SimDisk, needle: &[u8]) -> (String, u64) {
    for path in disk.files().into_iter().filter(|path| is_segment(path)) {
        let bytes = disk.contents(&path).unwrap();
        if let Some(at) = bytes
            .windows(needle.len())
            .position(|window| window == needle)
        {
            return (path, at as u64);
        }
    }
    panic!("the journal does not have these bytes");
}

#[test]
fn a_rotten_record_names_its_chunk_and_range() {
    let (disk, expected) = prepare();
    let (id, bytes) = &expected[0];
    let (path, at) = find_in_journal(&disk, &bytes[12_000..15_000]);
    disk.flip_bit(&path, (at + 1500) * 8);
    let (store, report) = open(&disk);
    let damage = Damage {
        chunk: *id,
        range: ByteRange::new(12_000, 3000),
    };
    assert_eq!(report.damage, [damage]);
    assert_eq!(report.journal_damage, []);
    assert_eq!(store.scrub(*id).unwrap(), [damage]);
    assert_eq!(store.scrub_journal().unwrap().len(), 1);
    assert!(matches!(
        whole(&store, *id),
        Err(StoreError::Corrupt { .. })
    ));
    assert_eq!(whole(&store, expected[1].0).unwrap(), expected[1].1);
    // It cannot be applied either, and the apply reports it.
    store.commit(StripeId(1), Sequence(2)).unwrap();
    assert_eq!(store.apply(StripeId(1)).unwrap().damage, [damage]);
    write_chunk(&store, *id, spec(1, CHUNK_BYTES as u64, 2), bytes).unwrap();
    assert_eq!(whole(&store, *id).unwrap(), *bytes);
}

#[test]
fn an_unreadable_stretch_of_the_journal_condemns_older_chunks_until_each_is_replaced() {
    let (disk, expected) = prepare();
    let (path, at) = find_in_journal(&disk, &expected[0].1[12_000..15_000]);
    // The record's head is right in front of its bytes.
    disk.flip_bit(&path, (at - 4) * 8);
    for start in 0..3 {
        let (store, report) = open(&disk);
        if start < 2 {
            assert_eq!(report.journal_damage.len(), 1, "start {start}");
        }
        let whole_of = |at: usize| Damage {
            chunk: expected[at].0,
            range: Damage::WHOLE,
        };
        let suspects: Vec<Damage> = (start..2).map(whole_of).collect();
        assert_eq!(report.damage, suspects);
        for damage in &suspects {
            assert!(matches!(
                whole(&store, damage.chunk),
                Err(StoreError::Corrupt { .. })
            ));
            let refused = append(
                &store,
                damage.chunk,
                stamp(1, 9),
                RecordKind::NewBytes,
                0,
                b"x",
            );
            assert!(matches!(refused, Err(StoreError::Corrupt { .. })));
        }
        for (id, bytes) in &expected[..start] {
            assert_eq!(whole(&store, *id).unwrap(), *bytes);
        }
        if let Some((id, bytes)) = expected.get(start) {
            write_chunk(&store, *id, spec(1, CHUNK_BYTES as u64, 2), bytes).unwrap();
            store
                .fence(StripeId(5), Epoch(start as u64 + 1), Generation(1))
                .unwrap();
        }
    }
}
