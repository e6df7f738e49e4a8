//! The result of an append: the record's position, which a sync takes.

use gabion_layout::ChunkId;

/// The position at which a record was appended, for [`Store::sync`](crate::Store::sync) to make it durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lsn {
    /// The chunk whose reserve it is in; `None` for the journal.
    holder: Option<ChunkId>,
    /// The position behind the record there.
    behind: u64,
    has_stalled: bool,
}

impl Lsn {
    pub(crate) fn in_journal(behind: u64) -> Self {
        Self {
            holder: None,
            behind,
            has_stalled: false,
        }
    }

    pub(crate) fn in_reserve(chunk: ChunkId, behind: u64) -> Self {
        Self {
            holder: Some(chunk),
            behind,
            has_stalled: false,
        }
    }

    pub(crate) fn stalled(self, has_stalled: bool) -> Self {
        Self {
            has_stalled,
            ..self
        }
    }

    /// The chunk whose reserve it is in, or `None` for the journal, and the position behind it.
    pub(crate) fn place(self) -> (Option<ChunkId>, u64) {
        (self.holder, self.behind)
    }

    /// Whether the append waited for the chunk's full reserve to be merged.
    pub fn has_stalled(&self) -> bool {
        self.has_stalled
    }
}
