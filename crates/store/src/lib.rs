//! A node's durable chunks, journal and parity log.
