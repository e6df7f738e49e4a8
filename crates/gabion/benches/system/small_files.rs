//! Small files: stored inline in the metadata and in stripes, by sixteen writers at once, on one cluster in turns.
//! Beside them the local disk: new files of the same size, each written and synced, by as many threads.

use crate::machine;
use crate::median;
use crate::trial::Trial;
use anyhow::Context;
use bytes::Bytes;
use futures::future::try_join_all;
use gabion_client::{Client, ClientOptions, NewFile};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a file.
const FILE_BYTES: usize = 4 << 10;
/// Writers at once.
const WRITER_COUNT: usize = 16;
/// The goal for puts of inline files a second.
const GOAL: f64 = 5_000.0;
/// The pools: inline files, and stripes.
const POOLS: [(&str, &str); 2] = [("inline", "--inline=4KiB"), ("stripes", "--inline=0")];

/// Amounts of work.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Rounds over both pools and the disk; the medians are printed.
    pub(crate) round_count: usize,
    /// Length of each measurement of puts.
    pub(crate) seconds: u64,
}

/// The figures of a pool, one of each a round.
#[derive(Default)]
struct Rates {
    puts: Vec<f64>,
    overwrites: Vec<f64>,
    gets: Vec<f64>,
    removals: Vec<f64>,
    /// Bytes on disk for each byte of a file.
    disk: Vec<f64>,
}

/// Stores, overwrites, reads and removes small files, and prints the figures.
pub(crate) async fn run(scale: Scale) -> anyhow::Result<()> {
    let trial = Trial::start(&["--racks=3", "--nodes-per-rack=3"]).await?;
    for (pool, inline) in POOLS {
        let name = ["pool", "create", pool, "--code=rs(6,3)", "--chunk=1MiB"];
        trial.run(&[&name[..], &[inline]].concat()).await?;
    }
    let security = trial.security()?;
    let client = gabion_wire::connect(trial.coordinator(), security, ClientOptions::default());
    let client = client.await?;
    let mut rates = [Rates::default(), Rates::default()];
    let mut plain = Vec::new();
    for round in 0..scale.round_count {
        for ((pool, _), rates) in POOLS.iter().zip(&mut rates) {
            measure((&trial, &client), (pool, round), scale, rates).await?;
        }
        plain.push(plain_rate(
            &trial.path(&format!("plain-{round}")),
            scale.seconds,
        )?);
    }
    println!(
        "files of 4 KiB, rs(6,3) on 9 nodes, {WRITER_COUNT} writers at once, {} rounds:",
        scale.round_count
    );
    let [inline, stripes] = rates;
    let rate = median(inline.puts.clone());
    let word = if rate >= GOAL { "met" } else { "missed" };
    println!("    puts: inline {rate:.0}/s (goal at least {GOAL:.0}: {word})");
    let line = |what: &str, inline: Vec<f64>, stripes: Vec<f64>| {
        let (inline, stripes) = (median(inline), median(stripes));
        let ratio = inline / stripes;
        println!("    {what}: inline {inline:.0}/s, in stripes {stripes:.0}/s; ratio {ratio:.1}");
    };
    line("puts", inline.puts, stripes.puts);
    line(
        "overwrites of 512 bytes",
        inline.overwrites,
        stripes.overwrites,
    );
    line("opens with a whole read", inline.gets, stripes.gets);
    line("removals", inline.removals, stripes.removals);
    println!(
        "    bytes on disk for a byte: inline {:.2}, in stripes {:.2} (twice the code's 1.5 is 3.0)",
        median(inline.disk),
        median(stripes.disk)
    );
    println!(
        "    the disk alone: {:.0} new files a second, each written and synced, {WRITER_COUNT} threads",
        median(plain)
    );
    Ok(())
}

async fn measure(
    (trial, client): (&Trial, &Client),
    (pool, round): (&str, usize),
    scale: Scale,
    rates: &mut Rates,
) -> anyhow::Result<()> {
    let bytes = Bytes::from(machine::pattern(FILE_BYTES, round as u64));
    let before = used_bytes(&trial.path("cluster"))?;
    let begun = Instant::now();
    let limit = Duration::from_secs(scale.seconds);
    let writer = async |writer: usize| {
        let mut count = 0;
        while begun.elapsed() < limit {
            let name = name(pool, round, writer, count);
            let new = NewFile {
                pool: Some(pool),
                ..NewFile::named(&name)
            };
            client
                .put_over(new, &bytes[..], FILE_BYTES as u64, &())
                .await?;
            count += 1;
        }
        anyhow::Ok(count)
    };
    let counts = try_join_all((0..WRITER_COUNT).map(writer)).await?;
    let total: usize = counts.iter().sum();
    rates
        .puts
        .push(total as f64 / begun.elapsed().as_secs_f64());
    let used = used_bytes(&trial.path("cluster"))?.saturating_sub(before);
    if round == 0 {
        // Later rounds use pages that the removals of earlier ones have freed.
        rates.disk.push(used as f64 / (total * FILE_BYTES) as f64);
    }
    let each = async |work: &dyn Fn(String) -> Work| {
        let begun = Instant::now();
        let files = |(writer, &count): (usize, &usize)| async move {
            for number in 0..count {
                work(name(pool, round, writer, number)).await?;
            }
            anyhow::Ok(())
        };
        try_join_all(counts.iter().enumerate().map(files)).await?;
        anyhow::Ok(total as f64 / begun.elapsed().as_secs_f64())
    };
    let part = bytes.slice(..512);
    let overwrite = |name: String| -> Work {
        let (client, part) = (client.clone(), part.clone());
        Box::pin(async move { Ok(client.write(&name, 1000, part).await?) })
    };
    rates.overwrites.push(each(&overwrite).await?);
    let get = |name: String| -> Work {
        let client = client.clone();
        Box::pin(async move {
            Ok(client
                .get(&name, futures::io::sink(), &())
                .await
                .map(drop)?)
        })
    };
    rates.gets.push(each(&get).await?);
    let remove = |name: String| -> Work {
        let client = client.clone();
        Box::pin(async move { Ok(client.rm(&name).await?) })
    };
    rates.removals.push(each(&remove).await?);
    Ok(())
}

type Work = futures::future::LocalBoxFuture<'static, anyhow::Result<()>>;

fn name(pool: &str, round: usize, writer: usize, number: usize) -> String {
    format!("{pool}/{round}/{writer}/{number}")
}

/// Bytes that the files below a directory take on disk.
fn used_bytes(directory: &Path) -> anyhow::Result<u64> {
    let output = std::process::Command::new("du")
        .args(["--summarize", "--block-size=1"])
        .arg(directory)
        .output()
        .context("start du")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    bytes.with_context(|| format!("understand du: {text}"))
}

/// New files a second that threads write and sync in a directory.
fn plain_rate(directory: &Path, seconds: u64) -> anyhow::Result<f64> {
    fs::create_dir(directory).context("make a directory")?;
    let bytes = machine::pattern(FILE_BYTES, 1);
    let begun = Instant::now();
    let writer = |writer: usize| {
        let mut count = 0;
        while begun.elapsed() < Duration::from_secs(seconds) {
            let mut file = File::create(directory.join(format!("{writer}-{count}")))?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            count += 1;
        }
        std::io::Result::Ok(count)
    };
    let counts = std::thread::scope(|scope| {
        let writer = &writer;
        let threads: Vec<_> = (0..WRITER_COUNT)
            .map(|number| scope.spawn(move || writer(number)))
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        joined.collect::<Result<Vec<usize>, _>>()
    });
    let counts = counts.context("write small files")?;
    let rate = counts.iter().sum::<usize>() as f64 / begun.elapsed().as_secs_f64();
    fs::remove_dir_all(directory).context("delete what was written")?;
    Ok(rate)
}
