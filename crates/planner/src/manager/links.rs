//! Rates of links between nodes, as nodes have measured them. The repair manager prefers fast links, and users can see
//! the rates (`ECPipe` section 4.3 takes the weights of links as given; section 6.2 measures them by hand).

use crate::repair::LinkWeights;
use gabion_layout::NodeId;
use std::collections::BTreeMap;

/// The least ratio of the fastest of some links to the slowest at which it matters which of them a path takes: below
/// that, measuring is no more exact.
const UNEVEN: u64 = 2;

/// The last measured rate of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// When, in milliseconds of the coordinator's clock.
    pub at_ms: u64,
}

/// The measured links of a cluster, each direction by itself.
#[derive(Clone, Debug, Default)]
pub struct LinkMatrix {
    links: BTreeMap<(NodeId, NodeId), Measured>,
}

impl LinkMatrix {
    /// Takes in a measurement. It counts as much as all before it together, so that one that was
    /// disturbed is soon forgotten. A rate of 0 is no measurement.
    pub fn note(&mut self, from: NodeId, to: NodeId, bytes_per_s: u64, at_ms: u64) {
        if bytes_per_s == 0 {
            return;
        }
        let known = self.links.get(&(from, to));
        let bytes_per_s =
            known.map_or(bytes_per_s, |known| known.bytes_per_s.midpoint(bytes_per_s));
        let measured = Measured { bytes_per_s, at_ms };
        self.links.insert((from, to), measured);
    }

    /// Forgets the links of a node, which has gone.
    pub fn forget(&mut self, node: NodeId) {
        self.links
            .retain(|&(from, to), _| from != node && to != node);
    }

    /// All links that were measured, by sender and receiver.
    pub fn all(&self) -> impl Iterator<Item = (NodeId, NodeId, Measured)> {
        self.links
            .iter()
            .map(|(&(from, to), &measured)| (from, to, measured))
    }

    /// The time that `bytes` take over each of the links between these nodes, in nanoseconds. None
    /// when one of them was never measured, or when they are so even that it makes no difference.
    #[must_use]
    pub fn weights(&self, nodes: &[NodeId], bytes: u64) -> Option<LinkWeights> {
        let mut weights = LinkWeights::new();
        let (mut slowest, mut fastest) = (u64::MAX, 0);
        for &from in nodes {
            for &to in nodes.iter().filter(|&&to| to != from) {
                let bytes_per_s = self.links.get(&(from, to))?.bytes_per_s;
                slowest = slowest.min(bytes_per_s);
                fastest = fastest.max(bytes_per_s);
                let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s);
                weights.insert((from, to), u64::try_from(ns).unwrap_or(u64::MAX - 1));
            }
        }
        (fastest > slowest.saturating_mul(UNEVEN)).then_some(weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn matrix(slow: u64) -> LinkMatrix {
        let mut matrix = LinkMatrix::default();
        for from in 0..3 {
            for to in (0..3).filter(|&to| to != from) {
                matrix.note(NodeId(from), NodeId(to), 100 * MB, 0);
            }
        }
        matrix.links.insert(
            (NodeId(2), NodeId(0)),
            Measured {
                bytes_per_s: slow,
                at_ms: 1,
            },
        );
        matrix
    }

    #[test]
    fn weights_are_times_where_links_are_uneven_and_all_known() {
        let nodes = [0, 1, 2].map(NodeId);
        let weights = matrix(10 * MB).weights(&nodes, MB).unwrap();
        assert_eq!(weights.len(), 6);
        assert_eq!(weights[&(NodeId(2), NodeId(0))], 100_000_000);
        assert_eq!(weights[&(NodeId(0), NodeId(2))], 10_000_000);
        assert_eq!(matrix(50 * MB).weights(&nodes, MB), None, "they are even");
        let unknown = [0, 1, 2, 3].map(NodeId);
        assert_eq!(matrix(10 * MB).weights(&unknown, MB), None);
    }

    #[test]
    fn measurements_are_smoothed_and_forgotten_with_their_node() {
        let mut matrix = matrix(10 * MB);
        matrix.note(NodeId(2), NodeId(0), 30 * MB, 5);
        matrix.note(NodeId(2), NodeId(0), 0, 9);
        let of_link = matrix.all().find(|&(from, to, _)| (from.0, to.0) == (2, 0));
        let expected = Measured {
            bytes_per_s: 20 * MB,
            at_ms: 5,
        };
        assert_eq!(of_link.unwrap().2, expected);
        matrix.forget(NodeId(0));
        assert_eq!(matrix.all().count(), 2);
    }
}
