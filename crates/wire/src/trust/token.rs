//! A join token: a key with a certificate that is good for one exchange, and the authority to trust, as one line.

use super::credentials::{Credentials, write_credentials};
use super::error::{TrustError, io_error};
use super::files;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Begin of every token.
const PREFIX: &str = "gabion-join-1.";

/// A join token. Printed, it is one line of letters, digits, `-`, `_` and `.`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Key, certificate and authority, in PEM.
    parts: [String; 3],
}

impl Token {
    pub(super) fn new(key: &str, certificate: &str, authority: &str) -> Self {
        let parts = [key, certificate, authority].map(str::to_owned);
        Self { parts }
    }

    /// Reads the token in a file.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(path: &Path) -> Result<Self, TrustError> {
        let text = files::read(path)?.ok_or_else(|| TrustError::NoTokenFile {
            path: path.to_owned(),
        })?;
        text.trim().parse()
    }

    /// The credentials of its exchange, which are valid for nothing else. Until then they are kept in a directory.
    ///
    /// # Errors
    /// When the files cannot be written, or the token is expired or malformed.
    pub fn unpack(&self, directory: &Path) -> Result<Credentials, TrustError> {
        let [key, certificate, authority] = &self.parts;
        write_credentials(directory, key, certificate, authority, None)?;
        let credentials = Credentials::open(directory)?;
        if credentials.name().is_token {
            Ok(credentials)
        } else {
            Err(TrustError::NoToken)
        }
    }
}

/// Removes what [`Token::unpack`] has written.
pub(crate) fn remove_token(directory: &Path) -> Result<(), TrustError> {
    std::fs::remove_dir_all(directory).map_err(io_error("remove", directory))
}

/// The key stays out of logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        for (number, part) in self.parts.iter().enumerate() {
            if number > 0 {
                f.write_str(".")?;
            }
            // PEM is base64 with lines and a frame around; a token has the letters alone.
            let body = part.lines().filter(|line| !line.starts_with("-----"));
            for line in body {
                f.write_str(&line.replace('+', "-").replace('/', "_").replace('=', ""))?;
            }
        }
        Ok(())
    }
}

impl FromStr for Token {
    type Err = TrustError;

    fn from_str(text: &str) -> Result<Self, TrustError> {
        let body = text.strip_prefix(PREFIX).ok_or(TrustError::NoToken)?;
        let parts: Vec<&str> = body.split('.').collect();
        let [key, certificate, authority] = parts[..] else {
            return Err(TrustError::NoToken);
        };
        let labels = ["PRIVATE KEY", "CERTIFICATE", "CERTIFICATE"];
        let framed = |(part, label)| framed(part, label).ok_or(TrustError::NoToken);
        let [key, certificate, authority] = [
            framed((key, labels[0]))?,
            framed((certificate, labels[1]))?,
            framed((authority, labels[2]))?,
        ];
        Ok(Self::new(&key, &certificate, &authority))
    }
}

/// A part of a token as PEM.
fn framed(part: &str, label: &str) -> Option<String> {
    let is_of_form = part
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if part.is_empty() || !is_of_form {
        return None;
    }
    let mut letters = part.replace('-', "+").replace('_', "/");
    while !letters.len().is_multiple_of(4) {
        letters.push('=');
    }
    let lines = letters.as_bytes().chunks(64);
    let lines = lines.filter_map(|line| std::str::from_utf8(line).ok());
    let body: Vec<&str> = lines.collect();
    Some(format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        body.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_other_text_is_no_token() {
        for wrong in [
            "",
            "gabion-join-1.",
            "gabion-join-1.a.b",
            "gabion-join-1.a..c",
            "a.b.c",
        ] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
        for wrong in ["gabion-join-1.a+.b.c", "gabion-join-1.a\n.b.c"] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }
}
