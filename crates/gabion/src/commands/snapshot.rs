//! `gabion snapshot` and `gabion clone`, and their forms for images.

use super::connect;
use crate::arguments::{Place, ShareOptions};
use crate::failure::Failure;
use crate::output::{Format, bytes, print_json};
use gabion_client::{Client, File};
use serde_json::json;

pub(crate) async fn snapshot(
    options: &ShareOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    share(options, true, place, format).await
}

pub(crate) async fn clone(
    options: &ShareOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    share(options, false, place, format).await
}

async fn share(
    ShareOptions { name, to }: &ShareOptions,
    is_read_only: bool,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let client = connect(place).await?;
    let file = client.open(name).await?;
    share_file(&client, (&file, name), to, is_read_only, format).await
}

/// Makes a file that shares the stripes of another one.
pub(super) async fn share_file(
    client: &Client,
    (file, name): (&File, &str),
    to: &str,
    is_read_only: bool,
    format: Format,
) -> Result<(), Failure> {
    client.snapshot(file.put_id(), to, is_read_only).await?;
    // The file may have grown before it was made.
    let made = client.open(to).await?;
    let size = made.size_bytes();
    if format == Format::Json {
        return print_json(&json!({
            "name": to, "of": name, "bytes": size, "read_only": is_read_only,
        }));
    }
    let kind = if is_read_only { "snapshot" } else { "clone" };
    println!("made {to}: a {kind} of {name} with {}", bytes(size));
    Ok(())
}
