//! One mutant, and short names of the checks that many of them have.

use super::check::Check;

/// One way to break the code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The behaviour of the code then, in a few words with dashes.
    pub(crate) name: &'static str,
    /// Below the workspace's directory.
    pub(crate) file: &'static str,
    /// Occurs once in the file.
    pub(crate) text: &'static str,
    /// Stands there instead.
    pub(crate) replacement: &'static str,
    /// Has to fail then, and passes otherwise.
    pub(crate) check: Check,
}

/// A named test of a package; `target` is as in [`Check::Test`].
pub(super) const fn test(package: &'static str, target: &'static str, name: &'static str) -> Check {
    Check::Test {
        package,
        target,
        name,
    }
}

/// A unit test of a library.
pub(super) const fn unit(package: &'static str, name: &'static str) -> Check {
    test(package, "lib", name)
}

/// A test of roles on a bed in one process.
pub(super) const fn protocol(name: &'static str) -> Check {
    test("gabion-protocol", "integration", name)
}

/// A test of a node's store.
pub(super) const fn store(name: &'static str) -> Check {
    test("gabion-store", "integration", name)
}

/// A unit test of the binary.
pub(super) const fn command(name: &'static str) -> Check {
    test("gabion", "bin", name)
}

/// A test of the binary's processes.
pub(super) const fn process(name: &'static str) -> Check {
    test("gabion", "integration", name)
}
