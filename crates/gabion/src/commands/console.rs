//! `gabion console`: the operator's console, served to browsers.

use super::connect_with;
use super::serve::{listen_on, raise_descriptor_limit, ready};
use crate::arguments::{ConsoleArguments, Place};
use crate::failure::{Context, Failure};
use gabion_client::ClientOptions;
use gabion_console::{Console, ConsoleOptions};
use gabion_testbed::EndSignals;
use gabion_wire::random_bytes;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

/// Time limit of a request to the cluster. It is short, so that a browser soon learns of a missing answer.
const DEADLINE: Duration = Duration::from_secs(5);

pub(crate) async fn run(arguments: ConsoleArguments, place: &Place) -> Result<(), Failure> {
    raise_descriptor_limit();
    let ConsoleArguments {
        listen,
        hosts,
        password_file,
    } = arguments;
    let options = ClientOptions {
        deadline: DEADLINE,
        ..ClientOptions::default()
    };
    let client = connect_with(place, options).await?;
    let listener = listen_on(&listen, "--listen").await?;
    if let Some(file) = &password_file {
        write_secret(file, "").context(format!("write {}", file.display()))?;
    }
    let announce = move |password: &str| match &password_file {
        Some(file) => {
            if let Err(error) = write_secret(file, password) {
                tracing::warn!(%error, file = %file.display(), "cannot write the next password");
            }
        }
        None => tell(password),
    };
    let options = ConsoleOptions {
        hosts,
        announce: Box::new(announce),
    };
    let console = Console::new(client, listener, options).map_err(Failure::usage)?;
    let mut ends = EndSignals::listen()?;
    ready(&format!("http://{}/", console.address()));
    tokio::select! {
        error = console.serve() => Err(Failure::failed(format!("cannot accept connections: {error}"))),
        () = ends.recv() => Ok(()),
    }
}

/// Prints the valid password. The process that started this one may have ended already.
fn tell(password: &str) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "one-time password: {password}").and_then(|()| stdout.flush());
}

/// Replaces a file that only its owner may read. The new file has a random name, and an
/// existing file or link of that name is never opened.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let random = u64::from_ne_bytes(random_bytes()?);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{random:016x}.new"));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&name)?;
    let written = file.write_all(text.as_bytes());
    let written = written.and_then(|()| fs::rename(&name, path));
    if written.is_err() {
        let _ = fs::remove_file(&name);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_secret_replaces_a_link_and_follows_none() {
        let directory = tempfile::tempdir().unwrap();
        let [secret, other] = ["secret", "other"].map(|name| directory.path().join(name));
        fs::write(&other, "of another").unwrap();
        symlink(&other, &secret).unwrap();
        symlink(&other, directory.path().join("secret.new")).unwrap();
        write_secret(&secret, "hidden").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "of another");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "hidden");
        let metadata = fs::symlink_metadata(&secret).unwrap();
        assert!(metadata.is_file());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }
}
