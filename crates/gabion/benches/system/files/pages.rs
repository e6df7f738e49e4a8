//! Pages of a list of a million names, through the client: the first, one in the middle and the last. A client would
//! take too long to create the files. So the bench stops the cluster and creates them in its metadata, as the
//! metadata's bench does. The yardstick is a look-up of one name.

use super::{NAMES_POOL, Scale, at_most, connect};
use crate::trial::Trial;
use crate::updates::rank;
use anyhow::{Context, ensure};
use gabion_client::Client;
use gabion_meta::{Existing, Meta, NewAttributes, RedbStore, WallClock, WallTime};
use std::path::Path;
use std::time::Instant;

/// The goal for a page.
const GOAL_MS: f64 = 10.0;
/// Names of a page.
const PAGE_COUNT: usize = 1_000;
/// Directories of the names.
const DIRECTORY_COUNT: usize = 16;
/// Threads that make files: they share syncs.
const THREAD_COUNT: usize = 64;
/// Times that each page, and the look-up, is asked for.
const TIMES_COUNT: usize = 20;
/// Spreads the numbers of requests, which clients draw at random; it is odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

pub(super) async fn run(trial: &mut Trial, arguments: &[&str], scale: Scale) -> anyhow::Result<()> {
    // As many in each directory.
    let count = scale.name_count / DIRECTORY_COUNT * DIRECTORY_COUNT;
    let begun = Instant::now();
    let make = |path: &Path| make_files(path, count);
    trial.restart(arguments, make).await?;
    println!(
        "    {count} names, made beside the cluster in {:.0} s with its restart:",
        begun.elapsed().as_secs_f64()
    );
    let client = connect(trial).await?;
    let pages = [
        ("the first page", None),
        ("a page in the middle", Some(count / 2)),
        ("the last page", Some(count - PAGE_COUNT)),
    ];
    for (what, behind) in pages {
        let after = behind.map(|at| name(at - 1, count));
        let mut times_ms = Vec::with_capacity(TIMES_COUNT);
        for _ in 0..TIMES_COUNT {
            times_ms.push(page_ms(&client, after.as_deref(), behind.unwrap_or(0), count).await?);
        }
        let first_ms = times_ms[0];
        let median_ms = rank(&mut times_ms, 0.5);
        println!(
            "        {what} of {PAGE_COUNT} names: median {median_ms:.1} ms (goal at most {GOAL_MS:.0} ms: {}), when \
             first read {first_ms:.1} ms",
            at_most(median_ms, GOAL_MS)
        );
    }
    let mut times_ms = Vec::with_capacity(TIMES_COUNT);
    for at in 0..TIMES_COUNT {
        let begun = Instant::now();
        client.inode(name(at, count)).await?;
        times_ms.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    println!(
        "        a look-up of one name: median {:.2} ms",
        rank(&mut times_ms, 0.5)
    );
    Ok(())
}

/// The time of a page, whose first name is that of this number.
async fn page_ms(
    client: &Client,
    after: Option<&str>,
    first: usize,
    count: usize,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let page = client.list("list/", after, None, PAGE_COUNT as u64).await?;
    let took_ms = begun.elapsed().as_secs_f64() * 1e3;
    let found = page.files.first().map(|file| file.name.as_str());
    let is_whole = page.files.len() == PAGE_COUNT && found == Some(&*name(first, count));
    ensure!(is_whole, "a page begins with {found:?}, or is too short");
    Ok(took_ms)
}

/// Makes empty files in the metadata of a stopped cluster.
fn make_files(path: &Path, count: usize) -> anyhow::Result<()> {
    let store = RedbStore::open(path).context("open the metadata")?;
    let meta = Meta::open(store, WallClock::stopped(WallTime::default()))?;
    let mut pools = meta.pools()?.into_iter();
    let pool = pools.find(|pool| pool.spec.name == NAMES_POOL);
    let pool = pool.context("the pool of names is gone")?.id;
    let make = |thread: usize| {
        for at in (thread..count).step_by(THREAD_COUNT) {
            let new = (name(at, count), Existing::Stays, NewAttributes::FILE);
            let number = (at as u64 + 1).wrapping_mul(SPREAD);
            meta.put_inline(new, pool, &[], (number, 0))?;
        }
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let make = &make;
        let threads: Vec<_> = (0..THREAD_COUNT)
            .map(|thread| scope.spawn(move || make(thread)))
            .collect();
        let mut joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        joined.try_for_each(|made| made)
    })
}

/// The names in their order.
fn name(at: usize, count: usize) -> String {
    let each = count / DIRECTORY_COUNT;
    format!("list/{:02}/{:07}", at / each, at % each)
}
