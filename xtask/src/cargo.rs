//! Cargo as a program that this one starts.

use std::process::Command;

/// Cargo, without what it has told this program about its own package. Build scripts that look at these variables would
/// run again, and all that depends on them would be compiled again.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}
