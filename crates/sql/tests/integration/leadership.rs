//! One process uses a database at a time, and one that was deposed commits nothing.

use crate::fixture::{Rival, Server, count_up, counted, open_through, put_clock_back};
use gabion_meta::{KeyValue, MetaError};
use gabion_sql::{DatabaseAddress, Migration, PostgresStore, SqlError, StoreOptions, migrate};
use std::time::{Duration, Instant};

#[test]
fn a_second_process_is_refused_while_the_first_lives() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let first = server.open(&name).unwrap();
    count_up(&first).unwrap();
    let Err(SqlError::InUse { holder, .. }) = server.open(&name) else {
        panic!("two processes use one database");
    };
    assert_eq!(holder, "a test");
    assert_eq!(count_up(&first), Ok(2), "the first one was disturbed");
    drop(first);
    // The first one has ended its lease, so there is nothing to wait for.
    let began = Instant::now();
    let second = server.open(&name).unwrap();
    assert!(began.elapsed() < gabion_sql::LEASE, "it waited for a lease");
    assert_eq!(counted(&second), 2);
}

#[test]
fn a_deposed_process_neither_commits_nor_reads() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let first = open_through(&relay, &name, Duration::from_mins(1));
    count_up(&first).unwrap();
    // It is as if stopped: its lease expires.
    relay.pause();
    let second = server.open(&name).unwrap();
    assert_eq!(count_up(&second), Ok(2));
    relay.resume();
    for _ in 0..2 {
        let refused = count_up(&first).unwrap_err();
        assert!(matches!(refused, MetaError::Deposed { .. }), "{refused}");
    }
    let read = first.read(|txn| txn.get(b"count")).unwrap_err();
    assert!(matches!(read, MetaError::Deposed { .. }), "{read}");
    drop(first);
    assert_eq!(
        count_up(&second),
        Ok(3),
        "the end of the first one ended the second's lease"
    );
    assert_eq!(counted(&second), 3);
}

#[test]
fn a_database_whose_clock_went_back_gets_another_leader() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let first = open_through(&relay, &name, Duration::from_mins(1));
    count_up(&first).unwrap();
    relay.pause();
    put_clock_back(&server, &name);
    let second = server.open(&name).unwrap();
    assert_eq!(count_up(&second), Ok(2));
    relay.resume();
    let refused = count_up(&first).unwrap_err();
    assert!(matches!(refused, MetaError::Deposed { .. }), "{refused}");
}

#[test]
fn an_idle_process_stays_the_leader() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let first = server.open(&name).unwrap();
    // Asking takes longer than a lease, unless the first one renews it.
    for _ in 0..2 {
        assert!(matches!(server.open(&name), Err(SqlError::InUse { .. })));
    }
    assert_eq!(count_up(&first), Ok(1));
}

#[test]
fn a_read_of_cached_rows_needs_a_valid_lease() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let first = open_through(&relay, &name, Duration::from_mins(1));
    count_up(&first).unwrap();
    let read = || first.read(|txn| Ok(txn.get(b"count")?.is_some()));
    assert_eq!(read(), Ok(true));
    relay.pause();
    let second = server.open(&name).unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(read);
        count_up(&second).unwrap();
        relay.resume();
        let answer = reading.join().unwrap();
        assert!(
            matches!(answer, Err(MetaError::Deposed { .. })),
            "{answer:?}"
        );
    });
}

#[test]
fn tables_are_made_once_and_only_where_they_fit() {
    let Some(server) = Server::shared() else {
        return;
    };
    let server = &*server;
    server.database.create_database("bare").unwrap();
    let address = server.address("bare");
    assert!(matches!(
        server.open("bare"),
        Err(SqlError::NoSchema { .. })
    ));
    assert_eq!(migrate(&address), Ok(Migration { from: 0, to: 1 }));
    assert_eq!(migrate(&address), Ok(Migration { from: 1, to: 1 }));
    let store = server.open("bare").unwrap();
    assert_eq!(counted(&store), 0);
    let absent = DatabaseAddress::parse(&server.database.url("absent")).unwrap();
    let refused = PostgresStore::open(absent, &StoreOptions::of("a test")).unwrap_err();
    assert!(matches!(refused, SqlError::Unreachable { .. }), "{refused}");
    assert!(refused.to_string().contains("absent"), "{refused}");
}

/// Waits until the store's answer whether it leads is as wanted.
fn until_leads(store: &PostgresStore, is_wanted: impl Fn(&Result<(), MetaError>) -> bool) {
    let began = Instant::now();
    while !is_wanted(&store.leads()) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            store.leads()
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_process_that_is_cut_off_vouches_for_nothing_until_it_has_renewed_its_lease() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let first = open_through(&relay, &name, Duration::from_mins(1));
    assert_eq!(first.leads(), Ok(()));
    relay.pause();
    let paused = Instant::now();
    until_leads(&first, |leads| matches!(leads, Err(MetaError::Away { .. })));
    assert!(
        paused.elapsed() < gabion_sql::LEASE,
        "another process may lead by now"
    );
    relay.resume();
    until_leads(&first, Result::is_ok);
    relay.pause();
    let second = server.open(&name).unwrap();
    assert!(
        first.leads().is_err(),
        "two processes vouch for what they know"
    );
    relay.resume();
    // It has nothing to do but to renew its lease.
    until_leads(&first, |leads| {
        matches!(leads, Err(MetaError::Deposed { .. }))
    });
    assert_eq!(second.leads(), Ok(()));
}

#[test]
fn a_command_does_not_end_a_process_that_comes_back_from_an_outage() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let first = open_through(&relay, &name, Duration::from_mins(1));
    assert_eq!(count_up(&first), Ok(1));
    relay.pause();
    until_leads(&first, |leads| matches!(leads, Err(MetaError::Away { .. })));
    std::thread::scope(|scope| {
        let options = StoreOptions::of_command("a command");
        let (server, name) = (&server, &name);
        let command = scope.spawn(move || PostgresStore::open(server.address(name), &options));
        // A coordinator would take over by now.
        std::thread::sleep(gabion_sql::LEASE + Duration::from_secs(1));
        relay.resume();
        let refused = command.join().unwrap();
        assert!(
            matches!(refused, Err(SqlError::InUse { .. })),
            "{refused:?}"
        );
    });
    assert_eq!(count_up(&first), Ok(2));
}

#[test]
fn an_ended_leadership_is_free_at_once_although_the_store_is_still_held() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let first = server.open(&name).unwrap();
    assert_eq!(count_up(&first), Ok(1));
    assert!(first.leadership().release());
    let began = Instant::now();
    let second = server.open(&name).unwrap();
    assert!(began.elapsed() < gabion_sql::LEASE, "it waited for a lease");
    assert_eq!(count_up(&second), Ok(2));
    assert_eq!(count_up(&first), Err(MetaError::Closed));
    assert_eq!(first.leads(), Err(MetaError::Closed));
    assert!(!first.leadership().release(), "it ended another's lease");
    assert_eq!(count_up(&second), Ok(3));
}

#[test]
fn the_end_of_a_leadership_does_not_wait_long_for_a_database() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    let relay = server.relay();
    let store = open_through(&relay, &name, Duration::from_mins(1));
    relay.pause();
    let began = Instant::now();
    assert!(!store.leadership().release());
    assert!(
        began.elapsed() < 2 * gabion_sql::LEASE,
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_row_that_stays_locked_ends_the_request_for_the_leadership() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    drop(server.open(&name).unwrap());
    let rival = Rival::lock(&server, &name);
    let options = StoreOptions {
        watch: Duration::ZERO,
        ..StoreOptions::of("a test")
    };
    let refused = PostgresStore::open(server.address(&name), &options);
    let refused = refused.map(drop).unwrap_err();
    assert!(matches!(refused, SqlError::InUse { .. }), "{refused}");
    rival.commit();
}
