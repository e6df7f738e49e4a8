//! `gabion image`: files of a pool that are served as block devices.

use super::connect;
use super::resize::create_file;
use super::snapshot::share_file;
use super::stat::stored_bytes;
use crate::arguments::{ImageCommand, Place, ShareImageOptions};
use crate::failure::Failure;
use crate::output::{Format, Shown, align_numbers, bytes, print_json, table};
use comfy_table::ContentArrangement;
use gabion_client::{Client, File};
use gabion_meta::Inode;
use gabion_nbd::{ImageName, Images};
use serde_json::json;

pub(crate) async fn run(
    command: ImageCommand,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let client = connect(place).await?;
    match command {
        ImageCommand::Create { name, size } => create(&client, &name, size, format).await,
        ImageCommand::Ls { pool } => ls(&client, pool, format).await,
        ImageCommand::Info { name } => info(&client, &name, format).await,
        ImageCommand::Resize { name, size, shrink } => {
            resize(&client, &name, (size, shrink), format).await
        }
        ImageCommand::Snapshot(options) => share(&client, &options, true, format).await,
        ImageCommand::Clone(options) => share(&client, &options, false, format).await,
        ImageCommand::Rm { names } => rm(&client, &names, format).await,
    }
}

/// Opens the file of an image, which must be in the image's pool.
async fn open(client: &Client, name: &ImageName) -> Result<File, Failure> {
    let found = client.find(name.as_str()).await?;
    if found.is_some() {
        let file = client.open(name.as_str()).await?;
        if file.pool().spec.name == name.pool() {
            return Ok(file);
        }
    }
    Err(no_image(name))
}

/// The failure of a command on a missing image.
pub(super) fn no_image(name: &ImageName) -> Failure {
    Failure::failed(format!("there is no image {name}; see 'gabion image ls'"))
}

async fn create(
    client: &Client,
    name: &ImageName,
    size: u64,
    format: Format,
) -> Result<(), Failure> {
    let pools = client.pools().await?;
    let pool = pools.iter().find(|pool| pool.spec.name == name.pool());
    if pool.is_some_and(|pool| pool.lifecycle.is_some()) {
        return Err(Failure::usage(format!(
            "pool {} replicates blocks first, so its files have fixed sizes; images need a pool without --write",
            name.pool()
        )));
    }
    create_file(client, name.as_str(), size, Some(name.pool())).await?;
    if format == Format::Json {
        return print_json(&json!({ "name": name.as_str(), "bytes": size }));
    }
    println!("created {name}: {} that take no space", bytes(size));
    Ok(())
}

async fn ls(client: &Client, pool: Option<String>, format: Format) -> Result<(), Failure> {
    let pools = client.pools().await?;
    let pools = pools.into_iter().map(|pool| pool.spec.name);
    let wanted: Vec<String> = match pool {
        Some(pool) if !pools.clone().any(|known| known == pool) => {
            return Err(Failure::failed(format!(
                "there is no pool {pool}; see 'gabion pool ls'"
            )));
        }
        Some(pool) => vec![pool],
        None => pools.collect(),
    };
    let mut images = Vec::new();
    for pool in wanted {
        images.extend(Images::of_pool(client, &pool, u64::MAX).await?);
    }
    images.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    if format == Format::Json {
        let images = images.iter().map(|image| {
            json!({
                "name": image.name, "bytes": image.size_bytes, "stripes": image.stripe_count,
                "snapshot": image.is_read_only,
            })
        });
        return print_json(&images.collect::<Vec<_>>());
    }
    let mut table = table(&["image", "size", "stripes", "kind"]);
    // Names stay unbroken, so that they can be searched and copied.
    table.set_content_arrangement(ContentArrangement::Disabled);
    for image in images {
        let stripes = image.stripe_count.to_string();
        let kind = if image.is_read_only { "snapshot" } else { "" };
        table.add_row([
            image.name,
            bytes(image.size_bytes),
            stripes,
            kind.to_owned(),
        ]);
    }
    align_numbers(&mut table);
    println!("{table}");
    Ok(())
}

async fn info(client: &Client, name: &ImageName, format: Format) -> Result<(), Failure> {
    let image = open(client, name).await?;
    let inline = image.known_status().inline_bytes;
    let (mut stored, mut left, mut at) = (inline, None, 0);
    let stat = loop {
        let (stat, end) = image.stat_window(at).await?;
        stored += stored_bytes(&stat);
        left = left
            .into_iter()
            .chain(stat.failures_left.iter().copied())
            .min();
        at = end;
        if at == u64::MAX {
            break stat;
        }
    };
    let (file, spec) = (&stat.layout.file, &stat.layout.pool.spec);
    if format == Format::Json {
        return print_json(&json!({
            "name": name.as_str(),
            "bytes": file.size_bytes,
            "stored_bytes": stored,
            "pool": spec.name,
            "code": spec.code,
            "stripes": file.stripe_count,
            "segment_bytes": spec.segment_bytes(),
            "failures_left": left,
        }));
    }
    println!("image            {name}");
    println!("size             {}", bytes(file.size_bytes));
    println!("stored           {}, before parity", bytes(stored));
    println!(
        "pool             {}, {}, survives {}",
        spec.name, spec.code, spec.survive
    );
    println!("segment          {}", bytes(spec.segment_bytes()));
    match left {
        Some(left) => println!("failures left    {left} in its weakest stripe"),
        None if inline > 0 => println!("failures left    inline, as safe as the metadata"),
        None => println!("failures left    nothing is stored yet"),
    }
    println!("export           nbd://HOST:10809/{name}");
    Ok(())
}

async fn resize(
    client: &Client,
    name: &ImageName,
    (size, may_shrink): (u64, bool),
    format: Format,
) -> Result<(), Failure> {
    let file = open(client, name).await?;
    if may_shrink {
        let turning = Shown::spinner(&format!("resizing {name}"));
        let resized = file.truncate(size).await;
        drop(turning);
        resized?;
    } else {
        enlarge(&file, name, size).await?;
    }
    if format == Format::Json {
        return print_json(&json!({ "name": name.as_str(), "bytes": size }));
    }
    println!("{name} has {}", bytes(size));
    Ok(())
}

/// Gives an image this size. A larger image stays as it is, also if another client has enlarged it since it was opened.
async fn enlarge(image: &File, name: &ImageName, size: u64) -> Result<(), Failure> {
    image.grow(size).await?;
    let present = image.size_bytes();
    if present > size {
        return Err(Failure::usage(format!(
            "{name} has {}; a smaller size destroys the bytes beyond it; confirm with --shrink",
            bytes(present)
        )));
    }
    Ok(())
}

/// Makes an image that shares the stripes of another one.
async fn share(
    client: &Client,
    ShareImageOptions { name, to }: &ShareImageOptions,
    is_read_only: bool,
    format: Format,
) -> Result<(), Failure> {
    if name.pool() != to.pool() {
        return Err(Failure::usage(format!(
            "{to} is in another pool than {name}, with which it shares stripes; name it {}/NAME",
            name.pool()
        )));
    }
    let image = open(client, name).await?;
    let source = (Inode::File(image.put_id()), name.as_str());
    share_file(client, source, to.as_str(), is_read_only, format).await
}

async fn rm(client: &Client, names: &[ImageName], format: Format) -> Result<(), Failure> {
    // A name that is wrong removes none of the others.
    for name in names {
        open(client, name).await?;
    }
    for name in names {
        client.rm(name.as_str()).await?;
        if format == Format::Text {
            println!("deleted {name}");
        }
    }
    if format == Format::Json {
        let names: Vec<&str> = names.iter().map(ImageName::as_str).collect();
        return print_json(&json!({ "deleted": names }));
    }
    Ok(())
}
