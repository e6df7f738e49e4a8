//! The engine by the checks that `meta` has for all engines, with commits whose answers are lost.

use crate::fixture::{Server, open_through};
use crate::model::{Bed, operations, run};
use crate::transactions::keeps_transactions_whole;
use gabion_meta::{Meta, MetaError};
use gabion_sql::PostgresStore;
use gabion_testbed::database::{Cut, Relay};
use proptest::arbitrary::any;
use proptest::test_runner::{Config, TestRunner};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn transactions_are_whole() {
    let Some(server) = Server::shared() else {
        return;
    };
    let name = server.new_database();
    keeps_transactions_whole(&server.open(&name).unwrap());
}

/// A database behind a relay that cuts some connections at a commit: an operation is done once all the same.
struct DatabaseBed<'s> {
    server: &'s Server,
    relay: &'s Relay,
    name: String,
    /// Chooses the cuts; its own small generator, so that a failing case can be replayed.
    cuts: u64,
}

impl DatabaseBed<'_> {
    fn open(&self) -> PostgresStore {
        open_through(self.relay, &self.name, PATIENCE)
    }
}

impl Bed for DatabaseBed<'_> {
    type Store = PostgresStore;

    fn create(&mut self) -> PostgresStore {
        self.name = self.server.new_database();
        self.open()
    }

    fn reopen(&mut self, store: PostgresStore, _: bool) -> PostgresStore {
        drop(store);
        self.open()
    }

    fn perform<T>(
        &mut self,
        _: &Meta<PostgresStore>,
        operation: impl Fn() -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        self.cuts = self.cuts.wrapping_mul(6_364_136_223_846_793_005) + 1;
        match self.cuts >> 61 {
            0 => self.relay.cut_next(Cut::BeforeCommit),
            1 => self.relay.cut_next(Cut::AtCommit),
            2 => self.relay.cut_next(Cut::AfterCommit),
            _ => {}
        }
        operation()
    }
}

#[test]
fn operations_are_as_the_model_says_whatever_answers_are_lost() {
    let Some(server) = Server::shared() else {
        return;
    };
    let relay = server.relay();
    let config = Config {
        cases: 4,
        failure_persistence: None,
        ..Config::default()
    };
    let drawn = (operations(30), any::<u64>());
    // Chance may draw few cuts.
    let mut rounds = 0..5;
    while relay.cut_count() <= 5 && rounds.next().is_some() {
        let done = TestRunner::new(config.clone()).run(&drawn, |(operations, cuts)| {
            let bed = DatabaseBed {
                server: &server,
                relay: &relay,
                name: String::new(),
                cuts,
            };
            run(bed, &operations);
            Ok(())
        });
        done.unwrap();
    }
    assert!(relay.cut_count() > 5, "{} cuts", relay.cut_count());
}
