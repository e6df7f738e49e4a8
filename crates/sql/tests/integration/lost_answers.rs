//! Connections that are cut at a commit, so that its outcome is unknown: nothing is lost, nothing is done twice.

use crate::fixture::{Rival, Server, count_up, counted, open_through};
use gabion_testbed::database::Cut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn a_commit_whose_answer_is_lost_is_done_once() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let store = open_through(&relay, &name, Duration::from_mins(1));
    let mut expected = 0;
    for cut in [Cut::BeforeCommit, Cut::AtCommit, Cut::AfterCommit].repeat(8) {
        relay.cut_next(cut);
        expected += 1;
        assert_eq!(count_up(&store), Ok(expected), "{cut:?}");
        assert_eq!(counted(&store), expected, "{cut:?}");
    }
    assert!(relay.cut_count() >= 24);
    drop(store);
    // The first leader's memory and the database agree.
    assert_eq!(counted(&server.open(&name).unwrap()), expected);
}

#[test]
fn clients_that_share_commits_lose_nothing_when_connections_are_cut() {
    const CLIENTS: u64 = 8;
    const EACH: u64 = 15;
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let store = open_through(&relay, &name, Duration::from_mins(1));
    let (done_count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let seen = std::thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|_| {
            let (store, done_count) = (&store, &done_count);
            let one = move |_| {
                let seen = count_up(store).unwrap();
                done_count.fetch_add(1, Ordering::Release);
                seen
            };
            scope.spawn::<_, Vec<u64>>(move || (0..EACH).map(one).collect())
        });
        let clients: Vec<_> = clients.collect();
        let (relay, done_count, is_over) = (&relay, &done_count, &is_over);
        scope.spawn(move || {
            for at in 0.. {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                // One cut after another; each waits for a commit that falls to it.
                let before = relay.cut_count();
                relay.cut_next([Cut::BeforeCommit, Cut::AtCommit, Cut::AfterCommit][at % 3]);
                while relay.cut_count() == before && !is_over.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                // A commit whose answer is lost counts once a later one has been answered.
                let done = done_count.load(Ordering::Acquire);
                while done_count.load(Ordering::Acquire) == done && !is_over.load(Ordering::Acquire)
                {
                    std::thread::yield_now();
                }
                if at % 5 == 4 {
                    relay.cut_all();
                }
            }
        });
        let seen: Vec<Vec<u64>> = clients.into_iter().map(|c| c.join().unwrap()).collect();
        is_over.store(true, Ordering::Release);
        seen
    });
    assert!(relay.cut_count() > 3, "{} cuts", relay.cut_count());
    let mut numbers = seen.concat();
    numbers.sort_unstable();
    // Each client got a number of its own.
    assert!(numbers.into_iter().eq(1..=CLIENTS * EACH));
    drop(store);
    assert_eq!(counted(&server.open(&name).unwrap()), CLIENTS * EACH);
}

#[test]
fn aborted_commits_are_tried_again() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let store = server.open(&name).unwrap();
    let mut count = 0;
    let is_aborted = || store.traffic().try_count > store.traffic().commit_count;
    // A commit that waits for the rival's cannot be serialised. Whether it waits by then is the scheduler's choice.
    while !is_aborted() && count < 50 {
        let rival = Rival::lock(&server, &name);
        let tries = store.traffic().try_count;
        std::thread::scope(|scope| {
            let counting = scope.spawn(|| count_up(&store));
            while store.traffic().try_count == tries {
                std::thread::yield_now();
            }
            rival.commit();
            count += 1;
            assert_eq!(counting.join().unwrap(), Ok(count));
        });
    }
    assert!(is_aborted(), "{:?}", store.traffic());
    assert_eq!(counted(&store), count);
}
