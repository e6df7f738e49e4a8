//! TLS: Debian's tools attach by it, and no stranger, plaintext or stale certificate comes past it.

use crate::conversation::{Talk, go};
use crate::serving::Serving;
use crate::tools::{has, output, run, text};
use gabion_nbd::{Limits, Tls, TlsClients, TlsError};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, date_time_ymd,
};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

/// Numbers of options.
const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const START_TLS: u32 = 5;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;

/// Kinds of replies.
const ACK: u32 = 1;
const UNSUPPORTED: u32 = 1 << 31 | 1;
const INVALID: u32 = 1 << 31 | 3;
const TLS_REQUIRED: u32 = 1 << 31 | 5;

/// An authority of certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// Writes a certificate and its key.
    fn issue(&self, directory: &Path, side: &str, serial: u64) {
        let key = KeyPair::generate().expect("a key");
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("valid");
        params.serial_number = Some(serial.into()); // tidy: allow(serial number) X.509's name
        params.extended_key_usages = vec![match side {
            "server" => ExtendedKeyUsagePurpose::ServerAuth,
            _ => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let certificate = params.signed_by(&key, &self.issuer).expect("valid");
        let file = |kind: &str| directory.join(format!("{side}-{kind}.pem"));
        fs::write(file("cert"), certificate.pem()).expect("written");
        fs::write(file("key"), key.serialize_pem()).expect("written");
    }

    /// The list that revokes a certificate.
    fn revoke(&self, serial: u64) -> String {
        let (from, until) = (date_time_ymd(2020, 1, 1), date_time_ymd(2100, 1, 1));
        let revoked = RevokedCertParams {
            serial_number: serial.into(), // tidy: allow(serial number) X.509's name
            revocation_time: from,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: from,
            next_update: until,
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("a list");
        list.pem().expect("PEM")
    }
}

/// A directory with everything that a server and a client need.
fn certificates(authority: &Authority) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("ca-cert.pem"), &authority.pem).expect("written");
    authority.issue(directory.path(), "server", 1);
    authority.issue(directory.path(), "client", 2);
    directory
}

/// A server for clients with certificates, and its directory.
async fn serving(limits: Limits) -> (Serving, Authority, TempDir) {
    let authority = Authority::new();
    let directory = certificates(&authority);
    let tls = Tls::open(directory.path(), TlsClients::Certified).expect("usable");
    let serving = Serving::start_with(limits, Some(tls)).await;
    (serving, authority, directory)
}

/// The export by TLS, with the client's certificates in a directory.
fn uri(serving: &Serving, directory: &Path) -> String {
    let (port, directory) = (serving.address.port(), directory.display());
    format!("nbds://localhost:{port}/vm/disk?tls-certificates={directory}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_certificates_attach_and_move_bytes() {
    if !has(&["nbdinfo", "nbdcopy", "qemu-img", "qemu-io"]) {
        return;
    }
    let (serving, _, directory) = serving(Limits::default()).await;
    let encrypted = uri(&serving, directory.path());
    let said = run("nbdinfo", &[&encrypted]).await;
    let expected = "protocol: newstyle-fixed with TLS, using structured packets";
    assert!(said.contains(expected), "{said}");
    assert!(said.contains("gabion:failures-left"), "{said}");

    let bytes: Vec<u8> = (0..8_u64 << 20).map(|at| ((at * at) >> 9) as u8).collect();
    let (source, copy) = (serving.path("source"), serving.path("copy"));
    fs::write(&source, &bytes).expect("written");
    let (source, copy) = (source.display().to_string(), copy.display().to_string());
    run("nbdcopy", &[&source, &encrypted]).await;
    run("nbdcopy", &[&encrypted, &copy]).await;
    let copied = fs::read(&copy).expect("there");
    assert!(copied[..bytes.len()] == bytes[..], "bytes differ");

    let credentials = format!(
        "tls-creds-x509,id=tls0,endpoint=client,dir={}",
        directory.path().display()
    );
    let image = format!(
        "driver=nbd,host=localhost,port={},export=vm/disk,tls-creds=tls0",
        serving.address.port()
    );
    let arguments = ["--object", &credentials, "--image-opts", &image];
    let said = run(
        "qemu-io",
        &[&["-c", "read -P 0 60M 4k"], &arguments[..]].concat(),
    )
    .await;
    assert!(said.contains("read 4096/4096 bytes"), "{said}");

    // A client of the same machine may do without.
    let said = run("nbdinfo", &[&serving.unix("vm/disk")]).await;
    assert!(said.contains("newstyle-fixed without TLS"), "{said}");
    let socket = serving.path("socket").display().to_string();
    let local = format!(
        "nbds+unix:///vm/disk?socket={socket}&tls-certificates={}",
        directory.path().display()
    );
    // The name in the certificate is not that of a socket, so the client has to be told to go on.
    let said = run("nbdinfo", &[&format!("{local}&tls-verify-peer=false")]).await;
    assert!(said.contains("newstyle-fixed with TLS"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_a_good_certificate_are_refused() {
    if !has(&["nbdinfo"]) {
        return;
    }
    let (serving, authority, directory) = serving(Limits::default()).await;
    let refused = async |uri: String| {
        let output = output("nbdinfo", &[&uri]).await;
        assert!(!output.status.success(), "{uri}: {}", text(&output.stdout));
        text(&output.stderr)
    };
    // No TLS.
    refused(serving.tcp("vm/disk")).await;
    // No certificate.
    let bare = tempfile::tempdir().expect("a temporary directory");
    fs::write(bare.path().join("ca-cert.pem"), &authority.pem).expect("written");
    refused(uri(&serving, bare.path())).await;
    // Another authority's certificate.
    let stranger = certificates(&Authority::new());
    fs::write(stranger.path().join("ca-cert.pem"), &authority.pem).expect("written");
    refused(uri(&serving, stranger.path())).await;
    // A server's certificate in a client's hand.
    let server = certificates(&authority);
    for kind in ["cert", "key"] {
        let file = |side: &str| server.path().join(format!("{side}-{kind}.pem"));
        fs::copy(file("server"), file("client")).expect("copied");
    }
    refused(uri(&serving, server.path())).await;
    // A client finds out a server of another authority.
    let said = refused(uri(&serving, certificates(&Authority::new()).path())).await;
    assert!(said.contains("certificate"), "{said}");
    run("nbdinfo", &["--size", &uri(&serving, directory.path())]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_certificates_and_lists_count_for_the_next_connection() {
    if !has(&["nbdinfo"]) {
        return;
    }
    let (serving, authority, directory) = serving(Limits::default()).await;
    let client = certificates(&authority);
    let attach = [&uri(&serving, client.path()), "--size"];
    let size = || output("nbdinfo", &attach);
    assert!(size().await.status.success());
    // A file that is not usable changes nothing.
    let list = directory.path().join("ca-crl.pem");
    fs::write(&list, "no list").expect("written");
    assert!(size().await.status.success());
    fs::write(&list, authority.revoke(3)).expect("written");
    assert!(size().await.status.success(), "another one is revoked");
    fs::write(&list, authority.revoke(2)).expect("written");
    assert!(!size().await.status.success(), "its own is revoked");
    authority.issue(client.path(), "client", 4);
    assert!(size().await.status.success(), "a new one is not");
    // The server moves to another authority.
    let other = Authority::new();
    other.issue(directory.path(), "server", 1);
    assert!(!size().await.status.success());
    fs::write(client.path().join("ca-cert.pem"), &other.pem).expect("written");
    assert!(size().await.status.success());
}

#[tokio::test]
async fn a_connection_without_tls_learns_nothing_but_that_it_needs_tls() {
    let (serving, ..) = serving(Limits::default()).await;
    let mut talk = Talk::greet(&serving, 3).await;
    for option in [LIST, STRUCTURED_REPLY, 6, GO, 9, 10, 11, 77] {
        let replies = talk.option(option, &go("vm/disk")).await;
        let kinds: Vec<u32> = replies.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [TLS_REQUIRED], "option {option}");
    }
    assert_eq!(talk.option(START_TLS, b"x").await[0].0, INVALID);
    assert_eq!(talk.option(ABORT, b"").await[0].0, ACK);
    assert!(talk.end().await.is_empty());
    let mut talk = Talk::greet(&serving, 3).await;
    talk.send_option(EXPORT_NAME, b"vm/disk").await;
    assert!(talk.end().await.is_empty(), "it has no reply for errors");
    // A server without certificates says that it has no TLS.
    let plain = Serving::start(Limits::default()).await;
    let mut talk = Talk::greet(&plain, 3).await;
    assert_eq!(talk.option(START_TLS, b"").await[0].0, UNSUPPORTED);
}

#[tokio::test]
async fn bytes_that_were_sent_ahead_of_tls_end_the_connection() {
    let (serving, ..) = serving(Limits::default()).await;
    let mut talk = Talk::greet(&serving, 3).await;
    // One packet, as an attacker on the way would make it: what follows must not count as sent within TLS.
    let option = |number: u32, data: &[u8]| {
        let (number, length) = (number.to_be_bytes(), (data.len() as u32).to_be_bytes());
        [b"IHAVEOPT", &number[..], &length, data].concat()
    };
    let both = [option(START_TLS, b""), option(GO, &go("vm/disk"))].concat();
    talk.send(&[&both]).await;
    let rest = talk.end().await;
    assert_eq!(
        rest.len(),
        20,
        "the acknowledgement of STARTTLS and no more"
    );
    // No TLS after the acknowledgement.
    for garbage in [
        &b"IHAVEOPT\0\0\0\x07\0\0\0\0"[..],
        &[0x16, 3, 1, 0xff, 0xff],
        &[0xff; 300],
    ] {
        let mut talk = Talk::greet(&serving, 3).await;
        assert_eq!(talk.option(START_TLS, b"").await[0].0, ACK);
        talk.send(&[garbage]).await;
        talk.0.shutdown().await.expect("it is connected");
        talk.end().await;
    }
}

#[tokio::test]
async fn a_client_that_stops_within_tls_gives_its_place_back() {
    let limits = Limits {
        connection_count: 1,
        handshake: Duration::from_millis(300),
        ..Limits::default()
    };
    let (serving, ..) = serving(limits).await;
    for _ in 0..3 {
        let mut talk = Talk::greet(&serving, 3).await;
        assert_eq!(talk.option(START_TLS, b"").await[0].0, ACK);
        talk.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_client_is_admitted_where_the_server_says_so() {
    if !has(&["nbdinfo"]) {
        return;
    }
    let authority = Authority::new();
    let directory = certificates(&authority);
    let tls = Tls::open(directory.path(), TlsClients::Any).expect("usable");
    let serving = Serving::start_with(Limits::default(), Some(tls)).await;
    let bare = tempfile::tempdir().expect("a temporary directory");
    fs::write(bare.path().join("ca-cert.pem"), &authority.pem).expect("written");
    let size = run("nbdinfo", &["--size", &uri(&serving, bare.path())]).await;
    assert_eq!(size.trim(), "67108864");
    let plain = output("nbdinfo", &[&serving.tcp("vm/disk")]).await;
    assert!(!plain.status.success(), "TLS is still required");
}

#[test]
fn files_that_are_not_usable_are_named() {
    let authority = Authority::new();
    let directory = certificates(&authority);
    let path = |name: &str| directory.path().join(name);
    let open = || Tls::open(directory.path(), TlsClients::Certified);
    assert!(open().is_ok());
    for name in [
        "server-cert.pem",
        "server-key.pem",
        "ca-cert.pem",
        "ca-crl.pem",
    ] {
        let intact = fs::read(path(name)).ok();
        fs::write(path(name), "no PEM").expect("written");
        let error = open().expect_err(name);
        let expected = format!(
            "{} is not usable: it has no item of its kind in PEM",
            path(name).display()
        );
        assert_eq!(error.to_string(), expected);
        fs::remove_file(path(name)).expect("removed");
        if let Some(bytes) = intact {
            let error = open().expect_err(name);
            assert!(matches!(error, TlsError::Unreadable { path: of, .. } if of == path(name)));
            fs::write(path(name), bytes).expect("written");
        }
    }
    // The key of another certificate.
    authority.issue(directory.path(), "server", 7);
    fs::copy(path("client-key.pem"), path("server-key.pem")).expect("copied");
    let error = open().expect_err("the key is not the certificate's");
    assert!(matches!(error, TlsError::Malformed { path: of, .. } if of == path("server-key.pem")));
}
