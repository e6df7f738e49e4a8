//! `gabion chmod` and `chown`, and attributes in other commands. The machines that use the files define the numbers of
//! owners and groups.

use super::connect;
use crate::arguments::{Owner, Place};
use crate::failure::{Context, Failure};
use crate::output::{Format, print_json, remark};
use gabion_client::{ClientError, File};
use gabion_meta::{AttributeChange, Attributes, NewAttributes, WallTime};
use gabion_wire::wall_time;
use jiff::Timestamp;
use rustix::fs::{Mode, Timespec, Timestamps, fchmod, futimens};
use rustix::process::{getegid, geteuid};
use serde_json::{Value, json};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// The bits of a mode that a copy takes over; those that give its runners rights are left.
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

/// Changes one after the other, up to the first that fails, and says which were changed.
async fn change_all(
    paths: &[String],
    change: &AttributeChange,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let client = connect(place).await?;
    let (mut changed, mut failed) = (Vec::new(), None);
    for path in paths {
        match client.set_attributes(path, change).await {
            Ok(_) if format == Format::Text => println!("changed {}", path_name(path)),
            Ok(attributes) => changed.push(json!({
                "name": path_name(path), "attributes": to_json(&attributes),
            })),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if format == Format::Json {
        print_json(&changed)?;
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// A path for people; the root is `/`.
pub(super) fn path_name(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// Sets a file's modification time to now, because writes in place change no metadata. The bytes are stored already, so
/// a failure here does not fail the command.
pub(super) async fn note_written(file: &File) {
    let change = AttributeChange {
        modified: Some(wall_time()),
        ..AttributeChange::default()
    };
    match file.set_attributes(&change).await {
        Ok(_) | Err(ClientError::FileGone(_)) => {}
        Err(error) => {
            remark(format_args!(
                "the bytes are stored, but the file's modification time is not: {error}"
            ));
        }
    }
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

/// A time in the format of RFC 3339; `None` for a year that the format cannot express.
pub(super) fn time_json(time: WallTime) -> Value {
    timestamp(time).map_or(Value::Null, |time| Value::String(time.to_string()))
}

fn timestamp(time: WallTime) -> Option<Timestamp> {
    Timestamp::new(time.seconds, i32::try_from(time.nanoseconds).ok()?).ok()
}

/// Those of a new file without a local one: of the user who runs the command.
pub(super) fn new_file() -> NewAttributes {
    owned(NewAttributes::FILE.mode)
}

/// The same for a directory.
pub(super) fn new_directory() -> NewAttributes {
    owned(NewAttributes::DIRECTORY.mode)
}

/// The same for a symbolic link, whose mode means nothing.
pub(super) fn new_symlink() -> NewAttributes {
    owned(0o777)
}

/// Those of a copy of a file with this mode.
pub(super) fn copied_mode(mode: u32) -> NewAttributes {
    owned(mode & COPIED_BITS)
}

/// Those of a copy that keeps all of a stored file's.
pub(super) fn kept(stored: &Attributes) -> NewAttributes {
    NewAttributes {
        mode: stored.mode,
        owner: stored.owner,
        group: stored.group,
        accessed: Some(stored.accessed),
        modified: Some(stored.modified),
    }
}

fn owned(mode: u32) -> NewAttributes {
    NewAttributes {
        mode,
        owner: geteuid().as_raw(),
        group: getegid().as_raw(),
        ..NewAttributes::FILE
    }
}

/// All attributes of a local file.
pub(super) fn preserved(local: &Metadata) -> NewAttributes {
    let time = |seconds, nanoseconds: i64| WallTime {
        seconds,
        nanoseconds: nanoseconds as u32,
    };
    NewAttributes {
        mode: local.mode() & Attributes::MODE_MAX,
        owner: local.uid(),
        group: local.gid(),
        accessed: Some(time(local.atime(), local.atime_nsec())),
        modified: Some(time(local.mtime(), local.mtime_nsec())),
    }
}

/// Gives a local file the permissions and the times of a stored one. The local
/// file keeps its own owner.
pub(super) fn preserve(stored: &Attributes, local: &std::fs::File) -> Result<(), Failure> {
    let doing = || "set the mode and the times of the local file".to_owned();
    fchmod(local, Mode::from_raw_mode(stored.mode & COPIED_BITS)).context(doing())?;
    let time = |time: WallTime| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    };
    let times = Timestamps {
        last_access: time(stored.accessed),
        last_modification: time(stored.modified),
    };
    futimens(local, &times).context(doing())
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
