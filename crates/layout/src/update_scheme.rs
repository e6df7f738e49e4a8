//! Update schemes: the names shared by a pool's record, the command line and the planners, and the
//! parameters of reserved space.
//!
//! `planner::update` has the behaviour of each scheme, one file a scheme; this file has only the
//! names.

use crate::names::any_of;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// An update scheme (TWEEN thesis, sections 2.1.2 and 4.1; CAU, section 3; `RackCU`, section III).
/// All of them give the same guarantee and run the same protocol; they differ in the path of the
/// bytes from which parity is updated, in where records are kept and in when they are merged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum UpdateScheme {
    /// Full overwrite: data and parity in place at once, through the journal.
    Fo,
    /// Full logging: new bytes and deltas stay in the node's log.
    Fl,
    /// Parity logging: data in place, deltas in the node's log.
    Pl,
    /// Parity logging with reserved space: data in place, deltas behind their parity chunk.
    #[default]
    Plr,
    /// Speculative partial writes: parity nodes log data, and a commit updates parity.
    Parix,
    /// Cross-rack-aware updates: data nodes log, with interim replicas, and a commit updates
    /// parity.
    Cau,
    /// Rack-coordinated updates: deltas go through a collector rack; kept as under PLR.
    Rackcu,
    /// CAU's selective parity updates at once: between two racks the fewer of data and parity deltas
    /// cross; kept as under PLR.
    CauSelective,
}

impl UpdateScheme {
    /// All schemes with their names, in the order of their numbers.
    pub const NAMES: [(&'static str, Self); 8] = [
        ("fo", Self::Fo),
        ("fl", Self::Fl),
        ("pl", Self::Pl),
        ("plr", Self::Plr),
        ("parix", Self::Parix),
        ("cau", Self::Cau),
        ("rackcu", Self::Rackcu),
        ("cau-selective", Self::CauSelective),
    ];

    /// The schemes that the TWEEN thesis compares (section 5.2). All of them send the same bytes.
    pub const BY_DELTA: [Self; 4] = [Self::Fo, Self::Fl, Self::Pl, Self::Plr];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

impl fmt::Display for UpdateScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown name of an update scheme.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("'{0}' is not an update scheme; use {known}", known = any_of(UpdateScheme::NAMES.map(|(name, _)| name)))]
pub struct UpdateSchemeParseError(String);

impl FromStr for UpdateScheme {
    type Err = UpdateSchemeParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map_or_else(
            || Err(UpdateSchemeParseError(text.to_owned())),
            |&(_, scheme)| Ok(scheme),
        )
    }
}

/// The weight of the newest period in a moving average: above 0 and at most 1, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Smoothing(u16);

impl Smoothing {
    /// The weight that the thesis uses (section 5.3.2).
    pub const THESIS: Self = Self(300);

    /// A weight in thousandths, or none when it is 0 or above 1000.
    pub const fn from_thousandths(thousandths: u16) -> Option<Self> {
        match thousandths {
            1..=1000 => Some(Self(thousandths)),
            _ => None,
        }
    }

    /// The weight as a factor.
    pub fn factor(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// Whether the weight is in range: a decoder may have made it from any number.
    pub const fn is_valid(self) -> bool {
        Self::from_thousandths(self.0).is_some()
    }
}

impl fmt::Display for Smoothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.factor())
    }
}

/// An invalid weight.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "'{0}' is not a weight of a moving average; write a number above 0 and up to 1, such as 0.3 \
     (at most three decimals)"
)]
pub struct SmoothingParseError(String);

impl FromStr for Smoothing {
    type Err = SmoothingParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || SmoothingParseError(text.to_owned());
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
        if whole.is_empty() || decimals.len() > 3 || !digits(whole) || !digits(decimals) {
            return Err(wrong());
        }
        let thousandths = format!("{whole}{decimals:0<3}").parse().ok();
        thousandths
            .and_then(Self::from_thousandths)
            .ok_or_else(wrong)
    }
}

/// The space behind each parity chunk of a pool, and its adaptation to the workload (thesis,
/// Algorithm 1). Sizes are whole chunks, so that freed space can hold a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReserveSpec {
    /// Space behind a new parity chunk, in chunks of its stripe's size. With 0, updates of parity
    /// chunks are in place until they become frequent.
    pub initial_chunks: u32,
    /// Period of measuring utility and freeing unused space, in seconds.
    pub period_s: u64,
    /// The weight of the newest period in the utility.
    pub smoothing: Smoothing,
}

impl ReserveSpec {
    /// Most chunks that may be reserved behind one.
    pub const CHUNKS_MAX: u32 = 64;
    /// Longest period: a year.
    pub const PERIOD_MAX_S: u64 = 366 * 24 * 3600;

    /// Most bytes that may be reserved behind a chunk.
    pub const BYTES_MAX: u64 = 256 << 20;

    /// The default for chunks of this size: [`ReserveSpec::default`], or no reserve if a single
    /// chunk exceeds the limit.
    pub fn usual(chunk_bytes: u64) -> Self {
        let usual = Self::default();
        let is_too_large = usual.initial_bytes(chunk_bytes) > Self::BYTES_MAX;
        Self {
            initial_chunks: if is_too_large {
                0
            } else {
                usual.initial_chunks
            },
            ..usual
        }
    }

    /// Whether all numbers are in their ranges, for a pool's chunks of `chunk_bytes`.
    pub const fn is_valid(&self, chunk_bytes: u64) -> bool {
        self.initial_bytes(chunk_bytes) <= Self::BYTES_MAX
            && self.initial_chunks <= Self::CHUNKS_MAX
            && 1 <= self.period_s
            && self.period_s <= Self::PERIOD_MAX_S
            && self.smoothing.is_valid()
    }

    /// Bytes behind a new parity chunk of a stripe whose chunks have `chunk_bytes`.
    pub const fn initial_bytes(&self, chunk_bytes: u64) -> u64 {
        Self::unit_bytes(chunk_bytes).saturating_mul(self.initial_chunks as u64)
    }

    /// The unit of reserves of chunks of `chunk_bytes`: the chunk in whole pages, since a file
    /// system frees nothing smaller.
    pub const fn unit_bytes(chunk_bytes: u64) -> u64 {
        const PAGE_BYTES: u64 = 4096;
        chunk_bytes.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES)
    }
}

impl Default for ReserveSpec {
    /// One chunk, and the thesis's period and weight: twice a day, 0.3 (section 5.3.2). The thesis
    /// begins with eight chunks on disks that are otherwise empty. With one, each parity chunk of a
    /// new pool takes the space of two, and growth adds space where updates are frequent.
    fn default() -> Self {
        Self {
            initial_chunks: 1,
            period_s: 12 * 3600,
            smoothing: Smoothing::THESIS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (name, scheme) in UpdateScheme::NAMES {
            assert_eq!(name.parse(), Ok(scheme));
            assert_eq!(scheme.to_string(), name);
        }
        assert_eq!(UpdateScheme::default().to_string(), "plr");
        let message = "PLR".parse::<UpdateScheme>().unwrap_err().to_string();
        let (first, last) = (
            "'PLR' is not an update scheme; use fo, fl, pl, ",
            UpdateScheme::NAMES.last(),
        );
        let last = format!(" or {}", last.expect("there are schemes").0);
        assert!(
            message.starts_with(first) && message.ends_with(&last),
            "{message}"
        );
    }

    #[test]
    fn weights_are_read_exactly() {
        for (text, thousandths) in [("0.3", 300), ("1", 1000), ("0.001", 1), ("1.0", 1000)] {
            assert_eq!(text.parse(), Ok(Smoothing(thousandths)), "{text}");
        }
        for text in [
            "", "0", "0.0", "1.001", "-0.3", ".3", "0.3333", "0,3", "1e-1", "+1", "99999",
        ] {
            let message = text.parse::<Smoothing>().unwrap_err().to_string();
            assert!(message.contains("such as 0.3"), "{message}");
        }
        assert_eq!(Smoothing::THESIS.to_string(), "0.3");
    }

    #[test]
    fn reserves_have_bounds() {
        let good = ReserveSpec::default();
        assert!(good.is_valid(1 << 20));
        for bad in [
            ReserveSpec {
                initial_chunks: 65,
                ..good
            },
            ReserveSpec {
                period_s: 0,
                ..good
            },
            ReserveSpec {
                period_s: u64::MAX,
                ..good
            },
            ReserveSpec {
                smoothing: Smoothing(0),
                ..good
            },
            ReserveSpec {
                smoothing: Smoothing(1001),
                ..good
            },
        ] {
            assert!(!bad.is_valid(1 << 20), "{bad:?}");
        }
        assert!(good.is_valid(256 << 20) && !good.is_valid(257 << 20));
        assert_eq!(ReserveSpec::usual(512 << 20).initial_chunks, 0);
        assert_eq!(ReserveSpec::usual(4 << 20), good);
        assert_eq!(good.initial_bytes(5000), 8192, "whole pages");
    }
}
