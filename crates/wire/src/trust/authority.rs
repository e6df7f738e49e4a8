//! A cluster's certificate authority: its key, the issued certificates, and the list of revoked ones.
//!
//! It is a directory: `ca.pem` (its certificate, the trust anchor of all processes), `ca.key` (its key), `ledger`, and
//! `revoked.pem` (a certificate revocation list in X.509's form). The coordinator and 'gabion cert' share it; each
//! change holds the lock of the ledger.

use super::credentials::{
    Credentials, holder_of, number_after, parse_certificate, serials_of_list, write_credentials,
};
use super::error::{TrustError, io_error, malformed};
use super::files;
use super::ledger::{Entry, EntryState, Ledger, Register, Serial};
use super::name::{Name, TLS_NAME};
use super::token::Token;
use crate::randomness::random_bytes;
use crate::role::Role;
use gabion_layout::{ClusterId, NodeId};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData,
    RevocationReason, RevokedCertParams, SanType, SignatureAlgorithm,
};
// tidy: allow(serial number) X.509's name
use rcgen::SerialNumber as X509Serial;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use time::OffsetDateTime;
use x509_parser::num_bigint::BigUint;

/// Validity of an authority, and of the list of revoked certificates.
const AUTHORITY_LIFETIME: Duration = Duration::from_hours(24 * 365 * 20);
/// A certificate is valid this long before it is made: clocks differ.
const CLOCK_TOLERANCE: Duration = Duration::from_mins(5);

/// A cluster's certificate authority.
pub struct Authority {
    directory: PathBuf,
    cluster: ClusterId,
    /// Its certificate, in PEM.
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    ledger: Ledger,
}

/// The public key of a certificate that is to be signed: a point of P-256.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// Bytes of an uncompressed point.
    const POINT_BYTES: usize = 65;

    /// # Errors
    /// [`TrustError::NotSigned`] when the bytes are no uncompressed point.
    pub fn new(point: Vec<u8>) -> Result<Self, TrustError> {
        if point.len() == Self::POINT_BYTES && point.first() == Some(&4) {
            return Ok(Self(point));
        }
        let reason = "the request's key is not one of the curve P-256";
        Err(TrustError::NotSigned(reason.to_owned()))
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl Authority {
    /// Validity of the certificate of a process. It is renewed after a third of that.
    pub const LIFETIME: Duration = Duration::from_hours(24 * 7);
    /// Validity of a join token.
    pub const TOKEN_LIFETIME: Duration = Duration::from_hours(1);

    /// Makes the authority of a new cluster.
    ///
    /// # Errors
    /// [`TrustError::AuthorityExists`] when the directory has one; otherwise when its files cannot be written.
    pub fn create(directory: &Path, cluster: ClusterId) -> Result<Self, TrustError> {
        files::make_directory(directory)?;
        if directory.join("ca.pem").exists() {
            return Err(TrustError::AuthorityExists {
                path: directory.to_owned(),
            });
        }
        let key = KeyPair::generate()?;
        let mut params = authority_params(cluster)?;
        // tidy: allow(serial number) X.509's name
        params.serial_number = Some(x509_serial(new_serial()?));
        let now = OffsetDateTime::now_utc();
        params.not_before = now - CLOCK_TOLERANCE;
        params.not_after = now + AUTHORITY_LIFETIME;
        let certificate = params.self_signed(&key)?;
        files::replace(&directory.join("ca.key"), key.serialize_pem())?;
        // Last: with it, the directory is an authority.
        files::replace(&directory.join("ca.pem"), certificate.pem())?;
        Self::open(directory)
    }

    /// Opens the authority in a directory.
    ///
    /// # Errors
    /// [`TrustError::NoAuthority`] when there is none; otherwise when its files cannot be used.
    pub fn open(directory: &Path) -> Result<Self, TrustError> {
        let missing = || TrustError::NoAuthority {
            path: directory.to_owned(),
        };
        let path = directory.join("ca.pem");
        let certificate = files::read(&path)?.ok_or_else(missing)?;
        let key = files::read(&directory.join("ca.key"))?.ok_or_else(missing)?;
        let key = KeyPair::from_pem(&key).map_err(|e| malformed(&directory.join("ca.key"), e))?;
        let cluster = parse_certificate(&certificate)
            .and_then(|parsed| parsed.name)
            .map_err(|reason| malformed(&path, reason))?
            .cluster;
        let authority = Self {
            directory: directory.to_owned(),
            cluster,
            certificate,
            issuer: Issuer::new(authority_params(cluster)?, key),
            ledger: Ledger::at(directory.join("ledger")),
        };
        if !authority.revoked_path().exists() {
            let _lock = authority.lock()?;
            let now = OffsetDateTime::now_utc();
            authority.write_revoked(&authority.register()?, None, now)?;
        }
        Ok(authority)
    }

    /// Whether a directory has an authority.
    pub fn is_in(directory: &Path) -> bool {
        directory.join("ca.pem").exists() && directory.join("ca.key").exists()
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Returns the certificates that it has issued, oldest first.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn register(&self) -> Result<Register, TrustError> {
        self.ledger.register()
    }

    /// Bytes of the ledger: it has changed if they have.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn ledger_bytes(&self) -> Result<u64, TrustError> {
        self.ledger.bytes()
    }

    /// Makes a key and its certificate, and writes them into a directory.
    ///
    /// # Errors
    /// [`TrustError::Occupied`] if the directory is another process's; when files cannot be written. Then no
    /// certificate counts that was not there before.
    pub fn issue_into(
        &self,
        directory: &Path,
        name: Name,
        lifetime: Duration,
    ) -> Result<Serial, TrustError> {
        check_free(directory, &name)?;
        let (serial, written) = self.issue_anew(directory, name, lifetime)?;
        if written.is_err() {
            // Its key is lost, so the certificate must not count. If it cannot be revoked either, that is no worse.
            let _ = self.revoke(serial);
        }
        written.map(|()| serial)
    }

    /// Makes a key and its certificate, whatever is in the directory. Returns the serial of the certificate, and
    /// whether it was written.
    fn issue_anew(
        &self,
        directory: &Path,
        name: Name,
        lifetime: Duration,
    ) -> Result<(Serial, Result<(), TrustError>), TrustError> {
        // A directory that takes no files gets no certificate.
        files::make_directory(directory)?;
        drop(files::lock(directory)?);
        let key = KeyPair::generate()?;
        let (serial, certificate) = self.sign(&key, name, lifetime)?;
        let revoked = self.revoked()?;
        let key = key.serialize_pem();
        let own = &self.certificate;
        let written = write_credentials(directory, &key, &certificate, own, Some(&revoked));
        Ok((serial, written))
    }

    /// As [`Authority::issue_into`] if the directory has no certificate of that name that is valid for at least two
    /// thirds of [`Authority::LIFETIME`].
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub fn refresh(&self, directory: &Path, name: Name) -> Result<(), TrustError> {
        let is_fresh =
            |known: &Credentials| *known.name() == name && !known.is_due() && self.counts(known);
        match Credentials::open(directory).ok().filter(is_fresh) {
            Some(known) => self.give_revoked(&known),
            None => self.issue_anew(directory, name, Self::LIFETIME)?.1,
        }
    }

    /// Gives credentials the present list of revoked certificates. If they have a newer one, the authority is an
    /// earlier copy, and takes in what is revoked there.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub fn give_revoked(&self, known: &Credentials) -> Result<(), TrustError> {
        let revoked = self.revoked()?;
        if known.revoked_text() == Some(&revoked) {
            return Ok(());
        }
        match known.keep_revoked(&revoked) {
            Err(TrustError::OldList { .. }) => {
                let lock = self.lock()?;
                let now = OffsetDateTime::now_utc();
                self.write_revoked(&self.register()?, known.revoked_text(), now)?;
                drop(lock);
                known.keep_revoked(&self.revoked()?)
            }
            kept => kept,
        }
    }

    /// Whether it has issued these credentials, and not revoked them.
    fn counts(&self, known: &Credentials) -> bool {
        let register = self.register().unwrap_or_default();
        let entry = register.of(known.serial());
        entry.is_some_and(|entry| entry.state == EntryState::Valid)
    }

    /// Makes a join token, which is exchanged once for a certificate of this name.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn issue_token(&self, name: Name, lifetime: Duration) -> Result<Token, TrustError> {
        let key = KeyPair::generate()?;
        let (_, certificate) = self.sign(&key, name.as_token(), lifetime)?;
        let key = key.serialize_pem();
        Ok(Token::new(&key, &certificate, &self.certificate))
    }

    /// Signs a public key, and notes it durably before. Returns the certificate in PEM.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn sign(
        &self,
        key: &impl PublicKeyData,
        name: Name,
        lifetime: Duration,
    ) -> Result<(Serial, String), TrustError> {
        let _lock = self.lock()?;
        self.sign_locked(key, name, lifetime, None, OffsetDateTime::now_utc())
    }

    fn sign_locked(
        &self,
        key: &impl PublicKeyData,
        name: Name,
        lifetime: Duration,
        parent: Option<Serial>,
        now: OffsetDateTime,
    ) -> Result<(Serial, String), TrustError> {
        let serial = new_serial()?;
        let mut params = process_params(name)?;
        // tidy: allow(serial number) X.509's name
        params.serial_number = Some(x509_serial(serial));
        params.not_before = now - CLOCK_TOLERANCE;
        params.not_after = now + lifetime;
        let certificate = params.signed_by(key, &self.issuer)?;
        self.ledger.note_issued(&Entry {
            serial,
            name,
            from_s: params.not_before.unix_timestamp(),
            until_s: params.not_after.unix_timestamp(),
            parent,
            admitted: None,
            state: EntryState::Valid,
        })?;
        Ok((serial, certificate.pem()))
    }

    /// Signs a new key for the holder of a certificate, whose time is a third over, or whose name has got a node's id.
    /// The new certificate is valid as long as the held one was.
    ///
    /// # Errors
    /// [`TrustError::NotSigned`] when the certificate does not count any more, is not due, or has another name.
    pub fn renew(&self, held: Serial, name: Name, key: &PublicKey) -> Result<String, TrustError> {
        let _lock = self.lock()?;
        let register = self.register()?;
        let now = OffsetDateTime::now_utc();
        let Some(entry) = register.of(held) else {
            // The signature is ours, so the ledger is an earlier copy: it must not end the cluster.
            return Ok(self.sign_locked(key, name, Self::LIFETIME, None, now)?.1);
        };
        let refused = |reason: &str| Err(TrustError::NotSigned(reason.to_owned()));
        if entry.state != EntryState::Valid {
            return refused("the certificate is revoked");
        }
        let gets_id = entry.name == Name::of_node(name.cluster, None) && name.node.is_some();
        if entry.name.role != name.role || (entry.name != name && !gets_id) {
            return refused("the certificate has another name");
        }
        if gets_id && entry.admitted != name.node {
            return refused("no node with this id has joined with the certificate");
        }
        let age_s = now.unix_timestamp() - entry.from_s;
        let span_s = entry.until_s - entry.from_s;
        // One that is not valid yet was made while this clock was ahead.
        if !gets_id && (0..span_s / 3).contains(&age_s) {
            return refused("the certificate is not due for renewal yet");
        }
        let lifetime = Duration::from_secs(span_s.unsigned_abs()).saturating_sub(CLOCK_TOLERANCE);
        let (_, certificate) = self.sign_locked(key, name, lifetime, Some(held), now)?;
        Ok(certificate)
    }

    /// The node that joins with a new node's certificate: none before [`Authority::admit`].
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn admitted(&self, held: Serial) -> Result<Option<NodeId>, TrustError> {
        Ok(self.register()?.of(held).and_then(|entry| entry.admitted))
    }

    /// Notes durably that a node joins with a new node's certificate, which admits no other one.
    ///
    /// # Errors
    /// [`TrustError::Admitted`] when another node has; otherwise when the ledger cannot be written.
    pub fn admit(&self, held: Serial, node: NodeId) -> Result<(), TrustError> {
        let _lock = self.lock()?;
        let register = self.register()?;
        // A certificate that the ledger does not know: the ledger is an earlier copy, see `renew`.
        let Some(entry) = register.of(held) else {
            return Ok(());
        };
        match entry.admitted {
            None => self.ledger.note_admitted(held, node),
            Some(admitted) if admitted == node => Ok(()),
            Some(admitted) => Err(TrustError::Admitted(admitted)),
        }
    }

    /// Exchanges a join token, which is used up by that, for a certificate.
    ///
    /// # Errors
    /// [`TrustError::TokenUsed`]; [`TrustError::UnknownSerial`] for a token of another authority.
    pub fn exchange(&self, token: Serial, key: &PublicKey) -> Result<String, TrustError> {
        let _lock = self.lock()?;
        let register = self.register()?;
        let entry = register.of(token);
        let entry = entry.ok_or_else(|| TrustError::UnknownSerial(token.to_string()))?;
        if entry.state != EntryState::Valid || !entry.name.is_token {
            return Err(TrustError::TokenUsed);
        }
        // After a crash behind this line, the token is used and no certificate exists, which is the safe side.
        self.ledger.note_used(token)?;
        let (name, now) = (entry.name.without_token(), OffsetDateTime::now_utc());
        let (_, certificate) = self.sign_locked(key, name, Self::LIFETIME, Some(token), now)?;
        Ok(certificate)
    }

    /// Revokes a certificate, and all others of its holder that come from the same one by exchange and renewal.
    /// Processes refuse them as soon as they have the new list. Returns how many certificates were revoked.
    ///
    /// # Errors
    /// [`TrustError::UnknownSerial`], or when files cannot be written.
    pub fn revoke(&self, serial: Serial) -> Result<usize, TrustError> {
        let _lock = self.lock()?;
        let register = self.register()?;
        let lines = register.lines();
        let unknown = || TrustError::UnknownSerial(serial.to_string());
        let line = lines.get(&serial).ok_or_else(unknown)?;
        let is_of_line =
            |one: &&Entry| one.state == EntryState::Valid && lines[&one.serial] == *line;
        let of_line = register.entries.iter().filter(is_of_line);
        let serials: BTreeSet<Serial> = of_line.map(|one| one.serial).collect();
        let now = OffsetDateTime::now_utc();
        if !serials.is_empty() {
            self.ledger.note_revoked(&serials, now.unix_timestamp())?;
        }
        self.write_revoked(&self.register()?, None, now)?;
        Ok(serials.len())
    }

    /// Its certificate in PEM, the trust anchor of the cluster's processes.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The list of revoked certificates, in PEM.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn revoked(&self) -> Result<String, TrustError> {
        let path = self.revoked_path();
        let text = files::read(&path)?;
        text.ok_or_else(|| malformed(&path, "the list of revoked certificates is missing"))
    }

    fn revoked_path(&self) -> PathBuf {
        self.directory.join("revoked.pem")
    }

    /// Signs the list of what is revoked and could still be used: by the ledger, by the present list, since a line of
    /// the ledger may be damaged, and by one that a process holds. Its number is above theirs, also if the clock was
    /// set back.
    fn write_revoked(
        &self,
        register: &Register,
        held: Option<&str>,
        now: OffsetDateTime,
    ) -> Result<(), TrustError> {
        let now_s = now.unix_timestamp();
        let present = files::read(&self.revoked_path())?;
        let mut revoked: BTreeMap<Serial, i64> = BTreeMap::new();
        let mut number = BigUint::from(now.unix_timestamp_nanos().unsigned_abs());
        for list in [present.as_deref(), held] {
            let listed = serials_of_list(list).unwrap_or_default();
            revoked.extend(listed.into_iter().map(|serial| (serial, now_s)));
            number = number.max(number_after(list));
        }
        for entry in &register.entries {
            if let EntryState::Revoked { at_s } = entry.state {
                revoked.insert(entry.serial, at_s);
            }
            // Others' clocks may differ, and connections may be older than the revocation.
            if entry.until_s < now_s - Self::LIFETIME.as_secs().cast_signed() {
                revoked.remove(&entry.serial);
            }
        }
        let mut revoked_certs = Vec::new();
        for (serial, at_s) in revoked {
            revoked_certs.push(RevokedCertParams {
                // tidy: allow(serial number) X.509's name
                serial_number: x509_serial(serial),
                revocation_time: OffsetDateTime::from_unix_timestamp(at_s).unwrap_or(now),
                reason_code: Some(RevocationReason::Unspecified),
                invalidity_date: None,
            });
        }
        let params = CertificateRevocationListParams {
            this_update: now - CLOCK_TOLERANCE,
            next_update: now + AUTHORITY_LIFETIME,
            crl_number: X509Serial::from(number.to_bytes_be()),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer)?;
        files::replace(&self.revoked_path(), &list.pem()?)
    }

    /// Holds the ledger until the result is dropped.
    fn lock(&self) -> Result<File, TrustError> {
        files::lock(&self.directory)
    }
}

/// Returns the contents of an authority's certificate.
fn authority_params(cluster: ClusterId) -> Result<CertificateParams, TrustError> {
    let mut params = CertificateParams::default();
    let title = format!("Gabion cluster {:032x}", cluster.0);
    params.distinguished_name.push(DnType::CommonName, title);
    // The authority's own name is of no role; it only tells the cluster.
    let name = Name::of(cluster, Role::Coordinator).as_token();
    params.subject_alt_names = vec![SanType::URI(name.to_string().try_into()?)];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Returns the contents of a process's certificate. Operators, clients and tokens cannot be servers.
fn process_params(name: Name) -> Result<CertificateParams, TrustError> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, name.holder());
    params.subject_alt_names = vec![
        SanType::DnsName(TLS_NAME.try_into()?),
        SanType::URI(name.to_string().try_into()?),
    ];
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let serves = matches!(name.role, Role::Coordinator | Role::Node) && !name.is_token;
    if serves {
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
    }
    Ok(params)
}

/// A serial that is in no other certificate. It is positive in X.509's form of 16 bytes.
fn new_serial() -> Result<Serial, TrustError> {
    let bytes = random_bytes().map_err(io_error("read", Path::new("/dev/urandom")))?;
    Ok(Serial(u128::from_be_bytes(bytes) >> 1))
}

fn x509_serial(serial: Serial) -> X509Serial {
    X509Serial::from_slice(&serial.to_bytes())
}

/// Whether credentials with this name may be written into a directory.
///
/// # Errors
/// [`TrustError::Occupied`] if it is that of an authority, or has the certificate of another process;
/// [`TrustError::Identified`] if it has a node's own, and the name is without a number.
pub(crate) fn check_free(directory: &Path, name: &Name) -> Result<(), TrustError> {
    let occupied = |holder| TrustError::Occupied {
        path: directory.to_owned(),
        holder,
        wanted: name.holder(),
    };
    if Authority::is_in(directory) {
        return Err(occupied("a certificate authority".to_owned()));
    }
    // One that has expired is its process's still; a text that is no certificate is replaced.
    let Some(known) = holder_of(directory)? else {
        return Ok(());
    };
    let other_node = |node| known.node.is_some_and(|known| known != node);
    if known.cluster != name.cluster {
        let holder = known.holder();
        return Err(occupied(format!("{holder} of cluster {}", known.cluster)));
    }
    if known.role != name.role || name.node.is_some_and(other_node) {
        return Err(occupied(known.holder()));
    }
    if known.node.is_some() && name.node.is_none() {
        // The node's data are for its number, so it could not start any more.
        return Err(TrustError::Identified {
            path: directory.to_owned(),
            holder: known.holder(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
