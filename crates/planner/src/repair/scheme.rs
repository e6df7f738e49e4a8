//! The repair schemes by name. Each defines how one row of a lost chunk is combined at one node.

use super::lost_row::{LostRow, Part};
use super::{conventional, cyclic, ppr, rp};
use crate::{PlanError, Stripe};
use gabion_layout::NodeId;
use gabion_plan::PlanBuilder;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The way in which a lost chunk's bytes are brought together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Scheme {
    /// Every helper sends to the requestor, whose link carries the lost bytes as many times as
    /// there are helpers (`ECPipe` section 2.2).
    Conventional,
    /// The helpers form a chain and combine slice by slice as the bytes pass, so that each link
    /// carries the lost bytes once (`ECPipe` section 3.2).
    Pipeline,
    /// The helpers combine pairwise in rounds (PPR, `ECPipe` section 2.2).
    Ppr,
    /// The slices are dealt out to chains that begin at different helpers, so that the requestor
    /// reads from several nodes at once (`ECPipe` section 4.1).
    Cyclic,
}

impl Scheme {
    /// All schemes with their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("conventional", Self::Conventional),
        ("pipeline", Self::Pipeline),
        ("ppr", Self::Ppr),
        ("cyclic", Self::Cyclic),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(_, scheme)| *scheme == self);
        known.map_or("unnamed", |(name, _)| name)
    }

    /// The names, for a sentence: `conventional, pipeline, ppr or cyclic`.
    pub fn names() -> String {
        let names = Self::NAMES.map(|(name, _)| name);
        let [others @ .., last] = names;
        format!("{} or {last}", others.join(", "))
    }
}

impl FromStr for Scheme {
    type Err = PlanError;

    fn from_str(name: &str) -> Result<Self, PlanError> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|&(_, scheme)| scheme).ok_or_else(|| {
            PlanError::Layout(format!(
                "'{name}' is not a repair scheme; use {}",
                Self::names()
            ))
        })
    }
}

/// Brings a row of a lost chunk together at a node, in one part or several.
pub(super) fn reconstruct(
    b: &mut PlanBuilder,
    stripe: &Stripe<'_>,
    scheme: Scheme,
    row: &LostRow<'_>,
    at: NodeId,
) -> Vec<Part> {
    let value = match scheme {
        Scheme::Conventional => conventional::reconstruct(b, stripe, row, at),
        Scheme::Pipeline => rp::reconstruct(b, stripe, row, at),
        Scheme::Ppr => ppr::reconstruct(b, stripe, row, at),
        Scheme::Cyclic => return cyclic::reconstruct(b, stripe, row, at),
    };
    let in_row = row.in_row;
    vec![Part { in_row, value }]
}
