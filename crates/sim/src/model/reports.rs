//! The report period of a coordinator that has started: until all clients have reported which files they have open, any
//! file may be open, and a removed one stays.

use super::within::WITHIN_POOL;
use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::names::SNAPSHOTS;
use gabion_client::NewFile;

/// Interval of looks whether the period is over, and their number: a client that has died ends its session late.
const PAUSE_US: u64 = 500_000;
const LOOK_COUNT_MAX: u32 = 120;

/// Waits until a file is gone as soon as it is removed, and all that were removed before are gone.
pub(crate) async fn await_reports(cluster: &Cluster, client: &SimClient) -> Result<(), String> {
    let path = format!("{SNAPSHOTS}reports");
    for _ in 0..LOOK_COUNT_MAX {
        let new = NewFile {
            pool: Some(WITHIN_POOL),
            ..NewFile::named(&path)
        };
        let nothing: &[u8] = &[];
        let made = client.client.put_over(new, nothing, 0, &()).await;
        made.map_err(|error| format!("a file is not made: {error}"))?;
        let removed = client.client.rm(&path).await;
        removed.map_err(|error| format!("a file is not removed: {error}"))?;
        let left = cluster.observer.orphans(None, 1);
        if left.map_err(|error| error.to_string())?.is_empty() {
            cluster
                .world
                .note("all clients have reported their open files");
            return Ok(());
        }
        cluster.world.sleep(PAUSE_US).await;
    }
    Err("removed files stay, though no client has them open".to_owned())
}
