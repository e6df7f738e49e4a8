//! `gabion chaos`: injected faults in a cluster of this machine.

use super::health;
use crate::arguments::{ChaosCommand, Place};
use crate::failure::{Context, Failure};
use crate::output::{Format, print_json, remark, say};
use gabion_layout::NodeId;
use gabion_testbed::cluster::lock;
use gabion_testbed::{Engine, LocalCluster, Started};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A chunk file's data begins behind its header block.
const HEADER_BYTES: u64 = 4096;
/// The default of --byte. In a smaller chunk, the first byte is damaged.
const USUAL_BYTE: u64 = 12345;

pub(crate) async fn run(
    command: ChaosCommand,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let directory = place.dir.as_deref().ok_or_else(|| {
        Failure::usage("no cluster given; name the directory of a cluster made by 'gabion cluster up' with --dir")
    })?;
    let cluster = LocalCluster::open(directory)?;
    match command {
        ChaosCommand::KillNode { node } => {
            cluster.kill_node(node).await?;
            let json = json!({ "node": node, "state": "killed" });
            print_done(format, &json, &format!("killed node {node}"))
        }
        ChaosCommand::KillCoordinator => {
            cluster.kill_coordinator().await?;
            let json = json!({ "coordinator": "killed" });
            print_done(format, &json, "killed the coordinator")
        }
        ChaosCommand::StartNode { node } => {
            let _lock = lock(directory)?;
            if !cluster.coordinator_runs() {
                remark(format_args!(
                    "the coordinator does not run, and node {node} cannot join without it; waiting for it at \
                     most 60 s"
                ));
            }
            print_started(node, &cluster.start_node(node).await?, format)
        }
        ChaosCommand::FlipBit { .. } if cluster.options().engine == Engine::Tween => {
            Err(Failure::usage(
                "nodes with arrays have no chunk files; remove a device of the node instead",
            ))
        }
        ChaosCommand::FlipBit { node, file, byte } => {
            cluster.check_node(node)?;
            let path = flip_bit(&cluster.node_directory(node), file, byte)?;
            let path = path.display().to_string();
            let json = json!({ "node": node, "flipped_file": path });
            print_done(format, &json, &format!("flipped a bit of {path}"))
        }
    }
}

/// Prints the outcome of a command: an object or a sentence.
fn print_done(format: Format, json: &Value, sentence: &str) -> Result<(), Failure> {
    if format == Format::Json {
        return print_json(json);
    }
    say(sentence);
    Ok(())
}

/// Prints the state of a node after a start.
fn print_started(node: u32, started: &Started, format: Format) -> Result<(), Failure> {
    let (state, sentence) = match started {
        Started::Serves => ("runs", format!("node {node} runs")),
        Started::Waits(join) => ("joins", health::join_trouble(NodeId(node), join)),
        Started::IsNoMember => (
            "failed",
            format!(
                "node {node} runs, but counts as failed and may not join yet; see 'gabion cluster log'"
            ),
        ),
        Started::HasLeft => {
            return Err(Failure::usage(format!(
                "node {node} was drained and has left the cluster; allow its return with 'gabion node drain {node} \
                --cancel', then start it"
            )));
        }
    };
    print_done(format, &json!({ "node": node, "state": state }), &sentence)
}

/// Flips the lowest bit of a byte of a chunk file's data.
fn flip_bit(node: &Path, file: usize, byte: Option<u64>) -> Result<PathBuf, Failure> {
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
    let byte = byte.unwrap_or_else(|| USUAL_BYTE.min(room.saturating_sub(1)));
    if byte >= room {
        return Err(Failure::usage(format!(
            "{} has {room} bytes of data; choose --byte below that, not {byte}",
            path.display()
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
