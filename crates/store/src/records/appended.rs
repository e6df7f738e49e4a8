//! Appended bytes: new bytes of data chunks in a node's log that parity does not include yet.
//!
//! Between two commits a data node keeps new bytes beside its chunk (the append log of CAU, section
//! 3.1), and parity nodes keep copies of other nodes' bytes (interim replicas of CAU, section 3.4;
//! old and new data of PARIX). They are records like others, numbered, settled and dropped alike,
//! but the code does not include them: they are never merged. A commit is an update of the other
//! kinds, made of recalled bytes. Once it stands, the chunks' codeword includes everything appended
//! before it, and the records are removed when the commit's own record is merged.

use crate::error::StoreError;
use crate::index::{Chunk, Stripe};
use crate::journal::entry::UpdateHead;
use crate::records::record::{AppendedPiece, AppendedState, AppendedSummary, RecordKind};
use crate::state::State;
use crate::store::Store;
use gabion_layout::{ByteRange, ChunkId, ChunkIndex, Sequence, StripeId};

/// Selects appended bytes to recall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recalled {
    /// The data chunk.
    pub data: ChunkIndex,
    /// Whether to recall its bytes as of the last commit instead of the newest.
    pub is_original: bool,
    /// The range of its bytes.
    pub range: ByteRange,
}

impl Store {
    /// The store's state of a stripe's append phase; empty if the stripe is not here. It need not
    /// be durable; an earlier [`Store::collect`] ensures that.
    ///
    /// # Errors
    /// [`StoreError::Io`] and [`StoreError::Failed`].
    pub fn appended(&self, stripe: StripeId) -> Result<AppendedState, StoreError> {
        self.shared.check_latch()?;
        let mut state = self.shared.lock();
        let Some(known) = state.find_stripe(stripe)? else {
            return Ok(AppendedState::default());
        };
        let chunks = || known.chunks().map(|(_, chunk)| chunk);
        let covered = chunks().map(|chunk| chunk.covered(known.mark()));
        let covered = covered.max().unwrap_or_default();
        let appended = chunks().flat_map(|chunk| chunk.appended_after(covered));
        let records = appended.map(summary).collect();
        Ok(AppendedState { covered, records })
    }

    /// The stripes with appended records that no known commit includes.
    pub fn appended_stripes(&self) -> Vec<StripeId> {
        let state = self.shared.lock();
        let waits = |(id, held): (StripeId, &Stripe)| {
            let waits = |(_, chunk): (ChunkIndex, &Chunk)| {
                let covered = chunk.covered(held.mark());
                chunk.appended_after(covered).next().is_some()
            };
            held.chunks().any(waits).then_some(id)
        };
        state.index.stripes().filter_map(waits).collect()
    }

    /// Reads appended bytes of a data chunk as of `upto` from the records of this node's `chunk`
    /// into `output`, and overwrites its earlier contents.
    ///
    /// # Errors
    /// [`StoreError::NoSuchChunk`]; [`StoreError::CutPassed`] when the chunk's own bytes include a later
    /// update, and so a later commit; [`StoreError::Malformed`] when not all of the bytes were
    /// appended since the last commit; [`StoreError::Corrupt`] and [`StoreError::Io`].
    pub fn recall(
        &self,
        chunk: ChunkId,
        wanted: Recalled,
        upto: Sequence,
        output: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let gate = self.shared.gate_of(chunk)?;
        let _shared = gate.begin_read();
        let layers = {
            let mut state = self.shared.lock();
            state.header(chunk)?;
            let from = state.covered(chunk, upto);
            if from > upto {
                // The records that the commit covers may be removed.
                let applied = from;
                return Err(StoreError::CutPassed { chunk, applied });
            }
            let is_wanted = |head: &UpdateHead| head.wanted_pieces(wanted).next().is_some();
            state.records(chunk, (from, upto), is_wanted)?
        };
        output.clear();
        output.resize(wanted.range.length as usize, 0);
        let mut found = Vec::new();
        let mut frame = Vec::new();
        let mut layers: Vec<_> = layers.into_values().collect();
        if wanted.is_original {
            // The first record has the bytes that the last commit left.
            layers.reverse();
        }
        for layer in layers {
            let body = layer.body(&mut frame)?;
            for (piece, at) in layer.head.wanted_pieces(wanted) {
                let shared = piece.intersect(wanted.range);
                let Some(shared) = shared else { continue };
                let source = at + (shared.offset - piece.offset) as usize;
                let target = (shared.offset - wanted.range.offset) as usize;
                let length = shared.length as usize;
                output[target..target + length].copy_from_slice(&body[source..source + length]);
                found.push(shared);
            }
        }
        if ByteRange::union(found) == [wanted.range] {
            Ok(())
        } else {
            let reason = "some of these bytes were not appended since the last commit";
            Err(StoreError::Malformed { reason })
        }
    }
}

impl State {
    /// The last update up to `upto` that the code covers, for a chunk.
    fn covered(&self, chunk: ChunkId, upto: Sequence) -> Sequence {
        let entry = self.chunk(chunk);
        entry.map_or(Sequence(0), |entry| entry.covered(upto))
    }
}

impl Chunk {
    /// The last update up to `upto` that the code covers, by this chunk's records. Records in
    /// reserves are not checked: no chunk of a pool with append phases has a reserve.
    fn covered(&self, upto: Sequence) -> Sequence {
        let base = self.known_header().map(|header| header.spec.base);
        let base = base.unwrap_or_default();
        let records = self.records();
        let listed = records.listed.as_ref().map(|listed| listed.newest);
        let last = records.mergeable(upto).last();
        let last = last.map(|record| record.head.stamp.sequence);
        base.max(listed.max(last).unwrap_or_default())
    }

    /// Appended records after an update.
    fn appended_after(&self, sequence: Sequence) -> impl Iterator<Item = &UpdateHead> {
        let heads = self.records().after(sequence).map(|record| &record.head);
        heads.filter(|head| head.kind.is_appended())
    }
}

impl UpdateHead {
    /// The pieces that overlap the recalled range, each with the position of its bytes in the body.
    fn wanted_pieces(&self, wanted: Recalled) -> impl Iterator<Item = (ByteRange, usize)> {
        let mut behind = 0;
        self.pieces
            .iter()
            .enumerate()
            .filter_map(move |(at, piece)| {
                let start = behind;
                behind += piece.range.length as usize;
                let RecordKind::Appended { original_count } = self.kind else {
                    return None;
                };
                let is_it = piece.data == wanted.data
                    && (at < usize::from(original_count)) == wanted.is_original
                    && piece.range.intersect(wanted.range).is_some();
                is_it.then_some((piece.range, start))
            })
    }
}

fn summary(head: &UpdateHead) -> AppendedSummary {
    let original_count = match head.kind {
        RecordKind::Appended { original_count } => usize::from(original_count),
        RecordKind::NewBytes | RecordKind::ParityDelta => 0,
    };
    let pieces = head.pieces.iter().enumerate();
    let pieces = pieces.map(|(at, piece)| AppendedPiece {
        data: piece.data,
        is_original: at < original_count,
        range: piece.range,
    });
    AppendedSummary {
        chunk: head.chunk,
        stamp: head.stamp,
        pieces: pieces.collect(),
    }
}
