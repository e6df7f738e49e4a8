//! Two clients that take one file over at the same time. The answers to the first one are lost from a step on, and the
//! second one takes the file over in between. The first one must not take it back when it asks again, and must not
//! succeed when it hears of an open that the second one has displaced.

use super::run_at_steps;
use crate::cluster::Cluster;
use crate::ports::COORDINATOR;
use crate::race::{FILE, Raced, Runner, Sharing, options, prepare, shape};
use crate::run::run_script;
use crate::snapshots::Snapshots;
use crate::steps::Act;
use crate::world::lock;
use futures::channel::oneshot;
use futures::future::join;
use gabion_client::{File, TakeOver};
use gabion_layout::UpdateScheme;
use gabion_meta::PutId;
use std::sync::{Arc, Mutex};

const SEED: u64 = 7;

/// Runs it: the first client gets no answers from this step of its open on, until the second one has the file.
fn taken_twice(step: u64) -> Raced {
    let ran = run_script(SEED, shape(UpdateScheme::Plr), |cluster, step_count| {
        script(cluster, (step, step_count))
    });
    ran.into()
}

async fn script(cluster: Arc<Cluster>, (step, step_count): (u64, Arc<Mutex<u64>>)) {
    let world = &cluster.world;
    let snapshots = Arc::new(Snapshots::default());
    drop(prepare(&cluster, (Sharing::Never, &snapshots)).await);
    let first = Runner::new(&cluster, 0, &snapshots, options()).await;
    let second = Runner::new(&cluster, 1, &snapshots, options()).await;
    let put = first.file.put_id();
    let token_before = token(&cluster, put);
    let (cut, is_cut) = oneshot::channel();
    let act: Act = Box::new({
        let (cluster, deaf) = (Arc::clone(&cluster), first.client.party.slot);
        move || {
            cluster.network.cut(COORDINATOR, deaf, true);
            cut.send(()).unwrap_or(());
        }
    });
    world.steps.count(Some((step, act)));
    let open_first = async {
        let opened = first.client.open_exclusive(FILE, TakeOver::Now).await;
        *lock(&step_count) = world.steps.end();
        if opened.as_ref().is_ok_and(File::is_superseded) {
            world.fail("an open succeeds although another client has displaced it".to_owned());
        }
        opened
    };
    let open_second = async {
        if is_cut.await.is_err() {
            // The first open has fewer steps.
            return None;
        }
        let opened = second.client.open_exclusive(FILE, TakeOver::Now).await;
        cluster.network.heal_links();
        Some(opened)
    };
    let (_first, second) = join(open_first, open_second).await;
    if let Some(Err(error)) = &second {
        world.fail(format!("the second client does not get the file: {error}"));
    }
    let opened_count = token(&cluster, put) - token_before;
    if opened_count > 2 {
        world.fail(format!(
            "two clients have opened the file {opened_count} times"
        ));
    }
}

/// The file's token, which each exclusive open raises by one.
fn token(cluster: &Cluster, put: PutId) -> u64 {
    let exclusive = cluster.observer.exclusive(put);
    exclusive.expect("the metadata can be read").token.0
}

#[test]
fn a_client_whose_take_over_was_displaced_neither_succeeds_nor_takes_the_file_back() {
    run_at_steps(&(), 1, taken_twice);
}
