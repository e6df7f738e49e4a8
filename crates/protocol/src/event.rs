//! Events for a coordinator's log: changes of nodes, disks and repairs.

use gabion_layout::{NodeId, StripeId};
use gabion_planner::placement::Space;
use std::fmt;

/// An event that concerns operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A node has joined, for the first time or again.
    Joined(NodeId),
    /// A node has joined with an old directory: each of its chunks counts as stale from its last update
    /// there.
    WentBack(NodeId),
    /// A joining node has this many unknown chunks, and waits for the operator's permission.
    JoinHeld(NodeId, u64),
    /// The coordinator refuses to let a node join again: its sentence. In the node's own log.
    JoinRefused(NodeId, String),
    /// A node is silent for longer than its lease.
    Suspect(NodeId),
    /// Most nodes cannot reach a node: it is not a member until they can.
    Evicted(NodeId),
    /// The second node has not reached the first one for long: the first is not a member until it can.
    EvictedForLink(NodeId, NodeId),
    /// Other nodes cannot reach a node, which stays a member because the cluster cannot spare it.
    NotSpared(NodeId),
    /// A node has found chunks of its own damaged: they are repaired.
    Damaged(NodeId, u64),
    /// A node cannot read this many chunks now that it has found damaged: they count until it can.
    DamageInDoubt(NodeId, u64),
    /// A node is declared failed: its chunks count as lost.
    Failed(NodeId),
    /// A failed node has not returned in time: its chunks are repaired elsewhere.
    Abandoned(NodeId),
    /// A node has been drained.
    Drained(NodeId),
    /// A node's disk hangs: the node is not a member until an operation on the disk completes.
    DiskHangs(NodeId),
    /// A node's disk has become full.
    DiskFull(NodeId, Space),
    /// A node's disk is no longer full.
    DiskHasRoom(NodeId, Space),
    /// The repair of a stripe begins.
    RepairBegan(StripeId),
    /// The repair of a stripe has ended; the rest may have to wait.
    RepairEnded(StripeId),
    /// The repair of a stripe has failed and will be retried.
    RepairFailed(StripeId, String),
    /// Work on the metadata waits, and none has ended for some seconds.
    MetadataHang,
    /// Work on the metadata ends again.
    MetadataAnswer,
    /// A replicated segment is encoded: this stripe is new.
    Encoded(StripeId),
    /// An encoded segment is replicated again: this stripe is the first of its blocks.
    Promoted(StripeId),
}

impl Event {
    /// The name of its kind, in metrics and in the event log.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Joined(_) => "joined",
            Self::WentBack(_) => "went_back",
            Self::JoinHeld(..) => "join_held",
            Self::JoinRefused(..) => "join_refused",
            Self::Suspect(_) => "suspect",
            Self::Evicted(_) => "evicted",
            Self::EvictedForLink(..) => "evicted_for_link",
            Self::NotSpared(_) => "not_spared",
            Self::Damaged(..) => "damaged",
            Self::DamageInDoubt(..) => "damage_in_doubt",
            Self::Failed(_) => "failed",
            Self::Abandoned(_) => "abandoned",
            Self::Drained(_) => "drained",
            Self::DiskHangs(_) => "disk_hangs",
            Self::DiskFull(..) => "disk_full",
            Self::DiskHasRoom(..) => "disk_has_room",
            Self::MetadataHang => "metadata_hang",
            Self::MetadataAnswer => "metadata_answer",
            Self::RepairBegan(_) => "repair_began",
            Self::RepairEnded(_) => "repair_ended",
            Self::RepairFailed(..) => "repair_failed",
            Self::Encoded(_) => "encoded",
            Self::Promoted(_) => "promoted",
        }
    }

    /// Whether the event reduces redundancy or free space.
    #[must_use]
    pub const fn is_warning(&self) -> bool {
        matches!(
            self,
            Self::Suspect(_)
                | Self::WentBack(_)
                | Self::JoinHeld(..)
                | Self::JoinRefused(..)
                | Self::Evicted(_)
                | Self::EvictedForLink(..)
                | Self::NotSpared(_)
                | Self::Damaged(..)
                | Self::DamageInDoubt(..)
                | Self::Failed(_)
                | Self::Abandoned(_)
                | Self::DiskHangs(_)
                | Self::DiskFull(..)
                | Self::MetadataHang
                | Self::RepairFailed(..)
        )
    }

    /// The node of the event, if it concerns one.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        match self {
            Self::Joined(node)
            | Self::WentBack(node)
            | Self::JoinHeld(node, _)
            | Self::JoinRefused(node, _)
            | Self::Suspect(node)
            | Self::Evicted(node)
            | Self::EvictedForLink(node, _)
            | Self::NotSpared(node)
            | Self::Damaged(node, _)
            | Self::DamageInDoubt(node, _)
            | Self::Failed(node)
            | Self::Abandoned(node)
            | Self::Drained(node)
            | Self::DiskHangs(node)
            | Self::DiskFull(node, _)
            | Self::DiskHasRoom(node, _) => Some(*node),
            Self::MetadataHang
            | Self::MetadataAnswer
            | Self::RepairBegan(_)
            | Self::RepairEnded(_)
            | Self::RepairFailed(..)
            | Self::Encoded(_)
            | Self::Promoted(_) => None,
        }
    }

    /// The stripe of the event, if it concerns one.
    #[must_use]
    pub const fn stripe(&self) -> Option<StripeId> {
        match self {
            Self::RepairBegan(stripe)
            | Self::RepairEnded(stripe)
            | Self::RepairFailed(stripe, _)
            | Self::Encoded(stripe)
            | Self::Promoted(stripe) => Some(*stripe),
            _ => None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined(node) => write!(f, "{node} has joined"),
            Self::WentBack(node) => write!(
                f,
                "{node} went back in time: its chunks count as stale after the updates that they show"
            ),
            Self::JoinHeld(node, count) => write!(
                f,
                "{node} has {count} unknown chunks and waits to join; to let it set them aside, run 'gabion node \
                accept {}'",
                node.0
            ),
            Self::JoinRefused(node, why) => write!(f, "{node} may not join again: {why}"),
            Self::Suspect(node) => write!(f, "{node} is suspect: its lease has expired"),
            Self::Evicted(node) => write!(f, "{node} is evicted: others cannot reach it"),
            Self::EvictedForLink(node, other) => write!(
                f,
                "{node} is evicted until {other} can reach it: updates of stripes with chunks on both waited"
            ),
            Self::Damaged(node, count) => write!(
                f,
                "{node} has found {count} damaged chunks of its own: they are repaired"
            ),
            Self::NotSpared(node) => {
                write!(f, "others cannot reach {node}, which the cluster needs")
            }
            Self::DamageInDoubt(node, n) => {
                write!(f, "{node} cannot read {n} damaged chunks again")
            }
            Self::Failed(node) => write!(f, "{node} has failed: its chunks count as lost"),
            Self::Abandoned(node) => {
                write!(
                    f,
                    "{node} has not returned in time: its chunks are repaired elsewhere"
                )
            }
            Self::Drained(node) => write!(f, "{node} is drained and may be removed"),
            Self::DiskHangs(node) => write!(
                f,
                "the disk of {node} hangs; the node does not serve until a disk operation completes"
            ),
            Self::DiskFull(node, space) => write!(
                f,
                "the disk of {node} is full: {} % of it is used or reserved",
                space.used_percent()
            ),
            Self::DiskHasRoom(node, space) => write!(
                f,
                "the disk of {node} has room again: {} % of it is used",
                space.used_percent()
            ),
            Self::MetadataHang => write!(
                f,
                "the metadata do not answer: no change of files, members or terms is made until they do"
            ),
            Self::MetadataAnswer => write!(f, "the metadata answer again"),
            Self::RepairBegan(stripe) => write!(f, "the repair of {stripe} begins"),
            Self::RepairEnded(stripe) => write!(f, "the repair of {stripe} has ended"),
            Self::Encoded(stripe) => write!(f, "a replicated segment is encoded as {stripe}"),
            Self::Promoted(stripe) => write!(f, "a segment is replicated again, from {stripe} on"),
            Self::RepairFailed(stripe, why) => {
                write!(
                    f,
                    "the repair of {stripe} has failed and will be retried: {why}"
                )
            }
        }
    }
}
