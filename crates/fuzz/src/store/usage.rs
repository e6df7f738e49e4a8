//! Opens a store with changed files and does with it what a node does: reads, scrubs, settles, writes, and opens it
//! again.

use super::edits::Edited;
use super::image::{CHUNKS, Image, OPTIONS, chunk};
use gabion_layout::{
    ByteRange, ChunkId, ChunkIndex, Epoch, Generation, Keeping, RunId, Sequence, StripeId,
};
use gabion_store::{
    AppendedPiece, ChunkSpec, Cut, Decision, Piece, Recalled, Record, RecordKind, SimDisk, Store,
    StoreError, UpdateStamp,
};
use std::sync::Arc;

/// The most bytes that are read at once; a damaged header may promise more.
const READ_BYTES_MAX: u64 = 64 << 10;

/// Opens the store, uses it in the order that `order` chooses, and opens it again.
///
/// # Panics
/// If the store panics, serves a byte that a chunk never had although one bit is damaged, or cannot be opened again.
pub(super) fn open_and_use(image: &Image, edited: &Edited, order: u8) {
    let disk = image
        .disk_with(&edited.files)
        .expect("the simulated disk works");
    let Ok((store, report)) = opened(&disk) else {
        return;
    };
    assert!(report.damage.len() < 1000);
    if edited.is_one_bit {
        check_served(image, &store);
    }
    let steps: [fn(&Store); 4] = [look, settle, write, reshape];
    for (at, step) in steps.iter().enumerate() {
        if order >> at & 1 == 0 {
            step(&store);
        }
    }
    for step in steps.iter().take(usize::from(order >> 6)) {
        step(&store);
    }
    ignore(store.sync_all());
    if order & 0x10 != 0 {
        ignore(store.log_witnesses());
    }
    let failure = store.failure();
    drop(store);
    let disk = if order & 0x20 != 0 {
        disk.after_crash(u64::from(order))
    } else {
        disk.restart_process();
        disk
    };
    match opened(&disk) {
        Ok((store, _)) => look(&store),
        // A full disk also ends a write that was required.
        Err(error) => assert!(failure.is_some() || is_shortage(&error), "{error}"),
    }
}

fn opened(disk: &SimDisk) -> Result<(Store, gabion_store::RecoveryReport), StoreError> {
    Store::open(Arc::new(disk.clone()), OPTIONS).inspect_err(|error| {
        assert!(!error.to_string().is_empty());
    })
}

fn is_shortage(error: &StoreError) -> bool {
    matches!(error, StoreError::NoSpace { .. })
}

/// An operation may be refused, with a sentence.
fn ignore<T>(outcome: Result<T, StoreError>) -> Option<T> {
    outcome
        .inspect_err(|error| assert!(!error.to_string().is_empty()))
        .ok()
}

/// Reads chunks as of several updates. Every byte is one that the chunk had.
fn check_served(image: &Image, store: &Store) {
    let mut bytes = Vec::new();
    for (id, _) in CHUNKS {
        for sequence in 0..=5 {
            let cut = Cut::Newest(Sequence(sequence));
            let all = ByteRange::new(0, super::image::CHUNK_BYTES);
            if store.read(id, all, cut, &mut bytes).is_ok() {
                for (at, &byte) in (0..).zip(&bytes) {
                    assert!(image.had(id, at, byte), "{id:?} serves damage at byte {at}");
                }
            }
        }
    }
}

/// The chunks of a store, those that the image has first.
fn chunks(store: &Store) -> Vec<ChunkId> {
    let listed = ignore(store.chunks()).unwrap_or_default();
    let mut all: Vec<ChunkId> = CHUNKS.iter().map(|(id, _)| *id).collect();
    all.extend(listed.iter().map(|info| info.chunk).take(8));
    all.dedup();
    all
}

/// Everything that changes nothing.
fn look(store: &Store) {
    let mut bytes = Vec::new();
    ignore(store.scrub_journal());
    ignore(store.reserves());
    ignore(store.held_page(None, 3));
    ignore(store.held_stripes(&[1, 2, 3, 4].map(StripeId)));
    ignore(store.trash());
    for id in chunks(store) {
        let info = ignore(store.chunk_info(id));
        let spec = info.and_then(|info| info.spec);
        let length = spec.map_or(100, |spec| spec.chunk_bytes.min(READ_BYTES_MAX));
        let base = spec.map_or(Sequence(0), |spec| spec.base);
        for cut in [
            Cut::Exactly(base),
            Cut::Exactly(Sequence(2)),
            Cut::Newest(Sequence(5)),
            Cut::Committed {
                at_least: Sequence(0),
            },
        ] {
            ignore(store.read(id, ByteRange::new(0, length), cut, &mut bytes));
            ignore(store.read(id, ByteRange::new(9000, 1000), cut, &mut bytes));
            let _ = store.read_now(id, ByteRange::new(0, 100), cut, &mut bytes);
        }
        ignore(store.scrub(id));
        ignore(store.fragments(id));
        ignore(store.reserve(id));
        ignore(store.run_memory(id, RunId(99)));
        ignore(store.missed_since(id, Sequence(1)));
        ignore(store.appended(id.stripe));
        ignore(store.held(id.stripe));
        drop(store.held_now(id.stripe));
        let piece = AppendedPiece {
            data: ChunkIndex(0),
            is_original: false,
            range: ByteRange::new(400, 300),
        };
        let wanted = recalled(piece);
        ignore(store.recall(id, wanted, Sequence(5), &mut bytes));
    }
}

fn recalled(piece: AppendedPiece) -> Recalled {
    Recalled {
        data: piece.data,
        is_original: piece.is_original,
        range: piece.range,
    }
}

/// Marks, settlements and decisions.
fn settle(store: &Store) {
    for stripe in [1, 2, 3].map(StripeId) {
        ignore(store.collect(stripe));
        ignore(store.commit(stripe, Sequence(3)));
        ignore(store.fence(stripe, Epoch(4), Generation(2)));
        ignore(store.resolve(stripe, Epoch(4), Sequence(4), &[Sequence(5)]));
        ignore(store.pin(stripe, Sequence(4)));
        ignore(store.apply(stripe));
        store.unpin(stripe, Sequence(4));
        ignore(store.adopt_decisions(&[Decision {
            stripe,
            epoch: Epoch(5),
            generation: Generation(2),
            stands: vec![(Epoch(1), Sequence(4))],
        }]));
    }
    ignore(store.log_marks());
    ignore(store.apply_pending(1000));
}

/// New records of all kinds, and new chunks in place of others.
fn write(store: &Store) {
    for id in chunks(store) {
        for (sequence, kind) in [
            (5, RecordKind::NewBytes),
            (6, RecordKind::ParityDelta),
            (7, RecordKind::Appended { original_count: 0 }),
        ] {
            let lsn = ignore(store.append(&Record {
                chunk: id,
                generation: Generation(2),
                stamp: UpdateStamp {
                    epoch: Epoch(4),
                    sequence: Sequence(sequence),
                },
                runs: vec![RunId(sequence)],
                participants: vec![id.index],
                kind,
                pieces: vec![Piece {
                    data: id.index,
                    offset: 50,
                    bytes: &[7; 100],
                }],
            }));
            if let Some(lsn) = lsn {
                ignore(store.sync(lsn));
            }
        }
    }
    let (id, keeping) = CHUNKS[0];
    ignore(replace(store, id, keeping));
    ignore(replace(
        store,
        chunk(6, 2),
        Keeping::Reserve { bytes: 4096 },
    ));
}

fn replace(store: &Store, id: ChunkId, keeping: Keeping) -> Result<(), StoreError> {
    let spec = ChunkSpec {
        generation: Generation(3),
        chunk_bytes: 5000,
        base: Sequence(9),
        keeping,
    };
    let mut writer = store.create(id, spec)?;
    writer.write_at(0, &[3; 5000])?;
    writer.finish()
}

/// Merges, reserves of other sizes, and removals.
fn reshape(store: &Store) {
    for id in chunks(store) {
        ignore(store.plan_reserves(&[(id, 8192)]));
        ignore(store.merge(id));
        ignore(store.shrink(id, 4096, 4096));
        ignore(store.grow(id, 12_288));
    }
    ignore(store.remove(chunk(2, 0)));
    ignore(store.discard(chunk(3, 1), Epoch(9)));
    ignore(store.set_aside(&[chunk(2, 5)]));
    let trash = ignore(store.trash()).unwrap_or_default();
    ignore(store.empty_trash(&trash));
    ignore(store.prove_writable());
    ignore(store.set_identity(&store.identity()));
}
