//! Agents of one group's blocks, each with a plugin that knows its block.

use crate::agent::Agent;
use crate::block::{Checksum, write_block};
use crate::frame::{Kind, accept, connect};
use crate::message::BlockName;
use crate::policy::{Codec, Policy};
use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(super) const CELL_BYTES: u64 = 4096;
const SLICE_BYTES: u32 = 1024;
const GROUP_ID: i64 = -9_223_372_036_854_775_792;
const STAMP: u64 = 1001;
const POOL: &str = "BP-1-127.0.0.1-1";
const TOKEN: &[u8] = b"permitted";
/// Longest wait for a frame. It ends a test that hangs, and is no measure of the machine.
pub(super) const LIMIT: Duration = Duration::from_mins(2);

/// The fault of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Nothing listens at its address.
    Refuses,
    /// It takes connections and answers nothing.
    Silent,
    /// It speaks another protocol.
    OtherVersion,
    /// It closes every connection after its first messages.
    DiesInTheMiddle,
}

/// Agents, and the blocks that they read.
pub(super) struct Cluster {
    policy: Policy,
    codec: String,
    group_bytes: u64,
    blocks: BTreeMap<u8, Vec<u8>>,
    agents: BTreeMap<u8, String>,
    directory: TempDir,
    tasks: Vec<JoinHandle<()>>,
    pub(super) token: Vec<u8>,
    /// The positions that are rebuilt.
    pub(super) range: ByteRange,
    /// The time limit of a rebuild.
    pub(super) deadline_ms: u32,
    /// The time without progress after which a helper counts as failed. Only a test with a silent helper has to wait
    /// for it.
    pub(super) stall_ms: u32,
    /// The choice of a path, as in a request.
    pub(super) path: Vec<u8>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The result for a plugin.
#[derive(Debug)]
pub(super) struct Rebuilt {
    pub(super) blocks: Vec<Vec<u8>>,
    pub(super) run_count: u32,
    pub(super) corrupt: Vec<u8>,
}

/// The parity of whole units of data.
pub(super) fn parity_of(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0; data[0].len()]; code.m()];
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut places: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    code.encode(&data, &mut places).unwrap();
    parity
}

impl Cluster {
    pub(super) async fn new(codec: &str, (k, m): (usize, usize), group_bytes: u64) -> Self {
        let policy = Policy::new(Codec::named(codec).unwrap(), k, m, CELL_BYTES).unwrap();
        let length = |at: usize| policy.block_bytes(ChunkIndex::new(at), group_bytes) as usize;
        let mut data: Vec<Vec<u8>> = (0..k)
            .map(|unit| {
                let mut bytes: Vec<u8> = (0..length(unit))
                    .map(|at| (unit * 89 + at * 13 + at / 251) as u8)
                    .collect();
                bytes.resize(length(0), 0);
                bytes
            })
            .collect();
        data.extend(parity_of(policy.code(), &data));
        let mut cluster = Self {
            codec: codec.to_owned(),
            group_bytes,
            blocks: BTreeMap::new(),
            agents: BTreeMap::new(),
            directory: tempfile::tempdir().unwrap(),
            tasks: Vec::new(),
            token: TOKEN.to_vec(),
            range: ByteRange::new(0, u64::MAX),
            deadline_ms: 600_000,
            stall_ms: 30_000,
            path: vec![0],
            policy,
        };
        for (at, mut bytes) in data.into_iter().enumerate() {
            bytes.truncate(cluster.policy.block_bytes(ChunkIndex::new(at), group_bytes) as usize);
            if !bytes.is_empty() {
                cluster.add(at as u8, bytes).await;
            }
        }
        cluster
    }

    async fn add(&mut self, block: u8, bytes: Vec<u8>) {
        let (path, sums_path) = self.paths(block);
        let checksum = Checksum {
            kind: 2,
            bytes_per_checksum: 512,
        };
        write_block(&path, &sums_path, &bytes, checksum);
        let name = BlockName {
            pool: POOL.to_owned(),
            id: GROUP_ID + i64::from(block),
            stamp: STAMP,
            length: bytes.len() as u64,
        };
        let plugin = self.serve_plugin(name, &path, &sums_path).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let agent = Agent::new(plugin).unwrap();
        self.tasks.push(tokio::spawn(async move {
            agent.serve(listener).await;
        }));
        self.agents.insert(block, address.to_string());
        self.blocks.insert(block, bytes);
    }

    fn paths(&self, block: u8) -> (PathBuf, PathBuf) {
        let path = |end: &str| self.directory.path().join(format!("blk_{block}{end}"));
        (path(""), path("_1001.meta"))
    }

    /// A plugin that permits to read one block, with the right token.
    async fn serve_plugin(&mut self, name: BlockName, path: &Path, sums_path: &Path) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let expected = crate::message::open_body(&name, TOKEN);
        let mut opened = Vec::new();
        for path in [path, sums_path] {
            let path = path.to_str().unwrap();
            opened.extend((path.len() as u16).to_be_bytes());
            opened.extend(path.as_bytes());
        }
        self.tasks.push(tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let (mut reading, writing) = accept(stream, from, LIMIT).await.unwrap();
                let request = reading.frame().await.unwrap();
                assert_eq!(request.kind, Kind::Open);
                if request.body == expected {
                    writing
                        .send(Kind::Opened, vec![opened.clone().into()])
                        .await
                        .unwrap();
                } else {
                    writing
                        .send(Kind::Refused, vec![b"the token is wrong"[..].into()])
                        .await
                        .unwrap();
                }
            }
        }));
        address.to_string()
    }

    pub(super) fn block(&self, block: u8) -> &[u8] {
        &self.blocks[&block]
    }

    /// Changes a byte of a block's file, and leaves its checksum.
    pub(super) fn flip_byte(&self, block: u8, at: u64) {
        let (path, _) = self.paths(block);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at as usize] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }

    /// Puts another process in the place of a block's agent.
    pub(super) async fn spoil(&mut self, block: u8, fault: Fault) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let real = self.agents.insert(block, address).unwrap();
        if fault == Fault::Refuses {
            return;
        }
        self.tasks.push(tokio::spawn(async move {
            let mut kept_open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                match fault {
                    Fault::Silent => kept_open.push(stream),
                    Fault::OtherVersion => stream.write_all(&[7; 64]).await.unwrap(),
                    Fault::DiesInTheMiddle => {
                        // Long enough for the preparations, and for some slices.
                        let mut real = tokio::net::TcpStream::connect(&real).await.unwrap();
                        tokio::spawn(async move {
                            let (mut of_asker, mut to_asker) = stream.split();
                            let (mut of_agent, mut to_agent) = real.split();
                            let back = async {
                                let mut bytes = vec![0; 6000];
                                let mut left = 6000;
                                while left > 0 {
                                    let count = of_agent.read(&mut bytes[..left]).await?;
                                    to_asker.write_all(&bytes[..count]).await?;
                                    left -= count;
                                }
                                std::io::Result::Ok(())
                            };
                            tokio::select! {
                                _ = tokio::io::copy(&mut of_asker, &mut to_agent) => {}
                                _ = back => {}
                            }
                        });
                    }
                    Fault::Refuses => {}
                }
            }
        }));
    }

    /// Has blocks rebuilt by the agent of a node that has none, without the `absent` blocks.
    pub(super) async fn rebuild(
        &self,
        targets: &[u8],
        scheme: &str,
        absent: &[u8],
    ) -> Result<Rebuilt, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let agent = Agent::new("127.0.0.1:1".to_owned()).unwrap();
        let serving = tokio::spawn(agent.serve(listener));
        let (mut reading, writing) = connect(&address).await.unwrap();
        let body = self.task(targets, scheme, absent);
        writing
            .send(Kind::Rebuild, vec![body.into()])
            .await
            .unwrap();
        let mut blocks = vec![Vec::new(); targets.len()];
        let result = loop {
            let frame = reading
                .frame_within(LIMIT)
                .await
                .map_err(|error| error.to_string())?;
            match frame.kind {
                Kind::Checksum => assert_eq!(frame.body[..], [2, 0, 0, 2, 0]),
                Kind::Row => {
                    let position = u64::from_be_bytes(frame.body[..8].try_into().unwrap());
                    let received = blocks.iter().map(Vec::len).max().unwrap() as u64;
                    assert_eq!(position, self.range.offset + received);
                    let mut rest = &frame.body[8..];
                    for block in &mut blocks {
                        let (length, after) = rest.split_at(4);
                        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
                        block.extend(&after[..length]);
                        rest = &after[length..];
                    }
                    assert!(rest.is_empty());
                }
                Kind::Rebuilt | Kind::Failed => {
                    let corrupt_count = frame.body[12] as usize;
                    let reason = &frame.body[13 + corrupt_count + 2..];
                    if frame.kind == Kind::Failed {
                        break Err(String::from_utf8(reason.to_vec()).unwrap());
                    }
                    break Ok(Rebuilt {
                        blocks,
                        run_count: u32::from_be_bytes(frame.body[8..12].try_into().unwrap()),
                        corrupt: frame.body[13..13 + corrupt_count].to_vec(),
                    });
                }
                other => panic!("{other:?}"),
            }
        };
        serving.abort();
        result
    }

    /// Sends a request to an agent that has no block, and gives its answer.
    pub(super) async fn ask(plugin: &str, kind: Kind, body: Vec<u8>) -> (Kind, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(Agent::new(plugin.to_owned()).unwrap().serve(listener));
        let (mut reading, writing) = connect(&address).await.unwrap();
        writing.send(kind, vec![body.into()]).await.unwrap();
        let answer = reading.frame_within(LIMIT).await.unwrap();
        serving.abort();
        (answer.kind, answer.body.to_vec())
    }

    /// The body of a plugin's request.
    fn task(&self, targets: &[u8], scheme: &str, absent: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        let text = |body: &mut Vec<u8>, text: &str| {
            body.extend((text.len() as u16).to_be_bytes());
            body.extend(text.as_bytes());
        };
        text(&mut body, &self.codec);
        body.push(self.policy.code().k() as u8);
        body.push(self.policy.code().m() as u8);
        body.extend((CELL_BYTES as u32).to_be_bytes());
        text(&mut body, POOL);
        body.extend(GROUP_ID.to_be_bytes());
        body.extend(STAMP.to_be_bytes());
        body.extend(self.group_bytes.to_be_bytes());
        text(&mut body, scheme);
        body.extend(SLICE_BYTES.to_be_bytes());
        body.extend(self.deadline_ms.to_be_bytes());
        body.extend(self.stall_ms.to_be_bytes());
        text(&mut body, "/rack-0");
        let is_source = |block: &u8| !targets.contains(block) && !absent.contains(block);
        let sources: Vec<u8> = self.agents.keys().copied().filter(is_source).collect();
        body.push(sources.len() as u8);
        for source in sources {
            body.push(source);
            text(&mut body, &self.agents[&source]);
            text(
                &mut body,
                if source % 2 == 0 {
                    "/rack-0"
                } else {
                    "/rack-1"
                },
            );
            body.extend((self.token.len() as u32).to_be_bytes());
            body.extend(&self.token);
        }
        body.push(targets.len() as u8);
        body.extend(targets);
        body.extend(self.range.offset.to_be_bytes());
        body.extend(self.range.length.to_be_bytes());
        body.extend(&self.path);
        body
    }
}
