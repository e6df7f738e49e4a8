//! TLS of connections, which a client begins by the option `STARTTLS`: the server's certificate, and the authorities of
//! its clients.
//!
//! A directory has the files that other NBD servers and clients take too: `server-cert.pem` (the certificate, with
//! those between it and its authority behind it), `server-key.pem`, `ca-cert.pem` (the authorities that sign
//! certificates of clients), and `ca-crl.pem` if there are lists of revoked ones. A connection after a change of these
//! files uses the new ones, so certificates are renewed while the server runs. Connections of attached clients end
//! when the files do not admit their certificates any more, for instance because a new list revokes them.
//!
//! The configuration equals that of the cluster's own connections (`trust/credentials.rs` in `wire`, which a gateway
//! does not use), with two differences: clients may also speak TLS 1.2, as the Linux kernel's client does, and
//! certificates have no roles.

use rustls::crypto::ring::default_provider; // tidy: allow(provider) rustls' name
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError as Wrong, RootCertStore, ServerConfig};
use std::fs::File;
use std::future::pending;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

const CERTIFICATE_FILE: &str = "server-cert.pem";
const KEY_FILE: &str = "server-key.pem";
const AUTHORITIES_FILE: &str = "ca-cert.pem";
const REVOKED_FILE: &str = "ca-crl.pem";

/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Longest time until a new list counts for attached clients. The cluster's own processes look as often.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The clients that a server admits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsClients {
    /// Clients whose certificate an authority in `ca-cert.pem` has signed and has not revoked.
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
        reason: &'static str,
    },
}

/// The TLS of a server. The directory's files are read again for each connection.
#[derive(Debug)]
pub struct Tls {
    directory: PathBuf,
    clients: TlsClients,
    look_every: Duration,
    loaded: Mutex<Loaded>,
}

/// The files that connections use.
#[derive(Debug)]
struct Loaded {
    files: Files,
    in_use: InUse,
    /// When the last reading of the files began.
    read_at: Instant,
    /// A reading of the files, and when it began. On a disk that hangs, all connections wait for one.
    reading: Option<(Instant, JoinHandle<Result<Files, TlsError>>)>,
    /// The last complaint of files that are not usable.
    complaint: Option<String>,
}

/// The configuration that a directory's files give.
#[derive(Clone, Debug)]
struct InUse {
    config: Arc<ServerConfig>,
    /// Checks the certificates of clients, if they need any.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl InUse {
    /// Why a client is not admitted any more whose certificate, with those between it and its authority behind it, was
    /// admitted at the time given. That it has expired since is no cause.
    ///
    /// Any error is a cause: the client chooses the certificates behind its own, and so which error is found first.
    fn objection(&self, chain: &[CertificateDer<'_>], as_of: UnixTime) -> Option<String> {
        let (verifier, (own, others)) = (self.verifier.as_ref()?, chain.split_first()?);
        let checked = verifier.verify_client_cert(own, others, as_of);
        checked.err().map(|wrong| certificate_in_words(&wrong))
    }
}

impl Tls {
    /// Reads the files of a directory.
    ///
    /// # Errors
    /// [`TlsError`] names the file that is missing or not usable.
    pub fn open(directory: &Path, clients: TlsClients) -> Result<Self, TlsError> {
        let files = Files::read(directory, clients)?;
        let in_use = files.config(directory, clients)?;
        Ok(Self {
            directory: directory.to_owned(),
            clients,
            look_every: LOOK_EVERY,
            loaded: Mutex::new(Loaded {
                files,
                in_use,
                read_at: Instant::now(),
                reading: None,
                complaint: None,
            }),
        })
    }

    /// The same with another time until a new list counts for attached clients.
    #[must_use]
    pub fn looking_every(self, look_every: Duration) -> Self {
        Self { look_every, ..self }
    }

    /// Returns the acceptor of a new connection.
    pub(crate) async fn acceptor(&self) -> TlsAcceptor {
        let loaded = self.read_again(Duration::ZERO).await;
        TlsAcceptor::from(Arc::clone(&loaded.in_use.config))
    }

    /// Waits until the files do not admit the certificate of an attached client any more, which comes first in its
    /// chain, and was admitted at the time given. Returns the cause. Waits for ever if the client has shown none.
    pub(crate) async fn barred(&self, chain: &[CertificateDer<'_>], as_of: UnixTime) -> String {
        if chain.is_empty() {
            return pending().await;
        }
        // Connections that look at about the same time share a reading, which is at most this old.
        let half = self.look_every / 2;
        loop {
            let in_use = self.read_again(half).await.in_use.clone();
            if let Some(why) = in_use.objection(chain, as_of) {
                return why;
            }
            sleep(half).await;
        }
    }

    /// Reads the files again, unless a reading began at most `age` before this call. If the files are not usable now,
    /// as while they are being replaced, it uses the last usable ones.
    async fn read_again(&self, age: Duration) -> MutexGuard<'_, Loaded> {
        let called_at = Instant::now();
        let mut loaded = self.loaded.lock().await;
        // A caller that has gone may have left a reading, which is too old by now.
        while loaded.read_at + age < called_at {
            let (began_at, reading) = loaded.reading.get_or_insert_with(|| {
                let (directory, clients) = (self.directory.clone(), self.clients);
                let began_at = Instant::now();
                let read = move || Files::read(&directory, clients);
                (began_at, spawn_blocking(read))
            });
            let began_at = *began_at;
            let read = reading.await.expect("reading files does not panic");
            (loaded.reading, loaded.read_at) = (None, began_at);
            self.take_read(&mut loaded, read);
        }
        loaded
    }

    /// Uses the result of a reading, and says once why it cannot.
    fn take_read(&self, loaded: &mut Loaded, read: Result<Files, TlsError>) {
        let complaint = match read.and_then(|files| self.take(loaded, files)) {
            Ok(()) => None,
            Err(error) => Some(error.to_string()),
        };
        if loaded.complaint != complaint {
            if let Some(why) = &complaint {
                tracing::warn!("the server keeps the certificates and lists that it has: {why}");
            }
            loaded.complaint = complaint;
        }
    }

    /// Uses files from now on, if they are usable.
    fn take(&self, loaded: &mut Loaded, files: Files) -> Result<(), TlsError> {
        if files.revoked.is_none() && loaded.files.revoked.is_some() {
            // A file that is being replaced may be missing for a moment, in which a revoked client could come in.
            let reason = "it is gone; restore it, or restart the server without lists";
            return Err(malformed(&self.directory, REVOKED_FILE, reason));
        }
        if files != loaded.files {
            loaded.in_use = files.config(&self.directory, self.clients)?;
            loaded.files = files;
        }
        Ok(())
    }
}

/// The bytes of the files of a directory.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Vec<u8>,
    revoked: Option<Vec<u8>>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // One of them is a key.
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    fn read(directory: &Path, clients: TlsClients) -> Result<Self, TlsError> {
        let (authorities, revoked) = match clients {
            TlsClients::Certified => {
                let revoked = match read(directory, REVOKED_FILE) {
                    Err(TlsError::Unreadable { error, .. })
                        if error.kind() == ErrorKind::NotFound =>
                    {
                        None
                    }
                    read => Some(read?),
                };
                (read(directory, AUTHORITIES_FILE)?, revoked)
            }
            TlsClients::Any => (Vec::new(), None),
        };
        Ok(Self {
            certificate: read(directory, CERTIFICATE_FILE)?,
            key: read(directory, KEY_FILE)?,
            authorities,
            revoked,
        })
    }

    fn config(&self, directory: &Path, clients: TlsClients) -> Result<InUse, TlsError> {
        let malformed = |name, reason| malformed(directory, name, reason);
        let chain = all::<CertificateDer<'static>>(&self.certificate);
        let chain = chain.map_err(|reason| malformed(CERTIFICATE_FILE, reason))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|_| malformed(KEY_FILE, "it has no unencrypted key in PEM"))?;
        let crypto = Arc::new(default_provider()); // tidy: allow(provider) rustls' name
        // tidy: allow(provider) rustls' name
        let builder = ServerConfig::builder_with_provider(Arc::clone(&crypto))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("the algorithms serve both versions");
        let (builder, verifier) = match clients {
            TlsClients::Any => (builder.with_no_client_auth(), None),
            TlsClients::Certified => {
                let roots = self.roots();
                let roots = roots.map_err(|reason| malformed(AUTHORITIES_FILE, reason))?;
                let lists = self.revoked.as_deref().map_or(Ok(Vec::new()), all);
                let lists: Vec<CertificateRevocationListDer<'_>> =
                    lists.map_err(|reason| malformed(REVOKED_FILE, reason))?;
                // tidy: allow(provider) rustls' name
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto)
                    .with_crls(lists)
                    .build()
                    .map_err(|_| malformed(REVOKED_FILE, "a list is damaged"))?;
                let builder = builder.with_client_cert_verifier(Arc::clone(&verifier));
                (builder, Some(verifier))
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| match error {
            rustls::Error::InvalidCertificate(_) => {
                malformed(CERTIFICATE_FILE, "its first certificate is damaged")
            }
            rustls::Error::InconsistentKeys(_) => malformed(
                KEY_FILE,
                "it is not the key of server-cert.pem; replace both",
            ),
            _ => malformed(KEY_FILE, "its key is damaged or of an unknown kind"),
        })?;
        // A resumed session would skip the check of a certificate that may be revoked by now.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let config = Arc::new(config);
        Ok(InUse { config, verifier })
    }

    fn roots(&self) -> Result<RootCertStore, &'static str> {
        let mut roots = RootCertStore::empty();
        for certificate in all(&self.authorities)? {
            let added = roots.add(certificate);
            added.map_err(|_| "a certificate is damaged")?;
        }
        Ok(roots)
    }
}

fn malformed(directory: &Path, name: &str, reason: &'static str) -> TlsError {
    let path = directory.join(name);
    TlsError::Malformed { path, reason }
}

fn read(directory: &Path, name: &str) -> Result<Vec<u8>, TlsError> {
    let path = directory.join(name);
    let mut bytes = Vec::new();
    let opened = File::open(&path);
    let read = opened.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(TlsError::Unreadable { path, error }),
        Ok(count) if count as u64 > FILE_BYTES_MAX => {
            Err(malformed(directory, name, "it has more than 16 MiB"))
        }
        Ok(_) => Ok(bytes),
    }
}

/// The items of a file, at least one.
fn all<T: PemObject>(text: &[u8]) -> Result<Vec<T>, &'static str> {
    let items: Result<Vec<T>, pem::Error> = T::pem_slice_iter(text).collect();
    match items {
        Ok(items) if !items.is_empty() => Ok(items),
        Ok(_) | Err(pem::Error::NoItemsFound) => Err("it has no item of its kind in PEM"),
        Err(_) => Err("its PEM is damaged"),
    }
}

/// A failed agreement on TLS as a sentence.
pub(crate) fn in_words(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match tls {
        Some(
            wrong @ (rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)),
        ) => certificate_in_words(wrong),
        Some(rustls::Error::AlertReceived(alert)) => {
            format!("the client refuses this server's certificate or TLS: {alert:?}")
        }
        Some(other) => format!("no agreement on TLS: {other}"),
        None => format!("no agreement on TLS: {error}"),
    }
}

/// The defect of a client's certificate, as a sentence.
fn certificate_in_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::NoCertificatesPresented => "the client has shown no certificate".to_owned(),
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            Wrong::UnknownIssuer | Wrong::BadSignature => {
                "no authority in ca-cert.pem has signed the client's certificate".to_owned()
            }
            Wrong::Revoked => "the client's certificate is revoked".to_owned(),
            Wrong::UnknownRevocationStatus => {
                "ca-crl.pem has no list of the authority of the client's certificate".to_owned()
            }
            Wrong::Expired | Wrong::ExpiredContext { .. } => {
                "the client's certificate has expired".to_owned()
            }
            Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
                "the client's certificate is not one for clients".to_owned()
            }
            other => format!("the client's certificate is not usable: {other}"),
        },
        other => format!("the client's certificate cannot be checked: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
        KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, date_time_ymd,
    };

    const OWN_NUMBER: u64 = 7;
    /// The years 2001 and 2026, before and after the certificate expires.
    const DURING: Duration = Duration::from_hours(271_752);
    const AFTER: Duration = Duration::from_hours(490_896);

    struct Pki {
        authority: Issuer<'static, KeyPair>,
        authority_pem: String,
        own: CertificateDer<'static>,
    }

    fn authority(from_year: i32, until_year: i32) -> (CertificateParams, KeyPair) {
        let mut params = CertificateParams::new([]).expect("valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = date_time_ymd(from_year, 1, 1);
        params.not_after = date_time_ymd(until_year, 1, 1);
        (params, KeyPair::generate().expect("a key"))
    }

    impl Pki {
        fn new() -> Self {
            let (params, key) = authority(1990, 2100);
            let authority_pem = params.self_signed(&key).expect("a certificate").pem();
            let authority = Issuer::new(params, key);
            let mut params = CertificateParams::new(["client".to_owned()]).expect("valid");
            params.serial_number = Some(OWN_NUMBER.into()); // tidy: allow(serial number) X.509's name
            params.not_before = date_time_ymd(2000, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
            let key = KeyPair::generate().expect("a key");
            let own = params.signed_by(&key, &authority).expect("valid");
            let own = own.der().clone();
            Self {
                authority,
                authority_pem,
                own,
            }
        }

        /// The authority's list, which revokes these.
        fn list(&self, revoked: &[u64]) -> String {
            let from = date_time_ymd(1990, 1, 1);
            let revoke = |&number: &u64| RevokedCertParams {
                serial_number: number.into(), // tidy: allow(serial number) X.509's name
                revocation_time: from,
                reason_code: None,
                invalidity_date: None,
            };
            let list = CertificateRevocationListParams {
                this_update: from,
                next_update: date_time_ymd(2100, 1, 1),
                crl_number: 1_u64.into(),
                issuing_distribution_point: None,
                revoked_certs: revoked.iter().map(revoke).collect(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            let list = list.signed_by(&self.authority).expect("a list");
            list.pem().expect("PEM")
        }

        /// The configuration with that list.
        fn in_use(&self, revoked: &[u64]) -> InUse {
            self.with_list(self.list(revoked))
        }

        fn with_list(&self, list: String) -> InUse {
            let (params, key) = authority(1990, 2100);
            let files = Files {
                certificate: params.self_signed(&key).expect("valid").pem().into_bytes(),
                key: key.serialize_pem().into_bytes(),
                authorities: self.authority_pem.clone().into_bytes(),
                revoked: Some(list.into_bytes()),
            };
            files
                .config(Path::new("tls"), TlsClients::Certified)
                .expect("they are usable")
        }
    }

    fn at(since_epoch: Duration) -> UnixTime {
        UnixTime::since_unix_epoch(since_epoch)
    }

    #[test]
    fn an_admitted_certificate_stays_admitted_until_it_is_revoked() {
        let pki = Pki::new();
        let chain = [pki.own.clone()];
        let (others, own) = (pki.in_use(&[8]), pki.in_use(&[8, OWN_NUMBER]));
        assert_eq!(others.objection(&chain, at(DURING)), None);
        assert_eq!(
            own.objection(&chain, at(DURING)).as_deref(),
            Some("the client's certificate is revoked")
        );
        assert_eq!(
            others.objection(&chain, at(AFTER)).as_deref(),
            Some("the client's certificate has expired")
        );
        // Another authority's list says nothing of it.
        let without = pki.with_list(Pki::new().list(&[]));
        assert!(without.objection(&chain, at(DURING)).is_some());
    }

    /// An expired certificate of the authority's name makes the check fail by another error.
    #[test]
    fn no_certificate_behind_a_revoked_one_keeps_it_admitted() {
        let pki = Pki::new();
        let (params, key) = authority(1990, 1991);
        let forged = params.self_signed(&key).expect("valid").der().clone();
        let chain = [pki.own.clone(), forged];
        assert_eq!(pki.in_use(&[]).objection(&chain, at(DURING)), None);
        let revoked = pki.in_use(&[OWN_NUMBER]);
        assert!(revoked.objection(&chain, at(DURING)).is_some());
    }

    #[tokio::test]
    async fn a_reading_that_its_caller_has_left_is_not_taken_for_a_new_one() {
        let pki = Pki::new();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).expect("written");
        };
        let (params, key) = authority(1990, 2100);
        let own = params.self_signed(&key).expect("valid").pem();
        write(CERTIFICATE_FILE, &own);
        write(KEY_FILE, &key.serialize_pem());
        write(AUTHORITIES_FILE, &pki.authority_pem);
        let tls = Tls::open(directory.path(), TlsClients::Certified).expect("usable");
        // As a caller leaves it that is cancelled while it waits.
        let path = directory.path().to_owned();
        let left = spawn_blocking(move || Files::read(&path, TlsClients::Certified));
        while !left.is_finished() {
            tokio::task::yield_now().await;
        }
        tls.loaded.lock().await.reading = Some((Instant::now(), left));
        let other = Pki::new();
        write(AUTHORITIES_FILE, &other.authority_pem);
        let loaded = tls.read_again(Duration::ZERO).await;
        assert_eq!(loaded.files.authorities, other.authority_pem.as_bytes());
    }
}
