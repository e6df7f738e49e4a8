//! A fuzz target: a function of bytes, its first inputs and its limits.

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line and of its directory below `corpus`.
    pub name: &'static str,
    /// Runs one input. It panics if the product panics or breaks a rule.
    pub run: fn(&[u8]),
    /// Inputs that reach far, made from valid values.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The most bytes of an input.
    pub input_bytes_max: usize,
    /// The most bytes that one input may allocate at a time.
    pub memory_bytes_max: usize,
    /// Inputs of the mutation loop in the tests: about 5 s of work.
    pub test_input_count: u64,
}
