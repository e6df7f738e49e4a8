//! Bytes of a stripe, and the update as of which they are.

use crate::place::Place;
use gabion_layout::{Sequence, StripeId};

/// Bytes of one stripe as of one moment.
pub(crate) struct Moment {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stripe: StripeId,
    /// All updates up to this one are in the bytes. Later ones may be included if they changed none
    /// of these bytes.
    pub(crate) sequence: Sequence,
}

impl Moment {
    /// The bytes of a place, as of this version.
    pub(crate) fn of(place: &Place, Version { stripe, sequence }: Version) -> Self {
        Self {
            bytes: place.take().into(),
            stripe,
            sequence,
        }
    }
}

/// The version of a stripe's bytes. A stripe's number is never reused, nor is a committed update's,
/// so equal versions mean equal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    pub(crate) stripe: StripeId,
    /// The stripe's last update.
    pub(crate) sequence: Sequence,
}

impl Version {
    /// That of bytes whose stripe is not known. No stripe has this number.
    pub(crate) const NONE: Self = Self {
        stripe: StripeId(u64::MAX),
        sequence: Sequence(0),
    };
}
