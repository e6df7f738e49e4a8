//! `gabion metadata`: tables in a database, copies and backups of metadata, and their check; also the place of a
//! coordinator's metadata.

use crate::arguments::{MetadataCommand, MetadataOptions, Place};
use crate::failure::{Context, Failure};
use crate::output::{Format, bytes, print_json, say};
use crate::output_file::{check_new, into_new_file};
use gabion_meta::{
    BackupError, Copied, RedbStore, back_up, back_up_with_new_base, check_rows, copy_rows,
};
use gabion_server::{MetadataPlace, MetadataStore, ServerError, forget_log};
use gabion_sql::{AddressError, DatabaseAddress, Migration, SqlError, StoreOptions, migrate};
use gabion_wire::trust::TrustError;
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix of the address of a file.
const FILE: &str = "redb:";

/// Name that a coordinator sees for the process that copies or checks its metadata.
const HOLDER: &str = "a 'gabion metadata' command";

pub(crate) async fn run(
    command: MetadataCommand,
    cluster: &Place,
    format: Format,
) -> Result<(), Failure> {
    type Work = Box<dyn FnOnce() -> Result<(), Failure> + Send>;
    let work: Work = match command {
        MetadataCommand::Recovery => return super::recovery::run(cluster, format).await,
        MetadataCommand::Migrate { to } => Box::new(move || migrate_tables(&to, format)),
        MetadataCommand::Copy { from, to } => Box::new(move || copy(&from, &to, format)),
        MetadataCommand::Check { of } => Box::new(move || check(&of, format)),
        MetadataCommand::Backup { from, to, new_base } => {
            Box::new(move || backup(&from, &to, new_base, format))
        }
        MetadataCommand::Restore { from, to } => Box::new(move || restore(&from, &to, format)),
    };
    // The stores wait for disks and sockets.
    let done = tokio::task::spawn_blocking(work);
    done.await.expect("no command panics")
}

/// Returns the place of a coordinator's metadata.
pub(super) fn place_of(options: &MetadataOptions, data: &Path) -> Result<MetadataPlace, Failure> {
    let address = match (&options.metadata, &options.metadata_file) {
        (Some(url), _) => of_argument(url)?,
        (None, Some(file)) => of_file(file)?,
        (None, None) => {
            return Ok(
                match (MetadataPlace::in_directory(data), &options.metadata_log) {
                    (MetadataPlace::File { path, .. }, Some(log)) => {
                        check_log(log, data)?;
                        let log = Some(log.clone());
                        MetadataPlace::File { path, log }
                    }
                    (place, _) => place,
                },
            );
        }
    };
    Ok(MetadataPlace::Database(address))
}

/// Refuses a metadata log in the directory of the metadata, whose loss would be that of both.
fn check_log(log: &Path, data: &Path) -> Result<(), Failure> {
    let is_same = log == data
        || matches!((log.canonicalize(), data.canonicalize()), (Ok(log), Ok(data)) if log == data);
    if is_same {
        return Err(Failure::usage(
            "--metadata-log is the directory of --data; name a directory on another disk",
        ));
    }
    Ok(())
}

/// Time for which a starting coordinator waits for a database.
pub(super) fn wait_of(options: &MetadataOptions) -> Duration {
    Duration::from_secs(options.metadata_wait_s)
}

/// A database whose URL other users of this machine can see.
fn of_argument(url: &str) -> Result<DatabaseAddress, Failure> {
    let address = DatabaseAddress::parse(url)?;
    if address.has_password() {
        return Err(Failure::usage(
            "a password on the command line is visible to other users; omit it from the URL, and set PGPASSWORD, add \
            it to ~/.pgpass, or write the URL to a file for --metadata-file",
        ));
    }
    with_password(address)
}

/// Refuses a URL that names no database or contains a password.
pub(super) fn check_argument(url: &str) -> Result<(), Failure> {
    of_argument(url).map(drop)
}

/// A database whose URL is in a file.
fn of_file(file: &Path) -> Result<DatabaseAddress, Failure> {
    let url = std::fs::read_to_string(file).context(format!("read {}", file.display()))?;
    let address = DatabaseAddress::parse(url.trim())?;
    let metadata = std::fs::metadata(file).context(format!("read {}", file.display()))?;
    if address.has_password() && metadata.permissions().mode() & 0o077 != 0 {
        return Err(Failure::usage(format!(
            "{} contains a password, but other users can read the file; set its mode to 600",
            file.display()
        )));
    }
    with_password(address)
}

/// Adds the password that libpq would take.
fn with_password(address: DatabaseAddress) -> Result<DatabaseAddress, Failure> {
    let password = std::env::var("PGPASSWORD").ok();
    let passfile = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    let passfile = passfile.or_else(|| Some(std::env::home_dir()?.join(".pgpass")));
    Ok(address.with_password(password.as_deref(), passfile.as_deref())?)
}

/// A place in the words of the command line.
fn parse(place: &str) -> Result<MetadataPlace, Failure> {
    match place.strip_prefix(FILE) {
        Some(path) if Path::new(path).is_dir() => Err(Failure::usage(format!(
            "{path} is a directory; name the file in it, as redb:{}",
            Path::new(path).join("metadata.redb").display()
        ))),
        Some(path) if !path.is_empty() => Ok(MetadataPlace::file(PathBuf::from(path))),
        Some(_) => Err(Failure::usage(
            "redb: needs a file, as redb:DIR/metadata.redb",
        )),
        None if !place.contains("://") => Err(Failure::usage(format!(
            "'{place}' is not a place of metadata; write redb:FILE or postgres://USER@HOST:PORT/DATABASE"
        ))),
        None => Ok(MetadataPlace::Database(of_argument(place)?)),
    }
}

fn migrate_tables(to: &str, format: Format) -> Result<(), Failure> {
    let address = of_argument(to)?;
    let Migration { from, to } = migrate(&address)?;
    if format == Format::Json {
        return print_json(&json!({ "database": address.to_string(), "from": from, "to": to }));
    }
    if from == to {
        println!("the tables in {address} already have version {to}");
    } else {
        println!("the tables in {address} now have version {to}");
    }
    Ok(())
}

fn copy(from: &str, to: &str, format: Format) -> Result<(), Failure> {
    let (source, target) = (parse(from)?, parse(to)?);
    if from == to {
        return Err(Failure::usage(
            "source and copy have the same place; choose another place for the copy",
        ));
    }
    if let MetadataPlace::File { path, .. } = &target {
        check_new(path)?;
    }
    let options = StoreOptions::of_command(HOLDER);
    let source = source.open(&options)?;
    let copied = match &target {
        MetadataPlace::File { path, .. } => into_new_file(path, |path| {
            let target = MetadataPlace::file(path.to_owned()).open_or_create(&options)?;
            copy_checked(&source, &target)
        })?,
        MetadataPlace::Database(_) => copy_checked(&source, &target.open_or_create(&options)?)?,
    };
    if format == Format::Json {
        let cluster = copied.cluster.to_string();
        return print_json(
            &json!({ "cluster": cluster, "rows": copied.row_count, "bytes": copied.bytes }),
        );
    }
    say(format!(
        "copied {} rows ({}) of cluster {}; both places are equal, and all rows agree",
        copied.row_count,
        bytes(copied.bytes),
        copied.cluster
    ));
    Ok(())
}

/// Copies all rows, and checks those of the copy.
fn copy_checked(source: &MetadataStore, target: &MetadataStore) -> Result<Copied, Failure> {
    let copied = copy_rows(source, target).map_err(Failure::failed)?;
    report_faults(&check_rows(target).map_err(Failure::failed)?)?;
    Ok(copied)
}

fn check(of: &str, format: Format) -> Result<(), Failure> {
    let store = parse(of)?.open(&StoreOptions::of_command(HOLDER))?;
    let faults = check_rows(&store).map_err(Failure::failed)?;
    if format == Format::Json {
        print_json(&json!({ "faults": faults }))?;
    } else if faults.is_empty() {
        println!("all rows agree");
    }
    report_faults(&faults)
}

/// Copies what is new in a metadata log to a backup.
fn backup(from: &Path, to: &Path, renews_base: bool, format: Format) -> Result<(), Failure> {
    let done = if renews_base {
        back_up_with_new_base(from, to)?
    } else {
        back_up(from, to)?
    };
    let digest = format!("{:016x}", done.digest);
    if format == Format::Json {
        return print_json(&json!({
            "directory": to.display().to_string(),
            "last": done.last,
            "digest": digest,
            "base": done.base,
            "copied_bytes": done.copied_bytes,
            "torn_bytes": done.torn_bytes,
        }));
    }
    println!(
        "the backup in {} reaches change {} (digest {digest}); {} copied",
        to.display(),
        done.last,
        bytes(done.copied_bytes)
    );
    Ok(())
}

/// Makes the file of a metadata log again, and checks its rows.
fn restore(from: &Path, to: &str, format: Format) -> Result<(), Failure> {
    if !to.starts_with(FILE) {
        return Err(Failure::usage(
            "a log is restored to a file; write redb:FILE, such as redb:DIR/metadata.redb. 'gabion metadata copy' brings \
            the file into a database",
        ));
    }
    let MetadataPlace::File { path, .. } = parse(to)? else {
        unreachable!("redb: is the prefix of files");
    };
    check_new(&path)?;
    forget_log(from).map_err(Failure::failed)?;
    let restored = into_new_file(&path, |path| {
        let restored = RedbStore::restore(path, from).map_err(Failure::failed)?;
        let store = RedbStore::open(path).map_err(Failure::failed)?;
        report_faults(&check_rows(&store).map_err(Failure::failed)?)?;
        Ok(restored)
    })?;
    if format == Format::Json {
        return print_json(&json!({
            "file": path,
            "rows": restored.row_count,
            "transactions": restored.transaction_count,
            "last": restored.last,
            "torn_bytes": restored.torn_bytes,
        }));
    }
    if restored.torn_bytes > 0 {
        say(format!(
            "{} at the end of the log are no whole change and are left out; the change was never acknowledged, unless \
            the log's disk has lost bytes that it had",
            bytes(restored.torn_bytes)
        ));
    }
    say(format!(
        "restored {} as of change {}: {} rows of the base and {} transactions since; all rows agree",
        path.display(),
        restored.last,
        restored.row_count,
        restored.transaction_count
    ));
    Ok(())
}

fn report_faults(faults: &[String]) -> Result<(), Failure> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the metadata is inconsistent: {}",
        faults.join("; ")
    )))
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Inside { .. } | BackupError::Below { .. } => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}

impl From<AddressError> for Failure {
    fn from(error: AddressError) -> Self {
        Self::usage(error)
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::failed(error)
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::NotLoopback { .. }
            | ServerError::OtherCertificate { .. }
            | ServerError::RecoversNoDatabase => Self::usage(error),
            // A new authority would lock out all nodes.
            ServerError::Trust(TrustError::NoAuthority { path }) => Self::usage(format!(
                "{} has no certificate authority; put the copy of this directory back that was kept since 'gabion init'. A \
                new authority would lock out all nodes",
                path.display()
            )),
            _ => Self::failed(error),
        }
    }
}
