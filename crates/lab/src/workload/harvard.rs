//! A file server's 41 days, after Table 3.1 of the `CodFS` thesis: the NFS traces DEAS03 of Harvard.
//!
//! The table gives writes, working set, both shares, files and the mean size of an update. All files
//! lie on one address space, so that an updated file is an extent of the working set with nothing
//! next to it. Values that the table does not have are assumed: updated files of one size, other files of
//! about one size, each written or read once from its beginning to its end, and evenly spaced times.

use super::class::Class;
use super::files::Files;
use super::sizes::NFS;
use super::target::Target;
use super::volumes::Volume;

/// From 29 January to 10 March 2003, in units of 100 ns.
const DURATION_TICKS: u64 = 41 * 24 * 3600 * 10_000_000;
/// Files with at least one request.
const ACCESSED: u64 = 2_039_724;

/// The file server's row.
pub const HARVARD: Volume = Volume {
    name: "harvard",
    role: "NFS server for email, research and development",
    class: Class::Server,
    target: Target {
        writes: 172_702_071,
        working_set_gib: 174.73,
        updated_working_set_pct: 68.39,
        update_writes_pct: 91.56,
        sizes: NFS,
        area_count: 16,
        span_bytes: 256 << 30,
        shift_sectors: 0,
        duration_ticks: DURATION_TICKS,
        files: Some(Files {
            accessed: ACCESSED,
            // The table's 12.10 %.
            updated: ACCESSED * 1210 / 10_000,
        }),
    },
};
