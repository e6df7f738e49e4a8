//! Rules of images, and of the encryption of connections to them.

use super::super::check::Check;
use super::super::mutant::{Mutant, process, test, unit};

const PLAIN: Check = test(
    "gabion-nbd",
    "integration",
    "tls::a_connection_without_tls_learns_nothing_but_that_it_needs_tls",
);
const CERTIFICATES: Check = test(
    "gabion-nbd",
    "integration",
    "tls::clients_without_a_good_certificate_are_refused",
);
const RENEWAL: Check = test(
    "gabion-nbd",
    "integration",
    "tls::new_certificates_and_lists_count_for_the_next_connection",
);

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "exports-are-shown-before-tls",
        file: "crates/nbd/src/handshake.rs",
        text: "let is_plain = matches!(self.encryption, Encryption::Required(_));",
        replacement: "let is_plain = false;",
        check: PLAIN,
    },
    Mutant {
        name: "bytes-before-tls-are-passed-over",
        file: "crates/nbd/src/server.rs",
        text: "if !reader.buffer().is_empty() {",
        replacement: "if false {",
        check: test(
            "gabion-nbd",
            "integration",
            "tls::bytes_that_were_sent_ahead_of_tls_end_the_connection",
        ),
    },
    Mutant {
        name: "any-client-may-begin-tls",
        file: "crates/nbd/src/tls.rs",
        text: "TlsClients::Any => (builder.with_no_client_auth(), None),",
        replacement: "_ if chain.len() < 9 => (builder.with_no_client_auth(), None),
            TlsClients::Any => (builder.with_no_client_auth(), None),",
        check: CERTIFICATES,
    },
    Mutant {
        name: "revoked-clients-may-begin-tls",
        file: "crates/nbd/src/tls.rs",
        text: "self.revoked.as_deref().map_or(Ok(Vec::new()), all);",
        replacement: "self.revoked.as_deref().filter(|_| false).map_or(Ok(Vec::new()), all);",
        check: RENEWAL,
    },
    Mutant {
        name: "certificates-are-read-once",
        file: "crates/nbd/src/tls.rs",
        text: "if files != loaded.files {",
        replacement: "if files != loaded.files && self.clients == TlsClients::Any {",
        check: RENEWAL,
    },
    Mutant {
        name: "an-attached-client-outlives-the-revocation-of-its-certificate",
        file: "crates/nbd/src/tls.rs",
        text: "if let Some(why) = in_use.objection(chain, as_of) {",
        replacement: "if let Some(why) = in_use.objection(&[], as_of) {",
        check: test(
            "gabion-nbd",
            "integration",
            "tls::a_new_list_ends_the_connections_of_the_certificates_that_it_revokes",
        ),
    },
    Mutant {
        name: "another-error-hides-a-revocation",
        file: "crates/nbd/src/tls.rs",
        text: "checked.err().map(|wrong| certificate_in_words(&wrong))",
        replacement: "checked
            .err()
            .filter(|wrong| matches!(wrong, rustls::Error::InvalidCertificate(Wrong::Revoked)))
            .map(|wrong| certificate_in_words(&wrong))",
        check: unit(
            "gabion-nbd",
            "tls::tests::no_certificate_behind_a_revoked_one_keeps_it_admitted",
        ),
    },
    Mutant {
        name: "a-reading-that-was-left-counts-as-new",
        file: "crates/nbd/src/tls.rs",
        text: "(loaded.reading, loaded.read_at) = (None, began_at);",
        replacement: "(loaded.reading, loaded.read_at) = (None, began_at.max(Instant::now()));",
        check: unit(
            "gabion-nbd",
            "tls::tests::a_reading_that_its_caller_has_left_is_not_taken_for_a_new_one",
        ),
    },
    Mutant {
        name: "a-revoked-client-gets-the-rest-of-its-replies",
        file: "crates/nbd/src/session.rs",
        text: "why = &mut barred => (ended, is_barred) = (Ended::Broken(why), true),",
        replacement: "why = &mut barred, if is_barred => (ended, is_barred) = (Ended::Broken(why), true),",
        check: test(
            "gabion-nbd",
            "integration",
            "tls::a_revoked_client_that_takes_no_replies_loses_its_place",
        ),
    },
    Mutant {
        name: "a-connection-that-begins-no-tls-keeps-its-place",
        file: "crates/nbd/src/entering.rs",
        text: "            task.abort();",
        replacement: "            drop(task);",
        check: test(
            "gabion-nbd",
            "integration",
            "tls::connections_without_a_certificate_take_no_place_and_the_oldest_one_ends",
        ),
    },
    Mutant {
        name: "an-image-is-taken-over-once-for-each-of-its-names",
        file: "crates/nbd/src/images.rs",
        text: "let slot = self.slot(file.put_id());",
        replacement: "let slot = Arc::<Slot>::default();",
        check: process("nbd::clients_of_one_server_share_an_image_that_they_name_differently"),
    },
    Mutant {
        name: "a-request-waits-for-an-earlier-one-without-a-limit",
        file: "crates/nbd/src/range_lock.rs",
        text: "timeout_at(until, changed).await.ok()?;",
        replacement: "timeout_at(until + 1_000_000 * limit, changed).await.ok()?;",
        check: unit(
            "gabion-nbd",
            "range_lock::tests::a_request_whose_time_is_up_gets_no_range_and_is_in_no_other_requests_way",
        ),
    },
    Mutant {
        name: "an-enlargement-of-an-image-shrinks-it",
        file: "crates/gabion/src/commands/image.rs",
        text: "image.grow(size).await?;",
        replacement: "image.truncate(size).await?;",
        check: process("nbd::no_enlargement_shrinks_what_another_one_has_enlarged"),
    },
    Mutant {
        name: "a-file-takes-the-name-away-from-a-later-one",
        file: "crates/client/src/names.rs",
        text: "if only.is_some_and(|only| only != file) {",
        replacement: "if only.is_some_and(|only| only.0 > file.0) {",
        check: process("names::a_file_is_removed_by_its_name_only_while_the_name_is_its_own"),
    },
];
