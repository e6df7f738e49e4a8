//! A record with its location, and overlaying it on a chunk's bytes.

use crate::error::StoreError;
use crate::journal::entry::UpdateHead;
use crate::journal::frame::{self, Check};
use crate::journal::segment::{Located, Position};
use crate::records::record::RecordKind;
use gabion_codec::kernel;
use gabion_layout::ByteRange;

/// A record in the journal that is not yet part of the chunk's own bytes.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) head: UpdateHead,
    pub(crate) position: Position,
}

/// A record to overlay on a chunk's bytes: its head and the location of its bytes.
pub(crate) struct Layer {
    pub(crate) head: UpdateHead,
    pub(crate) located: Located,
}

impl Layer {
    /// Reads and verifies the record's bytes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] with the smallest range around the record's pieces.
    pub(crate) fn body<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], StoreError> {
        self.located.read(buffer)?;
        match frame::decode(buffer, self.located.lsn) {
            Check::Whole(frame) => Ok(frame.body),
            Check::BodyDamaged(_) | Check::Unreadable => Err(StoreError::Corrupt {
                chunk: self.head.chunk,
                range: self.head.hull(),
            }),
        }
    }
}

/// Overlays a record's body on `output`, which holds the bytes `range` of the chunk.
pub(crate) fn lay_over(output: &mut [u8], range: ByteRange, head: &UpdateHead, body: &[u8]) {
    let mut rest = body;
    for (at, piece) in head.pieces.iter().enumerate() {
        let (bytes, behind) = rest.split_at(piece.range.length as usize);
        rest = behind;
        let shared = piece.range.intersect(range);
        let Some(shared) = shared.filter(|_| head.changes_chunk(at)) else {
            continue;
        };
        let cut = |from: u64| {
            let start = (shared.offset - from) as usize;
            start..start + shared.length as usize
        };
        let source = &bytes[cut(piece.range.offset)];
        let target = &mut output[cut(range.offset)];
        match head.kind {
            RecordKind::NewBytes | RecordKind::Appended { .. } => target.copy_from_slice(source),
            RecordKind::ParityDelta => kernel::add_assign(target, source),
        }
    }
}
