//! The 36 volumes of the MSR Cambridge traces with their rows of Table 3.2 of the `CodFS` thesis.
//!
//! Sizes, areas and spans are not in that table. They are measured for volumes of which a trace or its beginning was at
//! hand; for the others they follow from the volume's class, which is published, and from the measured volumes of the
//! class. [`Class::held_out`] says how near that comes.

use super::class::Class;
use super::sizes::{
    DATA_DISK, HM_0, HM_1, LARGE, MDS_0, PROJ_0, RSRCH_1, RSRCH_2, SMALL, SYSTEM_DISK, SizeShare,
    TINY, WDEV_1,
};
use super::target::Target;

/// A volume that workloads are calibrated to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Volume {
    /// The volume's name, host and disk number, such as `wdev_1`.
    pub name: &'static str,
    /// The role of its machine.
    pub role: &'static str,
    /// The source of sizes and places of its requests.
    pub class: Class,
    /// Its statistics.
    pub target: Target,
}

const GIB: u64 = 1 << 30;
/// Bytes between the first and the last address of a volume whose addresses are not known here.
const SPAN_BYTES: u64 = 256 * GIB;
/// The week that the traces cover, in units of 100 ns.
const WEEK_TICKS: u64 = 7 * 24 * 3600 * 10_000_000;

const fn row(
    name: &'static str,
    role: &'static str,
    writes: u64,
    working_set_gib: f64,
    updated_working_set_pct: f64,
    update_writes_pct: f64,
) -> Volume {
    Volume {
        name,
        role,
        class: Class::DataDisk,
        target: Target {
            writes,
            working_set_gib,
            updated_working_set_pct,
            update_writes_pct,
            sizes: DATA_DISK,
            area_count: Class::DataDisk.area_count(),
            span_bytes: SPAN_BYTES,
            shift_sectors: 0,
            duration_ticks: WEEK_TICKS,
            files: None,
        },
    }
}

impl Volume {
    const fn of(mut self, class: Class, sizes: &'static [SizeShare]) -> Self {
        self.class = class;
        self.target.sizes = sizes;
        self.target.area_count = class.area_count();
        self
    }

    const fn spread(mut self, area_count: u64, span_bytes: u64) -> Self {
        self.target.area_count = area_count;
        self.target.span_bytes = span_bytes;
        self
    }

    const fn shifted(mut self, sectors: u64) -> Self {
        self.target.shift_sectors = sectors;
        self
    }
}

/// All volumes, by number of writes.
///
/// The table prints less than 0.01 GB for the working sets of `wdev_3` and `wdev_1` and two digits
/// for `rsrch_1`. The values here are measured for the latter two; that of `wdev_3` is what its
/// other columns and writes of 4 KiB lead to. CAU (section 5.2) names `wdev_3` for a locality as high as that of
/// `wdev_1`, and `src2_1` for one as low as that of `rsrch_1`: their areas are those of these volumes.
pub const VOLUMES: [Volume; 36] = [
    row("wdev_3", "Test web server", 671, 0.000_44, 3.33, 82.74)
        .of(Class::DataDisk, TINY)
        .spread(7, 51 * GIB),
    row("wdev_1", "Test web server", 1055, 0.0014, 3.52, 72.71)
        .of(Class::Measured, WDEV_1)
        .spread(7, 51 * GIB),
    row("rsrch_1", "Research projects", 13_738, 0.108, 10.42, 32.27)
        .of(Class::Measured, RSRCH_1)
        .spread(90, 178 * GIB),
    row("src2_1", "Source control", 14_104, 19.2, 4.8, 67.44)
        .of(Class::DataDisk, DATA_DISK)
        .spread(90, 178 * GIB),
    row("web_3", "Web/SQL server", 21_330, 0.59, 15.63, 1.9).of(Class::DataDisk, DATA_DISK),
    row("hm_1", "HW monitoring", 28_415, 0.2, 52.58, 85.61)
        .of(Class::Piece, HM_1)
        .spread(4, 26 * GIB),
    row("web_2", "Web/SQL server", 38_963, 65.96, 0.7, 10.1).of(Class::DataDisk, DATA_DISK),
    row("rsrch_2", "Research projects", 71_223, 0.59, 74.73, 74.27)
        .of(Class::Piece, RSRCH_2)
        .spread(20, 80 * GIB)
        .shifted(7),
    row("web_1", "Web/SQL server", 73_833, 3.71, 3.9, 86.54).of(Class::DataDisk, DATA_DISK),
    row("proj_4", "Project directory", 95_865, 123.34, 2.06, 82.8).of(Class::DataDisk, DATA_DISK),
    row("proj_3", "Project directory", 116_341, 5.83, 13.12, 30.76).of(Class::DataDisk, DATA_DISK),
    row("mds_1", "Media server", 116_676, 84.23, 2.38, 63.07).of(Class::DataDisk, DATA_DISK),
    row("wdev_2", "Test web server", 181_077, 0.08, 99.64, 94.4).of(Class::DataDisk, SMALL),
    row("stg_1", "Web staging", 796_452, 79.69, 3.43, 93.42).of(Class::DataDisk, DATA_DISK),
    row("src2_2", "Source control", 805_955, 20.17, 99.57, 99.68).of(Class::LargeUpdates, LARGE),
    row("wdev_0", "Test web server", 913_732, 0.52, 63.74, 95.33)
        .of(Class::SystemDisk, SYSTEM_DISK),
    row("mds_0", "Media server", 1_067_061, 3.09, 29.27, 95.77)
        .of(Class::Piece, MDS_0)
        .spread(64, 34 * GIB),
    row(
        "rsrch_0",
        "Research projects",
        1_300_030,
        0.36,
        69.53,
        97.41,
    )
    .of(Class::SystemDisk, SYSTEM_DISK),
    row("usr_0", "Home directory", 1_333_406, 2.44, 42.54, 96.08)
        .of(Class::SystemDisk, SYSTEM_DISK),
    row("src2_0", "Source control", 1_381_085, 0.71, 62.2, 95.35)
        .of(Class::SystemDisk, SYSTEM_DISK),
    row("web_0", "Web/SQL server", 1_423_458, 7.26, 37.25, 96.23)
        .of(Class::SystemDisk, SYSTEM_DISK),
    row("src1_2", "Source control", 1_423_694, 1.97, 47.84, 98.59)
        .of(Class::SystemDisk, SYSTEM_DISK),
    row("ts_0", "Terminal server", 1_485_042, 0.91, 49.84, 95.65)
        .of(Class::SystemDisk, SYSTEM_DISK),
    row("stg_0", "Web staging", 1_722_478, 6.31, 21.04, 97.82).of(Class::SystemDisk, SYSTEM_DISK),
    row("usr_2", "Home directory", 1_994_612, 378.59, 9.26, 75.88).of(Class::DataDisk, DATA_DISK),
    row("src1_1", "Source control", 2_170_271, 119.61, 23.22, 88.08).of(Class::DataDisk, DATA_DISK),
    row(
        "proj_1",
        "Project directory",
        2_496_935,
        693.88,
        6.41,
        72.38,
    )
    .of(Class::DataDisk, DATA_DISK),
    row("hm_0", "HW monitoring", 2_575_568, 2.31, 73.16, 93.21)
        .of(Class::Piece, HM_0)
        .spread(64, 14 * GIB),
    row("prn_1", "Print server", 2_769_610, 80.9, 18.55, 73.43).of(Class::DataDisk, DATA_DISK),
    row(
        "proj_2",
        "Project directory",
        3_624_878,
        409.54,
        55.3,
        96.66,
    )
    .of(Class::DataDisk, DATA_DISK),
    row("proj_0", "Project directory", 3_697_143, 3.16, 56.67, 98.89)
        .of(Class::Piece, PROJ_0)
        .spread(64, 16 * GIB),
    row("usr_1", "Home directory", 3_857_714, 655.52, 15.07, 67.41).of(Class::DataDisk, DATA_DISK),
    row("prn_0", "Print server", 4_983_406, 14.8, 55.49, 73.21).of(Class::SystemDisk, SYSTEM_DISK),
    row("prxy_0", "Web proxy", 12_135_444, 0.88, 81.35, 98.74).of(Class::SystemDisk, SYSTEM_DISK),
    row("src1_0", "Source control", 16_302_998, 120.46, 96.65, 99.86)
        .of(Class::LargeUpdates, LARGE),
    row("prxy_1", "Web proxy", 58_224_504, 13.68, 36.03, 98.25).of(Class::DataDisk, DATA_DISK),
];
