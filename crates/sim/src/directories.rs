//! A directory that one client makes, fills, moves and removes, under all faults: a file below it has the old path
//! until the move and the new one from then on.

use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::workload::draw_size;
use gabion_client::{Cause, ClientError};

/// Makes a directory with a file that no other client knows, moves it, and removes both.
pub(crate) async fn move_directory(
    cluster: &Cluster,
    client: &SimClient,
) -> Result<(), ClientError> {
    let number: u64 = cluster.world.roll(crate::dice::Dice::any);
    let [from, to] = ["from", "to/there"].map(|place| format!("moved/{number}/{place}"));
    client.client.make_directory(&from).await?;
    let [old, new] = [&from, &to].map(|directory| format!("{directory}/below/file"));
    client.put(&old, draw_size(cluster)).await?;
    client.rename_directory((&from, &to), (&old, &new)).await?;
    client.open(&new).await?;
    if client.open(&old).await.is_ok() {
        client.fail(format!(
            "{old} is there, though its directory was moved to {to}"
        ));
    }
    client.count(|coverage| coverage.directory_count += 1);
    client.remove(&new).await?;
    let is_full = client.client.remove_directory(&to).await;
    match is_full {
        // A directory is in it.
        Err(error) if error.cause() == Cause::NotEmpty => {}
        Ok(()) => client.fail(format!("{to} was removed with the directory below it")),
        Err(error) => return Err(error),
    }
    client
        .client
        .remove_directory(&format!("{to}/below"))
        .await?;
    client.client.remove_directory(&to).await
}
