//! Classes of volumes: where the sizes and places of a stand-in's requests come from, and how near stand-ins of the
//! class come to real volumes that they were not fitted to.

use serde::Serialize;

/// Areas of system disks: the least number with which the beginnings of `hm_0`, `mds_0` and `proj_0` touch as many
/// stripes of 6 MiB as they do in the geometric mean. More change nothing.
pub(super) const SYSTEM_AREA_COUNT: u64 = 64;
/// Areas of data disks: the geometric mean of those with which the measured ones touch as many stripes of 6 MiB as they
/// do: 5 (`wdev_1`), 110 (`rsrch_1`), 3 (`hm_1`) and 21 (`rsrch_2`).
const DATA_AREA_COUNT: u64 = 14;

/// The knowledge of the sizes and places of a volume's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// They are measured on the whole trace.
    Measured,
    /// They are measured on the trace's beginning.
    Piece,
    /// The system disk of its machine: disk 0 by the readme of the traces, for `src1` disk 2.
    SystemDisk,
    /// Any other disk.
    DataDisk,
    /// A disk that `RackCU` (experiment A.2) names for larger updates.
    LargeUpdates,
    /// The file server, whose figures are of another table.
    Server,
}

impl Class {
    /// Returns its description for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Measured => "sizes and places measured on the whole trace",
            Self::Piece => "sizes and places measured on the trace's beginning",
            Self::SystemDisk => "sizes and places as on other system disks",
            Self::DataDisk => "sizes and places as on other data disks",
            Self::LargeUpdates => "a data disk with large updates; their sizes are assumed",
            Self::Server => "sizes and places assumed",
        }
    }

    /// The errors that were found where real volumes of the class were held out; none where no volume could be.
    pub const fn held_out(self) -> Option<HeldOut> {
        match self {
            Self::SystemDisk => Some(HeldOut::SYSTEM_DISK),
            Self::DataDisk => Some(HeldOut::DATA_DISK),
            Self::Measured | Self::Piece | Self::LargeUpdates | Self::Server => None,
        }
    }

    /// The places around which requests of such disks gather.
    pub(super) const fn area_count(self) -> u64 {
        match self {
            Self::SystemDisk => SYSTEM_AREA_COUNT,
            _ => DATA_AREA_COUNT,
        }
    }
}

/// The least and the most of a figure of held-out stand-ins over that of the real volumes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ratios {
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Ratios {
    const fn new(least: f64, most: f64) -> Self {
        Self { least, most }
    }

    /// Whether a ratio is in the range.
    pub fn contains(self, ratio: f64) -> bool {
        (self.least..=self.most).contains(&ratio)
    }
}

/// The errors of a class, over as many writes as of each real volume were at hand.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct HeldOut {
    /// The real volumes.
    pub volumes: &'static [&'static str],
    /// Chunk updates with chunks of [`HeldOut::CHUNKS_BYTES`].
    pub chunk_updates: [Ratios; 3],
    /// The baseline's transfers across racks with these chunks, `rs(6,3)` on 3 racks, rotating.
    pub baseline: [Ratios; 3],
    /// Stripes of `rs(6,3)` with chunks of 1 MiB that 1,000 writes touch.
    pub stripes: Ratios,
}

impl HeldOut {
    /// The chunks that are compared.
    pub const CHUNKS_BYTES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];

    const SYSTEM_DISK: Self = Self {
        volumes: &["hm_0", "mds_0", "proj_0"],
        chunk_updates: [
            Ratios::new(0.8, 1.2),
            Ratios::new(0.9, 1.1),
            Ratios::new(0.98, 1.02),
        ],
        baseline: [
            Ratios::new(0.8, 1.2),
            Ratios::new(0.8, 1.1),
            Ratios::new(0.85, 1.25),
        ],
        stripes: Ratios::new(0.4, 1.4),
    };

    const DATA_DISK: Self = Self {
        volumes: &["wdev_1", "rsrch_1", "hm_1", "rsrch_2"],
        chunk_updates: [
            Ratios::new(0.5, 1.05),
            Ratios::new(0.85, 1.05),
            Ratios::new(0.97, 1.03),
        ],
        baseline: [
            Ratios::new(0.48, 1.1),
            Ratios::new(0.8, 1.1),
            Ratios::new(0.85, 1.3),
        ],
        stripes: Ratios::new(0.18, 2.4),
    };
}
