//! `gabion hdfs-agent`: the agent beside a `DataNode` of Hadoop, and the restoration of chunk files of QFS and
//! HDFS-RAID.

use super::serve::{listen_on, raise_descriptor_limit, ready};
use crate::arguments::{FormatName, HdfsAgentOptions, RaidCodec, RestorationOptions};
use crate::failure::{Context, Failure};
use crate::output::{Format as Output, print_json, say};
use gabion_codec::Code;
use gabion_hdfs::{Agent, HdfsError, Restoration, Restored};
use gabion_layout::ChunkIndex;
use gabion_testbed::EndSignals;

/// Differences between an agent's port, or the plugin's port on loopback, and the `DataNode`'s transfer port. The
/// plugin has the same defaults.
const AGENT_OFFSET: u16 = 1000;
const PLUGIN_OFFSET: u16 = 1001;

pub(crate) async fn run(options: HdfsAgentOptions, output: Output) -> Result<(), Failure> {
    match options.restoration.restore {
        Some(format) => restore(format, options.restoration, output).await,
        None => agent(options).await,
    }
}

/// Restores a lost chunk file from the others of its stripe.
async fn restore(
    format: FormatName,
    options: RestorationOptions,
    output: Output,
) -> Result<(), Failure> {
    let missing = || Failure::usage("--restore needs --data, --out and the chunk files");
    let (k, out) = options.data.zip(options.out).ok_or_else(missing)?;
    let chunks: Vec<_> = options
        .chunks
        .into_iter()
        .map(|path| Some(path).filter(|path| path.as_os_str() != "-"))
        .collect();
    let code = code(format, options.codec, k, chunks.len())?;
    let lost: Vec<usize> = (0..chunks.len())
        .filter(|&at| chunks[at].is_none())
        .collect();
    let lost = match (options.lost, &lost[..]) {
        (Some(lost), positions) if positions.contains(&lost) => lost,
        (None, &[only]) => only,
        (_, positions) => {
            let positions: Vec<String> = positions.iter().map(ToString::to_string).collect();
            return Err(Failure::usage(format!(
                "choose the position of the chunk to restore with --lost; lost chunks, given as -, are at: {}",
                if positions.is_empty() {
                    "none".to_owned()
                } else {
                    positions.join(", ")
                }
            )));
        }
    };
    let restoration = Restoration {
        format: format.format(),
        code,
        chunks,
        lost: ChunkIndex::new(lost),
        out,
        length: options.length,
    };
    let restored = restoration.run().await.map_err(|error| match error {
        HdfsError::Policy(_) | HdfsError::Name { .. } => Failure::usage(error.to_string()),
        other => Failure::failed(other.to_string()),
    })?;
    report(&restoration, &restored, output)
}

/// The code of a stripe of `n` chunks, `k` of them with data.
fn code(format: FormatName, codec: RaidCodec, k: usize, n: usize) -> Result<Code, Failure> {
    let m = n.checked_sub(k).filter(|m| *m > 0).ok_or_else(|| {
        Failure::usage(format!(
            "a stripe has more chunks than its {k} data chunks, but only {n} are given; give - for \
        each lost chunk"
        ))
    })?;
    let text = match (format, codec) {
        (FormatName::Qfs, RaidCodec::Rs) => format!("powers({k},{m})"),
        (FormatName::HdfsRaid, RaidCodec::Rs) => format!("polynomial({k},{m})"),
        (FormatName::HdfsRaid, RaidCodec::Xor) if m == 1 => format!("lrc({k},1,0)"),
        (FormatName::HdfsRaid, RaidCodec::Xor) => {
            return Err(Failure::usage(format!(
                "the codec xor has 1 parity chunk, not {m}"
            )));
        }
        (FormatName::Qfs, RaidCodec::Xor) => {
            return Err(Failure::usage("QFS has only one code; omit --codec"));
        }
    };
    text.parse()
        .map_err(|error: gabion_codec::CodeError| Failure::usage(error.to_string()))
}

fn report(restoration: &Restoration, restored: &Restored, output: Output) -> Result<(), Failure> {
    let out = restoration.out.display();
    if output == Output::Json {
        return print_json(&serde_json::json!({
            "chunk": restoration.lost.0,
            "bytes": restored.length,
            "read_bytes": restored.read_bytes,
            "proven_by_chunk": restored.proven_by.map(|chunk| chunk.0),
        }));
    }
    let proof = match restored.proven_by {
        Some(chunk) => format!(
            "chunk {}, which was not needed, is consistent with it",
            chunk.0
        ),
        None => "no spare chunk was left to verify the order and the code".to_owned(),
    };
    say(format!(
        "restored chunk {} with {} bytes as {out}, from {} bytes of others; {proof}",
        restoration.lost.0, restored.length, restored.read_bytes
    ));
    Ok(())
}

async fn agent(options: HdfsAgentOptions) -> Result<(), Failure> {
    raise_descriptor_limit();
    let port = |offset| {
        options.transfer_port.checked_add(offset).ok_or_else(|| {
            Failure::usage(format!(
                "no port is {offset} above {}; name the ports with --listen and --plugin",
                options.transfer_port
            ))
        })
    };
    let listen = match options.listen {
        Some(listen) => listen,
        None => format!("0.0.0.0:{}", port(AGENT_OFFSET)?),
    };
    let plugin = match options.plugin {
        Some(plugin) => plugin,
        None => format!("127.0.0.1:{}", port(PLUGIN_OFFSET)?),
    };
    let mut ends = EndSignals::listen()?;
    let agent = Agent::new(plugin).context("start an agent")?;
    let listener = listen_on(&listen, "--listen").await?;
    let address = listener.local_addr().context("tell the agent's address")?;
    ready(&format!("hdfs-agent://{address}"));
    tokio::select! {
        error = agent.serve(listener) => Err(Failure::failed(format!("cannot accept connections: {error}"))),
        () = ends.recv() => Ok(()),
    }
}
