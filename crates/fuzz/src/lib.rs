//! Fuzz targets: each decoder of bytes that another process, a disk or a person's file supplies, as a function of
//! bytes.
//!
//! A target panics if the product panics or breaks a rule that the target states. [`TARGETS`] lists them. Two programs
//! run them: `cargo xtask fuzz` with libFuzzer, which follows coverage, and this crate's tests with mutations from a
//! seed. Both limit the memory of one input. docs/proof.md, "Fuzzing", has the table of targets and results.
//!
//! It does not fuzz roles against hostile peers: `cargo xtask sim --hostile` does.

pub mod campaign;
mod corpus;
pub mod memory;
mod metadata;
mod mutation;
mod nbd;
mod plans;
mod samples;
mod script;
mod store;
mod target;
mod traces;
mod wire;

pub use corpus::corpus;
pub use target::Target;

/// All targets.
pub const TARGETS: [Target; 11] = [
    wire::hello::TARGET,
    wire::frames::TARGET,
    wire::messages::TARGET,
    plans::TARGET,
    store::CHUNK_FILES,
    store::JOURNALS,
    store::RESERVES,
    metadata::TARGET,
    nbd::TARGET,
    traces::ROWS,
    traces::COMPRESSED,
];

/// The target of a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
