//! `gabion snapshot` and `gabion clone`, and their forms for images.

use super::connect;
use crate::arguments::{Place, ShareOptions};
use crate::failure::Failure;
use crate::output::{Format, bytes, print_json};
use gabion_client::Client;
use gabion_meta::{Inode, Kind};
use serde_json::json;

pub(crate) async fn snapshot(
    options: &ShareOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    share(&connect(place).await?, options, true, format).await
}

pub(crate) async fn clone(
    options: &ShareOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    share(&connect(place).await?, options, false, format).await
}

async fn share(
    client: &Client,
    ShareOptions { name, to }: &ShareOptions,
    is_read_only: bool,
    format: Format,
) -> Result<(), Failure> {
    let source = client.inode(name).await?;
    if source.kind != Kind::Directory {
        return share_file(client, (source.inode, name), to, is_read_only, format).await;
    }
    client.snapshot(source.inode, to, is_read_only).await?;
    if format == Format::Json {
        return print_json(&json!({
            "name": to, "of": name, "directory": true, "read_only": is_read_only,
        }));
    }
    let kind = kind(is_read_only);
    println!("made {to}: a {kind} of the directory {name}");
    Ok(())
}

/// Makes a file that shares the stripes of another one.
pub(super) async fn share_file(
    client: &Client,
    (file, name): (Inode, &str),
    to: &str,
    is_read_only: bool,
    format: Format,
) -> Result<(), Failure> {
    client.snapshot(file, to, is_read_only).await?;
    // The file may have grown before it was made.
    let made = client.open(to).await?;
    let size = made.size_bytes();
    if format == Format::Json {
        return print_json(&json!({
            "name": to, "of": name, "bytes": size, "read_only": is_read_only,
        }));
    }
    let kind = kind(is_read_only);
    println!("made {to}: a {kind} of {name} with {}", bytes(size));
    Ok(())
}

fn kind(is_read_only: bool) -> &'static str {
    if is_read_only { "snapshot" } else { "clone" }
}
