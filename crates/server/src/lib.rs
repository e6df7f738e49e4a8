//! Coordinator and node processes.
