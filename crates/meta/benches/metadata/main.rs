//! Measures the metadata's rates of operations on files, from one client and from sixteen, and the disk time of a
//! transaction.
//!
//! Each operation is one durable transaction on redb; a file has one extent of `rs(6,3)`. Beside the rates stands the
//! disk's rate of page syncs, one after another: the limit of a single client. Sixteen clients share syncs.
//!
//! `cargo bench -p gabion-meta --bench metadata [-- --quick]`; `--quick` takes a tenth.

mod operations;

use gabion_meta::{Meta, RedbStore};
use operations::{cluster, create, rates, together};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Goal for renames and creations from 16 clients, a second.
const CHANGES_GOAL: f64 = 3_000.0;
/// Goal for openings, a second.
const OPENINGS_GOAL: f64 = 5_000.0;
/// The longest time of a page of a list of all names, in milliseconds.
const PAGE_GOAL_MS: f64 = 10.0;
/// The most bytes of the store a file.
const BYTES_GOAL: f64 = 300.0;
/// Names of a page.
const PAGE_COUNT: usize = 1_000;

/// Deletes the metadata at the end.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let count: u64 = if is_quick { 400 } else { 4_000 };
    let name = format!("gabion-metadata-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&directory.0).expect("a temporary directory");
    println!(
        "a sync of a page after another: {:.0} a second",
        syncs_a_second(&directory.0, count / 4)
    );
    let path = directory.0.join("meta");
    let (meta, pool) = cluster(RedbStore::create(&path).expect("a new store"));
    rates((&meta, &pool), count, |what, clients, rate| {
        let goal = match what {
            _ if clients == 1 => None,
            "openings" => Some(OPENINGS_GOAL),
            _ => Some(CHANGES_GOAL),
        };
        let verdict = goal.map_or(String::new(), |goal| {
            let word = if rate >= goal { "met" } else { "missed" };
            format!("; goal {goal:.0}: {word}")
        });
        println!("{what:9} from {clients:2} clients: {rate:7.0} a second{verdict}");
    });
    list(&meta, &path, if is_quick { 20_000 } else { 1_000_000 });
}

/// Lists many names by pages, and sizes the store.
fn list(meta: &Meta<RedbStore>, path: &Path, count: u64) {
    let before = std::fs::metadata(path).map_or(0, |file| file.len());
    let known = meta.files("", None, usize::MAX).expect("a list").len() as u64;
    // Sixteen at a time, as they share syncs.
    let pool = meta.pools().expect("the pool").remove(0);
    let each = count / 16;
    let took = together(16, |client| {
        for at in 0..each {
            create(meta, &pool, &format!("list/{client:02}/{at:07}"));
        }
    });
    println!(
        "{count} more files with one extent each in {took:.0} s, beside {known}: {:.0} bytes of the store a \
         file; goal {BYTES_GOAL:.0}",
        (std::fs::metadata(path).map_or(0, |file| file.len()) - before) as f64 / count as f64
    );
    let name = |at: u64| format!("list/{:02}/{:07}", at / each, at % each);
    let page_count = PAGE_COUNT as u64;
    page_ms(meta, "first", None);
    page_ms(meta, "middle", Some(&name(8 * each)));
    page_ms(meta, "last", Some(&name(16 * each - page_count - 1)));
}

/// Lists a page of all names behind one, and prints its time.
fn page_ms(meta: &Meta<RedbStore>, what: &str, after: Option<&str>) {
    let began = Instant::now();
    let page = meta.list("", after, None, PAGE_COUNT).expect("a page");
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    assert_eq!(page.files.len(), PAGE_COUNT);
    let word = if took_ms <= PAGE_GOAL_MS {
        "met"
    } else {
        "missed"
    };
    println!(
        "the {what} page of {PAGE_COUNT} names: {took_ms:.1} ms; goal {PAGE_GOAL_MS:.0}: {word}"
    );
}

fn syncs_a_second(directory: &Path, count: u64) -> f64 {
    let path = directory.join("page");
    let mut file = std::fs::File::create(path).expect("a file");
    let page = [7; 4096];
    file.write_all(&page).expect("a disk with room");
    let began = Instant::now();
    for _ in 0..count {
        file.seek(SeekFrom::Start(0)).expect("a file");
        file.write_all(&page).expect("a disk with room");
        file.sync_data().expect("a disk that syncs");
    }
    count as f64 / began.elapsed().as_secs_f64()
}
