//! Experiments of the `CodFS` thesis, chapters 3 and 5: throughput by number of nodes, update schemes on
//! synthetic writes and on volumes of MSR Cambridge, and reserved space over the days of a file server.
//!
//! A file has a figure or a table; `*_run` files have the parts that several share.

mod cache_run;
pub(super) mod f51;
pub(super) mod f52;
pub(super) mod f53;
pub(super) mod f54;
pub(super) mod f55;
pub(super) mod f56;
pub(super) mod f57;
mod replay_run;
mod reserve_run;
pub(super) mod t32;
pub(super) mod t51;
mod update_run;
