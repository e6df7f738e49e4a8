//! The metadata state machine over an ordered key-value trait.
