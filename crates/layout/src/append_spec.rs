//! Append phases of pools whose parity is updated later: the number of copies of appended bytes
//! until then, the limits of a phase, and whether chunks move afterwards (CAU, sections 3.1, 3.3
//! and 3.4).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// When data grouping moves chunks (CAU, section 3.3). Both rules move the updated chunks of one
/// rack into another. The gain is what the next commit of the same chunks would save, less the cost
/// of moving.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum GroupingRule {
    /// Algorithm 1 as printed: into the rack with most updated chunks, from the rack with the
    /// highest gain, if that is above 0.
    Algorithm1,
    /// The authors' own program: from the rack with fewest updated chunks, if the gain is not below
    /// 0; a lone updated chunk in a rack without parity moves into the rack with most parity chunks,
    /// whatever the gain.
    Authors,
}

impl fmt::Display for GroupingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Algorithm1 => "algorithm-1",
            Self::Authors => "authors",
        })
    }
}

/// An unknown name of a grouping rule.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("there is no rule '{0}'; choose from algorithm-1, authors")]
pub struct GroupingRuleParseError(String);

impl FromStr for GroupingRule {
    type Err = GroupingRuleParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "algorithm-1" | "algorithm1" => Ok(Self::Algorithm1),
            "authors" => Ok(Self::Authors),
            other => Err(GroupingRuleParseError(other.to_owned())),
        }
    }
}

/// The append phases of a pool's stripes. A limit ends them by a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppendSpec {
    /// Interim replicas of each appended byte. PARIX has its own copies and none of these.
    pub replicas: u8,
    /// The most stripes of one primary with appended updates, CAU's `u_s`.
    pub stripes_max: u64,
    /// The most bytes in the append logs of one primary's stripes.
    pub log_bytes_max: u64,
    /// The longest delay of an update's parity, in seconds.
    pub age_max_s: u64,
    /// Whether, and by which rule, chunks that were committed together move into one rack. For CAU
    /// only.
    pub grouping: Option<GroupingRule>,
}

impl AppendSpec {
    /// Whether the limits allow a phase: each must be above zero.
    pub const fn is_valid(&self) -> bool {
        self.stripes_max > 0 && self.log_bytes_max > 0 && self.age_max_s > 0
    }
}

impl Default for AppendSpec {
    /// One replica, as in CAU's section 3.4, and 100 stripes, the largest `u_s` of its section 5.
    fn default() -> Self {
        Self {
            replicas: 1,
            stripes_max: 100,
            log_bytes_max: 64 << 20,
            age_max_s: 3600,
            grouping: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_what_they_are_called() {
        for rule in [GroupingRule::Algorithm1, GroupingRule::Authors] {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        let error = "sometimes".parse::<GroupingRule>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no rule 'sometimes'; choose from algorithm-1, authors"
        );
    }
}
