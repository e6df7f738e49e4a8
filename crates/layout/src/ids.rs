//! Newtypes for ids and counters, so that they cannot be confused.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $label:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A storage node. [`NodeId::CLIENT`] stands for the initiator of a plan and is in no rack.
    NodeId(u32), "node "
);
id!(
    /// A rack: the set of nodes that share one uplink and fail together.
    RackId(u32), "rack "
);
id!(
    /// A pool: files that share a code, a chunk size and a guarantee.
    PoolId(u32), "pool "
);
id!(
    /// A stripe, unique in the cluster and never reused.
    StripeId(u64), "stripe "
);
id!(
    /// Position of a chunk in its stripe: `0..k` are data chunks, `k..n` parity chunks.
    ChunkIndex(u8), "chunk "
);
/// The highest number of a [`Generation`], an [`Epoch`] or a [`Sequence`] that is read from a message or a disk. A
/// cluster counts from 0 and never gets there, so the numbers after it do not overflow.
pub const COUNT_MAX: u64 = 1 << 62;

macro_rules! count {
    ($(#[$doc:meta])* $name:ident, $label:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
        )]
        #[serde(try_from = "u64")]
        pub struct $name(pub u64);

        impl TryFrom<u64> for $name {
            type Error = CountError;

            fn try_from(number: u64) -> Result<Self, CountError> {
                if number > COUNT_MAX {
                    return Err(CountError(number));
                }
                Ok(Self(number))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, "{}"), self.0)
            }
        }
    };
}

/// A number above [`COUNT_MAX`] is not one of a generation, an epoch or a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} exceeds the limit of {COUNT_MAX}")]
pub struct CountError(u64);

count!(
    /// Number of layout changes of a stripe. Nodes refuse requests of a stale generation.
    Generation, "generation "
);
count!(
    /// A lease term of a stripe: raised each time a stripe gets a new primary.
    Epoch, "epoch "
);
count!(
    /// Number of an update within its stripe. It grows across epochs and is never reused, so a
    /// sequence alone orders a stripe's updates. 0 means "before the first update".
    Sequence, "update "
);

id!(
    /// One run of one plan. Its initiator draws it at random: among the runs that a node remembers
    /// of a chunk, at most a few 100,000, two are equal with a probability below 2^-28, and only an
    /// equal one of the same chunk could be confused with another.
    RunId(u64), "run "
);

/// Identifies a cluster for its whole life, so that a process never joins a foreign one by mistake.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One start of a node or of a coordinator. Two starts of copies of one directory have the same
/// number and different nonces.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Start {
    /// Higher than that of every earlier start from the same directory.
    pub number: u64,
    /// Drawn at random at the start.
    pub nonce: u64,
}

impl NodeId {
    /// The initiator of a plan: a client that holds new bytes or wants to receive some. It is in no
    /// rack, so its traffic counts as client traffic, not as cross-rack traffic.
    pub const CLIENT: Self = Self(u32::MAX);
}

impl ChunkIndex {
    /// The index as a `usize`, for slices and matrices.
    pub const fn at(self) -> usize {
        self.0 as usize
    }

    /// The chunk index of position `at` in a stripe.
    ///
    /// # Panics
    /// If `at` is 255 or more: a stripe has at most 255 chunks.
    pub fn new(at: usize) -> Self {
        assert!(
            at < 255,
            "a stripe has at most 255 chunks, so {at} is not a chunk index"
        );
        Self(at as u8)
    }
}

impl Epoch {
    /// No lease has a later term.
    pub const LAST: Self = Self(COUNT_MAX);
}

impl Sequence {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One chunk of one stripe. The stripe's record gives its node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ChunkId {
    /// The stripe.
    pub stripe: StripeId,
    /// The position in the stripe.
    pub index: ChunkIndex,
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.index, self.stripe)
    }
}
