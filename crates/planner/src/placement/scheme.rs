//! The register of the placements that users choose by name.

use super::descriptor::{Descriptor, Layout, LayoutDescriptor};
use super::{ear, grouped, random, rotate, rr};
use crate::PlanError;
use gabion_layout::{ReplicaPlacement, any_of};
use std::fmt;
use std::str::FromStr;

/// All placements of replicas, in the order of their numbers in records.
pub const REPLICA_PLACEMENTS: [Descriptor; ReplicaPlacement::NAMES.len()] =
    [ear::DESCRIPTOR, rr::DESCRIPTOR];

const _: () = {
    let mut number = 0;
    while number < REPLICA_PLACEMENTS.len() {
        assert!(
            REPLICA_PLACEMENTS[number].placement as usize == number,
            "each placement is registered at its number"
        );
        number += 1;
    }
};

/// All layouts of the lab's stripes.
pub const LAYOUTS: [LayoutDescriptor; 3] =
    [rotate::DESCRIPTOR, random::DESCRIPTOR, grouped::DESCRIPTOR];

impl FromStr for Layout {
    type Err = PlanError;

    /// Reads a layout in one of the forms of [`LAYOUTS`].
    fn from_str(text: &str) -> Result<Self, PlanError> {
        let read = LAYOUTS.iter().find_map(|known| (known.read)(text));
        read.unwrap_or_else(|| {
            let known = any_of(LAYOUTS.map(|known| known.forms));
            let message = format!("'{text}' is not a layout; use {known}");
            Err(PlanError::Layout(message))
        })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rotate => f.write_str(rotate::NAME),
            Self::Random { seed } => write!(f, "{}:{seed}", random::NAME),
            Self::Grouped(racks) => racks.fmt(f),
        }
    }
}

/// The descriptor of a placement of replicas.
pub const fn descriptor(placement: ReplicaPlacement) -> &'static Descriptor {
    const REGISTER: &[Descriptor] = &REPLICA_PLACEMENTS;
    &REGISTER[placement as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_print_as_they_are_read() {
        for known in &LAYOUTS {
            let layout: Layout = known.example.parse().unwrap();
            assert_eq!(layout.to_string(), known.example);
        }
        assert_eq!("random".parse(), Ok(Layout::Random { seed: 0 }));
        for unknown in ["randomly", "random7", "6x2", "0x2+2x2"] {
            let refused = unknown.parse::<Layout>().unwrap_err().to_string();
            assert!(
                refused.contains("is not a layout; use rotate, "),
                "{refused}"
            );
        }
    }

    #[test]
    fn descriptors_say_what_a_placement_is_in_one_line() {
        let replicas =
            REPLICA_PLACEMENTS.map(|known| (known.placement.name(), known.help, known.paper));
        let layouts = LAYOUTS.map(|known| (known.example, known.help, known.paper));
        for (name, help, paper) in replicas.into_iter().chain(layouts) {
            assert!(!help.is_empty() && help.len() < 80, "{name}");
            assert!(!paper.is_empty(), "{name}");
        }
        for known in &REPLICA_PLACEMENTS {
            assert_eq!(descriptor(known.placement).placement, known.placement);
        }
    }
}
