//! A database that is slow, gone for a while, or gone for good.

use crate::fixture::{Server, count_up, counted, open_through};
use gabion_meta::{KeyValue, MetaError};
use gabion_sql::{DatabaseAddress, PostgresStore, SqlError, StoreOptions};
use gabion_testbed::database::Stop;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
    // The last commit is not known, so nothing may be decided on it.
    assert_eq!(count_up(&store), Err(failed.clone()));
    assert_eq!(store.read(|txn| txn.get(b"count")), Err(failed));
    drop(store);
    let count = counted(&server.open(&name).unwrap());
    assert!((1..=2).contains(&count), "{count}");
}

#[test]
fn a_silent_database_ends_the_store_after_a_time() {
    let Some(server) = Server::shared() else {
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
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let store = server.open(&name).unwrap();
    assert_eq!(count_up(&store), Ok(1));
    lose_commits(&server, &name, 1);
    let failed = count_up(&store).unwrap_err();
    assert!(matches!(failed, MetaError::WentBack { .. }), "{failed}");
}

/// The database is as a standby would be that did not get the last transactions.
fn lose_commits(server: &Server, name: &str, count: u64) {
    let lost = format!("UPDATE gabion_leader SET sequence = sequence - {count}");
    server.database.execute(name, &lost).unwrap();
}

#[test]
fn a_database_that_has_lost_a_noted_commit_is_refused_at_the_start() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (name, other) = (server.new_database(), server.new_database());
    let noted = server.directory().join(format!("last-commit-{name}"));
    let options = StoreOptions {
        last_commit: Some(noted.clone()),
        ..StoreOptions::of("a test")
    };
    let open = |name: &str| PostgresStore::open(server.address(name), &options);
    let store = open(&name).unwrap();
    for count in 1..=3 {
        assert_eq!(count_up(&store), Ok(count));
    }
    drop(store);
    // Renewals of the lease change nothing, so they may get lost; the last commit may not.
    let store = open(&name).unwrap();
    assert_eq!(count_up(&store), Ok(4));
    drop(store);
    lose_commits(&server, &name, 1);
    let refused = open(&name).map(drop).unwrap_err();
    let SqlError::LostCommits { found, needed, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(found + 1, *needed);
    let sentence = refused.to_string();
    assert!(
        sentence.contains(&noted.display().to_string()),
        "{sentence}"
    );
    // Another database has numbers of its own.
    let store = open(&other).unwrap();
    assert_eq!(count_up(&store), Ok(1));
}

#[test]
fn a_reader_does_not_use_an_answer_that_lacks_commits() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let store = PostgresStore::open(
        server.address(&name),
        &StoreOptions {
            patience: Duration::from_millis(300),
            cache_bytes: 0,
            ..StoreOptions::of("a test")
        },
    )
    .unwrap();
    assert_eq!(count_up(&store), Ok(1));
    assert_eq!(counted(&store), 1);
    // The connection of readers is there already, and no other is made.
    lose_commits(&server, &name, 1);
    let read = store.read(|txn| txn.get(b"another")).unwrap_err();
    let is_refused = matches!(read, MetaError::Storage { .. } | MetaError::WentBack { .. });
    assert!(is_refused, "{read}");
}

#[test]
fn a_host_that_hangs_does_not_hide_the_next() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    relay.pause();
    let host = |directory: &Path| directory.display().to_string().replace('/', "%2F");
    let (hangs, answers) = (host(relay.directory()), host(server.database.socket()));
    let url = format!("postgres://gabion@{hangs},{answers}/{name}");
    let address = DatabaseAddress::parse(&url).unwrap();
    let store = PostgresStore::open(address.clone(), &StoreOptions::of("a test")).unwrap();
    assert_eq!(count_up(&store), Ok(1));
    drop(store);
    // The host that has answered is tried first from then on.
    let began = Instant::now();
    drop(PostgresStore::open(address, &StoreOptions::of("a test")).unwrap());
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_start_waits_for_a_database_that_is_down_and_not_for_one_that_refuses() {
    let Some(server) = Server::start() else {
        return;
    };
    let name = server.new_database();
    server.database.stop(Stop::Fast).unwrap();
    let command = StoreOptions::of_command("a command");
    let refused = PostgresStore::open(server.address(&name), &command);
    assert!(
        matches!(refused, Err(SqlError::Unreachable { .. })),
        "{refused:?}"
    );
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| server.open(&name));
        server.database.start().unwrap();
        assert_eq!(count_up(&opening.join().unwrap().unwrap()), Ok(1));
    });
    let began = Instant::now();
    let refused = server.open("absent");
    assert!(
        matches!(refused, Err(SqlError::Unreachable { .. })),
        "{refused:?}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}
