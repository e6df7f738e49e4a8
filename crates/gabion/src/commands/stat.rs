//! `gabion stat`: an inode, and the stripes of a file.

use super::attributes::{access, path_name, shown, to_json};
use super::connect;
use super::quota::as_json;
use crate::arguments::Place;
use crate::failure::Failure;
use crate::output::{Format, bytes, print_json, say, table};
use gabion_client::{FileSpace, FileStat};
use gabion_console::view::files::{is_lost, stripes};
use gabion_meta::{Attributes, Inode, InodeStatus, Kind, QuotaStatus};
use serde_json::{Value, json};

pub(crate) async fn stat(name: &str, place: &Place, format: Format) -> Result<(), Failure> {
    let client = connect(place).await?;
    let known = client.inode(name).await?;
    let target = match known.inode {
        Inode::File(file) if known.kind == Kind::Symlink => Some(client.read_link(file).await?),
        _ => None,
    };
    let quota = client.directory_quota(known.inode).await?;
    if known.kind != Kind::File {
        let quota = quota.as_ref();
        return stat_without_stripes(name, (&known, target.as_deref()), quota, format);
    }
    let stat = client.stat(name).await?;
    let space = client.space_of(&stat.layout).await?;
    if format == Format::Json {
        let mut shown = stat_json(name, &stat, &space);
        shown["quota"] = json!(quota.as_ref().map(as_json));
        return print_json(&shown);
    }
    println!("{}", summary(name, known.link_count, &stat));
    print_space(&space);
    print_attributes(&stat.layout.file.attributes);
    print_quota(quota.as_ref());
    if stat.layout.stripes.is_empty() {
        return Ok(());
    }
    let mut table = table(&[
        "offset",
        "stripe",
        "chunk size",
        "generation",
        "chunks on nodes (! lost)",
        "failures left",
    ]);
    let stripes = stat.layout.stripes.iter().zip(&stat.layout.offsets);
    for ((stripe, offset), &left) in stripes.zip(&stat.failures_left) {
        let places: Vec<String> = stripe
            .chunks()
            .map(|chunk| {
                let node = stripe.nodes[chunk.at()];
                let mark = if is_lost(&stat, stripe, chunk) {
                    "!"
                } else {
                    ""
                };
                format!("{}{mark}", node.0)
            })
            .collect();
        table.add_row([
            bytes(*offset),
            stripe.id.0.to_string(),
            bytes(stripe.chunk_bytes),
            stripe.generation.0.to_string(),
            places.join(" "),
            if stat.layout.appending.contains(&stripe.id) {
                format!("{left} until the commit")
            } else {
                left.to_string()
            },
        ]);
    }
    println!("{table}");
    Ok(())
}

/// A file in one line.
fn summary(name: &str, link_count: u64, stat: &FileStat) -> String {
    let file = &stat.layout.file;
    let spec = &stat.layout.pool.spec;
    let holes = match hole_bytes(stat) {
        0 => String::new(),
        holes => format!(", {} of them holes", bytes(holes)),
    };
    let names = match link_count {
        1 => String::new(),
        count => format!(", {count} names"),
    };
    let kind = if file.is_read_only {
        "a snapshot of "
    } else {
        ""
    };
    let shared = match file.shared_stripe_count {
        0 => String::new(),
        count => format!(
            ", {count} of {} stripes shared with other files",
            file.stripe_count
        ),
    };
    let survives = match inline_bytes(stat) {
        0 => format!("{}, survives {}", spec.code, spec.survive),
        count => format!("{} inline, as safe as the metadata", bytes(count)),
    };
    format!(
        "{name}: {kind}{}{holes}{shared}{names}, pool {}, {survives}",
        bytes(file.size_bytes),
        spec.name
    )
}

/// Shows a directory or a symbolic link.
fn stat_without_stripes(
    name: &str,
    (known, target): (&InodeStatus, Option<&str>),
    quota: Option<&QuotaStatus>,
    format: Format,
) -> Result<(), Failure> {
    let (name, attributes) = (path_name(name), &known.attributes);
    if format == Format::Json {
        let mut shown = json!({ "name": name, "attributes": to_json(attributes) });
        match target {
            Some(target) => shown["symlink_to"] = json!(target),
            None => shown["directory"] = json!(true),
        }
        shown["read_only"] = json!(known.is_read_only);
        shown["quota"] = json!(quota.map(as_json));
        return print_json(&shown);
    }
    match target {
        Some(target) => println!("{name}: a symbolic link to {}", printable(target)),
        None if known.is_read_only => println!("{name}: a directory of a snapshot"),
        None => println!("{name}: a directory"),
    }
    print_attributes(attributes);
    print_quota(quota);
    Ok(())
}

/// Names the directory whose quota counts an inode.
fn print_quota(quota: Option<&QuotaStatus>) {
    if let Some(QuotaStatus { path, .. }) = quota {
        println!("counted by the quota of {path}");
    }
}

fn print_attributes(attributes: &Attributes) {
    println!(
        "{}; UTC: modified {}, changed {}",
        access(attributes),
        shown(attributes.modified),
        shown(attributes.changed)
    );
}

/// Bytes of a file that neither a stripe nor the metadata hold.
fn hole_bytes(stat: &FileStat) -> u64 {
    let size_bytes = stat.layout.file.size_bytes;
    size_bytes
        .saturating_sub(stored_bytes(stat))
        .saturating_sub(inline_bytes(stat))
}

/// Bytes of a file that the metadata hold.
fn inline_bytes(stat: &FileStat) -> u64 {
    let inline = stat.layout.file.inline;
    inline.map_or(0, |inline| inline.length_bytes)
}

/// Bytes of a file that these stripes hold.
pub(super) fn stored_bytes(stat: &FileStat) -> u64 {
    let layout = &stat.layout;
    let stripes = layout.stripes.iter().zip(&layout.offsets);
    let stored = stripes.map(|(stripe, &offset)| {
        let data_bytes = layout.pool_of(stripe).spec.data_bytes(stripe.chunk_bytes);
        data_bytes.min(layout.file.size_bytes.saturating_sub(offset))
    });
    stored.sum()
}

/// Shows the disk space of a file's stripes.
fn print_space(space: &FileSpace) {
    let ((raw, reserved), (shared_raw, shared_reserved)) = (space.total(), space.shared());
    if raw == 0 {
        return;
    }
    let shared = match shared_raw {
        0 => String::new(),
        _ => format!(
            "; of it {} raw and {} reserved in shared stripes, which 'gabion df' counts once",
            bytes(shared_raw),
            bytes(shared_reserved)
        ),
    };
    say(format!(
        "on disks: {} raw with parity, {} reserved for updates{shared}",
        bytes(raw),
        bytes(reserved)
    ));
    if !space.silent_nodes.is_empty() {
        let numbers = space.silent_nodes.iter().map(|node| node.0.to_string());
        let numbers: Vec<String> = numbers.collect();
        say(format!(
            "reserves of these nodes are not counted, because they did not tell their sizes: {}",
            numbers.join(", ")
        ));
    }
}

/// The stripes, each with its space.
fn stripes_json(stat: &FileStat, space: &FileSpace) -> Vec<Value> {
    let spaces = space.raw_bytes.iter().zip(&space.reserved_bytes);
    let spaces = spaces.zip(&space.is_shared);
    let stripes = stripes(stat).into_iter().zip(spaces);
    let stripes = stripes.map(|(stripe, ((raw, reserved), shared))| {
        let mut row = json!(stripe);
        row["raw_bytes"] = json!(raw);
        row["reserved_bytes"] = json!(reserved);
        row["shared"] = json!(shared);
        row
    });
    stripes.collect()
}

fn stat_json(name: &str, stat: &FileStat, space: &FileSpace) -> Value {
    let ((raw, reserved), (shared_raw, shared_reserved)) = (space.total(), space.shared());
    let silent = space.silent_nodes.iter().map(|node| node.0);
    json!({
        "name": name,
        "names": stat.layout.file.link_count,
        "bytes": stat.layout.file.size_bytes,
        "hole_bytes": hole_bytes(stat),
        "inline_bytes": inline_bytes(stat),
        "raw_bytes": raw,
        "reserved_bytes": reserved,
        "shared_raw_bytes": shared_raw,
        "shared_reserved_bytes": shared_reserved,
        "nodes_not_counted": silent.collect::<Vec<_>>(),
        "read_only": stat.layout.file.is_read_only,
        "shared_stripes": stat.layout.file.shared_stripe_count,
        "pool": stat.layout.pool.spec.name,
        "code": stat.layout.pool.spec.code,
        "attributes": to_json(&stat.layout.file.attributes),
        "stripes": stripes_json(stat, space),
    })
}

/// A target of a symbolic link without control characters.
pub(super) fn printable(target: &str) -> String {
    let mut shown = String::new();
    for character in target.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}
