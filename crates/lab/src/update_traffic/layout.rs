//! The places of the experiment's stripes: a topology, and for each stripe number a placement that one of the cluster's
//! own placement planners makes.

use crate::error::LabError;
use gabion_codec::{Code, Family};
use gabion_layout::{Geometry, NodeId, Topology};
use gabion_planner::placement::{Layout, grouped, random, rotate};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// The stripes of an experiment: what a scheme needs to plan an update of any of them.
#[derive(Clone, Debug)]
pub struct Stripes {
    code: Code,
    geometry: Geometry,
    topology: Topology,
    layout: Layout,
    /// The most chunks of a stripe that a rack holds.
    per_rack: usize,
    /// The placement of stripe 0, which is every stripe's in a grouped layout.
    first: Vec<NodeId>,
}

impl Stripes {
    /// Stripes of `code` in `layout` on as many racks.
    ///
    /// # Errors
    /// [`LabError::RacksMissing`], [`LabError::UnevenRacks`] or [`LabError::RacksDiffer`] when the
    /// racks do not suit code and layout; [`LabError::Plan`] when the layout does not suit the code.
    pub fn new(
        code: Code,
        geometry: Geometry,
        layout: Layout,
        racks: Option<u32>,
    ) -> Result<Self, LabError> {
        let n = code.n();
        let mut stripes = match layout {
            Layout::Rotate | Layout::Random { .. } => {
                let (topology, per_rack) = even_racks(n, layout, racks)?;
                Self {
                    code,
                    geometry,
                    topology,
                    layout,
                    per_rack,
                    first: Vec::new(),
                }
            }
            Layout::Grouped(racks_of_grouped) => {
                let (topology, first) = grouped(racks_of_grouped, code.k(), code.m())?;
                Self {
                    code,
                    geometry,
                    topology,
                    layout,
                    per_rack: n,
                    first,
                }
            }
        };
        if let Some(asked) = racks
            && asked != stripes.rack_count()
        {
            return Err(LabError::RacksDiffer {
                layout: layout.to_string(),
                has: stripes.rack_count(),
                asked,
            });
        }
        stripes.first = stripes.placement(0)?;
        Ok(stripes)
    }

    /// The code.
    pub const fn code(&self) -> &Code {
        &self.code
    }

    /// The stripes' shape.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The nodes and their racks.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Racks of the topology.
    pub fn rack_count(&self) -> u32 {
        self.topology.nodes_by_rack().len() as u32
    }

    /// After how many stripes placements come round; none where each stripe has one of its own.
    pub(super) fn class_count(&self) -> Option<u64> {
        match self.layout {
            // Rotation comes round after as many stripes as there are nodes, `n` here.
            Layout::Rotate => Some(self.geometry.n() as u64),
            Layout::Random { .. } => None,
            Layout::Grouped(_) => Some(1),
        }
    }

    /// A number that two stripes share only if they have the same placement.
    pub fn class(&self, stripe: u64) -> u64 {
        self.class_count()
            .map_or(stripe, |classes| stripe % classes)
    }

    /// Whether a plan's cost depends on nothing but how many updated and parity chunks each rack has: every data chunk
    /// of such a code is in every parity chunk.
    pub(super) fn is_symmetric(&self) -> bool {
        let family = self.code.family();
        matches!(family, Family::ReedSolomon { .. } | Family::Cauchy { .. })
    }

    /// Writes the number of each chunk's rack into `racks`, as [`Stripes::placement`] places the stripe.
    pub(super) fn racks(&self, stripe: u64, racks: &mut [u8]) -> Result<(), LabError> {
        if let Layout::Random { seed } = self.layout {
            // All nodes get a chunk, so shuffling their racks is shuffling the nodes.
            for (node, rack) in racks.iter_mut().enumerate() {
                *rack = (node / self.per_rack) as u8;
            }
            racks.shuffle(&mut generator(seed, stripe));
            return Ok(());
        }
        for (rack, node) in racks.iter_mut().zip(self.placement(stripe)?) {
            *rack = self.topology.rack_of(node).map_or(0, |rack| rack.0 as u8);
        }
        Ok(())
    }

    /// Nodes that are in these racks, each once. A stripe on them costs what one costs whose chunks are in the racks.
    pub(super) fn nodes_in(&self, racks: &[u8]) -> Vec<NodeId> {
        let mut left: Vec<_> = self.topology.nodes_by_rack().into_values().collect();
        for nodes in &mut left {
            nodes.reverse();
        }
        let node = |&rack: &u8| left[usize::from(rack)].pop();
        let nodes = racks.iter().map(node);
        nodes
            .map(|node| node.expect("racks have as many nodes as a stripe has chunks there"))
            .collect()
    }

    /// The nodes of a stripe's chunks.
    ///
    /// # Errors
    /// [`LabError::Plan`] when the topology has no room, which [`Stripes::new`] has ruled out.
    pub fn placement(&self, stripe: u64) -> Result<Vec<NodeId>, LabError> {
        let n = self.geometry.n();
        let placement = match self.layout {
            Layout::Rotate => rotate(&self.topology, stripe, n, self.per_rack)?,
            Layout::Random { seed } => {
                let mut rng = generator(seed, stripe);
                random(&self.topology, n, self.per_rack, &mut rng)?
            }
            Layout::Grouped(_) => self.first.clone(),
        };
        Ok(placement)
    }
}

/// The generator of one stripe's placement.
pub(super) fn generator(seed: u64, stripe: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&stripe.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// A topology of `n` nodes in racks of equal size, and that size.
fn even_racks(n: usize, layout: Layout, racks: Option<u32>) -> Result<(Topology, usize), LabError> {
    let Some(racks) = racks else {
        return Err(LabError::RacksMissing {
            layout: layout.to_string(),
            chunks: n,
        });
    };
    if racks == 0 || !(n as u64).is_multiple_of(u64::from(racks)) {
        return Err(LabError::UnevenRacks { chunks: n, racks });
    }
    let per_rack = n as u32 / racks;
    Ok((Topology::uniform(racks, per_rack), per_rack as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripes(code: &str, layout: &str, racks: Option<u32>) -> Result<Stripes, LabError> {
        let code: Code = code.parse().unwrap();
        let geometry = Geometry::new(code.k(), code.m(), code.sub_chunks(), 4096).unwrap();
        Stripes::new(code, geometry, layout.parse()?, racks)
    }

    #[test]
    fn rotation_puts_chunk_j_of_stripe_s_on_node_s_plus_j() {
        let stripes = stripes("rs(6,3)", "rotate", Some(3)).unwrap();
        for stripe in [0, 1, 8, 9, u64::MAX] {
            let placement = stripes.placement(stripe).unwrap();
            for (j, node) in placement.iter().enumerate() {
                assert_eq!(u64::from(node.0), (stripe % 9 + j as u64) % 9);
                let rack = stripes.topology().rack_of(*node).unwrap();
                assert_eq!(rack.0, node.0 / 3);
            }
        }
    }

    #[test]
    fn equal_classes_mean_equal_placements() {
        for layout in ["rotate", "random:3", "3x2+3x1"] {
            let stripes = stripes("rs(6,3)", layout, None)
                .or_else(|_| stripes("rs(6,3)", layout, Some(3)))
                .unwrap();
            let mut by_class = std::collections::BTreeMap::new();
            for stripe in 0..40 {
                let placement = stripes.placement(stripe).unwrap();
                let known = by_class
                    .entry(stripes.class(stripe))
                    .or_insert_with(|| placement.clone());
                assert_eq!(*known, placement, "{layout}, stripe {stripe}");
            }
        }
    }

    #[test]
    fn random_placements_differ_by_seed_and_stripe_alone() {
        let one = stripes("rs(6,3)", "random:1", Some(3)).unwrap();
        let two = stripes("rs(6,3)", "random:2", Some(3)).unwrap();
        assert_eq!(one.placement(5).unwrap(), one.placement(5).unwrap());
        assert_ne!(one.placement(5).unwrap(), one.placement(6).unwrap());
        assert_ne!(one.placement(5).unwrap(), two.placement(5).unwrap());
    }

    fn check_refused(code: &str, layout: &str, racks: Option<u32>, expected: &str) {
        let message = stripes(code, layout, racks).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn what_does_not_fit_is_refused_in_plain_words() {
        check_refused(
            "rs(6,3)",
            "rotate",
            Some(4),
            "9 chunks cannot be spread evenly over 4",
        );
        check_refused("rs(6,3)", "rotate", Some(0), "over 0 racks");
        check_refused(
            "rs(6,3)",
            "random",
            None,
            "needs a number of racks that divides 9",
        );
        check_refused("rs(12,4)", "6x2+2x2", Some(4), "has 8 racks, not 4");
        check_refused("rs(6,3)", "6x2+2x2", None, "has places for 12 data");
        check_refused(
            "rs(6,3)",
            "spiral",
            None,
            "'spiral' is not a layout; use rotate, random, random:SEED",
        );
        check_refused("rs(6,3)", "random:x", Some(3), "the seed 'x'");
    }
}
