//! A database that is slow, gone for a while, or gone for good.

use crate::fixture::{Server, count_up, counted, open_through};
use gabion_meta::{KeyValue, MetaError};
use gabion_testbed::database::Stop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn a_restart_of_the_database_is_waited_for() {
    const CLIENTS: u64 = 4;
    const EACH: u64 = 100;
    let Some(server) = Server::start() else {
        return;
    };
    let name = server.new_database();
    let store = server.open(&name).unwrap();
    let done_count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    count_up(&store).unwrap();
                    done_count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for (stop, reached) in [(Stop::Fast, 50), (Stop::Immediate, 200)] {
            while done_count.load(Ordering::Relaxed) < reached {
                std::thread::yield_now();
            }
            server.database.stop(stop).unwrap();
            server.database.start().unwrap();
        }
    });
    assert_eq!(counted(&store), CLIENTS * EACH);
    drop(store);
    assert_eq!(counted(&server.open(&name).unwrap()), CLIENTS * EACH);
}

#[test]
fn a_database_that_is_gone_for_good_ends_the_store() {
    let Some(server) = Server::start() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let store = open_through(&relay, &name, Duration::from_millis(300));
    assert_eq!(count_up(&store), Ok(1));
    server.database.stop(Stop::Fast).unwrap();
    let failed = count_up(&store).unwrap_err();
    assert!(matches!(failed, MetaError::Storage { .. }), "{failed}");
    server.database.start().unwrap();
    // What was committed last is not known, so nothing may be decided on it.
    assert_eq!(count_up(&store), Err(failed.clone()));
    assert_eq!(store.read(|txn| txn.get(b"count")), Err(failed));
    drop(store);
    let count = counted(&server.open(&name).unwrap());
    assert!((1..=2).contains(&count), "{count}");
}

#[test]
fn a_silent_database_is_given_up_after_a_time() {
    let Some(server) = Server::start() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let store = open_through(&relay, &name, Duration::from_secs(1));
    assert_eq!(count_up(&store), Ok(1));
    relay.pause();
    let failed = store.read(|txn| txn.get(b"another")).unwrap_err();
    assert!(matches!(failed, MetaError::Storage { .. }), "{failed}");
}

#[test]
fn a_database_that_has_lost_commits_is_refused() {
    let Some(server) = Server::start() else {
        return;
    };
    let name = server.new_database();
    let store = server.open(&name).unwrap();
    assert_eq!(count_up(&store), Ok(1));
    // As a standby would that did not get the last transactions.
    let host = server.database.socket().display().to_string();
    let lost = "UPDATE gabion_leader SET sequence = sequence - 1";
    let mut psql = server.database.program("psql");
    psql.args(["-q", "-U", "gabion", "-h", &host, "-c", lost, &name]);
    assert!(psql.status().unwrap().success());
    let failed = count_up(&store).unwrap_err();
    let MetaError::Deposed { reason } = &failed else {
        panic!("{failed}");
    };
    assert!(reason.contains("lacks transactions"), "{reason}");
}
