//! Files of passwords in libpq's form: lines of `HOST:PORT:DATABASE:USER:PASSWORD`, where `*` stands for anything and
//! `\` comes before a `:` or `\` of a field.

use crate::address::{AddressError, host_text};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tokio_postgres::Config;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The default port of `PostgreSQL`.
const PORT: u16 = 5432;

/// The password of the first line that fits, if there is a file and such a line.
///
/// # Errors
/// If the file is open to other users, too large, or not readable.
pub(crate) fn password_of(path: &Path, config: &Config) -> Result<Option<String>, AddressError> {
    let unusable = |reason: String| AddressError::Passfile {
        path: path.to_owned(),
        reason,
    };
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| unusable(error.to_string()))?,
    };
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(unusable("other users may read it".to_owned()));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(unusable("it is larger than 1 MiB".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    Ok(text.lines().find_map(|line| password_in(line, config)))
}

fn password_in(line: &str, config: &Config) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let (fields, password) = fields(line)?;
    let [host, port, database, user] = &fields;
    let fits = |field: &String, value: &str| field == "*" || field == value;
    let is_one = config.get_hosts().iter().enumerate().any(|(at, given)| {
        let ports = config.get_ports();
        let given_port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
        fits(host, &host_text(given)) && fits(port, &given_port.to_string())
    });
    let is_fit = is_one
        && fits(database, config.get_dbname().unwrap_or_default())
        && fits(user, config.get_user().unwrap_or_default());
    is_fit.then_some(password)
}

/// The first four fields of a line, and the password.
fn fields(line: &str) -> Option<([String; 4], String)> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == ':' && fields.len() < 5 {
            fields.push(String::new());
            continue;
        }
        let is_escape = character == '\\';
        let character = if is_escape {
            characters.next()?
        } else {
            character
        };
        fields.last_mut()?.push(character);
    }
    let password = (fields.len() == 5).then(|| fields.pop())??;
    Some((fields.try_into().ok()?, password))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    fn password(lines: &str, mode: u32, url: &str) -> Result<Option<String>, AddressError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pgpass");
        std::fs::write(&path, lines).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        password_of(&path, &url.parse().unwrap())
    }

    #[test]
    fn the_first_line_that_fits_decides() {
        let lines = "# comment\n10.0.0.1:5432:meta:gabion:one\n*:5433:meta:gabion:t\\:w\\\\o\nshort:line\n\
                     *:*:*:other:th:ree\n";
        let of = |url: &str| password(lines, 0o600, url).unwrap();
        let one = of("postgres://gabion@10.0.0.1/meta");
        assert_eq!(one.as_deref(), Some("one"));
        let two = of("postgres://gabion@10.0.0.2:5433/meta");
        assert_eq!(two.as_deref(), Some("t:w\\o"));
        let three = of("postgres://other@10.0.0.2/x");
        assert_eq!(three.as_deref(), Some("th:ree"));
        assert_eq!(of("postgres://gabion@10.0.0.2/meta"), None);
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let lines = "*:*:*:*:secret\n";
        let error = password(lines, 0o640, "postgres://u@h/d").unwrap_err();
        assert!(!error.to_string().contains("secret"));
        assert!(matches!(error, AddressError::Passfile { .. }));
        let absent = password_of(
            Path::new("/not/there"),
            &"postgres://u@h/d".parse().unwrap(),
        );
        assert_eq!(absent, Ok(None));
    }
}
