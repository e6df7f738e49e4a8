//! The exact update as of which a read is made.

use gabion_layout::{Epoch, Sequence};
use gabion_protocol::message::ReadCut;

/// The exact update of a read's cut, and the source that guarantees that it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChosenCut {
    /// The primary of this term.
    Vouched(Epoch, Sequence),
    /// A quorum that knows no newer term than this.
    Agreed(Epoch, Sequence),
}

impl ChosenCut {
    /// The term and the cut of a plan's parts.
    pub(crate) const fn terms(self) -> (Epoch, ReadCut) {
        match self {
            Self::Vouched(epoch, mark) => (epoch, ReadCut::Exactly(mark)),
            Self::Agreed(epoch, mark) => (epoch, ReadCut::Attested(epoch, mark)),
        }
    }
}
