//! `gabion chaos`: injected faults in a cluster of this machine.

use super::health;
use crate::arguments::{ChaosCommand, Place};
use crate::failure::{Context, Failure};
use crate::output::say;
use gabion_layout::NodeId;
use gabion_testbed::cluster::lock;
use gabion_testbed::{Engine, LocalCluster, Started};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A chunk file's data begins behind its header block.
const HEADER_BYTES: u64 = 4096;

pub(crate) async fn run(command: ChaosCommand, place: &Place) -> Result<(), Failure> {
    let directory = place.dir.as_deref().ok_or_else(|| {
        Failure::usage("chaos needs --dir, the directory of a cluster made by 'gabion cluster up'")
    })?;
    let cluster = LocalCluster::open(directory)?;
    match command {
        ChaosCommand::KillNode { node } => {
            cluster.kill_node(node).await?;
            println!("killed node {node}");
        }
        ChaosCommand::KillCoordinator => {
            cluster.kill_coordinator().await?;
            println!("killed the coordinator");
        }
        ChaosCommand::StartNode { node } => {
            let _lock = lock(directory)?;
            match cluster.start_node(node).await? {
                Started::Serves => println!("node {node} runs"),
                Started::Waits(join) => say(health::join_trouble(NodeId(node), &join)),
                Started::IsNoMember => say(format!(
                    "node {node} runs, but counts as failed and may not join yet; 'gabion cluster log' tells why"
                )),
            }
        }
        ChaosCommand::FlipBit { .. } if cluster.options().engine == Engine::Tween => {
            return Err(Failure::usage(
                "nodes on arrays have no chunk files; remove one of a node's devices instead",
            ));
        }
        ChaosCommand::FlipBit { node, file, byte } => {
            cluster.check_node(node)?;
            let path = flip_bit(&cluster.node_directory(node), file, byte)?;
            println!("flipped a bit of {}", path.display());
        }
    }
    Ok(())
}

/// Flips the lowest bit of a byte near the end of a chunk file, where its data is.
pub(crate) fn flip_bit(node: &Path, file: usize, byte: u64) -> Result<PathBuf, Failure> {
    let mut files = Vec::new();
    chunk_files(&node.join("store").join("chunks"), &mut files)?;
    files.sort();
    let count = files.len();
    let path = files.into_iter().nth(file).ok_or_else(|| {
        Failure::usage(format!(
            "the node has {count} chunk files, so there is no file {file}"
        ))
    })?;
    let doing = || format!("flip a bit of {}", path.display());
    let chunk = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .context(doing())?;
    let length = chunk.metadata().context(doing())?.len();
    let room = length.saturating_sub(HEADER_BYTES);
    if byte >= room {
        return Err(Failure::usage(format!(
            "choose a byte below {room}, not {byte}"
        )));
    }
    let at = length - 1 - byte;
    let mut value = [0];
    chunk.read_exact_at(&mut value, at).context(doing())?;
    chunk.write_all_at(&[value[0] ^ 1], at).context(doing())?;
    Ok(path)
}

fn chunk_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let doing = || format!("list {}", directory.display());
    for entry in fs::read_dir(directory).context(doing())? {
        let path = entry.context(doing())?.path();
        if path.is_dir() {
            chunk_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
