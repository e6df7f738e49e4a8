//! Locks of clients: they outlive the coordinator, end with their session, and are free only when the writes of a
//! silent session are fenced out.

use crate::coordinator::bed::{Bed, gone};
use crate::coordinator::membership::beat;
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{NodeId, StripeId};
use gabion_meta::{
    ClientSessionId, FencingToken, LockChange, LockKind, LockMode, LockOwner, LockRange, Locking,
    MetaError, PutId, SessionId,
};
use gabion_protocol::message::{
    CLIENT_SESSION_MS, Cause, CoordinatorReply, LONG_CALL_MS, LockAttempt, NodeHealth, NodeRequest,
    NotOpened, SessionState, ask,
};

fn file(bed: &mut Bed) -> PutId {
    bed.put("f", 1);
    let name = "f".to_owned();
    match bed.ask(ask::Lookup { name }) {
        CoordinatorReply::File(layout) => layout.file.put,
        other => panic!("{other:?}"),
    }
}

fn session(bed: &mut Bed) -> ClientSessionId {
    match bed.ask(ask::OpenSession) {
        CoordinatorReply::ClientSession(session) => session,
        other => panic!("{other:?}"),
    }
}

fn renew(bed: &mut Bed, session: ClientSessionId) -> SessionState {
    match bed.ask(ask::RenewSession(session)) {
        CoordinatorReply::SessionState(state) => state,
        other => panic!("{other:?}"),
    }
}

fn change(number: u64, mode: Option<LockMode>) -> LockChange {
    let kind = LockKind::Range;
    LockChange {
        owner: LockOwner { kind, number },
        mode,
        range: LockRange::ALL,
        process: 1,
    }
}

fn request(
    session: ClientSessionId,
    file: PutId,
    number: u64,
    mode: Option<LockMode>,
) -> ask::SetLock {
    ask::SetLock {
        session,
        number,
        oldest: 0,
        voids: None,
        file,
        change: change(1, mode),
        attempt: LockAttempt::Once,
    }
}

const EXCLUSIVE: Option<LockMode> = Some(LockMode::Exclusive);
const SHARED: Option<LockMode> = Some(LockMode::Shared);
const DONE: CoordinatorReply = CoordinatorReply::Locking(Locking::Done);
const OVER: CoordinatorReply = CoordinatorReply::Locking(Locking::Over);

fn is_held(reply: &CoordinatorReply) -> bool {
    matches!(reply, CoordinatorReply::Locking(Locking::Held(_)))
}

#[test]
fn a_lock_outlives_the_coordinator_and_ends_with_its_session() {
    let mut bed = Bed::three_racks();
    let file = file(&mut bed);
    let (first, second) = (session(&mut bed), session(&mut bed));
    assert_eq!(bed.ask(request(first, file, 1, EXCLUSIVE)), DONE);
    assert!(is_held(&bed.ask(request(second, file, 1, SHARED))));
    bed.pass(8_000);
    assert_eq!(renew(&mut bed, second), SessionState::GoesOn);
    bed.restart();
    for node in 0..9 {
        bed.rejoin(NodeId(node), Vec::new());
    }
    // Both have the full time from the start on.
    bed.pass(8_000);
    assert!(is_held(&bed.ask(request(second, file, 2, SHARED))));
    assert_eq!(renew(&mut bed, second), SessionState::Unreported);
    bed.pass(CLIENT_SESSION_MS - 8_000 + 1_000);
    assert_eq!(renew(&mut bed, first), SessionState::Over);
    assert_eq!(bed.ask(request(first, file, 2, EXCLUSIVE)), OVER);
    assert_eq!(bed.ask(request(second, file, 3, EXCLUSIVE)), DONE);
    let third = session(&mut bed);
    assert!(third > second, "a number is used once");
    assert_eq!(bed.ask(ask::CloseSession(second)), CoordinatorReply::Done);
    assert_eq!(bed.ask(request(third, file, 1, EXCLUSIVE)), DONE);
    assert_eq!(bed.ask(request(second, file, 4, EXCLUSIVE)), OVER);
}

/// A renewal that the coordinator cannot answer is a sign of life all the same.
#[test]
fn an_outage_of_the_metadata_ends_no_session_of_a_client_that_lives() {
    let mut bed = Bed::three_racks();
    let file = file(&mut bed);
    let session = session(&mut bed);
    assert_eq!(bed.ask(request(session, file, 1, EXCLUSIVE)), DONE);
    let writer = SessionId(5);
    let open = |session, seen| ask::OpenExclusive {
        file,
        session,
        seen: FencingToken(seen),
        takes_over: false,
    };
    let begun = bed.ask(open(writer, 0));
    assert!(matches!(begun, CoordinatorReply::Exclusive(_)), "{begun:?}");
    bed.store().depose(Some(MetaError::Away {
        reason: "test".to_owned(),
    }));
    for _ in 0..2 * CLIENT_SESSION_MS / 1_000 {
        bed.pass_in_silence(1_000);
        for node in 0..9 {
            let incarnation = bed.incarnation(NodeId(node));
            bed.ask(beat(NodeId(node), incarnation, NodeHealth::default()));
        }
        let busy = bed.ask(ask::RenewSession(session));
        assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
        let busy = bed.ask(ask::RenewExclusive {
            file,
            session: writer,
        });
        assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
    }
    bed.store().depose(None);
    assert_eq!(renew(&mut bed, session), SessionState::GoesOn);
    let other = bed.ask(open(SessionId(6), 1));
    assert!(
        matches!(other, CoordinatorReply::NotOpened(NotOpened::InUse { .. })),
        "{other:?}"
    );
}

#[test]
fn no_session_ends_before_its_client_could_renew_it_after_most_nodes_were_heard() {
    let mut bed = Bed::three_racks();
    let file = file(&mut bed);
    let (lively, silent) = (session(&mut bed), session(&mut bed));
    assert_eq!(bed.ask(request(lively, file, 1, EXCLUSIVE)), DONE);
    for node in (0..5).map(NodeId) {
        bed.stop(node);
    }
    bed.restart();
    for _ in 0..CLIENT_SESSION_MS / 1_000 {
        bed.pass(1_000);
        let busy = bed.ask(ask::RenewSession(lively));
        assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
    }
    bed.rejoin_obsolete(NodeId(0), vec![]);
    bed.pass(2_000);
    assert_eq!(renew(&mut bed, lively), SessionState::Unreported);
    bed.pass(CLIENT_SESSION_MS - 1_000);
    assert_eq!(renew(&mut bed, lively), SessionState::Unreported);
    assert_eq!(renew(&mut bed, silent), SessionState::Over);
    let other = session(&mut bed);
    assert!(is_held(&bed.ask(request(other, file, 1, SHARED))));
}

#[test]
fn a_silent_session_keeps_its_locks_until_its_writes_are_fenced_out() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("g", 1).remove(0);
    let file = file(&mut bed);
    let (first, second) = (session(&mut bed), session(&mut bed));
    assert_eq!(bed.ask(request(first, file, 1, EXCLUSIVE)), DONE);
    let silent = stripe.nodes[1];
    bed.hook(move |node, request| {
        let is_silent = node == silent && matches!(request, NodeRequest::RaiseTokens { .. });
        is_silent.then(|| ready(Err(gone(node))).boxed())
    });
    for number in 1..10 {
        bed.pass(CLIENT_SESSION_MS / 5);
        assert_eq!(renew(&mut bed, second), SessionState::GoesOn);
        let reply = bed.ask(request(second, file, number, EXCLUSIVE));
        assert!(
            is_held(&reply),
            "a node takes writes of the first: {reply:?}"
        );
    }
    let CoordinatorReply::Exclusive(token) = bed.ask(ask::Token {
        file,
        stripe: StripeId(0),
    }) else {
        panic!("the file is there")
    };
    assert!(token.0 > 0, "other nodes have been told");
    bed.unhook();
    bed.pass(1_000);
    assert_eq!(bed.ask(request(second, file, 20, EXCLUSIVE)), DONE);
    let CoordinatorReply::File(layout) = bed.ask(ask::Lookup {
        name: "f".to_owned(),
    }) else {
        panic!("the file is there")
    };
    assert_eq!(layout.exclusive.session, None, "all clients may write it");
}

#[test]
fn a_request_that_waits_is_answered_when_the_lock_is_free() {
    let mut bed = Bed::three_racks();
    let file = file(&mut bed);
    let [first, second, third] = [(); 3].map(|()| session(&mut bed));
    assert_eq!(bed.ask(request(first, file, 1, EXCLUSIVE)), DONE);
    let waiting = |session, waited_ms| ask::SetLock {
        attempt: LockAttempt::Wait { waited_ms },
        ..request(session, file, 1, EXCLUSIVE)
    };
    bed.pass(1_000);
    let later = bed.begin(waiting(second, 0));
    let earlier = bed.begin(waiting(third, 400));
    assert_eq!((later.take(), earlier.take()), (None, None));
    assert_eq!(bed.ask(request(first, file, 2, None)), DONE);
    assert_eq!(earlier.take(), Some(DONE), "it has waited longer");
    assert_eq!(later.take(), None);
    bed.pass(LONG_CALL_MS);
    let reply = later.take().expect("the time of the call is over");
    assert!(is_held(&reply), "{reply:?}");
    // A client that dies frees its waiters' lock without a word.
    bed.pass(CLIENT_SESSION_MS / 2);
    for session in [first, second] {
        assert_eq!(renew(&mut bed, session), SessionState::GoesOn);
    }
    bed.pass(CLIENT_SESSION_MS / 2 + 1_000);
    assert_eq!(bed.ask(request(second, file, 2, EXCLUSIVE)), DONE);
}

#[test]
fn a_request_that_comes_late_frees_and_takes_nothing() {
    let mut bed = Bed::three_racks();
    let file = file(&mut bed);
    let (first, second) = (session(&mut bed), session(&mut bed));
    assert_eq!(bed.ask(request(first, file, 1, EXCLUSIVE)), DONE);
    // The answer to an unlock was lost: it was repeated, and the file locked again.
    let late = request(first, file, 2, None);
    let again = ask::SetLock {
        voids: Some(2),
        ..request(first, file, 3, None)
    };
    assert_eq!(bed.ask(again), DONE);
    assert_eq!(bed.ask(request(first, file, 4, EXCLUSIVE)), DONE);
    let refused = bed.ask(late);
    assert!(
        matches!(&refused, CoordinatorReply::Refused(why) if why.cause == Cause::Stale),
        "{refused:?}"
    );
    assert!(is_held(&bed.ask(request(second, file, 1, SHARED))));
}
