//! Progress reports of long work in this crate. The crate prints nothing; its callers do.

use gabion_client::Progress;

/// The unit of the numbers of a [`Progress`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Items.
    Items,
    /// Nothing: the end of the step is not known.
    Unknown,
}

/// Begins a step of this name; its progress ends when it is dropped.
pub type Bars = fn(&str, Unit) -> Box<dyn Progress>;
