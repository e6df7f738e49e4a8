//! Fixed layouts with separate data racks and parity racks, as in `RackCU`'s experiments: `6x2+2x2`
//! is 6 data racks of 2 chunks each, then 2 parity racks of 2 chunks each.

use super::descriptor::{Grouped, Layout, LayoutDescriptor};
use crate::PlanError;
use gabion_layout::{NodeId, NodePlace, RackId, Topology};
use std::fmt;
use std::str::FromStr;

/// The layout as all others know it.
pub(super) const DESCRIPTOR: LayoutDescriptor = LayoutDescriptor {
    forms: "data and parity racks such as 6x2+2x2",
    example: "6x2+2x2",
    read: |text| text.parse().ok().map(|racks| Ok(Layout::Grouped(racks))),
    help: "chunk j of every stripe on node j",
    paper: "RackCU section V-B",
};

impl FromStr for Grouped {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let pair = |part: &str| {
            let (racks, chunks) = part.split_once('x')?;
            let pair = (racks.parse::<u32>().ok()?, chunks.parse::<u32>().ok()?);
            (pair.0 >= 1 && pair.1 >= 1 && pair.0 <= 255 && pair.1 <= 255).then_some(pair)
        };
        text.split_once('+')
            .and_then(|(data, parity)| {
                Some(Self {
                    data: pair(data)?,
                    parity: pair(parity)?,
                })
            })
            .ok_or_else(|| {
                PlanError::Layout(format!(
                    "'{text}' does not name data and parity racks; use a form such as 6x2+2x2"
                ))
            })
    }
}

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((data_racks, data), (parity_racks, parity)) = (self.data, self.parity);
        write!(f, "{data_racks}x{data}+{parity_racks}x{parity}")
    }
}

/// The topology and the one placement of a grouped layout: node `j` holds chunk `j`.
///
/// # Errors
/// [`PlanError::Layout`] when the layout does not have `k` places for data and `m` for parity.
///
/// # Panics
/// Never: the ids are distinct by construction.
pub fn grouped(layout: Grouped, k: usize, m: usize) -> Result<(Topology, Vec<NodeId>), PlanError> {
    let places = |(racks, chunks): (u32, u32)| racks as usize * chunks as usize;
    if places(layout.data) != k || places(layout.parity) != m {
        return Err(PlanError::Layout(format!(
            "layout {layout} has places for {} data and {} parity chunks, but the code has \
             {k} and {m}",
            places(layout.data),
            places(layout.parity)
        )));
    }
    let nodes = (0..(k + m) as u32).map(|j| {
        let rack = match j.checked_sub(k as u32) {
            None => j / layout.data.1,
            Some(parity) => layout.data.0 + parity / layout.parity.1,
        };
        NodePlace {
            node: NodeId(j),
            rack: RackId(rack),
        }
    });
    let topology = Topology::new(nodes).expect("ids 0..n are distinct");
    Ok((topology, (0..(k + m) as u32).map(NodeId).collect()))
}
