//! Members: which nodes there are, how they join, stay, are suspected, fail and leave.

pub(in crate::coordinator) mod departures;
pub(in crate::coordinator) mod fleet;
pub(in crate::coordinator) mod inventory;
pub(in crate::coordinator) mod joins;
pub(in crate::coordinator) mod membership;
pub(in crate::coordinator) mod positions;
pub(in crate::coordinator) mod sessions;
pub(in crate::coordinator) mod space;
pub(in crate::coordinator) mod starts;
pub(in crate::coordinator) mod suspicion;
