//! `gabion chmod` and `chown`, and what other commands say of permissions and times. The numbers of owners and groups
//! are those of the machines that use the files.

use super::connect;
use crate::arguments::{Owner, Place};
use crate::failure::{Context, Failure};
use crate::output::{Format, print_json};
use gabion_meta::{AttributeChange, Attributes, Permissions, WallTime};
use jiff::Timestamp;
use rustix::process::{getegid, geteuid};
use serde_json::{Value, json};
use std::fs::{FileTimes, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::SystemTime;

/// The bits of a mode that a new file takes over from a local one; those that give rights to its runners are left.
const COPIED_BITS: u32 = 0o777;

pub(crate) async fn chmod(
    mode: u32,
    paths: &[String],
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let change = AttributeChange {
        mode: Some(mode),
        ..AttributeChange::default()
    };
    change_all(paths, &change, place, format).await
}

pub(crate) async fn chown(
    Owner { owner, group }: Owner,
    paths: &[String],
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let change = AttributeChange {
        owner,
        group,
        ..AttributeChange::default()
    };
    change_all(paths, &change, place, format).await
}

async fn change_all(
    paths: &[String],
    change: &AttributeChange,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let client = connect(place).await?;
    let mut changed = Vec::new();
    for path in paths {
        client.set_attributes(path, change).await?;
        let (_, attributes) = client.inode(path).await?;
        if format == Format::Json {
            changed.push(json!({ "name": path, "attributes": to_json(&attributes) }));
        } else {
            println!("{path}: {}", access(&attributes));
        }
    }
    if format == Format::Json {
        print_json(&changed)?;
    }
    Ok(())
}

/// Mode and owner for people.
pub(super) fn access(attributes: &Attributes) -> String {
    let Attributes {
        mode, owner, group, ..
    } = attributes;
    format!("mode {mode:04o}, owner {owner}:{group}")
}

/// A time for people, to the second, in UTC.
pub(super) fn shown(time: WallTime) -> String {
    match timestamp(time) {
        Some(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        None => format!("second {}", time.seconds),
    }
}

pub(super) fn to_json(attributes: &Attributes) -> Value {
    json!({
        "mode": format!("{:04o}", attributes.mode),
        "owner": attributes.owner,
        "group": attributes.group,
        "created": time_json(attributes.created),
        "accessed": time_json(attributes.accessed),
        "modified": time_json(attributes.modified),
        "changed": time_json(attributes.changed),
    })
}

/// A time as RFC 3339 has it; none for one in a year that it cannot express.
pub(super) fn time_json(time: WallTime) -> Value {
    timestamp(time).map_or(Value::Null, |time| Value::String(time.to_string()))
}

fn timestamp(time: WallTime) -> Option<Timestamp> {
    Timestamp::new(time.seconds, i32::try_from(time.nanoseconds).ok()?).ok()
}

/// The permissions of a new file: the mode of the local one that it is copied from, if there is one, and the user who
/// runs the command.
pub(super) fn new_permissions(of: Option<&Metadata>) -> Permissions {
    let mode = of.map_or(Permissions::FILE.mode, |metadata| {
        metadata.mode() & COPIED_BITS
    });
    Permissions {
        mode,
        owner: geteuid().as_raw(),
        group: getegid().as_raw(),
    }
}

/// The same for a directory.
pub(super) fn directory_permissions() -> Permissions {
    Permissions {
        mode: Permissions::DIRECTORY.mode,
        ..new_permissions(None)
    }
}

/// The permissions of a local file, all of them.
pub(super) fn preserved(metadata: &Metadata) -> Permissions {
    Permissions {
        mode: metadata.mode() & Permissions::MODE_MAX,
        owner: metadata.uid(),
        group: metadata.gid(),
    }
}

/// The times of a local file.
pub(super) fn times_of(metadata: &Metadata) -> AttributeChange {
    let of = |time: std::io::Result<SystemTime>| time.ok().map(WallTime::from);
    AttributeChange {
        accessed: of(metadata.accessed()),
        modified: of(metadata.modified()),
        ..AttributeChange::default()
    }
}

/// Gives a local file the mode and the times of a stored one. Its owner is whoever made it.
pub(super) fn preserve(attributes: &Attributes, local: &std::fs::File) -> Result<(), Failure> {
    let doing = || "set the mode and the times of the local file".to_owned();
    let mode = std::fs::Permissions::from_mode(attributes.mode & COPIED_BITS);
    local.set_permissions(mode).context(doing())?;
    let times = FileTimes::new()
        .set_accessed(attributes.accessed.into())
        .set_modified(attributes.modified.into());
    local.set_times(times).context(doing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_utc() {
        let at = |seconds, nanoseconds| WallTime {
            seconds,
            nanoseconds,
        };
        assert_eq!(shown(at(0, 1)), "1970-01-01 00:00:00");
        assert_eq!(shown(at(-1, 0)), "1969-12-31 23:59:59");
        assert_eq!(shown(at(i64::MAX, 0)), "second 9223372036854775807");
        assert_eq!(time_json(at(1, 500_000_000)), "1970-01-01T00:00:01.5Z");
        assert_eq!(time_json(at(i64::MIN, 0)), Value::Null);
    }
}
