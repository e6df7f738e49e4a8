//! A file that only its owner may read.

use gabion_wire::random_bytes;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces a file that only its owner may read. The new file has a random name, and an
/// existing file or link of that name is never opened.
pub(crate) fn write_secret(path: &Path, text: &str) -> io::Result<()> {
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
