//! The files of a process's credentials, and the TLS configurations derived from them.
//!
//! A directory has `key.pem`, `cert.pem` (the certificate, with those between it and the authority behind it), `ca.pem`
//! (the authorities to trust), and `revoked.pem` if the authority has a list of revoked certificates. Gabion's own
//! processes hold the file `lock` while they read or replace them, so that none takes a certificate with another key.
//! A new key is at `next-key.pem` until its certificate is written, so a crash separates no certificate from its key.

use super::error::{TrustError, io_error, malformed, not_credentials};
use super::files;
use super::ledger::Serial;
use super::name::{Name, NameError, TLS_NAME};
use rcgen::KeyPair;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
// tidy: allow(provider) rustls' name
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use time::OffsetDateTime;
use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Name};
use x509_parser::revocation_list::CertificateRevocationList;

/// The protocol in TLS: a server of another kind refuses it.
const PROTOCOL: &[u8] = b"gabion";

// tidy: allow(provider) rustls' name
static CRYPTO: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let cipher_suites = vec![
        // The fastest first. 128 bits are enough for certificates that live for days.
        TLS13_AES_128_GCM_SHA256,
        TLS13_AES_256_GCM_SHA384,
        TLS13_CHACHA20_POLY1305_SHA256,
    ];
    // tidy: allow(provider) rustls' name
    Arc::new(CryptoProvider {
        cipher_suites,
        // tidy: allow(provider) rustls' name
        ..ring::default_provider()
    })
});

/// A certificate, by its issuer's name and its number there, as the certificate has them: serials of other authorities
/// than Gabion's may be longer than [`Serial`], and those of two authorities may be equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Issued {
    issuer: Vec<u8>,
    number: Vec<u8>,
}

impl Issued {
    fn new(issuer: &X509Name<'_>, number: &[u8]) -> Self {
        // A number whose first bit is set has a zero before it.
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        Self {
            issuer: issuer.as_raw().to_owned(),
            number: number[zeros..].to_owned(),
        }
    }
}

/// The contents of a peer's certificate, after TLS has verified it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certified {
    /// The name.
    pub name: Name,
    /// The certificate's serial; none if the authority is not Gabion's and its numbers are longer.
    pub serial: Option<Serial>,
    /// By this it is found in lists of revoked certificates.
    pub(crate) issued: Issued,
}

impl Certified {
    /// Reads the first certificate of a verified chain.
    pub(crate) fn of_chain(chain: Option<&[CertificateDer<'_>]>) -> Result<Self, String> {
        let none = || "the peer has shown no certificate".to_owned();
        let parsed = Parsed::of_der(chain.and_then(<[_]>::first).ok_or_else(none)?)?;
        Ok(Self {
            name: parsed.name?,
            serial: parsed.serial,
            issued: parsed.issued,
        })
    }
}

/// The credentials of a process.
pub struct Credentials {
    directory: PathBuf,
    name: Name,
    serial: Option<Serial>,
    from_s: i64,
    until_s: i64,
    /// The text of its files, which tells whether they have changed.
    texts: Texts,
    revoked: BTreeSet<Issued>,
    server: Option<Arc<ServerConfig>>,
    client: Arc<ClientConfig>,
}

/// The files of a directory.
#[derive(Clone, PartialEq, Eq)]
struct Texts {
    key: String,
    certificate: String,
    authorities: String,
    revoked: Option<String>,
}

impl Texts {
    fn read(directory: &Path) -> Result<Self, TrustError> {
        let _lock = files::lock_shared(directory)?;
        let missing = || TrustError::NoCredentials {
            path: directory.to_owned(),
        };
        let read = |name| {
            let path = directory.join(name);
            match files::read(&path) {
                Err(TrustError::Io { source, .. }) if source.kind() == ErrorKind::InvalidData => {
                    Err(not_credentials(&path, "it is not text in PEM"))
                }
                read => read?.ok_or_else(missing),
            }
        };
        let certificate = read(CERTIFICATE_FILE)?;
        let key = match next_key_of(directory, &certificate)? {
            Some(key) => key,
            None => read(KEY_FILE)?,
        };
        Ok(Self {
            key,
            certificate,
            authorities: read(AUTHORITIES_FILE)?,
            revoked: files::read(&directory.join(REVOKED_FILE))?,
        })
    }
}

/// The key of a certificate that replaces the one of `key.pem`, if a crash has come between the two.
fn next_key_of(directory: &Path, certificate: &str) -> Result<Option<String>, TrustError> {
    let next = files::read(&directory.join(NEXT_KEY_FILE))?;
    Ok(next.filter(|key| is_key_of(key, certificate)))
}

/// Whether a key is that of a certificate, both in PEM.
fn is_key_of(key: &str, certificate: &str) -> bool {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
    let (Ok(key), Ok(certificate)) = (KeyPair::from_pem(key), certificate) else {
        return false;
    };
    X509Certificate::from_der(&certificate).is_ok_and(|(_, certificate)| {
        let certified = &certificate.public_key().subject_public_key;
        certified.data.as_ref() == key.public_key_raw()
    })
}

const KEY_FILE: &str = "key.pem";
const NEXT_KEY_FILE: &str = "next-key.pem";
const CERTIFICATE_FILE: &str = "cert.pem";
const AUTHORITIES_FILE: &str = "ca.pem";
const REVOKED_FILE: &str = "revoked.pem";

/// What is wrong with a file that should have a certificate.
const NO_CERTIFICATE: &str = "it has no certificate in PEM";

impl Credentials {
    /// Reads the credentials in a directory.
    ///
    /// # Errors
    /// [`TrustError::NoCredentials`] when there are none, [`TrustError::Expired`], or what is wrong with them.
    pub fn open(directory: &Path) -> Result<Self, TrustError> {
        // A process that leaves its directory finds them again.
        let directory = &std::path::absolute(directory).map_err(io_error("find", directory))?;
        Self::of(directory, Texts::read(directory)?)
    }

    fn of(directory: &Path, texts: Texts) -> Result<Self, TrustError> {
        let at = |file: &str| directory.join(file);
        let certificate = at(CERTIFICATE_FILE);
        let parsed =
            parse_certificate(&texts.certificate).map_err(|e| not_credentials(&certificate, e))?;
        let name = parsed.name.map_err(|e| not_credentials(&certificate, e))?;
        if now_s() > parsed.until_s {
            return Err(TrustError::Expired {
                path: directory.to_owned(),
            });
        }
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(texts.certificate.as_bytes()).collect();
        let chain = chain.map_err(|e| not_credentials(&certificate, e))?;
        let key = PrivateKeyDer::from_pem_slice(texts.key.as_bytes())
            .map_err(|_| not_credentials(&at(KEY_FILE), "it has no private key in PEM"))?;
        let roots =
            roots(&texts.authorities).map_err(|e| not_credentials(&at(AUTHORITIES_FILE), e))?;
        let lists =
            lists(texts.revoked.as_deref()).map_err(|e| not_credentials(&at(REVOKED_FILE), e))?;
        let revoked = revoked(&lists).map_err(|e| not_credentials(&at(REVOKED_FILE), e))?;
        let client = client_config(&roots, &lists, &chain, &key)
            .map_err(|e| not_credentials(&certificate, e))?;
        let server = if parsed.serves {
            let config = server_config(&roots, &lists, &chain, &key);
            Some(config.map_err(|e| not_credentials(&certificate, e))?)
        } else {
            None
        };
        Ok(Self {
            directory: directory.to_owned(),
            name,
            serial: parsed.serial,
            from_s: parsed.from_s,
            until_s: parsed.until_s,
            texts,
            revoked,
            server,
            client,
        })
    }

    /// The credentials that the directory has now; none if they are the same.
    pub(crate) fn reopened(&self) -> Result<Option<Self>, TrustError> {
        let texts = Texts::read(&self.directory)?;
        if texts == self.texts {
            return Ok(None);
        }
        Self::of(&self.directory, texts).map(Some)
    }

    /// Returns their directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The name of the process.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The serial; 0 if the authority is not Gabion's and its numbers are longer.
    pub fn serial(&self) -> Serial {
        self.serial.unwrap_or(Serial(0))
    }

    /// The certificate, as lists of revoked ones name it.
    #[cfg(test)]
    pub(crate) fn issued(&self) -> Issued {
        parse_certificate(&self.texts.certificate).unwrap().issued
    }

    /// The end of their validity, in seconds since 1970.
    pub fn until_s(&self) -> i64 {
        self.until_s
    }

    /// Whether they should be renewed: a third of their time has passed, or they are not valid yet, since a clock was
    /// ahead when they were made.
    pub fn is_due(&self) -> bool {
        let now_s = now_s();
        now_s < self.from_s || now_s - self.from_s > (self.until_s - self.from_s) / 3
    }

    /// Whether to keep them instead of a new certificate of the same name, which is not valid yet by this machine's
    /// clock: they are valid, for another third of their time.
    fn outlast(&self, new: &Parsed) -> bool {
        let now_s = now_s();
        let is_valid = self.from_s <= now_s;
        let has_time = self.until_s - now_s > (self.until_s - self.from_s) / 3;
        now_s < new.from_s && is_valid && has_time && new.name.as_ref() == Ok(&self.name)
    }

    /// Whether a certificate is on the list of revoked ones.
    pub(crate) fn has_revoked(&self, certificate: &Issued) -> bool {
        self.revoked.contains(certificate)
    }

    /// The list of revoked certificates, in PEM.
    pub fn revoked_text(&self) -> Option<&str> {
        self.texts.revoked.as_deref()
    }

    /// Takes in a newer list of revoked certificates.
    ///
    /// # Errors
    /// [`TrustError::OldList`] when an authority's list has a lower number than the one that is held; otherwise when
    /// it is damaged or cannot be written.
    pub fn keep_revoked(&self, text: &str) -> Result<(), TrustError> {
        let path = self.directory.join(REVOKED_FILE);
        let numbers = |text| lists(text).and_then(|lists| list_numbers(&lists));
        let new = numbers(Some(text)).map_err(|e| malformed(&path, e))?;
        serials_of_list(Some(text)).map_err(|e| malformed(&path, e))?;
        let held = numbers(self.revoked_text()).unwrap_or_default();
        let is_older = |(authority, number): (&String, &BigUint)| {
            new.get(authority).is_some_and(|new| new < number)
        };
        if held.iter().any(is_older) {
            return Err(TrustError::OldList { path });
        }
        files::replace(&path, text)
    }

    /// Replaces key and certificate, and goes on with the same authorities. The list of revoked certificates stays,
    /// since it may be newer than the one that is held, unless it is damaged or missing.
    ///
    /// # Errors
    /// [`TrustError::NotYetValid`] when the present certificate stays, since it is valid and the new one is not;
    /// otherwise when the new one is damaged or files cannot be written.
    pub(crate) fn replace_in(
        &self,
        directory: &Path,
        key: &KeyPair,
        certificate: &str,
    ) -> Result<(), TrustError> {
        let new = parse_certificate(certificate);
        let new = new.map_err(|e| malformed(&directory.join(CERTIFICATE_FILE), e))?;
        if self.outlast(&new) {
            let ahead_s = new.from_s - now_s();
            return Err(TrustError::NotYetValid { ahead_s });
        }
        let held = self.revoked_text();
        write_credentials(
            directory,
            &key.serialize_pem(),
            certificate,
            &self.texts.authorities,
            held.filter(|_| !has_usable_list(directory)),
        )
    }

    /// TLS of connections that peers open; none for a process that does not serve.
    pub(crate) fn server_config(&self) -> Option<Arc<ServerConfig>> {
        self.server.clone()
    }

    /// TLS of connections that this process opens.
    pub(crate) fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }
}

/// Seconds since 1970.
fn now_s() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// The name for which a client asks a server.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::try_from(TLS_NAME).expect("the name is one of DNS")
}

/// The name in a directory's certificate, be it valid now or not; none if there is no certificate.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn holder_of(directory: &Path) -> Result<Option<Name>, TrustError> {
    let text = files::read_bytes(&directory.join(CERTIFICATE_FILE))?;
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    let parsed = text.and_then(|text| parse_certificate(&text).ok());
    Ok(parsed.and_then(|parsed| parsed.name.ok()))
}

/// Writes credentials into a directory.
pub(super) fn write_credentials(
    directory: &Path,
    key: &str,
    certificate: &str,
    authorities: &str,
    revoked: Option<&str>,
) -> Result<(), TrustError> {
    files::make_directory(directory)?;
    let _lock = files::lock(directory)?;
    if let Some(revoked) = revoked {
        files::replace(&directory.join(REVOKED_FILE), revoked)?;
    }
    files::replace(&directory.join(AUTHORITIES_FILE), authorities)?;
    // At each moment the certificate's key has one of the two names.
    let (key_path, next_path) = (directory.join(KEY_FILE), directory.join(NEXT_KEY_FILE));
    let certificate_path = directory.join(CERTIFICATE_FILE);
    let present = files::read_bytes(&certificate_path)?.and_then(|it| String::from_utf8(it).ok());
    if let Some(present) = present
        && next_key_of(directory, &present)?.is_some()
    {
        files::rename(&next_path, &key_path)?;
    }
    files::replace(&next_path, key)?;
    files::replace(&certificate_path, certificate)?;
    files::rename(&next_path, &key_path)
}

/// Whether a directory has a list of revoked certificates that can be read.
fn has_usable_list(directory: &Path) -> bool {
    let list = files::read(&directory.join(REVOKED_FILE));
    list.is_ok_and(|list| list.is_some() && serials_of_list(list.as_deref()).is_ok())
}

/// The contents of a certificate that Gabion reads.
pub(super) struct Parsed {
    pub(super) name: Result<Name, String>,
    serial: Option<Serial>,
    pub(super) issued: Issued,
    from_s: i64,
    until_s: i64,
    /// Whether it is also one for servers.
    serves: bool,
}

/// Reads the first certificate of a text in PEM.
pub(super) fn parse_certificate(text: &str) -> Result<Parsed, String> {
    let der = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| NO_CERTIFICATE)?;
    Parsed::of_der(&der)
}

impl Parsed {
    fn of_der(der: &CertificateDer<'_>) -> Result<Self, String> {
        let damaged = |_| "the certificate is damaged".to_owned();
        let (_, certificate) = X509Certificate::from_der(der).map_err(damaged)?;
        let usage = certificate
            .extended_key_usage()
            .map_err(|e| e.to_string())?;
        Ok(Self {
            name: name_in(&certificate),
            serial: Serial::from_bytes(certificate.raw_serial()),
            issued: Issued::new(certificate.issuer(), certificate.raw_serial()),
            from_s: certificate.validity().not_before.timestamp(),
            until_s: certificate.validity().not_after.timestamp(),
            serves: usage.is_some_and(|usage| usage.value.server_auth),
        })
    }
}

/// The one name of a process in a certificate.
fn name_in(certificate: &X509Certificate<'_>) -> Result<Name, String> {
    let names = certificate.subject_alternative_name();
    let names = names.map_err(|e| e.to_string())?;
    let mut uris = names
        .iter()
        .flat_map(|names| &names.value.general_names)
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
    match (uris.next(), uris.next()) {
        (Some(uri), None) => uri.parse().map_err(|e: NameError| e.to_string()),
        (None, _) => Err("the certificate has no name gabion://CLUSTER/ROLE".to_owned()),
        (Some(_), Some(_)) => Err("the certificate has more than one URI".to_owned()),
    }
}

fn roots(text: &str) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let certificate = certificate.map_err(|e| e.to_string())?;
        roots.add(certificate).map_err(|e| e.to_string())?;
    }
    if roots.is_empty() {
        return Err(NO_CERTIFICATE.to_owned());
    }
    Ok(Arc::new(roots))
}

type Lists = Vec<CertificateRevocationListDer<'static>>;

fn lists(text: Option<&str>) -> Result<Lists, String> {
    let text = text.unwrap_or_default().as_bytes();
    let lists: Result<_, _> = CertificateRevocationListDer::pem_slice_iter(text).collect();
    lists.map_err(|e: rustls::pki_types::pem::Error| e.to_string())
}

/// The numbers of lists, by their authorities' names. A list without a number is replaced by any other.
fn list_numbers(lists: &Lists) -> Result<BTreeMap<String, BigUint>, String> {
    let mut numbers = BTreeMap::new();
    for list in lists {
        let list = parse_list(list)?;
        if let Some(number) = list.crl_number() {
            numbers.insert(list.issuer().to_string(), number.clone());
        }
    }
    Ok(numbers)
}

/// The least number of a list that may replace this one.
pub(super) fn number_after(text: Option<&str>) -> BigUint {
    let numbers = lists(text).and_then(|lists| list_numbers(&lists));
    let last = numbers.unwrap_or_default().into_values().max();
    last.map_or_else(BigUint::default, |last| last + 1_u32)
}

fn parse_list(list: &[u8]) -> Result<CertificateRevocationList<'_>, String> {
    let parsed = CertificateRevocationList::from_der(list);
    let damaged = |_| "the list of revoked certificates is damaged".to_owned();
    parsed.map(|(_, list)| list).map_err(damaged)
}

/// The serials in a list of revoked certificates, in PEM.
pub(super) fn serials_of_list(text: Option<&str>) -> Result<BTreeSet<Serial>, String> {
    let revoked = revoked(&lists(text)?)?;
    let serials = revoked.iter().map(|one| Serial::from_bytes(&one.number));
    Ok(serials.flatten().collect())
}

/// The certificates in lists, by which open connections are ended. TLS itself checks the lists' signatures.
fn revoked(lists: &Lists) -> Result<BTreeSet<Issued>, String> {
    let mut revoked = BTreeSet::new();
    for list in lists {
        let list = parse_list(list)?;
        let numbers = list.iter_revoked_certificates();
        revoked.extend(numbers.map(|one| Issued::new(list.issuer(), one.raw_serial())));
    }
    Ok(revoked)
}

fn client_config(
    roots: &Arc<RootCertStore>,
    lists: &Lists,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<Arc<ClientConfig>, String> {
    let crypto = Arc::clone(&CRYPTO);
    // tidy: allow(provider) rustls' name
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), crypto)
        .with_crls(lists.iter().cloned())
        .only_check_end_entity_revocation()
        .build()
        .map_err(|e| e.to_string())?;
    // tidy: allow(provider) rustls' name
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&CRYPTO))
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| e.to_string())?
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(chain.to_vec(), key.clone_key())
        .map_err(|e| e.to_string())?;
    // A resumed session would skip the check of the certificate, which may be revoked by now.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

fn server_config(
    roots: &Arc<RootCertStore>,
    lists: &Lists,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, String> {
    let crypto = Arc::clone(&CRYPTO);
    // tidy: allow(provider) rustls' name
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), crypto)
        .with_crls(lists.iter().cloned())
        .only_check_end_entity_revocation()
        .build()
        .map_err(|e| e.to_string())?;
    // tidy: allow(provider) rustls' name
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&CRYPTO))
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| e.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.to_vec(), key.clone_key())
        .map_err(|e| e.to_string())?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::super::Authority;
    use super::*;
    use crate::role::Role;
    use gabion_layout::ClusterId;

    const CLUSTER: ClusterId = ClusterId(7);

    #[test]
    fn a_crash_between_a_certificate_and_its_key_loses_neither() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let authority = Authority::create(&at("ca"), CLUSTER).unwrap();
        let name = Name::of(CLUSTER, Role::Client);
        let issue = |place: &str| {
            authority
                .issue_into(&at(place), name, Authority::LIFETIME)
                .unwrap()
        };
        let (first, second) = (issue("own"), issue("next"));
        let held = Credentials::open(&at("own")).unwrap();
        let next_key = std::fs::read(at("next/key.pem")).unwrap();
        // A crash before the new certificate is written.
        std::fs::write(at("own/next-key.pem"), &next_key).unwrap();
        assert!(held.reopened().unwrap().is_none());
        // A crash behind it.
        std::fs::copy(at("next/cert.pem"), at("own/cert.pem")).unwrap();
        let taken = held.reopened().unwrap().unwrap();
        assert_eq!((held.serial(), taken.serial()), (first, second));
        // A crash of the next renewal, which has got as far as its key: it cannot write the certificate.
        let blocked = at(&format!("own/cert.new-{}", std::process::id()));
        std::fs::create_dir_all(blocked.join("x")).unwrap();
        let key = KeyPair::generate().unwrap();
        let (_, certificate) = authority.sign(&key, name, Authority::LIFETIME).unwrap();
        assert!(taken.replace_in(&at("own"), &key, &certificate).is_err());
        assert_eq!(std::fs::read(at("own/key.pem")).unwrap(), next_key);
        assert_eq!(Credentials::open(&at("own")).unwrap().serial(), second);
        std::fs::remove_dir_all(blocked).unwrap();
        taken.replace_in(&at("own"), &key, &certificate).unwrap();
        assert_ne!(Credentials::open(&at("own")).unwrap().serial(), second);
        assert!(!at("own/next-key.pem").exists());
    }

    #[test]
    fn certificates_of_other_authorities_are_told_apart_by_issuer_and_whole_number() {
        use rcgen::{
            BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa,
            Issuer, KeyIdMethod, KeyUsagePurpose, RevokedCertParams,
        };
        // tidy: allow(serial number) X.509's name
        use rcgen::SerialNumber as X509Serial;
        // As long as OpenSSL's.
        let number = X509Serial::from_slice(&[0x7f; 20]);
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            params.distinguished_name.push(DnType::CommonName, name);
            Issuer::new(params, KeyPair::generate().unwrap())
        };
        let authorities = [authority("one"), authority("other")];
        let issued = authorities.each_ref().map(|authority| {
            let mut params = CertificateParams::default();
            // tidy: allow(serial number) X.509's name
            params.serial_number = Some(number.clone());
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, authority).unwrap();
            Parsed::of_der(certificate.der()).unwrap().issued
        });
        let now = OffsetDateTime::now_utc();
        let list = CertificateRevocationListParams {
            this_update: now,
            next_update: now + time::Duration::DAY,
            crl_number: X509Serial::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                // tidy: allow(serial number) X.509's name
                serial_number: number,
                revocation_time: now,
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&authorities[0]).unwrap();
        let lists = vec![list.der().clone()];
        let revoked = revoked(&lists).unwrap();
        assert_eq!(
            issued.map(|certificate| revoked.contains(&certificate)),
            [true, false]
        );
    }
}
