//! Mutants of certificates, and of the logs in the coordinator's directory.

use super::super::mutant::{Mutant, unit};

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
    Mutant {
        name: "the-next-key-is-not-looked-for",
        file: "crates/wire/src/trust/credentials.rs",
        text: "Ok(next.filter(|key| is_key_of(key, certificate)))",
        replacement: "Ok(next.filter(|key| key.is_empty() && is_key_of(key, certificate)))",
        check: unit("gabion-wire", CRASH),
    },
    Mutant {
        name: "a-renewal-overwrites-the-key-that-a-crash-has-left",
        file: "crates/wire/src/trust/credentials.rs",
        text: "&& next_key_of(directory, &present)?.is_some()",
        replacement: "&& next_key_of(directory, &present)?.is_some_and(|key| key.is_empty())",
        check: unit("gabion-wire", CRASH),
    },
    Mutant {
        name: "files-that-cannot-be-used-stop-renewals",
        file: "crates/wire/src/renewal.rs",
        text: "if renews && credentials",
        replacement: "if renews && reloaded.is_ok() && credentials",
        check: unit(
            "gabion-wire",
            "renewal::tests::files_that_cannot_be_used_do_not_stop_a_renewal",
        ),
    },
    Mutant {
        name: "a-revocation-list-s-number-is-the-clock",
        file: "crates/wire/src/trust/authority.rs",
        text: "number = number.max(number_after(list));",
        replacement: "number = number.max(BigUint::default());",
        check: unit(
            "gabion-wire",
            "trust::authority::tests::a_revocation_counts_also_after_the_clock_was_set_back",
        ),
    },
    Mutant {
        name: "a-renewal-replaces-a-newer-list-in-the-files",
        file: "crates/wire/src/trust/credentials.rs",
        text: "held.filter(|_| !has_usable_list(directory)),",
        replacement: "held.or_else(|| held.filter(|_| !has_usable_list(directory))),",
        check: unit(
            "gabion-wire",
            "renewal::tests::a_renewal_keeps_a_newer_list_in_the_files",
        ),
    },
    Mutant {
        name: "a-new-list-does-not-count-before-the-renewal",
        file: "crates/wire/src/renewal.rs",
        text: "        let reloaded = self.reload();\n        // Neither",
        replacement: "        // Neither",
        check: unit(
            "gabion-wire",
            "renewal::tests::a_new_list_counts_also_if_the_renewal_behind_it_is_refused",
        ),
    },
    Mutant {
        name: "an-audit-log-whose-disk-hangs-is-healthy",
        file: "crates/server/src/audit/log.rs",
        text: "            // The thread cannot say so while it waits for the disk.\n            self.condition.becomes(Some(why.to_owned()));\n",
        replacement: "",
        check: unit(
            "gabion-server",
            "audit::log::tests::a_disk_that_does_not_answer_is_a_failure_until_the_next_record_is_written",
        ),
    },
    Mutant {
        name: "events-go-to-the-file-that-was-shortened",
        file: "crates/server/src/events/file.rs",
        text: "        self.file = file;\n        self.line_count = kept.len();\n        self.path.parent().map_or(Ok(()), sync)\n",
        replacement: "        self.path.parent().map_or(Ok(()), sync)?;\n        self.file = file;\n        self.line_count = kept.len();\n        Ok(())\n",
        check: unit(
            "gabion-server",
            "events::file::tests::events_after_a_failed_sync_of_the_directory_are_in_the_shortened_file",
        ),
    },
];

const AHEAD: &str = "trust::authority::tests::a_certificate_of_a_clock_that_was_ahead_is_due_and_replaces_none_that_is_valid";
const CRASH: &str =
    "trust::credentials::tests::a_crash_between_a_certificate_and_its_key_loses_neither";
