//! The update protocol's roles, runtime-free.
