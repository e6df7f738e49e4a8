//! The client library: put, get, update and degraded read.
