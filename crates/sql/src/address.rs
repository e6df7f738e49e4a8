//! The address of a database: a URL as `psql` takes it, with a password from elsewhere, and with TLS unless the server
//! is on this machine.

use crate::passfile::password_of;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thiserror::Error;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connection to one of a host's IP addresses that is not made by then has failed.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// Beginnings of the address of a database.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
/// Bytes that the peer has not acknowledged by then end the connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// An address that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AddressError {
    /// The URL is of another form.
    #[error(
        "the address of the database is invalid ({reason}); write postgres://USER@HOST:PORT/DATABASE, or \
         postgres:///DATABASE?host=DIRECTORY&user=USER for a socket"
    )]
    Form {
        /// The reason.
        reason: String,
    },
    /// The URL does not say what is needed.
    #[error("the address of the database names no {0}; write postgres://USER@HOST:PORT/DATABASE")]
    Lacks(&'static str),
    /// The URL asks for another kind of TLS.
    #[error(
        "sslmode={0} is not supported; use verify-full with sslrootcert=FILE, or disable for a network that you trust"
    )]
    SslMode(String),
    /// The server is on another machine, and nothing says how to verify it.
    #[error(
        "the address of the database at {host} has no sslmode; add ?sslmode=verify-full&sslrootcert=FILE, or \
        ?sslmode=disable for a network that you trust"
    )]
    Unverified {
        /// The host.
        host: String,
    },
    /// The certificates of authorities cannot be used.
    #[error("cannot use the certificates in {} ({reason}); name a PEM file with sslrootcert", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file of passwords cannot be used.
    #[error("cannot use the password file {} ({reason}); it needs lines of HOST:PORT:DATABASE:USER:PASSWORD and mode 600", path.display())]
    Passfile {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// The address of a database, and its login. `Display` shows the URL without a password.
#[derive(Clone)]
pub struct DatabaseAddress {
    shown: String,
    config: Box<Config>,
    /// The parameters of a connection to each host.
    each: Arc<[Config]>,
    /// The host that is tried first.
    preferred: Arc<AtomicUsize>,
    tls: Option<Arc<ClientConfig>>,
}

impl DatabaseAddress {
    /// Reads a URL such as `postgres://gabion@db.example/gabion?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem`.
    /// Several hosts may stand between commas; the one that takes writes is used.
    ///
    /// # Errors
    /// [`AddressError`], all but [`AddressError::Passfile`].
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let parts = Parts::of(url)?;
        let shown = parts.without_password();
        let (plain, asked) = parts.without_tls()?;
        let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let reason = cause.unwrap_or_else(|| error.to_string());
            AddressError::Form { reason }
        })?;
        if config.get_hosts().is_empty() {
            return Err(AddressError::Lacks("host"));
        }
        if config.get_user().is_none() {
            return Err(AddressError::Lacks("user"));
        }
        if config.get_dbname().is_none() {
            return Err(AddressError::Lacks("database"));
        }
        if !config.get_hostaddrs().is_empty() {
            // Otherwise the host's name would decide whether TLS is needed, and another one would be connected to.
            let reason =
                "it has hostaddr; write the IP address in place of the host's name".to_owned();
            return Err(AddressError::Form { reason });
        }
        let (host_count, port_count) = (config.get_hosts().len(), config.get_ports().len());
        if port_count > 1 && port_count != host_count {
            let reason = format!("it has {host_count} hosts and {port_count} ports");
            return Err(AddressError::Form { reason });
        }
        let tls = tls_of(&config, &asked)?;
        let mode = tls.as_ref().map_or(SslMode::Disable, |_| SslMode::Require);
        config
            .ssl_mode(mode)
            .application_name("gabion")
            .connect_timeout(CONNECT_DEADLINE)
            .tcp_user_timeout(UNACKNOWLEDGED_MAX)
            .keepalives_idle(UNACKNOWLEDGED_MAX)
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(Self {
            shown,
            each: each_host(&config),
            config: Box::new(config),
            preferred: Arc::default(),
            tls,
        })
    }

    /// Whether the URL has a password in it, which other users see where it is an argument of a process.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Adds a password unless the URL has one: `given`, or else that of a file of passwords, in the form of libpq's.
    ///
    /// # Errors
    /// [`AddressError::Passfile`] if there is such a file, and it cannot be used.
    pub fn with_password(
        mut self,
        given: Option<&str>,
        passfile: Option<&Path>,
    ) -> Result<Self, AddressError> {
        if self.has_password() {
            return Ok(self);
        }
        if let Some(password) = given {
            self.config.password(password);
        } else if let Some(path) = passfile
            && let Some(password) = password_of(path, &self.config)?
        {
            self.config.password(password);
        }
        self.each = each_host(&self.config);
        Ok(self)
    }

    /// The parameters of a connection to each host, with its number, beginning with the preferred one.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (usize, &Config)> {
        let first = self.preferred.load(Ordering::Relaxed);
        let (before, from) = self.each.split_at(first.min(self.each.len()));
        let from = (first..).zip(from);
        from.chain(before.iter().enumerate())
    }

    /// Tries this host first from now on.
    pub(crate) fn prefer(&self, host: usize) {
        self.preferred.store(host, Ordering::Relaxed);
    }

    /// The name of a host.
    pub(crate) fn host_name(&self, host: usize) -> String {
        let host = self.config.get_hosts().get(host);
        host.map(host_text).unwrap_or_default()
    }

    pub(crate) fn tls(&self) -> Option<MakeRustlsConnect> {
        let tls = self.tls.as_deref()?;
        Some(MakeRustlsConnect::new(tls.clone()))
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) fn host_text(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

/// The parameters of a connection to each host of an address, so that each has a deadline of its own.
fn each_host(config: &Config) -> Arc<[Config]> {
    let one = |(at, host): (usize, &Host)| {
        let mut one = Config::new();
        match host {
            Host::Tcp(name) => one.host(name),
            Host::Unix(path) => one.host_path(path),
        };
        let ports = config.get_ports();
        if let Some(&port) = ports.get(at).or(ports.first()) {
            one.port(port);
        }
        if let Some(password) = config.get_password() {
            one.password(password);
        }
        if let Some(options) = config.get_options() {
            one.options(options);
        }
        one.user(config.get_user().unwrap_or_default())
            .dbname(config.get_dbname().unwrap_or_default())
            .application_name(config.get_application_name().unwrap_or_default())
            .ssl_mode(config.get_ssl_mode())
            .channel_binding(config.get_channel_binding())
            .connect_timeout(CONNECT_DEADLINE)
            .tcp_user_timeout(UNACKNOWLEDGED_MAX)
            .keepalives_idle(UNACKNOWLEDGED_MAX)
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        one
    };
    config.get_hosts().iter().enumerate().map(one).collect()
}

/// The parts of a URL.
struct Parts<'u> {
    /// The scheme, and the user with the password and `@`, if they are there.
    head: &'u str,
    /// Hosts and database.
    place: &'u str,
    parameters: Vec<&'u str>,
}

impl<'u> Parts<'u> {
    fn of(url: &'u str) -> Result<Self, AddressError> {
        let scheme = SCHEMES.iter().find(|scheme| url.starts_with(**scheme));
        let scheme = scheme.ok_or_else(|| AddressError::Form {
            reason: "it does not begin with postgres://".to_owned(),
        })?;
        // The library takes all up to the first '@' for the user and the password.
        let head_end = url.find('@').map_or(scheme.len(), |at| at + 1);
        let (head, rest) = url.split_at(head_end);
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = parameters
            .split('&')
            .filter(|parameter| !parameter.is_empty());
        Ok(Self {
            head,
            place,
            parameters: parameters.collect(),
        })
    }

    fn with(&self, head: &str, parameters: &[&str]) -> String {
        let mark = if parameters.is_empty() { "" } else { "?" };
        format!("{head}{}{mark}{}", self.place, parameters.join("&"))
    }

    /// The URL as it may be shown and used again.
    fn without_password(&self) -> String {
        let colons = self.head.match_indices(':').map(|(at, _)| at);
        // The first one belongs to the scheme.
        let head = match colons.skip(1).min() {
            Some(colon) => format!("{}@", &self.head[..colon]),
            None => self.head.to_owned(),
        };
        let is_shown = |parameter: &&&str| {
            let name = parameter.split('=').next().unwrap_or_default();
            decoded(name).is_ok_and(|name| name != "password")
        };
        let shown: Vec<&str> = self.parameters.iter().filter(is_shown).copied().collect();
        self.with(&head, &shown)
    }

    /// Takes the parameters of TLS out of a URL: the library reads them in another way.
    fn without_tls(&self) -> Result<(String, Asked), AddressError> {
        let mut asked = Asked::default();
        let mut others = Vec::new();
        for &parameter in &self.parameters {
            match parameter.split_once('=') {
                Some(("sslmode", mode)) => asked.mode = Some(mode.to_owned()),
                Some(("sslrootcert", path)) => {
                    asked.authorities = Some(PathBuf::from(decoded(path)?));
                }
                _ => others.push(parameter),
            }
        }
        Ok((self.with(self.head, &others), asked))
    }
}

/// The TLS settings of a URL.
#[derive(Default)]
struct Asked {
    mode: Option<String>,
    authorities: Option<PathBuf>,
}

/// Text with `%` and two digits for bytes.
fn decoded(text: &str) -> Result<String, AddressError> {
    let wrong = || AddressError::Form {
        reason: format!("'{text}' has a % without two hexadecimal digits"),
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn tls_of(config: &Config, asked: &Asked) -> Result<Option<Arc<ClientConfig>>, AddressError> {
    let remote = config.get_hosts().iter().find(|host| !is_here(host));
    let wants = match asked.mode.as_deref() {
        None => remote.is_some() || asked.authorities.is_some(),
        Some("disable") => false,
        Some("verify-full") => true,
        Some(other) => return Err(AddressError::SslMode(other.to_owned())),
    };
    if !wants {
        return Ok(None);
    }
    let Some(path) = &asked.authorities else {
        let host = remote.or(config.get_hosts().first());
        let host = host.map(host_text).unwrap_or_default();
        return Err(AddressError::Unverified { host });
    };
    client_config(path)
        .map(|config| Some(Arc::new(config)))
        .map_err(|reason| AddressError::Authorities {
            path: path.clone(),
            reason,
        })
}

/// Whether bytes to the host stay on this machine.
fn is_here(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address: Result<std::net::IpAddr, _> = name.parse();
            address.map_or(name == "localhost", |address| address.is_loopback())
        }
    }
}

/// TLS that trusts the authorities of a PEM file and nothing else.
fn client_config(authorities: &Path) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(authorities).map_err(|error| error.to_string())?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("it has no certificate".to_owned());
    }
    let algorithms = rustls::crypto::ring::default_provider(); // tidy: allow(provider) rustls' name
    let builder = ClientConfig::builder_with_provider(Arc::new(algorithms)); // tidy: allow(provider) rustls' name
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]);
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> AddressError {
        DatabaseAddress::parse(url).unwrap_err()
    }

    #[test]
    fn addresses_are_shown_without_their_password() {
        let shown = |url: &str| {
            let address = DatabaseAddress::parse(url).unwrap();
            assert!(address.has_password());
            assert!(!format!("{address:?}").contains("secret"));
            address.to_string()
        };
        let url = "postgres://gabion:secret@127.0.0.1:5433/meta";
        assert_eq!(shown(url), "postgres://gabion@127.0.0.1:5433/meta");
        let url = "postgresql:///meta?host=/run/pg&user=u&password=secret";
        assert_eq!(shown(url), "postgresql:///meta?host=/run/pg&user=u");
        // The shown address can be used again: it keeps all other parameters.
        let url = "postgres://u:secret@a,b/meta?sslmode=disable&password=secret";
        assert_eq!(shown(url), "postgres://u@a,b/meta?sslmode=disable");
        let url = "postgres://u:?secret@a/meta?sslmode=disable";
        assert_eq!(shown(url), "postgres://u@a/meta?sslmode=disable");
        let url = "postgres://u@a/meta?sslmode=disable&pass%77ord=secret";
        assert_eq!(shown(url), "postgres://u@a/meta?sslmode=disable");
    }

    #[test]
    fn each_host_is_connected_to_alone_and_the_last_good_one_first() {
        let url = "postgres://u@10.0.0.1,10.0.0.2:5433,10.0.0.3/meta?sslmode=disable";
        let address = DatabaseAddress::parse(url).unwrap();
        let address = address.with_password(Some("secret"), None).unwrap();
        let order = || -> Vec<(usize, Vec<Host>, Vec<u16>)> {
            let hosts = address.hosts();
            hosts
                .map(|(host, config)| {
                    assert_eq!(config.get_password(), Some(&b"secret"[..]));
                    assert_eq!(config.get_dbname(), Some("meta"));
                    let hosts = config.get_hosts().to_vec();
                    (host, hosts, config.get_ports().to_vec())
                })
                .collect()
        };
        let name = |last: u8| vec![Host::Tcp(format!("10.0.0.{last}"))];
        let first = (0, name(1), vec![5432]);
        let second = (1, name(2), vec![5433]);
        let third = (2, name(3), vec![5432]);
        assert_eq!(order(), [first.clone(), second.clone(), third.clone()]);
        address.prefer(1);
        assert_eq!(order(), [second, third, first]);
    }

    #[test]
    fn an_ip_address_beside_the_name_of_this_machine_is_refused() {
        let url = "postgres://u@localhost/meta?hostaddr=10.0.0.1";
        let AddressError::Form { reason } = refusal(url) else {
            panic!("it is taken");
        };
        assert!(reason.contains("hostaddr"), "{reason}");
    }

    #[test]
    fn another_machine_needs_tls_or_a_word() {
        let remote = "postgres://u@db.example/meta";
        assert!(matches!(refusal(remote), AddressError::Unverified { .. }));
        let required = "postgres://u@127.0.0.1,10.0.0.1/meta?sslmode=verify-full";
        assert!(matches!(refusal(required), AddressError::Unverified { .. }));
        let mode = refusal("postgres://u@db.example/meta?sslmode=require");
        assert_eq!(mode, AddressError::SslMode("require".to_owned()));
        let missing = format!("{remote}?sslrootcert=/not%20there");
        let AddressError::Authorities { path, .. } = refusal(&missing) else {
            panic!("the file is missing");
        };
        assert_eq!(path, Path::new("/not there"));
        for here in ["localhost", "127.0.0.1", "[::1]", "%2Frun"] {
            let url = format!("postgres://u@{here}/meta");
            assert!(DatabaseAddress::parse(&url).is_ok(), "{here}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(refusal("postgres://u@/meta"), AddressError::Lacks("host"));
        let user = "postgres://127.0.0.1/meta";
        assert_eq!(refusal(user), AddressError::Lacks("user"));
        let database = "postgres://u@127.0.0.1";
        assert_eq!(refusal(database), AddressError::Lacks("database"));
        for wrong in [
            "postgres://u@127.0.0.1:x/meta",
            "postgres://u@127.0.0.1/meta?sslrootcert=%2",
        ] {
            assert!(
                matches!(refusal(wrong), AddressError::Form { .. }),
                "{wrong}"
            );
        }
    }
}
