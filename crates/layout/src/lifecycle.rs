//! When a pool's replicated blocks become stripes, and how their replicas are placed until then
//! (EAR, section II): the names shared by a pool's record and the command line.
//!
//! `planner::placement` has the behaviour of each placement of replicas, one file a placement; `planner` also encodes.

use crate::ids::PoolId;
use crate::names::any_of;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Default time without writes after which a file is idle, in seconds.
const IDLE_S: u64 = 600;

/// The lifecycle of a pool whose blocks are replicated at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lifecycle {
    /// The pool of the stripes that the blocks become.
    pub encoded: PoolId,
    /// When they are encoded.
    pub after: EncodeAfter,
    /// The placement of replicas.
    pub placement: ReplicaPlacement,
}

/// When replicated blocks are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EncodeAfter {
    /// At this age in seconds, since the file was stored or promoted.
    Age(u64),
    /// After this many seconds without writes to the blocks of a stripe.
    Idle(u64),
    /// As soon as there are blocks for a whole stripe. The remainder at a file's end stays
    /// replicated, and so does a promoted file.
    Full,
    /// On a user's request.
    Asked,
}

/// The placement of the replicas of blocks that are to be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ReplicaPlacement {
    /// Encoding-aware: the blocks of a stripe have a core rack, and no block moves when they are
    /// encoded.
    #[default]
    Ear,
    /// Random replication, as in HDFS.
    Rr,
}

impl ReplicaPlacement {
    /// All placements with their names, in the order of their numbers.
    pub const NAMES: [(&'static str, Self); 2] = [("ear", Self::Ear), ("rr", Self::Rr)];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// An invalid time to encode or placement of replicas.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LifecycleParseError {
    /// An invalid time to encode.
    #[error(
        "'{0}' is not a time to encode; use an age such as 1h, 'idle', 'idle:30m', 'full' or 'asked'"
    )]
    After(String),
    /// An invalid placement.
    #[error("'{0}' is not a replica placement; use {known}", known = any_of(ReplicaPlacement::NAMES.map(|(name, _)| name)))]
    Placement(String),
}

impl FromStr for EncodeAfter {
    type Err = LifecycleParseError;

    /// Reads `1h`, `idle`, `idle:30s`, `full` or `asked`.
    ///
    /// ```
    /// use gabion_layout::EncodeAfter;
    ///
    /// assert_eq!("90m".parse(), Ok(EncodeAfter::Age(5400)));
    /// assert_eq!("idle:30s".parse(), Ok(EncodeAfter::Idle(30)));
    /// assert_eq!("full".parse(), Ok(EncodeAfter::Full));
    /// assert!("soon".parse::<EncodeAfter>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || LifecycleParseError::After(text.to_owned());
        match text {
            "full" => return Ok(Self::Full),
            "asked" => return Ok(Self::Asked),
            "idle" => return Ok(Self::Idle(IDLE_S)),
            _ => {}
        }
        let (time, after): (&str, fn(u64) -> Self) = match text.strip_prefix("idle:") {
            Some(time) => (time, Self::Idle),
            None => (text, Self::Age),
        };
        parse_seconds(time).map(after).ok_or_else(wrong)
    }
}

/// Units of durations, in seconds.
const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];

/// A number of seconds in the largest unit that divides it: `45s`, `30m`, `12h` or `7d`.
///
/// ```
/// assert_eq!(gabion_layout::duration(5400), "90m");
/// ```
pub fn duration(seconds: u64) -> String {
    let divides = |&&(_, unit): &&(char, u64)| seconds > 0 && seconds.is_multiple_of(unit);
    let (name, unit) = UNITS.iter().rev().find(divides).unwrap_or(&UNITS[0]);
    format!("{}{name}", seconds / unit)
}

/// A duration such as `45s`, `30m`, `12h` or `7d`.
fn parse_seconds(text: &str) -> Option<u64> {
    let mut units = UNITS.iter();
    let (digits, unit) =
        units.find_map(|&(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))?;
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

impl fmt::Display for EncodeAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Age(seconds) => write!(f, "{}", duration(*seconds)),
            Self::Idle(seconds) => write!(f, "idle:{}", duration(*seconds)),
            Self::Full => f.write_str("full"),
            Self::Asked => f.write_str("asked"),
        }
    }
}

impl FromStr for ReplicaPlacement {
    type Err = LifecycleParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map_or_else(
            || Err(LifecycleParseError::Placement(text.to_owned())),
            |&(_, placement)| Ok(placement),
        )
    }
}

impl fmt::Display for ReplicaPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_values_parse_back() {
        for after in [
            EncodeAfter::Age(3600),
            EncodeAfter::Idle(45),
            EncodeAfter::Full,
            EncodeAfter::Asked,
        ] {
            assert_eq!(after.to_string().parse(), Ok(after));
        }
        for (name, placement) in ReplicaPlacement::NAMES {
            assert_eq!(placement.to_string(), name);
            assert_eq!(name.parse(), Ok(placement));
        }
        let unknown = "EAR".parse::<ReplicaPlacement>().unwrap_err().to_string();
        assert!(
            unknown.starts_with("'EAR' is not a replica placement; use ear"),
            "{unknown}"
        );
        for wrong in ["", "h", "1x", "idle:", "99999999999999999999s", "-1s"] {
            assert!(wrong.parse::<EncodeAfter>().is_err(), "{wrong}");
        }
    }
}
