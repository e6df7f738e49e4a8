//! Open files: those that lose their last names stay until no session has them open, also behind a restart of the
//! coordinator, and go with the client that dies.

use crate::coordinator::bed::Bed;
use crate::coordinator::membership::beat;
use gabion_layout::NodeId;
use gabion_meta::{ClientSessionId, MetaError, PutId};
use gabion_protocol::message::{
    CLIENT_SESSION_MS, CoordinatorReply, NodeHealth, NodeRequest, OpenedFile, Opener, ReportPart,
    SessionState, ask,
};

fn session(bed: &mut Bed) -> ClientSessionId {
    match bed.ask(ask::OpenSession) {
        CoordinatorReply::ClientSession(session) => session,
        other => panic!("{other:?}"),
    }
}

/// Makes a file of one stripe.
fn file(bed: &mut Bed, name: &str) -> PutId {
    bed.put(name, 1);
    let name = name.to_owned();
    match bed.ask(ask::Lookup { name }) {
        CoordinatorReply::File(layout) => layout.file.put,
        other => panic!("{other:?}"),
    }
}

fn opener(session: ClientSessionId, number: u64) -> Opener {
    Opener {
        session,
        number,
        oldest: number,
    }
}

/// Opens a file. Whether that succeeds.
fn open(bed: &mut Bed, file: PutId, opener: Opener) -> bool {
    match bed.ask(ask::OpenFile { file, opener }) {
        CoordinatorReply::File(_) => true,
        CoordinatorReply::Gone => false,
        other => panic!("{other:?}"),
    }
}

fn report(
    bed: &mut Bed,
    opener: Opener,
    (open, part): (Vec<OpenedFile>, Option<ReportPart>),
    closed: Vec<OpenedFile>,
) -> SessionState {
    let report = ask::ReportFiles {
        opener,
        open,
        part,
        closed,
        abandoned: Vec::new(),
    };
    match bed.ask(report) {
        CoordinatorReply::SessionState(state) => state,
        other => panic!("{other:?}"),
    }
}

fn renew(bed: &mut Bed, session: ClientSessionId) -> SessionState {
    match bed.ask(ask::RenewSession(session)) {
        CoordinatorReply::SessionState(state) => state,
        other => panic!("{other:?}"),
    }
}

fn remove(bed: &mut Bed, name: &str, file: PutId, number: u64) {
    let removed = bed.ask(ask::RemoveFile {
        at: name.into(),
        file,
        generation: 0,
        number,
    });
    assert_eq!(removed, CoordinatorReply::Done);
    let name = name.to_owned();
    let gone = bed.ask(ask::Lookup { name });
    assert!(matches!(gone, CoordinatorReply::Refused(_)), "{gone:?}");
}

/// The number of the names of a file; none if the file is gone.
fn link_count(bed: &mut Bed, file: PutId) -> Option<u64> {
    match bed.ask(ask::LookupFile { file, offset: 0 }) {
        CoordinatorReply::File(layout) => Some(layout.file.link_count),
        CoordinatorReply::Gone => None,
        other => panic!("{other:?}"),
    }
}

/// Files, those of them without names, and bytes of all chunks.
fn used(bed: &mut Bed) -> (u64, u64, u64) {
    match bed.ask(ask::Usage) {
        CoordinatorReply::Usage(usage) => {
            let pools = usage.pools.values();
            let pool = pools.into_iter().next().expect("a pool");
            (pool.file_count, pool.orphan_count, pool.raw_bytes)
        }
        other => panic!("{other:?}"),
    }
}

fn restart(bed: &mut Bed) {
    bed.restart();
    for node in 0..9 {
        bed.rejoin(NodeId(node), Vec::new());
    }
}

#[test]
fn a_removed_file_stays_for_the_sessions_that_have_it_open_and_then_goes() {
    let mut bed = Bed::three_racks();
    let file = file(&mut bed, "f");
    let (first, second) = (session(&mut bed), session(&mut bed));
    assert!(open(&mut bed, file, opener(first, 1)));
    remove(&mut bed, "f", file, 1);
    assert_eq!(link_count(&mut bed, file), Some(0));
    // A header and checksums are before the bytes of each of six chunks.
    assert_eq!(used(&mut bed), (1, 1, 6 * ((1 << 20) + 8192)));
    // Only a session that has it open may open it again.
    assert!(!open(&mut bed, file, opener(second, 1)));
    assert!(open(&mut bed, file, opener(first, 2)));

    let closed = |number| vec![OpenedFile { file, number }];
    let nothing = || (Vec::new(), None);
    report(&mut bed, opener(first, 3), nothing(), closed(1));
    bed.pass(1_000);
    assert_eq!(link_count(&mut bed, file), Some(0), "the second is open");
    bed.take_log();
    report(&mut bed, opener(first, 4), nothing(), closed(2));
    bed.pass(1_000);
    assert_eq!(link_count(&mut bed, file), None);
    assert_eq!(used(&mut bed), (0, 0, 0));
    let removed = bed
        .take_log()
        .into_iter()
        .any(|asked| matches!(asked.request, NodeRequest::Remove { .. }));
    assert!(removed, "its chunks are removed from the nodes");
}

#[test]
fn the_files_of_a_client_that_dies_or_leaves_go() {
    let mut bed = Bed::three_racks();
    let files = ["f", "g"].map(|name| file(&mut bed, name));
    let (dies, leaves) = (session(&mut bed), session(&mut bed));
    for (number, (session, file)) in (1..).zip([(dies, files[0]), (leaves, files[1])]) {
        assert!(open(&mut bed, file, opener(session, 1)));
        remove(&mut bed, ["f", "g"][number - 1], file, number as u64);
    }
    assert_eq!(bed.ask(ask::CloseSession(leaves)), CoordinatorReply::Done);
    bed.pass(1_000);
    assert_eq!(link_count(&mut bed, files[1]), None);
    bed.pass(CLIENT_SESSION_MS - 4_000);
    assert_eq!(link_count(&mut bed, files[0]), Some(0));
    bed.pass(5_000);
    assert_eq!(link_count(&mut bed, files[0]), None);
    assert_eq!(renew(&mut bed, dies), SessionState::Over);
    let file = file(&mut bed, "h");
    let late = bed.ask(ask::OpenFile {
        file,
        opener: opener(dies, 2),
    });
    assert_eq!(late, CoordinatorReply::SessionState(SessionState::Over));
}

#[test]
fn after_a_restart_open_files_stay_until_their_clients_have_reported() {
    let mut bed = Bed::three_racks();
    let [orphan, open_before, closed_before] =
        ["orphan", "open", "closed"].map(|name| file(&mut bed, name));
    let session = session(&mut bed);
    for (number, file) in (1..).zip([orphan, open_before, closed_before]) {
        assert!(open(&mut bed, file, opener(session, number)));
    }
    remove(&mut bed, "orphan", orphan, 1);
    restart(&mut bed);
    // The coordinator does not know yet what is open.
    remove(&mut bed, "open", open_before, 2);
    remove(&mut bed, "closed", closed_before, 3);
    bed.pass(4_000);
    assert_eq!(renew(&mut bed, session), SessionState::Unreported);
    for file in [orphan, open_before, closed_before] {
        assert_eq!(link_count(&mut bed, file), Some(0));
    }
    let reported = [orphan, open_before].map(|file| OpenedFile { file, number: 5 });
    let part = |index, is_last| ReportPart {
        report: 5,
        index,
        is_last,
    };
    let first = (vec![reported[0]], Some(part(0, false)));
    let state = report(&mut bed, opener(session, 5), first, Vec::new());
    assert_eq!(state, SessionState::Unreported);
    let second = (vec![reported[1]], Some(part(1, true)));
    let state = report(&mut bed, opener(session, 6), second, Vec::new());
    assert_eq!(state, SessionState::GoesOn);
    bed.pass(4_000);
    assert_eq!(renew(&mut bed, session), SessionState::GoesOn);
    assert_eq!(link_count(&mut bed, orphan), Some(0));
    assert_eq!(link_count(&mut bed, open_before), Some(0));
    assert_eq!(
        link_count(&mut bed, closed_before),
        None,
        "none has it open"
    );
    let closed = reported.to_vec();
    report(&mut bed, opener(session, 7), (Vec::new(), None), closed);
    bed.pass(1_000);
    assert_eq!(used(&mut bed), (0, 0, 0));
}

#[test]
fn after_a_restart_the_files_of_a_client_that_does_not_return_go() {
    let mut bed = Bed::three_racks();
    let file = file(&mut bed, "f");
    let session = session(&mut bed);
    assert!(open(&mut bed, file, opener(session, 1)));
    remove(&mut bed, "f", file, 1);
    restart(&mut bed);
    bed.pass(CLIENT_SESSION_MS - 3_000);
    assert_eq!(link_count(&mut bed, file), Some(0));
    restart(&mut bed);
    // The next coordinator gives it the full time again.
    bed.pass(CLIENT_SESSION_MS - 3_000);
    assert_eq!(link_count(&mut bed, file), Some(0));
    bed.pass(4_000);
    assert_eq!(link_count(&mut bed, file), None);
    assert_eq!(used(&mut bed), (0, 0, 0));
}

/// The metadata are away for longer than a client has to report. It renews its session, and cannot report.
#[test]
fn an_outage_behind_a_restart_costs_no_client_its_open_files() {
    let mut bed = Bed::three_racks();
    let file = file(&mut bed, "f");
    let session = session(&mut bed);
    assert!(open(&mut bed, file, opener(session, 1)));
    remove(&mut bed, "f", file, 1);
    restart(&mut bed);
    bed.store().depose(Some(MetaError::Away {
        reason: "test".to_owned(),
    }));
    for _ in 0..5 * CLIENT_SESSION_MS / 1_000 {
        bed.pass_in_silence(1_000);
        for node in 0..9 {
            let incarnation = bed.incarnation(NodeId(node));
            bed.ask(beat(NodeId(node), incarnation, NodeHealth::default()));
        }
        let busy = bed.ask(ask::RenewSession(session));
        assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
    }
    bed.store().depose(None);
    bed.pass_in_silence(1_000);
    assert_eq!(renew(&mut bed, session), SessionState::Unreported);
    let part = ReportPart {
        report: 5,
        index: 0,
        is_last: true,
    };
    let opened = vec![OpenedFile { file, number: 5 }];
    let state = report(
        &mut bed,
        opener(session, 5),
        (opened, Some(part)),
        Vec::new(),
    );
    assert_eq!(state, SessionState::GoesOn);
    bed.pass(1_000);
    assert_eq!(link_count(&mut bed, file), Some(0));
}

#[test]
fn without_sessions_a_restart_keeps_nothing() {
    let mut bed = Bed::three_racks();
    let file = file(&mut bed, "f");
    restart(&mut bed);
    remove(&mut bed, "f", file, 1);
    assert_eq!(link_count(&mut bed, file), None);
}
