//! Mutants of the console: who is let in.

use super::super::mutant::{Mutant, test, unit};

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-console-answers-by-any-name",
        file: "crates/console/src/guard.rs",
        text: "is_loopback(name) || app.hosts",
        replacement: "!name.is_empty() || app.hosts",
        check: test(
            "gabion-console",
            "crowd",
            "a_name_that_the_operator_gives_is_served_with_secure_cookies",
        ),
    },
    Mutant {
        name: "a-password-of-the-console-begins-many-sessions",
        file: "crates/console/src/session.rs",
        text: "state.password = password;",
        replacement: "let _ = password;",
        check: unit(
            "gabion-console",
            "session::tests::a_password_begins_one_session",
        ),
    },
    Mutant {
        name: "passwords-of-the-console-are-guessed-at-any-rate",
        file: "crates/console/src/session.rs",
        text: "self.try_count -= 1;",
        replacement: "self.try_count += 0;",
        check: unit(
            "gabion-console",
            "session::tests::wrong_passwords_are_limited_in_rate",
        ),
    },
    Mutant {
        name: "a-session-of-the-console-has-no-end",
        file: "crates/console/src/session.rs",
        text: "now.duration_since(self.begun) >= SESSION_LIMIT",
        replacement: "now < self.begun",
        check: unit(
            "gabion-console",
            "session::tests::sessions_end_by_time_silence_and_number",
        ),
    },
];
