//! The register of the placements that users choose by name.

use super::descriptor::{Descriptor, LayoutDescriptor};
use super::{ear, grouped, random, rotate, rr};
use gabion_layout::ReplicaPlacement;

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

/// The descriptor of a placement of replicas.
pub const fn descriptor(placement: ReplicaPlacement) -> &'static Descriptor {
    const REGISTER: &[Descriptor] = &REPLICA_PLACEMENTS;
    &REGISTER[placement as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

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
