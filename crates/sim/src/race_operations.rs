//! The operations that are raced with each other, and the file that they meet.

use crate::cells::CELL_BYTES;
use gabion_protocol::message::Cause;
use std::ops::Range;

/// Bytes of a chunk of the file's stripes.
pub(crate) const CHUNK_BYTES: u64 = 8192;
/// Data chunks of a stripe.
pub(crate) const CHUNK_COUNT: u64 = 2;
/// Cells of a stripe.
pub(crate) const STRIPE_CELLS: u64 = CHUNK_COUNT * CHUNK_BYTES / CELL_BYTES;
/// Cells of the file, whose third stripe is smaller than the others.
pub(crate) const FILE_CELLS: u64 = 2 * STRIPE_CELLS + STRIPE_CELLS / 4;
/// Cells of an inline file. Its limit has as many bytes as a stripe.
pub(crate) const INLINE_CELLS: u64 = 1000;
/// Cells within the second stripe, which begins before them and ends behind them.
pub const WITHIN: Range<u64> = STRIPE_CELLS + 300..STRIPE_CELLS + 1200;

/// The place of the file's bytes at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Stripes.
    InStripes,
    /// The metadata.
    Inline,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::InStripes, Self::Inline];
}

/// An operation on the file, in cells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A write, of one stripe or several.
    Write(Range<u64>),
    /// The same, each stripe by itself.
    WritePieces(Range<u64>),
    /// Appends this many cells.
    Append(u64),
    /// Gives the file at least this many cells.
    Grow(u64),
    /// Gives the file this many cells.
    Truncate(u64),
    /// Allocates space for cells, and gives the file these cells at least.
    Allocate(Range<u64>),
    /// Makes cells zero.
    Punch(Range<u64>),
    /// A write through the client's cache, and a flush.
    Cached(Range<u64>),
    /// A write by the only writer, which ends every other session.
    Alone(Range<u64>),
    /// A snapshot.
    Snapshot,
    /// Another file of this many cells takes the name.
    Replace(u64),
    /// The file gets another name, and then its own one again.
    Rename,
    /// Another file of this many cells is stored, and takes the name by a rename.
    RenameOver(u64),
    /// Opens the file by its name, and reads it.
    Open,
}

/// The cells of the second stripe.
pub(crate) const fn second_stripe() -> Range<u64> {
    STRIPE_CELLS..2 * STRIPE_CELLS
}

impl Operation {
    /// Those that are raced with each other.
    pub fn all(kind: Kind) -> Vec<Self> {
        [Self::on_bytes(kind), Self::on_names()].concat()
    }

    /// Those that change bytes, or make another file of them.
    pub fn on_bytes(kind: Kind) -> Vec<Self> {
        match kind {
            Kind::InStripes => Self::on_stripes(),
            Kind::Inline => Self::on_inline_bytes(),
        }
    }

    /// Those that change or use the name alone.
    pub fn on_names() -> Vec<Self> {
        vec![Self::Rename, Self::RenameOver(300), Self::Open]
    }

    /// Whether another file has the name then.
    pub(crate) const fn replaces(&self) -> bool {
        matches!(self, Self::Replace(_) | Self::RenameOver(_))
    }

    /// Whether it looks the file up by its name, although its client has it open.
    const fn goes_by_name(&self) -> bool {
        match self {
            Self::Cached(_)
            | Self::Alone(_)
            | Self::Snapshot
            | Self::Replace(_)
            | Self::Rename
            | Self::RenameOver(_)
            | Self::Open => true,
            Self::Write(_)
            | Self::WritePieces(_)
            | Self::Append(_)
            | Self::Grow(_)
            | Self::Allocate(_)
            | Self::Truncate(_)
            | Self::Punch(_) => false,
        }
    }

    /// The causes for which it may fail beside another operation.
    pub(crate) fn accepted_beside(&self, other: &Self) -> &'static [Cause] {
        match other {
            // The name has a file at every instant.
            Self::Replace(_) | Self::RenameOver(_) if *self == Self::Open => &[Cause::Stale],
            Self::Replace(_) | Self::RenameOver(_) => {
                &[Cause::Stale, Cause::NotFound, Cause::Exists]
            }
            // What is open stays so.
            Self::Rename if *self == Self::Open => &[Cause::NotFound],
            Self::Rename if self.goes_by_name() => &[Cause::Stale, Cause::NotFound, Cause::Exists],
            Self::Alone(_) => &[Cause::Stale, Cause::InUse],
            _ => &[],
        }
    }

    /// Some leave the file inline, and others give it stripes.
    fn on_inline_bytes() -> Vec<Self> {
        vec![
            Self::Write(100..400),
            Self::Write(INLINE_CELLS - 100..INLINE_CELLS + 400),
            Self::Write(STRIPE_CELLS - 300..STRIPE_CELLS + 700),
            Self::Write(4 * STRIPE_CELLS..4 * STRIPE_CELLS + 20),
            Self::WritePieces(INLINE_CELLS - 100..STRIPE_CELLS + 100),
            Self::Append(300),
            Self::Append(STRIPE_CELLS),
            Self::Grow(INLINE_CELLS + 500),
            Self::Grow(2 * STRIPE_CELLS),
            Self::Truncate(300),
            Self::Punch(200..INLINE_CELLS),
            Self::Cached(100..300),
            Self::Alone(100..400),
            Self::Snapshot,
            Self::Replace(500),
            Self::Replace(3000),
        ]
    }

    fn on_stripes() -> Vec<Self> {
        vec![
            Self::Write(WITHIN),
            Self::across_borders(),
            Self::Write(FILE_CELLS + 200..FILE_CELLS + 2000),
            Self::pieces(),
            Self::Append(1000),
            Self::Grow(FILE_CELLS + 3000),
            Self::into_the_hole(),
            Self::Punch(STRIPE_CELLS - 200..2 * STRIPE_CELLS),
            Self::Cached(STRIPE_CELLS - 20..STRIPE_CELLS + 40),
            Self::Alone(WITHIN),
            Self::Snapshot,
            Self::Replace(3000),
        ]
    }

    /// A write of all stripes.
    pub const fn across_borders() -> Self {
        Self::Write(STRIPE_CELLS - 400..2 * STRIPE_CELLS + 200)
    }

    /// The same in pieces, and behind the end.
    pub const fn pieces() -> Self {
        Self::WritePieces(STRIPE_CELLS - 100..FILE_CELLS + 1000)
    }

    /// An allocation from the second stripe on, which is there, past the last one, which is short, and the end.
    pub const fn allocation() -> Self {
        Self::Allocate(STRIPE_CELLS..FILE_CELLS + 2 * STRIPE_CELLS)
    }

    /// A hole within a stripe.
    pub const fn hole() -> Self {
        Self::Punch(WITHIN)
    }

    /// A truncation into that hole.
    pub const fn into_the_hole() -> Self {
        Self::Truncate(WITHIN.start + 400)
    }
}
