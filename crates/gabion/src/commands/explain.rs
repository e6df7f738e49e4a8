//! `gabion explain`: where bytes of a file lie, why there, and what a read or an update of them does now.

use super::connect;
use super::stat::is_lost;
use crate::arguments::Place;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, counted, parse_bytes, print_json, say, table};
use gabion_client::{Client, FileStat};
use gabion_layout::{ByteRange, ChunkIndex, Geometry, RackId, StripeRecord};
use gabion_plan::Cost;
use gabion_protocol::message::{Liveness, NodeStatus};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Bytes of the update that is explained, if the file has as many.
const UPDATE_BYTES: u64 = 4 << 10;

/// What is known of one byte of a file.
struct Located {
    stat: FileStat,
    /// Position of its stripe in the layout.
    at: usize,
    /// Data chunks of its stripe.
    k: usize,
    chunk: ChunkIndex,
    chunk_offset: u64,
}

pub(crate) async fn run(what: &str, place: &Place, format: Format) -> Result<(), Failure> {
    let client = connect(place).await?;
    let (name, offset) = name_and_offset(&client, what).await?;
    let file = client.open(&name).await?;
    let size = file.size_bytes();
    if offset >= size {
        return Err(Failure::usage(match size {
            0 => format!("{name} is empty, so there is nothing to explain"),
            _ => format!(
                "{name} has {size} bytes, from 0 to {}; there is no byte {offset}",
                size - 1
            ),
        }));
    }
    let (stat, _) = file.stat_window(offset).await?;
    let Some(found) = find(stat, offset)? else {
        if format == Format::Json {
            return print_json(&json!({ "name": name, "offset": offset, "hole": true }));
        }
        say(format!(
            "byte {offset} of {name} is in a hole: it is zero, and takes no space until it is written"
        ));
        return Ok(());
    };
    let length = UPDATE_BYTES.min(size - offset);
    let update = update_cost(&client, &name, ByteRange::new(offset, length)).await;
    if format == Format::Json {
        return print_json(&found.json(&name, offset, &update));
    }
    found.print(&name, offset, (length, &update));
    Ok(())
}

/// A file's name, and the offset behind its last colon. A file whose own name ends so goes first.
async fn name_and_offset(client: &Client, what: &str) -> Result<(String, u64), Failure> {
    let Some((name, offset)) = what.rsplit_once(':') else {
        return Ok((what.to_owned(), 0));
    };
    match parse_bytes(offset) {
        Ok(offset) if client.find(what).await?.is_none() => Ok((name.to_owned(), offset)),
        _ => Ok((what.to_owned(), 0)),
    }
}

/// The stripe and the chunk of a byte; none in a hole.
fn find(stat: FileStat, offset: u64) -> Result<Option<Located>, Failure> {
    let layout = &stat.layout;
    let mut stripes = layout.stripes.iter().zip(&layout.offsets);
    let found = stripes.position(|(stripe, &start)| {
        let data_bytes = layout.pool_of(stripe).spec.data_bytes(stripe.chunk_bytes);
        start <= offset && offset - start < data_bytes
    });
    let Some(at) = found else {
        return Ok(None);
    };
    let stripe = &layout.stripes[at];
    let spec = &layout.pool_of(stripe).spec;
    let geometry = Geometry::new(spec.k, spec.m, spec.sub_chunks, stripe.chunk_bytes);
    let geometry = geometry.map_err(Failure::failed)?;
    let within = ByteRange::new(offset - layout.offsets[at], 1);
    let parts = geometry.split(within).map_err(Failure::failed)?;
    let part = parts
        .first()
        .ok_or_else(|| Failure::failed("the stripe has no chunk for this byte"))?;
    let (chunk, chunk_offset) = (part.chunk, part.range.offset);
    let spec_k = spec.k;
    Ok(Some(Located {
        at,
        k: spec_k,
        chunk,
        chunk_offset,
        stat,
    }))
}

/// The cost of an update; a sentence if none can be planned now.
async fn update_cost(client: &Client, name: &str, range: ByteRange) -> Result<Cost, String> {
    let planned = client.plan_update(name, range).await;
    let planned = planned.map_err(|error| error.to_string())?;
    let mut sum = Cost::default();
    for planned in planned {
        sum.add(&Cost::of(&planned.plan, &planned.topology));
    }
    Ok(sum)
}

impl Located {
    fn stripe(&self) -> &StripeRecord {
        &self.stat.layout.stripes[self.at]
    }

    fn node_of(&self, chunk: ChunkIndex) -> Option<&NodeStatus> {
        let node = self.stripe().node_of(chunk)?;
        self.stat
            .layout
            .nodes
            .iter()
            .find(|status| status.node == node)
    }

    /// The state of a chunk in a few words.
    fn state_of(&self, chunk: ChunkIndex) -> &'static str {
        match self.node_of(chunk).map(|node| node.liveness) {
            _ if is_lost(&self.stat, self.stripe(), chunk) => "lost",
            Some(Liveness::Up) => "there",
            _ => "its node does not answer",
        }
    }

    /// What a chunk holds.
    fn kind(&self, chunk: ChunkIndex) -> &'static str {
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

    fn print(&self, name: &str, offset: u64, (length, update): (u64, &Result<Cost, String>)) {
        let (stripe, layout) = (self.stripe(), &self.stat.layout);
        let spec = &layout.pool_of(stripe).spec;
        say(format!(
            "byte {offset} of {name} is byte {} of chunk {} of {}, which begins at {} of the file; pool {}, {}, \
             updates by {}, generation {}",
            self.chunk_offset,
            self.chunk.0,
            stripe.id,
            bytes(layout.offsets[self.at]),
            spec.name,
            spec.code,
            spec.update.name(),
            stripe.generation.0
        ));
        let mut chunks = table(&["chunk", "holds", "node", "rack", "address", "state"]);
        for chunk in stripe.chunks() {
            let node = self.node_of(chunk);
            let shown = |of: fn(&NodeStatus) -> String| node.map_or_else(|| "-".to_owned(), of);
            chunks.add_row([
                chunk.0.to_string(),
                self.kind(chunk).to_owned(),
                shown(|node| node.node.0.to_string()),
                shown(|node| node.rack.0.to_string()),
                shown(|node| node.address.clone()),
                self.state_of(chunk).to_owned(),
            ]);
        }
        align_numbers(&mut chunks);
        println!("{chunks}");
        say(self.read_sentence());
        match update {
            Ok(cost) => say(format!(
                "an update of {} there is planned with {} between nodes of one rack, {} across racks, and {} disk writes",
                bytes(length),
                bytes(cost.inner_rack_bytes),
                bytes(cost.cross_rack_bytes),
                cost.write_count
            )),
            Err(error) => say(format!("an update there has no plan now: {error}")),
        }
        say(self.redundancy_sentence());
    }

    /// How a read of the byte is answered.
    fn read_sentence(&self) -> String {
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

    /// What the stripe survives, and why.
    fn redundancy_sentence(&self) -> String {
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
            "; updates wait for a commit, so copies of them count instead of parity"
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

    fn json(&self, name: &str, offset: u64, update: &Result<Cost, String>) -> Value {
        let (stripe, layout) = (self.stripe(), &self.stat.layout);
        let chunk = |chunk: ChunkIndex| {
            let node = self.node_of(chunk);
            json!({
                "chunk": chunk.0,
                "holds": self.kind(chunk),
                "node": node.map(|node| node.node.0),
                "rack": node.map(|node| node.rack.0),
                "address": node.map(|node| &node.address),
                "state": self.state_of(chunk),
            })
        };
        json!({
            "name": name,
            "offset": offset,
            "hole": false,
            "pool": layout.pool_of(stripe).spec.name,
            "code": layout.pool_of(stripe).spec.code,
            "stripe": stripe.id.0,
            "stripe_offset": layout.offsets[self.at],
            "generation": stripe.generation.0,
            "chunk": self.chunk.0,
            "chunk_offset": self.chunk_offset,
            "chunks": stripe.chunks().map(chunk).collect::<Vec<_>>(),
            "failures_left": self.stat.failures_left[self.at],
            "appending": layout.appending.contains(&stripe.id),
            "update_cross_rack_bytes": update.as_ref().ok().map(|cost| cost.cross_rack_bytes),
            "update_inner_rack_bytes": update.as_ref().ok().map(|cost| cost.inner_rack_bytes),
        })
    }
}
