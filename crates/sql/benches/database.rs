//! Measures the metadata's rates of operations on files in a database, beside redb on the same disk, and the rates of
//! `pgbench` on the same server with the same statements.
//!
//! Each operation is a durable transaction; a creation is two. Queries and SQL transactions an operation show what the
//! leader's cache and its shared commits save. `pgbench` sends the statements of one SQL transaction of a creation: the
//! leader's row, rows set by one statement, rows removed by another, and the commit. It sends them from one client on
//! the leader's row, as the leader does, and from 16 clients without that row, which no two transactions can change at
//! a time.
//!
//! `cargo bench -p gabion-sql --bench database [-- --quick]`; `--quick` takes a tenth.

#[path = "../../meta/benches/metadata/operations.rs"]
mod operations;

use gabion_meta::{KeyValue, RedbStore};
use gabion_sql::{DatabaseAddress, PostgresStore, StoreOptions, migrate};
use gabion_testbed::database::{Endurance, LocalDatabase};
use operations::{cluster, create, rates, together};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Rows that a creation's two transactions set, and those that they remove, as its writes show them.
const PUT_COUNT: usize = 12;
/// The part of what `pgbench` gets that is to be reached.
const GOAL: f64 = 0.7;

/// Deletes the data at the end.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn main() {
    if !LocalDatabase::is_installed() {
        println!("skipped: no PostgreSQL server; install the package postgresql");
        return;
    }
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let count: u64 = if is_quick { 400 } else { 4_000 };
    let name = format!("gabion-database-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&directory.0).expect("a temporary directory");
    let redb = redb_rates(&directory.0, count);
    let server =
        LocalDatabase::create(&directory.0, Endurance::Power).expect("a server that starts");
    server.create_database("meta").expect("a new database");
    let address = DatabaseAddress::parse(&server.url("meta")).expect("an address");
    migrate(&address).expect("tables");
    let options = StoreOptions::of("a bench");
    let store = PostgresStore::open(address, &options).expect("a database of our own");
    let (meta, pool) = cluster(store);
    let before = RefCell::new(meta.store().traffic());
    rates((&meta, &pool), count, |what, clients, rate| {
        let now = meta.store().traffic();
        let then = before.replace(now);
        let operations = (count * (1 + clients / 4) / clients * clients) as f64;
        println!(
            "{what:9} from {clients:2} clients: {rate:7.0} a second; redb {:7.0}; {:.2} queries and {:.2} commits an \
             operation",
            redb[&(what.to_owned(), clients)],
            (now.query_count - then.query_count) as f64 / operations,
            (now.commit_count - then.commit_count) as f64 / operations,
        );
    });
    let seconds = if is_quick { 3 } else { 15 };
    let each = count / 4;
    let took = together(16, |client| {
        for at in 0..each {
            create(&meta, &pool, &format!("again/{client}/{at}"));
        }
    });
    // Two transactions a creation.
    let ours = (2 * 16 * each) as f64 / took;
    drop(meta);
    let alone = pgbench(&server, &directory.0, (1, true), seconds);
    let beside = pgbench(&server, &directory.0, (16, false), seconds);
    println!("pgbench from  1 client, with the leader's row: {alone:7.0} transactions a second");
    println!("pgbench from 16 clients, without it: {beside:17.0}");
    let ratio = ours / beside;
    let word = if ratio >= GOAL { "met" } else { "missed" };
    println!(
        "transactions of creations from 16 clients: {ours:.0} a second, {ratio:.2} of that; goal {GOAL}: {word}"
    );
}

fn redb_rates(directory: &Path, count: u64) -> BTreeMap<(String, u64), f64> {
    let store = RedbStore::create(&directory.join("meta")).expect("a new store");
    let (meta, pool) = cluster(store);
    let found = RefCell::new(BTreeMap::new());
    rates((&meta, &pool), count, |what, clients, rate| {
        found.borrow_mut().insert((what.to_owned(), clients), rate);
    });
    let rows = meta.store().read(|txn| txn.scan(&[0], &[255], 1));
    assert_eq!(rows.expect("a store that reads").len(), 1);
    found.into_inner()
}

/// Returns the rate of `pgbench` with the statements of an SQL transaction, in transactions a second.
fn pgbench(
    server: &LocalDatabase,
    directory: &Path,
    (clients, with_leader): (u32, bool),
    seconds: u32,
) -> f64 {
    let mut script = String::from("\\set n random(1, 1000000000)\n");
    script.push_str("BEGIN ISOLATION LEVEL SERIALIZABLE;\n");
    if with_leader {
        script.push_str(
            "UPDATE gabion_leader SET sequence = sequence + 1, expires = now() + interval '3000 milliseconds' WHERE \
             id = 1;\n",
        );
    }
    let list = |text: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..PUT_COUNT).map(text).collect();
        all.join(", ")
    };
    let key = |at: usize| format!("decode(md5('{at}/' || :client_id || '/' || :n), 'hex')");
    let value = |_: usize| "decode(repeat('ab', 80), 'hex')".to_owned();
    writeln!(
        script,
        "INSERT INTO gabion_rows (key, value) SELECT * FROM unnest(ARRAY[{}], ARRAY[{}]) ON CONFLICT (key) DO UPDATE \
         SET value = excluded.value;",
        list(&key),
        list(&value)
    )
    .expect("writes to a string succeed");
    writeln!(
        script,
        "DELETE FROM gabion_rows WHERE key = ANY(ARRAY[{}, {}]);",
        key(0),
        key(1)
    )
    .expect("writes to a string succeed");
    script.push_str("COMMIT;\n");
    let path = directory.join("script.sql");
    std::fs::write(&path, script).expect("a disk with room");
    let mut command = server.program("pgbench");
    command
        .args(["--no-vacuum", "--protocol=prepared", "--username=gabion"])
        .args(["--client", &clients.to_string()])
        .args(["--jobs", "2", "--time", &seconds.to_string()])
        .arg(format!("--host={}", server.socket().display()))
        .arg(format!("--file={}", path.display()))
        .arg("meta");
    let output = command.output().expect("pgbench runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = rate.and_then(|line| line.split(' ').next()?.parse().ok());
    let complaint = String::from_utf8_lossy(&output.stderr);
    rate.unwrap_or_else(|| panic!("pgbench gave no rate: {said}{complaint}"))
}
