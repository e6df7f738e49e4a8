//! The speeds of a testbed's links: one uplink a rack (the gateway of CAU section 5.3), or a matrix
//! of regions (Table 1 of CAU and of `ECPipe`).

use super::fair;
use crate::error::{Context, TestbedError};
use gabion_wire::parse_rate;
use std::fs;
use std::path::{Path, PathBuf};

/// The limits of all links, in bytes a second; 0 means unlimited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Limits {
    /// Every node's link, and every rack's uplink, each direction separately.
    Racks {
        node: u64,
        uplink: Uplink,
        /// Whether each link serves connections in turn instead of in one queue.
        is_fair: bool,
    },
    /// `from[i][j]` is the rate of all nodes of region i together to region j; `from[i][i]` is each
    /// node's own link.
    Regions {
        /// The file of the matrix.
        file: PathBuf,
        from: Vec<Vec<u64>>,
    },
}

/// A rack's uplink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// Bytes a second in each direction; 0 is unlimited.
    pub rate: u64,
    /// Whether only traffic with other racks counts, and not that with clients and the coordinator.
    pub spares_core: bool,
}

impl Limits {
    /// Whether connections are served in turn.
    pub(super) const fn are_fair(&self) -> bool {
        matches!(self, Self::Racks { is_fair: true, .. })
    }

    /// The largest frame that senders may form, so that turns are short; none if it does not
    /// matter.
    pub(super) fn frame_bytes(&self) -> Option<u64> {
        match self {
            Self::Racks {
                node,
                uplink,
                is_fair: true,
            } => {
                let slowest = [*node, uplink.rate]
                    .into_iter()
                    .filter(|&rate| rate > 0)
                    .min();
                slowest.map(fair::frame_bytes)
            }
            _ => None,
        }
    }

    /// Reads a matrix of regions: a line for each sender, rates with units separated by blanks, and
    /// comments that begin with `#`.
    pub(super) fn read_regions(path: &Path) -> Result<Self, TestbedError> {
        let text = fs::read_to_string(path).context(format!("read {}", path.display()))?;
        let file = path.to_owned();
        match parse_regions(&text) {
            Ok(from) => Ok(Self::Regions { file, from }),
            Err(why) => Err(TestbedError::Regions { path: file, why }),
        }
    }

    /// Number of regions of the matrix; none if racks are equal, with any number of them.
    pub(super) fn region_count(&self) -> Option<u32> {
        match self {
            Self::Racks { .. } => None,
            Self::Regions { from, .. } => Some(from.len() as u32),
        }
    }

    /// The limit of the link of each node of a rack.
    pub(super) fn node(&self, rack: u32) -> u64 {
        match self {
            Self::Racks { node, .. } => *node,
            Self::Regions { from, .. } => from[rack as usize][rack as usize],
        }
    }
}

/// Rates by sender and receiver, in bytes a second.
fn parse_regions(text: &str) -> Result<Vec<Vec<u64>>, String> {
    let rows = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let rows = rows.filter(|line| !line.trim().is_empty());
    let row = |line: &str| -> Result<Vec<u64>, String> {
        let rates = line.split_whitespace().map(parse_rate);
        rates.collect::<Result<_, _>>().map_err(|e| e.to_string())
    };
    let from: Vec<Vec<u64>> = rows.map(row).collect::<Result<_, _>>()?;
    let count = from.len();
    if !(1..=64).contains(&count) || from.iter().any(|row| row.len() != count) {
        return Err(format!(
            "a matrix of {count} rows needs {count} rates in each row, such as 100Mbit, one for each region; 1 to 64 \
            regions are possible"
        ));
    }
    Ok(from)
}

/// The text of a matrix of rates, in bytes a second.
pub(super) fn regions_text(rows: &[Vec<u64>]) -> String {
    let row = |row: &Vec<u64>| {
        let rates: Vec<String> = row.iter().map(|&rate| rate_text(rate)).collect();
        rates.join(" ") + "\n"
    };
    rows.iter().map(row).collect()
}

/// A rate as the command line takes it.
pub(super) fn rate_text(bytes_per_s: u64) -> String {
    if bytes_per_s == 0 {
        "unlimited".to_owned()
    } else {
        format!("{}bit", bytes_per_s * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_read_by_sender() {
        let text = "# Mbit, measured\n80Mbit 8Mbit # first\n\n16Mbit unlimited\n";
        let from = vec![vec![10_000_000, 1_000_000], vec![2_000_000, 0]];
        assert_eq!(parse_regions(text).as_ref(), Ok(&from));
        assert_eq!(parse_regions(&regions_text(&from)).as_ref(), Ok(&from));
        let file = PathBuf::new();
        let limits = Limits::Regions { file, from };
        assert_eq!(limits.region_count(), Some(2));
        assert_eq!((limits.node(0), limits.node(1)), (10_000_000, 0));
    }

    #[test]
    fn an_invalid_matrix_is_refused() {
        for text in ["", "# nothing", "1Mbit 2Mbit", "1Mbit\n1Mbit", "1 2\n3 4"] {
            assert!(parse_regions(text).is_err(), "{text}");
        }
    }
}
