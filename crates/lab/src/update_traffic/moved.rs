//! Bytes that cross racks: what a scheme moves, and the least that it must move.

use gabion_layout::Geometry;

/// Bytes that one scheme moved from one rack to another, by what for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// By updates that bring parity up to date at once, or log what it needs.
    pub update: u128,
    /// By interim replicas; none for schemes that have none.
    pub replica: Option<u128>,
    /// By commits; none for schemes without.
    pub commit: Option<u128>,
    /// By data grouping; none for schemes without.
    pub grouping: Option<u128>,
    /// The least that a scheme with the same commits must move, its replicas included; none for
    /// schemes that are measured against updates at once.
    pub bound: Option<Least>,
}

impl Moved {
    /// Returns the traffic of a scheme that does everything at once.
    pub const fn at_once(update: u128) -> Self {
        Self {
            update,
            replica: None,
            commit: None,
            grouping: None,
            bound: None,
        }
    }

    /// Adds bytes to one of the purposes.
    pub(super) fn add(purpose: &mut Option<u128>, bytes: u64) {
        *purpose = Some(purpose.unwrap_or(0) + u128::from(bytes));
    }
}

/// The least bytes that must cross racks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Least {
    /// The bytes.
    pub bytes: u128,
    /// Whether some of it is by cuts alone, so that perhaps no plan does with so little.
    pub is_loose: bool,
}

impl Least {
    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.is_loose |= other.is_loose;
    }
}

/// Array codes may move some of a chunk's rows alone; a part of a chunk in total counts as one.
pub(super) fn in_chunks(crossing_bytes: u128, geometry: Geometry) -> u64 {
    crossing_bytes.div_ceil(u128::from(geometry.chunk_bytes())) as u64
}
