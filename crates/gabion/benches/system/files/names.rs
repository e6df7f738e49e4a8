//! Creations of empty files, openings and renames by the wire, from sixteen clients with a connection each. A creation
//! is one request, an opening too; a rename looks its file up first. Beside them the disk's syncs, one after another.

use super::{NAMES_POOL, Scale, at_least, connect};
use crate::machine;
use crate::median;
use crate::trial::Trial;
use futures::future::try_join_all;
use gabion_client::{Client, NewFile};
use gabion_meta::Existing;
use std::time::{Duration, Instant};

/// Clients at once.
const CLIENT_COUNT: usize = 16;
/// Goals, a second.
const CREATIONS_GOAL: f64 = 3_000.0;
const OPENINGS_GOAL: f64 = 5_000.0;
const RENAMES_GOAL: f64 = 3_000.0;

pub(super) async fn run(trial: &Trial, scale: Scale) -> anyhow::Result<()> {
    let clients = try_join_all((0..CLIENT_COUNT).map(|_| connect(trial))).await?;
    let [mut creations, mut openings, mut renames, mut syncs] = [(); 4].map(|()| Vec::new());
    for round in 0..scale.round_count {
        syncs.push(machine::syncs_a_second(&trial.path("page"), 500)?);
        let (counts, rate) = create(&clients, round, scale.seconds).await?;
        creations.push(rate);
        let open = async |client: &Client, name: String| {
            client.open(&name).await?;
            anyhow::Ok(())
        };
        openings.push(each((&clients, &counts), round, &open).await?);
        let rename = async |client: &Client, name: String| {
            let to = format!("{name}.old");
            client.rename(name, to, Existing::Stays).await?;
            anyhow::Ok(())
        };
        renames.push(each((&clients, &counts), round, &rename).await?);
    }
    for (what, rates, goal) in [
        ("creations", creations, CREATIONS_GOAL),
        ("openings", openings, OPENINGS_GOAL),
        ("renames", renames, RENAMES_GOAL),
    ] {
        let rate = median(rates);
        println!(
            "    {what} from {CLIENT_COUNT} clients: {rate:.0}/s (goal at least {goal:.0}: {})",
            at_least(rate, goal)
        );
    }
    println!(
        "        the disk alone: {:.0} syncs of a page a second, one after another; clients share syncs",
        median(syncs)
    );
    Ok(())
}

/// Creates files for some time. Returns how many each client has made, and how many a second all have.
async fn create(
    clients: &[Client],
    round: usize,
    seconds: u64,
) -> anyhow::Result<(Vec<usize>, f64)> {
    let begun = Instant::now();
    let limit = Duration::from_secs(seconds);
    let creating = async |(number, client): (usize, &Client)| {
        let mut count = 0;
        while begun.elapsed() < limit {
            let name = name(round, number, count);
            let new = NewFile {
                pool: Some(NAMES_POOL),
                ..NewFile::named(&name)
            };
            client.create(new).await?;
            count += 1;
        }
        anyhow::Ok(count)
    };
    let counts = try_join_all(clients.iter().enumerate().map(creating)).await?;
    let total: usize = counts.iter().sum();
    Ok((counts, total as f64 / begun.elapsed().as_secs_f64()))
}

/// Does some work with each file, at its client. Returns how many a second.
async fn each(
    (clients, counts): (&[Client], &[usize]),
    round: usize,
    work: &impl AsyncFn(&Client, String) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let working = clients.iter().zip(counts).enumerate();
    let working = working.map(|(number, (client, &count))| async move {
        for at in 0..count {
            work(client, name(round, number, at)).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(working).await?;
    let total: usize = counts.iter().sum();
    Ok(total as f64 / begun.elapsed().as_secs_f64())
}

fn name(round: usize, client: usize, at: usize) -> String {
    format!("names/{round}/{client:02}/{at:07}")
}
