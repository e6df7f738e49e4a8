//! Trace readers, calibrated workloads and experiments.
