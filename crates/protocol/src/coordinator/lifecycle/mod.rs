//! The lifecycle of segments: when and how they change their form or their places.

pub(in crate::coordinator) mod conversion;
pub(in crate::coordinator) mod due;
pub(in crate::coordinator) mod forms;
pub(in crate::coordinator) mod grouping;
pub(in crate::coordinator) mod timetable;
