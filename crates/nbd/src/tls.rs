//! TLS of connections, which a client begins by the option `STARTTLS`: the server's certificate, and the authorities of
//! its clients.
//!
//! A directory has the files that other NBD servers and clients take too: `server-cert.pem` (the certificate, with those
//! between it and its authority behind it), `server-key.pem`, `ca-cert.pem` (the authorities that sign certificates of
//! clients), and `ca-crl.pem` if there is a list of revoked ones. A connection after a change of these files uses the new
//! ones, so certificates are renewed while the server runs.

use rustls::crypto::ring::default_provider; // tidy: allow(provider) rustls' name
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_rustls::TlsAcceptor;

const CERTIFICATE_FILE: &str = "server-cert.pem";
const KEY_FILE: &str = "server-key.pem";
const AUTHORITIES_FILE: &str = "ca-cert.pem";
const REVOKED_FILE: &str = "ca-crl.pem";

/// The clients that a server admits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsClients {
    /// Those with a certificate of one of the authorities in `ca-cert.pem`, which is not revoked.
    Certified,
    /// All. The bytes are encrypted, and clients can check the server.
    Any,
}

/// Errors of the files of TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file is not what its name says.
    #[error("{} is not usable: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The cause, as a part of a sentence.
        reason: String,
    },
}

/// The TLS of a server. The directory's files are read again when they have changed.
#[derive(Debug)]
pub struct Tls {
    directory: PathBuf,
    clients: TlsClients,
    loaded: Mutex<Loaded>,
}

/// Files, and their configuration.
struct Loaded {
    files: Files,
    config: Arc<ServerConfig>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

/// The bytes of the files of a directory.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Vec<u8>,
    revoked: Vec<u8>,
}

impl Tls {
    /// Reads the files of a directory.
    ///
    /// # Errors
    /// [`TlsError`] names the file that is missing or not usable.
    pub fn open(directory: &Path, clients: TlsClients) -> Result<Self, TlsError> {
        let files = Files::read(directory, clients)?;
        let config = files.config(directory, clients)?;
        Ok(Self {
            directory: directory.to_owned(),
            clients,
            loaded: Mutex::new(Loaded { files, config }),
        })
    }

    /// Returns the acceptor of a new connection. If the files are not usable now, as while they are being replaced, it
    /// uses the last usable ones.
    pub(crate) async fn acceptor(self: &Arc<Self>) -> TlsAcceptor {
        let tls = Arc::clone(self);
        let loading = tokio::task::spawn_blocking(move || tls.load());
        TlsAcceptor::from(loading.await.expect("reading files does not panic"))
    }

    fn load(&self) -> Arc<ServerConfig> {
        let read = Files::read(&self.directory, self.clients);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = match read {
            Ok(files) if files == loaded.files => return Arc::clone(&loaded.config),
            Ok(files) => {
                let config = files.config(&self.directory, self.clients);
                config.map(|config| Loaded { files, config })
            }
            Err(error) => Err(error),
        };
        match changed {
            Ok(changed) => *loaded = changed,
            Err(error) => tracing::warn!("new certificates are not used: {error}"),
        }
        Arc::clone(&loaded.config)
    }
}

impl Files {
    fn read(directory: &Path, clients: TlsClients) -> Result<Self, TlsError> {
        let required = |name| {
            let path = directory.join(name);
            fs::read(&path).map_err(|error| TlsError::Unreadable { path, error })
        };
        let (authorities, revoked) = match clients {
            TlsClients::Certified => {
                let revoked = match required(REVOKED_FILE) {
                    Err(TlsError::Unreadable { error, .. })
                        if error.kind() == ErrorKind::NotFound =>
                    {
                        Vec::new()
                    }
                    read => read?,
                };
                (required(AUTHORITIES_FILE)?, revoked)
            }
            TlsClients::Any => (Vec::new(), Vec::new()),
        };
        Ok(Self {
            certificate: required(CERTIFICATE_FILE)?,
            key: required(KEY_FILE)?,
            authorities,
            revoked,
        })
    }

    fn config(&self, directory: &Path, clients: TlsClients) -> Result<Arc<ServerConfig>, TlsError> {
        let malformed = |name: &str, reason: String| {
            let path = directory.join(name);
            TlsError::Malformed { path, reason }
        };
        let chain = all::<CertificateDer<'static>>(&self.certificate)
            .map_err(|reason| malformed(CERTIFICATE_FILE, reason))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| malformed(KEY_FILE, in_words(&error)))?;
        let crypto = Arc::new(default_provider()); // tidy: allow(provider) rustls' name
        // tidy: allow(provider) rustls' name
        let builder = ServerConfig::builder_with_provider(Arc::clone(&crypto))
            .with_protocol_versions(&[&TLS13])
            .expect("the algorithms serve TLS 1.3");
        let builder = match clients {
            TlsClients::Any => builder.with_no_client_auth(),
            TlsClients::Certified => {
                let roots = self
                    .roots()
                    .map_err(|reason| malformed(AUTHORITIES_FILE, reason))?;
                let lists = self
                    .lists()
                    .map_err(|reason| malformed(REVOKED_FILE, reason))?;
                // tidy: allow(provider) rustls' name
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto)
                    .with_crls(lists)
                    .only_check_end_entity_revocation()
                    .build();
                let verifier =
                    verifier.map_err(|error| malformed(AUTHORITIES_FILE, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| malformed(KEY_FILE, error.to_string()))?;
        // A resumed session would skip the check of a certificate that may be revoked by now.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for certificate in all(&self.authorities)? {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        Ok(roots)
    }

    fn lists(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
        if self.revoked.is_empty() {
            return Ok(Vec::new());
        }
        all(&self.revoked)
    }
}

/// The items of a file, at least one.
fn all<T: PemObject>(text: &[u8]) -> Result<Vec<T>, String> {
    let items: Result<Vec<T>, pem::Error> = T::pem_slice_iter(text).collect();
    match items {
        Ok(items) if items.is_empty() => Err(in_words(&pem::Error::NoItemsFound)),
        Ok(items) => Ok(items),
        Err(error) => Err(in_words(&error)),
    }
}

fn in_words(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "it has no item of its kind in PEM".to_owned(),
        other => other.to_string(),
    }
}
