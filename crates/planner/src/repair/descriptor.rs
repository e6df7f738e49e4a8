//! The parts of every repair scheme: its name, and its [`Descriptor`] for other code.

use super::lost_row::{LostRow, Part};
use crate::Stripe;
use gabion_layout::{NodeId, Topology};
use gabion_plan::PlanBuilder;
use serde::{Deserialize, Serialize};

/// The way in which a lost chunk's bytes are brought together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Scheme {
    /// Every helper sends to the requestor, whose link carries the lost bytes as many times as
    /// there are helpers (`ECPipe` section 2.2).
    Conventional,
    /// The helpers form a chain and combine slice by slice as the bytes pass, so that each link
    /// carries the lost bytes once (`ECPipe` section 3.2).
    #[default]
    Pipeline,
    /// The helpers combine pairwise in rounds (PPR, `ECPipe` section 2.2).
    Ppr,
    /// The slices are dealt out to chains that begin at different helpers, so that the requestor
    /// reads from several nodes at once (`ECPipe` section 4.1).
    Cyclic,
}

/// The way in which the bytes of several lost chunks are brought together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MultiScheme<'a> {
    /// All helpers send to the first requestor, which sends the others' chunks on.
    Dedicated,
    /// One chain through all helpers, the last of which sends to all requestors.
    Pipeline,
    /// Each rack sums up before anything leaves it. The first requestor is dedicated.
    Racks(&'a Topology),
    /// The slices are dealt out to the helpers. Each gets those dealt to it from all others, and sends
    /// what it makes of them to all requestors.
    Dealt,
}

/// A repair scheme as all others know it. Lists of schemes, help and error sentences derive from it.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// The scheme.
    pub scheme: Scheme,
    /// Its name in records and on the command line.
    pub name: &'static str,
    /// Its description in one line.
    pub help: &'static str,
    /// Its source.
    pub paper: &'static str,
    /// Its planner.
    pub(super) planner: Planner,
    /// The ways for several chunks of one stripe, the usual one first; none if it repairs one chunk after another.
    pub(super) together: &'static [MultiScheme<'static>],
    /// Whether all helpers form one chain in the order of the repair's path, so that a path along faster links is
    /// faster (`ECPipe` section 4.3).
    pub is_one_chain: bool,
}

/// The planner of a repair scheme: it brings a row of a lost chunk together at a node, in one part or several.
pub(super) type Planner =
    fn(&mut PlanBuilder, &Stripe<'_>, row: &LostRow<'_>, at: NodeId) -> Vec<Part>;
