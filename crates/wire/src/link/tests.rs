//! Links under a virtual clock.
