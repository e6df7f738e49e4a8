//! Repair: how lost chunks are rebuilt.

pub(in crate::coordinator) mod backlog;
pub(in crate::coordinator) mod catch_up;
pub(in crate::coordinator) mod rebuild;
pub(in crate::coordinator) mod resume;
pub(in crate::coordinator) mod rounds;
pub(in crate::coordinator) mod schedule;
pub(in crate::coordinator) mod scrub;
pub(in crate::coordinator) mod survey;
pub(in crate::coordinator) mod throttle;
