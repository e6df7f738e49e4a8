//! The exact update as of which a read is made.

use gabion_layout::{Epoch, Sequence};
use gabion_protocol::message::{AttestedCut, ReadCut};

/// The exact update of a read's cut, and the source that guarantees that it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChosenCut {
    /// The primary of this term.
    Vouched(Epoch, Sequence),
    /// A quorum that knows no newer term than the cut's.
    Agreed(AttestedCut),
}

impl ChosenCut {
    /// The term and the cut of a plan's parts. A plan that decodes reads chunks as the code has them. The
    /// exception is a quorum's cut, which decodes only where updates are never appended.
    pub(crate) const fn terms(self, decodes: bool) -> (Epoch, ReadCut) {
        match self {
            Self::Vouched(epoch, mark) if decodes => (epoch, ReadCut::Coded(mark)),
            Self::Vouched(epoch, mark) => (epoch, ReadCut::Exactly(mark)),
            Self::Agreed(cut) => (cut.until, ReadCut::Attested(cut)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_decodes_takes_chunks_as_the_code_has_them() {
        let (epoch, mark) = (Epoch(3), Sequence(7));
        let vouched = ChosenCut::Vouched(epoch, mark);
        assert_eq!(vouched.terms(true), (epoch, ReadCut::Coded(mark)));
        assert_eq!(vouched.terms(false), (epoch, ReadCut::Exactly(mark)));
    }
}
