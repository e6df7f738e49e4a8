//! Records of updates that chunks do not include yet, and what the store has promised about them.

mod append;
pub(crate) mod appended;
pub(crate) mod inventory;
pub(crate) mod listed;
pub(crate) mod lsn;
mod missed;
pub(crate) mod pin;
pub(crate) mod record;
pub(crate) mod runs;
pub(crate) mod settle;
