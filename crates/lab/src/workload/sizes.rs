//! Request sizes: how often a workload's writes have which length.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// One size and how often it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeShare {
    /// Bytes of the request; a multiple of 512.
    pub length_bytes: u64,
    /// How many of the mix's requests have this size.
    pub weight: u32,
}

const fn share(length_bytes: u64, weight: u32) -> SizeShare {
    SizeShare {
        length_bytes,
        weight,
    }
}

const KIB: u64 = 1024;

/// The write sizes of volume `wdev_1`, all 1055 of them.
pub(super) const WDEV_1: &[SizeShare] = &[
    share(512, 1),
    share(1536, 1),
    share(2560, 1),
    share(3584, 1),
    share(4 * KIB, 955),
    share(8 * KIB, 41),
    share(12 * KIB, 38),
    share(16 * KIB, 4),
    share(20 * KIB, 1),
    share(56 * KIB, 2),
    share(60 * KIB, 10),
];

/// The write sizes of volume `rsrch_1`, brought to the nearest of nine and counted in thousandths.
pub(super) const RSRCH_1: &[SizeShare] = &[
    share(4 * KIB, 643),
    share(8 * KIB, 98),
    share(12 * KIB, 68),
    share(16 * KIB, 39),
    share(20 * KIB, 18),
    share(24 * KIB, 25),
    share(32 * KIB, 10),
    share(44 * KIB, 13),
    share(64 * KIB, 86),
];

/// An assumption for volumes whose sizes are not known here: mostly 4 KiB, as section 3.2.1 of the
/// thesis says of 28 volumes in 36, with a tail up to 64 KiB.
pub(super) const TYPICAL: &[SizeShare] = &[
    share(4 * KIB, 70),
    share(8 * KIB, 12),
    share(16 * KIB, 8),
    share(32 * KIB, 5),
    share(64 * KIB, 5),
];

/// The same assumption for volumes whose working sets are too small for [`TYPICAL`]: their many
/// first writes must be shorter.
pub(super) const SMALL: &[SizeShare] = &[
    share(4 * KIB, 88),
    share(8 * KIB, 8),
    share(16 * KIB, 3),
    share(32 * KIB, 1),
];

/// Nothing but 4 KiB, for a volume whose working set is smaller still.
pub(super) const TINY: &[SizeShare] = &[share(4 * KIB, 1)];

/// Sizes of an NFS server's writes, of which updates come out at the mean of Table 3.1, 10.58 KiB: the
/// generator makes long writes updates more often than short ones. The powers of two up to the most
/// that a write of NFS version 3 usually has are an assumption.
pub(super) const NFS: &[SizeShare] = &[
    share(4 * KIB, 345),
    share(8 * KIB, 470),
    share(16 * KIB, 80),
    share(32 * KIB, 105),
];

/// A deck of sizes that is dealt out and shuffled anew, so that the shares are exact after every
/// full deck and not only in the long run.
#[derive(Clone, Debug)]
pub(super) struct Deck {
    /// Invariant: not empty.
    sizes: Vec<u64>,
    /// Invariant: at most the number of sizes; those from here on are dealt.
    left: usize,
}

impl Deck {
    /// A deck with `weight` cards of each size.
    pub(super) fn new(shares: &[SizeShare]) -> Self {
        let cards =
            |share: &SizeShare| std::iter::repeat_n(share.length_bytes, share.weight as usize);
        let sizes: Vec<u64> = shares.iter().flat_map(cards).collect();
        assert!(
            !sizes.is_empty(),
            "targets without sizes are refused before"
        );
        Self {
            left: sizes.len(),
            sizes,
        }
    }

    /// The next size in bytes.
    pub(super) fn deal(&mut self, rng: &mut ChaCha8Rng) -> u64 {
        if self.left == 0 {
            self.left = self.sizes.len();
        }
        let card = rng.random_range(0..self.left as u64) as usize;
        self.left -= 1;
        self.sizes.swap(card, self.left);
        self.sizes[self.left]
    }
}
