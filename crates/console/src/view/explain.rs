//! One byte of a file: its location, the reason for it, and the effect of a read or an update of it now.

use super::counted;
use super::files::is_lost;
use gabion_client::{Client, ClientError, FileStat};
use gabion_layout::{ByteRange, ChunkIndex, Geometry, RackId, StripeRecord};
use gabion_plan::Cost;
use gabion_protocol::message::{Liveness, NodeStatus};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Bytes of the update that is explained, if the file has as many.
const UPDATE_BYTES: u64 = 4 << 10;

/// The facts about one byte of a file.
#[derive(Debug)]
pub struct Located {
    /// The layout around it.
    pub stat: FileStat,
    /// Position of its stripe in the layout.
    pub at: usize,
    /// Data chunks of its stripe.
    k: usize,
    /// Its chunk, and its position there.
    pub chunk: ChunkIndex,
    /// Its position in the chunk.
    pub chunk_offset: u64,
}

/// A chunk of the stripe of an explained byte.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct ChunkView {
    /// The chunk's number in its stripe.
    pub chunk: u8,
    /// `data`, `parity` or `a copy`.
    pub holds: &'static str,
    /// Its node; null if the coordinator does not know it any more.
    pub node: Option<u32>,
    /// The node's rack.
    pub rack: Option<u32>,
    /// The node's address.
    pub address: Option<String>,
    /// `there`, `lost`, or `its node does not answer`.
    pub state: &'static str,
}

/// The explanation of one byte of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Explained {
    /// The file.
    pub name: String,
    /// The offset of the byte.
    pub offset: u64,
    /// Always false: bytes of holes have nothing to explain.
    pub hole: bool,
    /// The pool.
    pub pool: String,
    /// The code.
    pub code: String,
    /// The stripe.
    pub stripe: u64,
    /// The offset of the stripe in the file.
    pub stripe_offset: u64,
    /// The stripe's generation.
    pub generation: u64,
    /// The chunk with the byte.
    pub chunk: u8,
    /// The byte's position in the chunk.
    pub chunk_offset: u64,
    /// All chunks of the stripe.
    pub chunks: Vec<ChunkView>,
    /// Further lost chunks that the stripe survives.
    pub failures_left: i32,
    /// Whether updates of the stripe wait for a commit.
    pub appending: bool,
    /// Cross-rack bytes of an update of 4 KiB there; null if none can be planned.
    pub update_cross_rack_bytes: Option<u64>,
    /// Bytes of it between nodes of one rack.
    pub update_inner_rack_bytes: Option<u64>,
    /// The way in which a read of the byte is answered.
    pub read: String,
    /// The failures that the stripe survives, and the reason.
    pub redundancy: String,
}

/// The place of a byte that no stripe has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stripeless {
    /// A hole.
    Hole,
    /// The metadata.
    Inline,
}

impl Stripeless {
    /// Explains the byte at an offset of a file.
    pub fn sentence(self, name: &str, offset: u64) -> String {
        match self {
            Self::Hole => format!(
                "byte {offset} of {name} is in a hole: it is zero, and takes no space until it is written"
            ),
            Self::Inline => format!(
                "byte {offset} of {name} is inline: the metadata have it, because the file is small; reads and writes \
                 of it go to the coordinator, and it is as safe as the metadata"
            ),
        }
    }
}

/// Finds a byte of a file; the inner error is its place if no stripe has it.
///
/// # Errors
/// [`ClientError::Usage`] for a byte that the file does not have; those of [`Client::open`].
pub async fn locate(
    client: &Client,
    name: &str,
    offset: u64,
) -> Result<Result<Located, Stripeless>, ClientError> {
    let file = client.open(name).await?;
    let size = file.size_bytes();
    if offset >= size {
        return Err(ClientError::Usage(match size {
            0 => format!("{name} is empty, so there is nothing to explain"),
            _ => format!(
                "{name} has {size} bytes, from 0 to {}; there is no byte {offset}",
                size - 1
            ),
        }));
    }
    let (stat, _) = file.stat_window(offset).await?;
    find(stat, offset)
}

/// The stripe and the chunk of a byte.
fn find(stat: FileStat, offset: u64) -> Result<Result<Located, Stripeless>, ClientError> {
    let layout = &stat.layout;
    let mut stripes = layout.stripes.iter().zip(&layout.offsets);
    let found = stripes.position(|(stripe, &start)| {
        let data_bytes = layout.pool_of(stripe).spec.data_bytes(stripe.chunk_bytes);
        start <= offset && offset - start < data_bytes
    });
    let Some(at) = found else {
        let inline = layout.file.inline.map_or(0, |inline| inline.length_bytes);
        let is_inline = offset < inline;
        return Ok(Err(if is_inline {
            Stripeless::Inline
        } else {
            Stripeless::Hole
        }));
    };
    let stripe = &layout.stripes[at];
    let spec = &layout.pool_of(stripe).spec;
    let geometry = Geometry::new(spec.k, spec.m, spec.sub_chunks, stripe.chunk_bytes);
    let geometry = geometry.map_err(broken)?;
    let within = ByteRange::new(offset - layout.offsets[at], 1);
    let parts = geometry.split(within).map_err(broken)?;
    let part = parts
        .first()
        .ok_or_else(|| broken("the stripe has no chunk for this byte"))?;
    let (chunk, chunk_offset) = (part.chunk, part.range.offset);
    let spec_k = spec.k;
    Ok(Ok(Located {
        at,
        k: spec_k,
        chunk,
        chunk_offset,
        stat,
    }))
}

fn broken(why: impl std::fmt::Display) -> ClientError {
    ClientError::Broken(why.to_string())
}

/// The length and the cost of an update at an offset of a file; a sentence if none can be planned now.
pub async fn update_cost(
    client: &Client,
    name: &str,
    offset: u64,
    size: u64,
) -> (u64, Result<Cost, String>) {
    let length = UPDATE_BYTES.min(size.saturating_sub(offset));
    let planned = client.plan_update(name, ByteRange::new(offset, length));
    let cost = planned.await.map_err(|error| error.to_string());
    let cost = cost.map(|planned| {
        let mut sum = Cost::default();
        for planned in planned {
            sum.add(&Cost::of(&planned.plan, &planned.topology));
        }
        sum
    });
    (length, cost)
}

impl Located {
    /// Its stripe.
    pub fn stripe(&self) -> &StripeRecord {
        &self.stat.layout.stripes[self.at]
    }

    /// The node of a chunk; none if the coordinator does not know it any more.
    pub fn node_of(&self, chunk: ChunkIndex) -> Option<&NodeStatus> {
        let node = self.stripe().node_of(chunk)?;
        self.stat
            .layout
            .nodes
            .iter()
            .find(|status| status.node == node)
    }

    /// The state of a chunk in a few words.
    pub fn state_of(&self, chunk: ChunkIndex) -> &'static str {
        match self.node_of(chunk).map(|node| node.liveness) {
            _ if is_lost(&self.stat, self.stripe(), chunk) => "lost",
            Some(Liveness::Up) => "there",
            _ => "its node does not answer",
        }
    }

    /// The contents of a chunk.
    pub fn kind(&self, chunk: ChunkIndex) -> &'static str {
        match (self.k, chunk.at() < self.k) {
            (1, _) => "a copy",
            (_, true) => "data",
            (_, false) => "parity",
        }
    }

    /// Chunks of the stripe by rack.
    fn by_rack(&self) -> BTreeMap<RackId, u32> {
        let mut racks = BTreeMap::new();
        for chunk in self.stripe().chunks() {
            if let Some(node) = self.node_of(chunk) {
                *racks.entry(node.rack).or_default() += 1;
            }
        }
        racks
    }

    /// Returns a sentence about the answer to a read of the byte.
    pub fn read_sentence(&self) -> String {
        match self.node_of(self.chunk) {
            Some(node) if self.state_of(self.chunk) == "there" => {
                format!("a read takes it from {} in {}", node.node, node.rack)
            }
            _ => format!(
                "a read decodes it from {} other chunks of the stripe",
                self.k
            ),
        }
    }

    /// Returns a sentence about the failures that the stripe survives, and the reason.
    pub fn redundancy_sentence(&self) -> String {
        let left = self.stat.failures_left[self.at];
        let racks = self.by_rack();
        let most = racks.values().max().copied().unwrap_or(0);
        let spread = format!(
            "its chunks are in {}, at most {most} in one",
            counted(racks.len() as u64, "rack", "racks")
        );
        let stripe = self.stripe();
        let lost = stripe
            .chunks()
            .filter(|&chunk| self.state_of(chunk) == "lost")
            .count();
        let lost = match lost {
            0 => String::new(),
            count => format!(", {} lost", counted(count as u64, "chunk is", "chunks are")),
        };
        let waits = if self.stat.layout.appending.contains(&stripe.id) {
            "; updates wait for a commit, so their copies count instead of parity"
        } else {
            ""
        };
        match left {
            ..0 => format!("the stripe has lost data; {spread}{lost}"),
            _ => format!(
                "the stripe survives {} of any chunks; {spread}{lost}{waits}",
                counted(left as u64, "further loss", "further losses")
            ),
        }
    }

    /// The whole explanation.
    pub fn explain(&self, name: &str, offset: u64, update: &Result<Cost, String>) -> Explained {
        let (stripe, layout) = (self.stripe(), &self.stat.layout);
        let chunk = |chunk: ChunkIndex| {
            let node = self.node_of(chunk);
            ChunkView {
                chunk: chunk.0,
                holds: self.kind(chunk),
                node: node.map(|node| node.node.0),
                rack: node.map(|node| node.rack.0),
                address: node.map(|node| node.address.clone()),
                state: self.state_of(chunk),
            }
        };
        let spec = &layout.pool_of(stripe).spec;
        Explained {
            name: name.to_owned(),
            offset,
            hole: false,
            pool: spec.name.clone(),
            code: spec.code.clone(),
            stripe: stripe.id.0,
            stripe_offset: layout.offsets[self.at],
            generation: stripe.generation.0,
            chunk: self.chunk.0,
            chunk_offset: self.chunk_offset,
            chunks: stripe.chunks().map(chunk).collect(),
            failures_left: self.stat.failures_left[self.at],
            appending: layout.appending.contains(&stripe.id),
            update_cross_rack_bytes: update.as_ref().ok().map(|cost| cost.cross_rack_bytes),
            update_inner_rack_bytes: update.as_ref().ok().map(|cost| cost.inner_rack_bytes),
            read: self.read_sentence(),
            redundancy: self.redundancy_sentence(),
        }
    }
}
