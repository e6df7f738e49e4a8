//! Mutants of certificates, and of the logs in the coordinator's directory.

use super::{Mutant, unit};

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-certificate-that-is-not-valid-yet-is-fresh",
        file: "crates/wire/src/trust/credentials.rs",
        text: "now_s < self.from_s || now_s - self.from_s",
        replacement: "now_s - self.from_s",
        check: unit("gabion-wire", AHEAD),
    },
    Mutant {
        name: "a-certificate-that-is-not-valid-yet-is-not-renewed",
        file: "crates/wire/src/trust/authority.rs",
        text: "(0..span_s / 3).contains(&age_s)",
        replacement: "age_s < span_s / 3",
        check: unit("gabion-wire", AHEAD),
    },
    Mutant {
        name: "a-certificate-that-is-not-valid-yet-replaces-a-valid-one",
        file: "crates/wire/src/trust/credentials.rs",
        text: "now_s < new.from_s && is_valid",
        replacement: "now_s < now_s.min(new.from_s) && is_valid",
        check: unit("gabion-wire", AHEAD),
    },
];

const AHEAD: &str = "trust::authority::tests::a_certificate_of_a_clock_that_was_ahead_is_due_and_replaces_none_that_is_valid";
