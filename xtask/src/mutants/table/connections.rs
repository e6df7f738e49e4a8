//! Mutants of calls and connections between processes.

use super::super::check::Check;
use super::super::mutant::{Mutant, test, unit};

const fn wire(name: &'static str) -> Check {
    test("gabion-wire", "integration", name)
}

const SILENT_LINK: Check =
    wire("silent_link::a_connection_that_loses_everything_is_replaced_when_a_call_on_it_is_late");
const LATE_ANSWER: Check = wire("silent_link::a_late_answer_alone_does_not_cost_a_connection");

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a-process-waits-for-its-own-answer-for-ever",
        file: "crates/wire/src/ports.rs",
        text: "match timeout_at(deadline, answer).await {",
        replacement: "match timeout_at(deadline + Duration::from_hours(1), answer).await {",
        check: wire(
            "ports::a_call_of_a_process_to_itself_ends_at_its_deadline_and_its_work_goes_on",
        ),
    },
    Mutant {
        name: "a-process-s-work-for-itself-ends-with-its-call",
        file: "crates/wire/src/ports.rs",
        text: "let answer = self.runtime.spawn(answer(request));",
        replacement: "let answer = answer(request).map(Ok::<_, tokio::task::JoinError>);",
        check: wire(
            "ports::a_call_of_a_process_to_itself_ends_at_its_deadline_and_its_work_goes_on",
        ),
    },
    Mutant {
        name: "a-refused-connection-fails-a-request-at-once",
        file: "crates/client/src/client.rs",
        text: "Err(error) => (error, true),",
        replacement: "Err(error) => (error, false),",
        check: wire(
            "ports::a_client_waits_until_its_deadline_for_a_coordinator_that_refuses_connections",
        ),
    },
    Mutant {
        name: "a-lack-of-descriptors-ends-a-server",
        file: "crates/wire/src/endpoint.rs",
        text: "Err(error) if is_shortage(&error) => {",
        replacement: "Err(error) if is_shortage(&error) && error.raw_os_error().is_none() => {",
        check: wire("limits::a_server_without_descriptors_accepts_again_when_it_has_some"),
    },
    Mutant {
        name: "a-commit-of-a-pool-fails-with-its-first-connection",
        file: "crates/client/src/client.rs",
        text: "Err(error) => passing(error)?,",
        replacement: "Err(CoordinatorError::Busy(why)) => why,\n                Err(error) => return Err(error.into()),",
        check: wire("ports::a_commit_of_a_pool_is_asked_for_again_when_the_coordinator_goes"),
    },
    Mutant {
        name: "unread-frames-of-a-part-without-a-limit",
        file: "crates/protocol/src/staging/flows.rs",
        text: "let has_room = queued.bytes + bytes <= QUEUED_BYTES_MAX_OF_RUN",
        replacement: "let has_room = queued.bytes + bytes <= u64::MAX / QUEUED_BYTES_MAX_OF_RUN",
        check: unit(
            "gabion-protocol",
            "staging::tests::a_running_part_has_a_limit_of_unread_frames_and_fails_beyond_it",
        ),
    },
    Mutant {
        name: "a-connection-that-loses-everything-is-kept",
        file: "crates/wire/src/silent_link.rs",
        text: "|| !watched.connection.usage().begin_replacing() {",
        replacement: "|| watched.connection.usage().begin_replacing() {",
        check: SILENT_LINK,
    },
    Mutant {
        name: "a-replaced-connection-stays-open",
        file: "crates/wire/src/silent_link.rs",
        text: "&& !replaced.is_in_use() {",
        replacement: "&& replaced.is_in_use() {",
        check: SILENT_LINK,
    },
    Mutant {
        name: "every-late-answer-costs-a-connection",
        file: "crates/wire/src/silent_link.rs",
        text: "&& !now.shows_life_since(self.begun.1)",
        replacement: "&& !self.begun.1.shows_life_since(now)",
        check: LATE_ANSWER,
    },
    Mutant {
        name: "a-new-connection-is-replaced",
        file: "crates/wire/src/silent_link.rs",
        text: "if is_young || ",
        replacement: "if false && is_young || ",
        check: LATE_ANSWER,
    },
];
