//! Sessions and their open files, without a cluster.

use super::*;
use crate::message::CLIENT_SESSION_MS;

const SESSION: ClientSessionId = ClientSessionId(3);
const OTHER: ClientSessionId = ClientSessionId(4);
const FILE: PutId = PutId(9);

fn request(session: ClientSessionId, number: u64, oldest: u64) -> Opener {
    Opener {
        session,
        number,
        oldest,
    }
}

fn opened(number: u64) -> OpenedFile {
    OpenedFile { file: FILE, number }
}

/// Two sessions of this run, of which no file is open.
fn two() -> ClientSessions {
    let sessions = ClientSessions::new(Vec::new(), Vec::new(), 0);
    sessions.begin(SESSION, 0);
    sessions.begin(OTHER, 0);
    sessions
}

/// Opens the file. Whether it counts as open.
fn open(sessions: &ClientSessions, opener: Opener) -> bool {
    sessions.open(opener, FILE) == Ok(Claim::Open) && found(sessions, opener, Found::Named)
}

/// Ends the look of a request that opens the file. Whether it is granted.
fn found(sessions: &ClientSessions, opener: Opener, found: Found) -> bool {
    sessions.settle_open(opener, FILE, found) == Ok(Grant::Granted)
}

/// Tells that a client has closed a file.
fn close(sessions: &ClientSessions, session: ClientSessionId, closed: OpenedFile) {
    lock(&sessions.state).close(session, closed, &sessions.idle);
}

/// Reports files as one part of a report.
fn report(
    sessions: &ClientSessions,
    opener: Opener,
    (open, index, is_last): (&[OpenedFile], u64, bool),
) -> Result<SessionState, Rejection> {
    let report = 100;
    let part = ReportPart {
        report,
        index,
        is_last,
    };
    sessions.report((opener, 0), (open, Some(part)), (&[], &[]))
}

/// Takes the last name of the file away. Whether it stays.
fn is_kept(sessions: &ClientSessions) -> bool {
    let is_kept = sessions.keeps(FILE);
    if !is_kept {
        sessions.settled(vec![FILE]);
    }
    is_kept
}

#[test]
fn a_request_that_its_client_has_abandoned_counts_no_more() {
    let sessions = two();
    // The second attempt of the same change; an older request is still awaited.
    sessions.note(SESSION, 0, Some(1));
    assert_eq!(sessions.standing(SESSION, 0), Standing::Counts);
    assert_eq!(sessions.standing(SESSION, 1), Standing::Abandoned);
    assert_eq!(sessions.standing(SESSION, 2), Standing::Counts);
    sessions.note(SESSION, 4, None);
    assert_eq!(sessions.standing(SESSION, 2), Standing::Abandoned);
    sessions.note(SESSION, 1, None);
    let late = sessions.standing(SESSION, 3);
    assert_eq!(late, Standing::Abandoned, "it came late");
    assert!(!open(&sessions, request(SESSION, 3, 1)));
    assert!(!is_kept(&sessions));
}

#[test]
fn a_session_that_ends_is_not_renewed_and_has_no_file_open() {
    let sessions = two();
    assert!(open(&sessions, request(SESSION, 1, 1)));
    assert_eq!(sessions.renew(SESSION, 5_000), SessionState::GoesOn);
    let end_ms = 5_000 + CLIENT_SESSION_MS;
    assert_eq!(sessions.end_silent(end_ms - 1), [OTHER]);
    assert!(is_kept(&sessions));
    assert_eq!(sessions.end_silent(end_ms), [SESSION, OTHER]);
    assert_eq!(sessions.renew(SESSION, end_ms), SessionState::Over);
    assert_eq!(sessions.standing(SESSION, 1), Standing::Over);
    assert_eq!(sessions.take_idle(9), [FILE]);
    assert!(!is_kept(&sessions));
    let late = sessions.open(request(SESSION, 2, 1), FILE);
    assert_eq!(late, Ok(Claim::Over));
}

#[test]
fn a_file_stays_until_the_last_session_closes_it() {
    let sessions = two();
    for session in [SESSION, OTHER] {
        assert!(open(&sessions, request(session, 1, 1)));
    }
    assert!(is_kept(&sessions));
    close(&sessions, SESSION, opened(1));
    assert_eq!(sessions.take_idle(9), []);
    close(&sessions, OTHER, opened(1));
    assert_eq!(sessions.take_idle(9), [FILE]);
    assert_eq!(sessions.take_idle(9), []);
    sessions.give_back(vec![FILE]);
    assert_eq!(sessions.take_idle(9), [FILE]);
}

#[test]
fn a_close_does_not_end_a_later_open_and_an_early_copy_opens_nothing_after_it() {
    let sessions = two();
    assert!(open(&sessions, request(SESSION, 1, 1)));
    assert!(open(&sessions, request(SESSION, 2, 1)));
    close(&sessions, SESSION, opened(1));
    assert!(is_kept(&sessions), "the second request has opened it");
    close(&sessions, SESSION, opened(2));
    // Copies of both come late, and of the oldest numbers the coordinator has not heard.
    assert!(!open(&sessions, request(SESSION, 1, 1)));
    assert!(!open(&sessions, request(SESSION, 2, 1)));
    assert_eq!(sessions.take_idle(9), [FILE]);
}

#[test]
fn a_file_that_a_transaction_may_end_is_not_opened_until_that_is_known() {
    let sessions = two();
    assert!(!sessions.keeps(FILE));
    assert!(!sessions.keeps(FILE), "another transaction asks, too");
    sessions.settled(vec![FILE]);
    let refused = sessions.open(request(SESSION, 1, 1), FILE);
    assert!(matches!(refused, Err(Rejection::Busy(_))), "{refused:?}");
    let refused = report(&sessions, request(SESSION, 2, 1), (&[opened(1)], 0, true));
    assert!(matches!(refused, Err(Rejection::Busy(_))), "{refused:?}");
    sessions.settled(vec![FILE]);
    assert!(open(&sessions, request(SESSION, 3, 1)));
    assert!(is_kept(&sessions));
}

#[test]
fn after_a_restart_all_files_stay_until_each_session_has_reported_or_ended() {
    let orphan = PutId(1);
    let sessions = ClientSessions::new(vec![SESSION, OTHER], vec![orphan], 0);
    sessions.begin(ClientSessionId(5), 0);
    assert!(is_kept(&sessions));
    assert_eq!(sessions.renew(SESSION, 5_000), SessionState::Unreported);
    let whole = report(&sessions, request(SESSION, 1, 1), (&[opened(1)], 0, true));
    assert_eq!(whole, Ok(SessionState::GoesOn));
    assert!(sessions.keeps(PutId(8)), "the other has not reported");
    assert_eq!(sessions.take_idle(9), []);
    assert_eq!(
        sessions.end_silent(CLIENT_SESSION_MS),
        [OTHER, ClientSessionId(5)]
    );
    // Files that no session has reported go, and so do those that were kept only until the reports.
    assert_eq!(sessions.take_idle(9), [orphan, PutId(8)]);
    assert!(is_kept(&sessions), "it was reported");
}

#[test]
fn a_report_counts_only_when_this_run_has_seen_all_of_its_parts() {
    let sessions = ClientSessions::new(vec![SESSION], Vec::new(), 0);
    let number = |number| request(SESSION, number, 1);
    let nothing: &[OpenedFile] = &[];
    // The first part went to an earlier run.
    let second = report(&sessions, number(2), (nothing, 1, true));
    assert_eq!(second, Ok(SessionState::Unreported));
    assert!(is_kept(&sessions));
    let first = report(&sessions, number(3), (&[opened(1)], 0, false));
    assert_eq!(first, Ok(SessionState::Unreported));
    let third = report(&sessions, number(4), (nothing, 2, true));
    assert_eq!(third, Ok(SessionState::Unreported), "one is missing");
    let second = report(&sessions, number(5), (nothing, 1, true));
    assert_eq!(second, Ok(SessionState::GoesOn));
    close(&sessions, SESSION, opened(1));
    let late = report(&sessions, number(3), (&[opened(1)], 0, false));
    assert!(matches!(late, Err(Rejection::Refused(_))), "{late:?}");
    assert_eq!(sessions.take_idle(9), [FILE]);
}

#[test]
fn a_session_that_does_not_report_ends_although_it_is_renewed() {
    let sessions = ClientSessions::new(vec![SESSION], Vec::new(), 0);
    let mut now_ms = 0;
    while sessions.end_silent(now_ms).is_empty() {
        assert_eq!(sessions.renew(SESSION, now_ms), SessionState::Unreported);
        now_ms += 2_000;
        assert!(now_ms < 100_000);
    }
    assert_eq!(sessions.renew(SESSION, now_ms), SessionState::Over);
    assert!(!is_kept(&sessions));
}

/// Renewals count while the metadata are away, and reports cannot be taken.
#[test]
fn a_session_that_could_not_report_gets_its_time_back() {
    let sessions = ClientSessions::new(vec![SESSION], Vec::new(), 0);
    for now_ms in (0..100_000).step_by(500) {
        assert_eq!(sessions.renew(SESSION, now_ms), SessionState::Unreported);
        sessions.excuse_reports(500);
        assert!(sessions.end_silent(now_ms).is_empty(), "after {now_ms} ms");
    }
    let nothing = (&[][..], 0, true);
    let reported = report(&sessions, request(SESSION, 5, 5), nothing);
    assert_eq!(reported, Ok(SessionState::GoesOn));
}

#[test]
fn a_file_is_open_from_its_making_on_unless_no_copy_of_the_put_has_stored_it() {
    let sessions = two();
    let lost = PutId(8);
    for _ in 0..2 {
        let begun = sessions.begin_making(70, request(SESSION, 1, 1));
        assert_eq!(begun, Ok(()));
    }
    sessions.made(70, lost);
    sessions.made(70, FILE);
    assert!(is_kept(&sessions));
    assert!(sessions.end_making(70, Some(FILE)));
    assert!(!sessions.end_making(70, None));
    assert!(is_kept(&sessions));
    assert!(!sessions.keeps(lost));
    sessions.settled(vec![lost]);
    // The client does not know the file: it has not got the answer.
    let abandoned = sessions.report((request(SESSION, 5, 1), 0), (&[], None), (&[], &[1]));
    assert_eq!(abandoned, Ok(SessionState::GoesOn));
    assert_eq!(sessions.take_idle(9), [FILE]);
    let begun = sessions.begin_making(70, request(SESSION, 1, 1));
    assert_eq!(begun, Ok(()));
    sessions.made(70, FILE);
    assert!(!sessions.end_making(70, Some(FILE)), "a late copy");
}

#[test]
fn open_files_of_a_session_are_limited() {
    let sessions = two();
    let all = 0..SESSION_FILES_MAX as u64;
    let all: Vec<OpenedFile> = all
        .map(|n| OpenedFile {
            file: PutId(n),
            number: 1,
        })
        .collect();
    let filled = report(&sessions, request(SESSION, 2, 1), (&all, 0, true));
    assert_eq!(filled, Ok(SessionState::GoesOn));
    let again = report(&sessions, request(SESSION, 3, 1), (&all, 0, true));
    assert_eq!(again, Ok(SessionState::GoesOn), "nothing is new");
    let more = PutId(all.len() as u64);
    let refused = sessions.open(request(SESSION, 4, 1), more);
    let is_limit = |why: &Denial| why.cause == Cause::TooManyOpen;
    assert!(
        matches!(&refused, Err(Rejection::Refused(why)) if is_limit(why)),
        "{refused:?}"
    );
    close(&sessions, SESSION, all[0]);
    let opened = sessions.open(request(SESSION, 5, 1), more);
    assert_eq!(opened, Ok(Claim::Open));
    // Files that puts make count from the beginning of the put on, and once.
    let limit = |begun: Result<(), Rejection>| matches!(&begun, Err(Rejection::Refused(why)) if is_limit(why));
    assert!(limit(sessions.begin_making(70, request(SESSION, 6, 1))));
    close(&sessions, SESSION, all[1]);
    let make = || sessions.begin_making(70, request(SESSION, 7, 1));
    assert_eq!(make(), Ok(()));
    assert!(limit(sessions.begin_making(71, request(SESSION, 8, 1))));
    sessions.made(70, FILE);
    assert!(sessions.end_making(70, Some(FILE)));
    assert_eq!(make(), Ok(()), "it is the same request");
    assert!(limit(sessions.begin_making(71, request(SESSION, 8, 1))));
}

/// A file that is only about to be opened is in the report, and its request is refused later.
#[test]
fn a_report_to_another_run_may_have_more_files_than_the_limit() {
    let sessions = ClientSessions::new(vec![SESSION], Vec::new(), 0);
    let all = 0..=SESSION_FILES_MAX as u64;
    let all: Vec<OpenedFile> = all
        .map(|n| OpenedFile {
            file: PutId(n),
            number: 1,
        })
        .collect();
    let whole = report(&sessions, request(SESSION, 2, 1), (&all, 0, true));
    assert_eq!(whole, Ok(SessionState::GoesOn));
    let more = PutId(all.len() as u64);
    let refused = sessions.open(request(SESSION, 4, 1), more);
    assert!(matches!(refused, Err(Rejection::Refused(_))), "{refused:?}");
}

/// The client waits for the second copy, as the first one has got stuck.
#[test]
fn a_copy_of_an_open_that_comes_late_closes_nothing() {
    for late in [Found::Orphan, Found::Nothing] {
        let sessions = two();
        let opener = request(SESSION, 5, 1);
        for _ in 0..2 {
            assert_eq!(sessions.open(opener, FILE), Ok(Claim::Open));
        }
        assert!(found(&sessions, opener, Found::Named));
        assert!(is_kept(&sessions), "another client removes it");
        let is_granted = found(&sessions, opener, late);
        assert_eq!(is_granted, late == Found::Orphan);
        assert_eq!(sessions.take_idle(9), [], "after {late:?}");
        close(&sessions, SESSION, opened(5));
        assert_eq!(sessions.take_idle(9), [FILE]);
    }
}

#[test]
fn an_open_that_finds_nothing_leaves_the_file_to_a_look_under_way() {
    let sessions = two();
    let (first, second) = (request(SESSION, 1, 1), request(SESSION, 2, 1));
    for opener in [first, second] {
        assert_eq!(sessions.open(opener, FILE), Ok(Claim::Open));
    }
    assert!(!found(&sessions, second, Found::Nothing));
    assert!(is_kept(&sessions));
    assert!(found(&sessions, first, Found::Named), "it looked before");
    assert_eq!(sessions.take_idle(9), []);
    // What another client has open is not opened without a name.
    let other = request(OTHER, 1, 1);
    assert_eq!(sessions.open(other, FILE), Ok(Claim::Open));
    assert!(!found(&sessions, other, Found::Orphan));
    // The client closes the file before the answer comes.
    assert_eq!(sessions.open(request(OTHER, 2, 1), FILE), Ok(Claim::Open));
    close(&sessions, OTHER, opened(2));
    let late = sessions.settle_open(request(OTHER, 2, 1), FILE, Found::Named);
    assert!(matches!(late, Err(Rejection::Refused(_))), "{late:?}");
    close(&sessions, SESSION, opened(2));
    assert_eq!(sessions.take_idle(9), [FILE]);
}

#[test]
fn closes_and_reports_are_signs_of_life_and_time_without_ears_does_not_count() {
    let sessions = two();
    let told = sessions.report((request(SESSION, 1, 1), 6_000), (&[], None), (&[], &[]));
    assert_eq!(told, Ok(SessionState::GoesOn));
    assert_eq!(sessions.end_silent(CLIENT_SESSION_MS), [OTHER]);
    // The coordinator stood still for an hour.
    sessions.give_time(3_600_000);
    let end_ms = 6_000 + CLIENT_SESSION_MS + 3_600_000;
    assert_eq!(sessions.end_silent(end_ms - 1), [OTHER], "it is ending");
    assert_eq!(sessions.end_silent(end_ms), [SESSION, OTHER]);
}
