//! The racks of stripes' chunks by number, which is all that counts need of a placement. All schemes of a count share
//! one look-up.

use super::layout::Stripes;
use crate::error::LabError;

/// Stripes whose racks are remembered where each stripe is drawn by itself: as many as a slot has room for. Unused
/// slots take no memory.
const SLOTS: usize = 1 << 18;
/// The golden ratio as a fraction of 2^64, which spreads neighbours and multiples over the slots.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Racks by stripe: those of a layout's few classes, or of the stripes asked for lately.
#[derive(Debug)]
pub(super) struct RackTable {
    n: usize,
    /// The number of classes; none if each stripe is a class of its own.
    classes: Option<u64>,
    /// By slot the stripe that it has, plus 1; empty for classes.
    stripes: Vec<u64>,
    /// By class or slot the racks of the chunks.
    racks: Vec<u8>,
}

impl RackTable {
    /// # Errors
    /// Those of [`Stripes::placement`].
    pub(super) fn new(stripes: &Stripes) -> Result<Self, LabError> {
        let n = stripes.geometry().n();
        let mut table = Self {
            n,
            classes: stripes.class_count(),
            stripes: Vec::new(),
            racks: Vec::new(),
        };
        if let Some(classes) = table.classes {
            table.racks = vec![0; n * classes as usize];
            for (class, racks) in (0..).zip(table.racks.chunks_mut(n)) {
                stripes.racks(class, racks)?;
            }
        } else {
            table.stripes = vec![0; SLOTS];
            table.racks = vec![0; n * SLOTS];
        }
        Ok(table)
    }

    /// The number of each chunk's rack.
    pub(super) fn racks(&mut self, stripes: &Stripes, stripe: u64) -> Result<&[u8], LabError> {
        let at = if let Some(classes) = self.classes {
            (stripe % classes) as usize
        } else {
            let slot = (stripe.wrapping_mul(SPREAD) >> (64 - SLOTS.ilog2())) as usize;
            if self.stripes[slot] != stripe + 1 {
                let racks = &mut self.racks[slot * self.n..][..self.n];
                stripes.racks(stripe, racks)?;
                self.stripes[slot] = stripe + 1;
            }
            slot
        };
        Ok(&self.racks[at * self.n..][..self.n])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_codec::Code;
    use gabion_layout::Geometry;

    /// Stripes are asked for again after others took their slots.
    #[test]
    fn racks_are_those_of_the_placements() {
        for (layout, racks) in [
            ("rotate", Some(3)),
            ("random:3", Some(3)),
            ("3x2+3x1", None),
        ] {
            let code: Code = "rs(6,3)".parse().unwrap();
            let geometry = Geometry::new(6, 3, 1, 4096).unwrap();
            let stripes = Stripes::new(code, geometry, layout.parse().unwrap(), racks).unwrap();
            let mut table = RackTable::new(&stripes).unwrap();
            let numbers = (0..40).chain((1 << 50)..(1 << 50) + 40).chain(0..40);
            for stripe in numbers {
                let placement = stripes.placement(stripe).unwrap();
                let rack = |node| stripes.topology().rack_of(node).unwrap().0 as u8;
                let expected: Vec<u8> = placement.into_iter().map(rack).collect();
                assert_eq!(table.racks(&stripes, stripe).unwrap(), expected, "{layout}");
            }
        }
    }
}
