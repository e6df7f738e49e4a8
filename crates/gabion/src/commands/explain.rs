//! `gabion explain`: the location of bytes of a file, the reason for it, and the effect of a read or an update of them
//! now.

use super::connect;
use crate::arguments::Place;
use crate::failure::Failure;
use crate::output::{Format, align_numbers, bytes, print_json, say, table};
use gabion_client::Client;
use gabion_console::view::explain::{Located, Stripeless, locate, update_cost};
use gabion_layout::parse_bytes;
use gabion_plan::Cost;
use gabion_protocol::message::NodeStatus;
use serde_json::json;

pub(crate) async fn run(what: &str, place: &Place, format: Format) -> Result<(), Failure> {
    let client = connect(place).await?;
    let (name, offset) = name_and_offset(&client, what).await?;
    let found = match locate(&client, &name, offset).await? {
        Ok(found) => found,
        Err(place) => {
            if format == Format::Json {
                let kind = match place {
                    Stripeless::Hole => "hole",
                    Stripeless::Inline => "inline",
                };
                return print_json(&json!({ "name": name, "offset": offset, kind: true }));
            }
            say(place.sentence(&name, offset));
            return Ok(());
        }
    };
    let size = found.stat.layout.file.size_bytes;
    let (length, update) = update_cost(&client, &name, offset, size).await;
    if format == Format::Json {
        return print_json(&found.explain(&name, offset, &update));
    }
    print(&found, &name, offset, (length, &update));
    Ok(())
}

/// A file's name, and the offset behind its last colon. If a file has the whole text as its name, that file wins.
async fn name_and_offset(client: &Client, what: &str) -> Result<(String, u64), Failure> {
    let Some((name, offset)) = what.rsplit_once(':') else {
        return Ok((what.to_owned(), 0));
    };
    match parse_bytes(offset) {
        Ok(offset) if client.find(what).await?.is_none() => Ok((name.to_owned(), offset)),
        _ => Ok((what.to_owned(), 0)),
    }
}

fn print(found: &Located, name: &str, offset: u64, (length, update): (u64, &Result<Cost, String>)) {
    let (stripe, layout) = (found.stripe(), &found.stat.layout);
    let spec = &layout.pool_of(stripe).spec;
    say(format!(
        "byte {offset} of {name} is byte {} of chunk {} of {}, which begins at {} of the file; pool {}, {}, \
             updates by {}, generation {}",
        found.chunk_offset,
        found.chunk.0,
        stripe.id,
        bytes(layout.offsets[found.at]),
        spec.name,
        spec.code,
        spec.update.name(),
        stripe.generation.0
    ));
    let mut chunks = table(&["chunk", "holds", "node", "rack", "address", "state"]);
    for chunk in stripe.chunks() {
        let node = found.node_of(chunk);
        let shown = |of: fn(&NodeStatus) -> String| node.map_or_else(|| "-".to_owned(), of);
        chunks.add_row([
            chunk.0.to_string(),
            found.kind(chunk).to_owned(),
            shown(|node| node.node.0.to_string()),
            shown(|node| node.rack.0.to_string()),
            shown(|node| node.address.clone()),
            found.state_of(chunk).to_owned(),
        ]);
    }
    align_numbers(&mut chunks);
    println!("{chunks}");
    say(found.read_sentence());
    match update {
        Ok(cost) => say(format!(
            "an update of {} there is planned with {} between nodes of one rack, {} across racks, and {} disk writes",
            bytes(length),
            bytes(cost.inner_rack_bytes),
            bytes(cost.cross_rack_bytes),
            cost.write_count
        )),
        Err(error) => say(format!("an update there cannot be planned now: {error}")),
    }
    say(found.redundancy_sentence());
}
