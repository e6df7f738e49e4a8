//! `gabion quota`: the quota of a directory.

use super::attributes::path_name;
use super::connect;
use super::pool::refused;
use crate::arguments::{DirectoryQuotaOptions, Place};
use crate::failure::Failure;
use crate::output::{Format, print_json, say, table};
use crate::output::{align_numbers, limit_row};
use gabion_client::ClientError;
use gabion_meta::{Inode, QUOTA_ENTRIES_MAX, Quota, QuotaChange, QuotaStatus};
use gabion_protocol::message::Cause;
use serde_json::{Value, json};

pub(crate) async fn run(
    options: DirectoryQuotaOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let DirectoryQuotaOptions {
        path,
        bytes,
        files,
        remove,
    } = options;
    let client = connect(place).await?;
    let shown = path_name(&path);
    let inode = client.inode(path.as_str()).await?.inode;
    let change = QuotaChange { bytes, files };
    let is_change = change != QuotaChange::default();
    if remove || is_change {
        let Inode::Directory(directory) = inode else {
            let problem = format!("'{shown}' is a file; name a directory");
            return Err(Failure::usage(problem));
        };
        let change = is_change.then_some(change);
        let set = client.set_directory_quota(directory, change).await;
        set.map_err(refused)?;
    }
    let status = match client.directory_quota(inode).await {
        // It went since.
        Err(ClientError::Refused(denial)) if denial.cause == Cause::NotFound => None,
        status => status?,
    };
    if format == Format::Json {
        return print_json(&json!({ "name": shown, "quota": status.as_ref().map(as_json) }));
    }
    match status {
        Some(status) => print(&status),
        None => println!("no quota counts {shown}"),
    }
    Ok(())
}

/// The part of its quota that a directory uses.
pub(super) fn as_json(status: &QuotaStatus) -> Value {
    json!({
        "directory": status.path,
        "used_bytes": status.used.bytes,
        "used_files": status.used.entries,
        "quota_bytes": status.quota.bytes.number(),
        "quota_files": status.quota.files.number(),
    })
}

fn print(status: &QuotaStatus) {
    let QuotaStatus { quota, used, .. } = status;
    let mut table = table(&["directory", "", "used", "quota", "left"]);
    let name = &status.path;
    let bytes = crate::output::bytes;
    table.add_row(limit_row(name, "data", (used.bytes, quota.bytes), bytes));
    let count = |count: u64| count.to_string();
    table.add_row(limit_row(name, "files", (used.entries, quota.files), count));
    align_numbers(&mut table);
    println!("{table}");
    if *quota == Quota::default() {
        say(format!(
            "this quota limits nothing, but names cannot cross the border of {name}; 'gabion quota {name} --remove' removes \
            the quota once at most {QUOTA_ENTRIES_MAX} files and directories are below"
        ));
    }
    say("data: sizes of all files below, holes included; files: files and directories below");
}
