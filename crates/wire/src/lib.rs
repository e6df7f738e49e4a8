//! Messages, framing and versioning.
