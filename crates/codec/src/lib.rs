//! Erasure codes over GF(2^8) and the kernels that run them.
