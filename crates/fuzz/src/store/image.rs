//! A valid store that has every sort of file and entry, made once by a script of the store's own operations.

use gabion_layout::{ChunkId, ChunkIndex, Epoch, Generation, Keeping, RunId, Sequence, StripeId};
use gabion_store::{
    ChunkSpec, Decision, Disk, Options, Piece, Record, RecordKind, SimDisk, Store, StoreError,
    UpdateStamp,
};
use std::sync::{Arc, OnceLock};

/// Small segments, which the script fills.
pub(super) const OPTIONS: Options = Options {
    segment_bytes: 64 << 10,
    free_bytes: 0,
    segment_count_max: 4,
    log_bytes: 20_000,
};

/// Bytes of each chunk: several blocks, and a shorter last one.
pub(super) const CHUNK_BYTES: u64 = 10_000;

/// Space of the simulated disk.
const CAPACITY_BYTES: u64 = 8 << 20;

/// Chunks that stay, each with the place of its records.
pub(super) const CHUNKS: [(ChunkId, Keeping); 5] = [
    (chunk(1, 0), Keeping::InPlace),
    (chunk(1, 4), Keeping::Reserve { bytes: 16_384 }),
    (chunk(2, 0), Keeping::Log),
    (chunk(2, 5), Keeping::Reserve { bytes: 8192 }),
    (chunk(3, 1), Keeping::AtOnce),
];

pub(super) const fn chunk(stripe: u64, index: u8) -> ChunkId {
    ChunkId {
        stripe: StripeId(stripe),
        index: ChunkIndex(index),
    }
}

/// The store's files.
pub(super) struct Image {
    pub(super) disk: SimDisk,
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// For each byte of each chunk, the values that it ever had.
    versions: Vec<(ChunkId, Vec<Vec<u8>>)>,
}

impl Image {
    /// The image, made at the first call.
    pub(super) fn get() -> &'static Self {
        static IMAGE: OnceLock<Image> = OnceLock::new();
        IMAGE.get_or_init(|| Self::make().expect("the simulated disk works"))
    }

    /// Whether a chunk ever had this byte at this place.
    pub(super) fn had(&self, chunk: ChunkId, at: u64, byte: u8) -> bool {
        let known = self.versions.iter().find(|(id, _)| *id == chunk);
        known.is_some_and(|(_, versions)| {
            versions
                .iter()
                .any(|version| version.get(at as usize) == Some(&byte))
        })
    }

    fn make() -> Result<Self, StoreError> {
        let disk = SimDisk::new(1);
        disk.set_capacity(CAPACITY_BYTES);
        let mut script = Script {
            store: Store::open(Arc::new(disk.clone()), OPTIONS)?.0,
            versions: Vec::new(),
        };
        script.play()?;
        let versions = script.versions;
        drop(script.store);
        let disk = disk.after_crash(1);
        let contents = |path: String| {
            let bytes = disk.contents(&path).expect("the disk has just listed it");
            (path, bytes)
        };
        let files = disk.files().into_iter().map(contents).collect();
        Ok(Self {
            disk,
            files,
            versions,
        })
    }

    /// A disk with the image's files, of which `changed` have other bytes, or none and are gone.
    pub(super) fn disk_with(
        &self,
        changed: &[(usize, Option<Vec<u8>>)],
    ) -> std::io::Result<SimDisk> {
        let disk = self.disk.after_crash(1);
        for (at, bytes) in changed {
            let (path, _) = &self.files[*at];
            let Some(bytes) = bytes else {
                disk.remove(path)?;
                continue;
            };
            let file = disk.open(path)?;
            file.set_length(bytes.len() as u64)?;
            file.write_all_at(bytes, 0)?;
            file.sync()?;
        }
        for directory in ["", "chunks", "journal", "tmp", "trash"] {
            disk.sync_directory(directory)?;
        }
        Ok(disk)
    }
}

/// The chunk and another one, in order.
fn participants(id: ChunkId) -> Vec<ChunkIndex> {
    let mut both = vec![id.index, ChunkIndex(7)];
    both.sort_unstable();
    both
}

/// The operations that make the image.
struct Script {
    store: Store,
    versions: Vec<(ChunkId, Vec<Vec<u8>>)>,
}

impl Script {
    fn play(&mut self) -> Result<(), StoreError> {
        for (id, keeping) in CHUNKS {
            self.write(id, keeping)?;
        }
        self.write(chunk(4, 0), Keeping::InPlace)?;
        self.write(chunk(5, 0), Keeping::InPlace)?;
        for sequence in 1..=4 {
            for (id, _) in CHUNKS {
                self.update(id, sequence)?;
            }
            self.store.sync_all()?;
            if sequence <= 2 {
                for stripe in 1..=3 {
                    self.store.commit(StripeId(stripe), Sequence(sequence))?;
                }
            }
            if sequence == 1 {
                self.store.apply(StripeId(1))?;
                self.store.merge(chunk(2, 0))?;
            }
        }
        self.store.fence(StripeId(3), Epoch(3), Generation(2))?;
        self.store
            .resolve(StripeId(3), Epoch(3), Sequence(3), &[Sequence(4)])?;
        self.store.set_aside(&[chunk(4, 0)])?;
        self.store.remove(chunk(5, 0))?;
        self.store.adopt_decisions(&[Decision {
            stripe: StripeId(2),
            epoch: Epoch(1),
            generation: Generation(1),
            stands: vec![(Epoch(1), Sequence(3))],
        }])?;
        self.appended()?;
        self.store.log_witnesses()?;
        self.store.sync_all()
    }

    fn write(&mut self, id: ChunkId, keeping: Keeping) -> Result<(), StoreError> {
        let bytes: Vec<u8> = (0..CHUNK_BYTES)
            .map(|at| (at * 7 + id.stripe.0) as u8)
            .collect();
        let spec = ChunkSpec {
            generation: Generation(1),
            chunk_bytes: CHUNK_BYTES,
            base: Sequence(0),
            keeping,
        };
        let mut writer = self.store.create(id, spec)?;
        writer.write_at(0, &bytes)?;
        writer.finish()?;
        self.versions.push((id, vec![bytes]));
        Ok(())
    }

    /// An update of two pieces: new bytes for chunks with low indices, deltas for parity chunks.
    fn update(&mut self, id: ChunkId, sequence: u64) -> Result<(), StoreError> {
        let is_parity = id.index.0 >= 4;
        let new = vec![sequence as u8 | 0x80; 700];
        let offsets = [sequence * 1300, 9000 + sequence];
        let piece = |offset| Piece {
            data: if is_parity { ChunkIndex(1) } else { id.index },
            offset,
            bytes: &new,
        };
        self.store.append(&Record {
            chunk: id,
            generation: Generation(1),
            stamp: UpdateStamp {
                epoch: Epoch(1),
                sequence: Sequence(sequence),
            },
            runs: (0..sequence % 3)
                .map(|run| RunId(sequence << 8 | run))
                .collect(),
            participants: participants(id),
            kind: if is_parity {
                RecordKind::ParityDelta
            } else {
                RecordKind::NewBytes
            },
            pieces: offsets.map(piece).to_vec(),
        })?;
        let known = self.versions.iter_mut().find(|(known, _)| *known == id);
        let (_, versions) = known.expect("the chunk was written");
        let mut bytes = versions.last().expect("it has a first version").clone();
        for offset in offsets {
            for (old, new) in bytes[offset as usize..].iter_mut().zip(&new) {
                *old = if is_parity { *old ^ new } else { *new };
            }
        }
        versions.push(bytes);
        Ok(())
    }

    /// Records of appended bytes, which parity does not include.
    fn appended(&mut self) -> Result<(), StoreError> {
        let id = chunk(1, 0);
        let new = [0x55; 300];
        let piece = |offset| Piece {
            data: ChunkIndex(0),
            offset,
            bytes: &new,
        };
        self.store.append(&Record {
            chunk: id,
            generation: Generation(1),
            stamp: UpdateStamp {
                epoch: Epoch(1),
                sequence: Sequence(5),
            },
            runs: vec![RunId(99)],
            participants: participants(id),
            kind: RecordKind::Appended { original_count: 1 },
            pieces: vec![piece(100), piece(400)],
        })?;
        let known = self.versions.iter_mut().find(|(known, _)| *known == id);
        let (_, versions) = known.expect("the chunk was written");
        let mut bytes = versions.last().expect("it has a first version").clone();
        bytes[400..700].fill(0x55);
        versions.push(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_has_every_sort_of_file() {
        let image = Image::get();
        for directory in ["chunks/", "journal/", "trash/", "identity", "format"] {
            let has = |(path, _): &(String, Vec<u8>)| path.starts_with(directory);
            assert!(image.files.iter().any(has), "{directory}");
        }
    }
}
