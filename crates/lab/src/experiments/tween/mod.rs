//! Experiments of TWEEN (`CodFS` thesis, chapter 6): full-stripe writes on an array of SSDs, above all on
//! modelled ones. `array` has their shared parts, `load` the writes.

mod array;
mod files;
pub(super) mod fullness;
pub(super) mod groups;
mod load;
mod shapes;
pub(super) mod single_device;
pub(super) mod speed;
pub(super) mod volumes;
