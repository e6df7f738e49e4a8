//! A directory that one client makes, fills, moves and removes, under all faults: a file below it has the old path
//! until the move and the new one from then on, and both keep the mode that they were given.

use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::workload::draw_size;
use gabion_client::{Cause, ClientError};
use gabion_meta::{AttributeChange, Attributes, NewAttributes};

/// Makes a directory with a file that no other client knows, gives both a mode, moves it, and removes both.
pub(crate) async fn move_directory(
    cluster: &Cluster,
    client: &SimClient,
) -> Result<(), ClientError> {
    let number: u64 = cluster.world.roll(crate::dice::Dice::any);
    let [from, to] = ["from", "to/there"].map(|place| format!("moved/{number}/{place}"));
    client
        .client
        .make_directory(&from, NewAttributes::DIRECTORY)
        .await?;
    let [old, new] = [&from, &to].map(|directory| format!("{directory}/below/file"));
    client.put(&old, draw_size(cluster)).await?;
    let mode = (number % (u64::from(Attributes::MODE_MAX) + 1)) as u32;
    for path in [&from, &old] {
        let change = AttributeChange {
            mode: Some(mode),
            ..AttributeChange::default()
        };
        client.client.set_attributes(path, &change).await?;
    }
    client.rename_directory((&from, &to), (&old, &new)).await?;
    client.open(&new).await?;
    if client.open(&old).await.is_ok() {
        client.fail(format!(
            "{old} is there, though its directory was moved to {to}"
        ));
    }
    for path in [&to, &new] {
        let (_, attributes) = client.client.inode(path).await?;
        if attributes.mode != mode {
            client.fail(format!(
                "{path} has the mode {:o}, not {mode:o}",
                attributes.mode
            ));
        }
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
