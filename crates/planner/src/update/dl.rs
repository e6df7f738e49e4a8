//! Data logging, DL: new bytes are appended to the node's log and stay there, as under full logging; parity chunks are
//! changed in place. The example of CONTRIBUTING.md, "Add a scheme".

use super::descriptor::{Descriptor, Traffic, UpdatePlanner};
use gabion_layout::{Keeping, UpdateScheme};
use gabion_plan::Keepings;

/// The scheme, which has no parameters.
#[derive(Clone, Copy, Debug)]
struct DataLogging;

/// What others know of the scheme.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    scheme: UpdateScheme::Dl,
    help: "new bytes in a log, parity in place",
    paper: "CONTRIBUTING.md",
    planner: &DataLogging,
    traffic: Traffic::EachChunk,
};

impl UpdatePlanner for DataLogging {
    fn keepings(&self, _: u64) -> Keepings {
        Keepings {
            data: Keeping::Log,
            parity: Keeping::InPlace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stays_in_the_log_and_parity_does_not() {
        let keepings = DataLogging.keepings(1 << 20);
        assert_eq!(keepings.data, Keeping::Log);
        assert_eq!(keepings.parity, Keeping::InPlace);
        assert!(!DESCRIPTOR.appends() && !DESCRIPTOR.reserves_space());
    }
}
