//! The planners: one file a scheme.
