//! The sans-IO executor of one node's part of a plan.
