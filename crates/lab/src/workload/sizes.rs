//! Request sizes: how often a workload's writes have which length.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// One size and how often it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeShare {
    /// Bytes of the request; a multiple of 512.
    pub length_bytes: u64,
    /// The number of the mix's requests of this size.
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

/// Measured sizes of other volumes are brought to the nearest of these steps, by ratio, and counted in thousandths.
/// Those of `rsrch_1`.
pub(super) const RSRCH_1: &[SizeShare] = &[
    share(4 * KIB, 642),
    share(8 * KIB, 92),
    share(12 * KIB, 72),
    share(16 * KIB, 41),
    share(24 * KIB, 36),
    share(32 * KIB, 28),
    share(64 * KIB, 88),
];

/// The first 1196 writes of `hm_0`.
pub(super) const HM_0: &[SizeShare] = &[
    share(512, 186),
    share(KIB, 37),
    share(2 * KIB, 16),
    share(3 * KIB, 32),
    share(4 * KIB, 515),
    share(8 * KIB, 109),
    share(12 * KIB, 13),
    share(16 * KIB, 49),
    share(24 * KIB, 10),
    share(32 * KIB, 23),
    share(64 * KIB, 10),
];

/// The first 13069 writes of `hm_1`.
pub(super) const HM_1: &[SizeShare] = &[
    share(512, 1),
    share(2 * KIB, 1),
    share(4 * KIB, 32),
    share(8 * KIB, 706),
    share(12 * KIB, 16),
    share(16 * KIB, 63),
    share(24 * KIB, 20),
    share(32 * KIB, 22),
    share(64 * KIB, 105),
    share(128 * KIB, 18),
    share(256 * KIB, 15),
];

/// The first 1000 writes of `mds_0`.
pub(super) const MDS_0: &[SizeShare] = &[
    share(512, 29),
    share(KIB, 88),
    share(2 * KIB, 13),
    share(3 * KIB, 33),
    share(4 * KIB, 561),
    share(8 * KIB, 155),
    share(16 * KIB, 93),
    share(24 * KIB, 28),
];

/// The first 999 writes of `proj_0`.
pub(super) const PROJ_0: &[SizeShare] = &[
    share(512, 35),
    share(2 * KIB, 11),
    share(3 * KIB, 1),
    share(4 * KIB, 585),
    share(8 * KIB, 140),
    share(12 * KIB, 57),
    share(16 * KIB, 169),
    share(24 * KIB, 2),
];

/// The first 1000 writes of `rsrch_2`.
pub(super) const RSRCH_2: &[SizeShare] = &[share(4 * KIB, 937), share(8 * KIB, 63)];

/// System disks that were not measured: the mean of `hm_0`, `mds_0` and `proj_0`.
pub(super) const SYSTEM_DISK: &[SizeShare] = &[
    share(512, 83),
    share(KIB, 42),
    share(2 * KIB, 13),
    share(3 * KIB, 22),
    share(4 * KIB, 554),
    share(8 * KIB, 135),
    share(12 * KIB, 23),
    share(16 * KIB, 104),
    share(24 * KIB, 13),
    share(32 * KIB, 8),
    share(64 * KIB, 3),
];

/// Data disks that were not measured: the mean of `rsrch_1`, most of whose writes have 4 KiB, and `hm_1`, few of whose
/// writes do, with weights of 28 and 8. In 28 of the 36 volumes, more than 60 % of the updates have at most 4 KiB; in
/// the other 8 fewer do (section 3.2.1 of the thesis).
pub(super) const DATA_DISK: &[SizeShare] = &[
    share(4 * KIB, 507),
    share(8 * KIB, 229),
    share(12 * KIB, 60),
    share(16 * KIB, 46),
    share(24 * KIB, 32),
    share(32 * KIB, 27),
    share(64 * KIB, 92),
    share(128 * KIB, 4),
    share(256 * KIB, 3),
];

/// Volumes that `RackCU` (experiment A.2) names for larger updates, of means up to 52.0 KiB. The mean here is 32 KiB,
/// between that and the largest that was measured; the shares are an assumption.
pub(super) const LARGE: &[SizeShare] = &[
    share(4 * KIB, 200),
    share(8 * KIB, 200),
    share(16 * KIB, 150),
    share(32 * KIB, 150),
    share(64 * KIB, 250),
    share(128 * KIB, 50),
];

/// An assumption for a volume whose working set is too small for [`DATA_DISK`]: its first writes fit the working set
/// only if they are shorter.
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
