//! Plans: steps, symbolic checker, cost and rendering.
