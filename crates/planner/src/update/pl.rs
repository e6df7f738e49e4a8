//! Parity logging, PL (Stodolsky et al., as in `CodFS` section 2.1.2): data chunks are changed in
//! place, parity deltas are appended to the node's log, elsewhere on its disk than the parity chunk.

use super::Scheme;
use gabion_layout::Keeping;
use gabion_plan::Keepings;

/// The scheme, which has no parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParityLogging;

impl Scheme for ParityLogging {
    fn keepings(&self, _: u64) -> Keepings {
        Keepings {
            data: Keeping::InPlace,
            parity: Keeping::Log,
        }
    }
}
