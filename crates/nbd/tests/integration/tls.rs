//! TLS: Debian's tools attach by it, and it refuses clients without a good certificate and bytes that are not
//! encrypted.

use crate::conversation::{DISC, PATIENCE, READ, Talk, WHOLE, WRITE, go};
use crate::serving::Serving;
use crate::tools::{has, output, run, text};
use gabion_nbd::{Limits, Tls, TlsClients, TlsError};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Numbers of options.
const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const START_TLS: u32 = 5;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;

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

    /// The list that revokes certificates.
    fn revoke(&self, serials: &[u64]) -> String {
        let (from, until) = (date_time_ymd(2020, 1, 1), date_time_ymd(2100, 1, 1));
        let revoked = serials.iter().map(|&serial| RevokedCertParams {
            serial_number: serial.into(), // tidy: allow(serial number) X.509's name
            revocation_time: from,
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: from,
            next_update: until,
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
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
    serving_with(limits, |tls| tls).await
}

/// The same; new lists count for attached clients almost at once.
async fn watchful(limits: Limits) -> (Serving, Authority, TempDir) {
    serving_with(limits, |tls| tls.looking_every(Duration::from_millis(20))).await
}

async fn serving_with(
    limits: Limits,
    set: impl FnOnce(Tls) -> Tls,
) -> (Serving, Authority, TempDir) {
    let authority = Authority::new();
    let directory = certificates(&authority);
    let tls = Tls::open(directory.path(), TlsClients::Certified)
        .map(set)
        .expect("usable");
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
    let other = certificates(&Authority::new());
    fs::write(other.path().join("ca-cert.pem"), &authority.pem).expect("written");
    refused(uri(&serving, other.path())).await;
    // A server's certificate in a client's hand.
    let server = certificates(&authority);
    for kind in ["cert", "key"] {
        let file = |side: &str| server.path().join(format!("{side}-{kind}.pem"));
        fs::copy(file("server"), file("client")).expect("copied");
    }
    refused(uri(&serving, server.path())).await;
    // The client refuses the server of another authority.
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
    fs::write(&list, authority.revoke(&[3])).expect("written");
    assert!(size().await.status.success(), "another one is revoked");
    fs::write(&list, authority.revoke(&[2])).expect("written");
    assert!(!size().await.status.success(), "its own is revoked");
    // A list that is being replaced.
    fs::write(&list, "").expect("written");
    assert!(
        !size().await.status.success(),
        "the list is empty for a moment"
    );
    fs::remove_file(&list).expect("removed");
    assert!(
        !size().await.status.success(),
        "the list is gone for a moment"
    );
    authority.issue(client.path(), "client", 4);
    assert!(size().await.status.success(), "a new one is not revoked");
    // No list tells whether another authority has revoked the certificate.
    let other = Authority::new();
    let both = format!("{}{}", authority.pem, other.pem);
    fs::write(directory.path().join("ca-cert.pem"), both).expect("written");
    fs::write(&list, authority.revoke(&[2])).expect("written");
    assert!(size().await.status.success());
    other.issue(client.path(), "client", 5);
    assert!(!size().await.status.success());
    authority.issue(client.path(), "client", 6);
    // The server moves to another authority.
    other.issue(directory.path(), "server", 1);
    assert!(!size().await.status.success());
    fs::write(client.path().join("ca-cert.pem"), &other.pem).expect("written");
    assert!(size().await.status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_list_ends_the_connections_of_the_certificates_that_it_revokes() {
    let (serving, authority, directory) = watchful(Limits::default()).await;
    let other = certificates(&authority);
    authority.issue(other.path(), "client", 3);
    // One that adds a certificate of its own, which is not valid and has the authority's name.
    let forger = certificates(&authority);
    authority.issue(forger.path(), "client", 4);
    let mut params = CertificateParams::new([]).expect("valid");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = date_time_ymd(2001, 1, 1);
    let untrue = params.self_signed(&KeyPair::generate().expect("a key"));
    let file = forger.path().join("client-cert.pem");
    let own = fs::read_to_string(&file).expect("there");
    fs::write(&file, own + &untrue.expect("a certificate").pem()).expect("written");
    let attach = async |directory: &Path| {
        let talk = Talk::greet(&serving, 3).await;
        let mut talk = begin_tls(talk, directory).await;
        talk.choose("vm/disk").await;
        talk
    };
    let mut revoked = attach(directory.path()).await;
    let mut kept = attach(other.path()).await;
    let mut forging = attach(forger.path()).await;
    let bytes = [7; 4096];
    revoked.request((WRITE, 1 << 5), 1, (0, 4096), &bytes).await;
    assert_eq!(revoked.chunk().await.0, 1);
    let list = directory.path().join("ca-crl.pem");
    fs::write(&list, authority.revoke(&[2, 4])).expect("written");
    assert!(revoked.end().await.is_empty(), "the server ends it");
    assert!(
        forging.end().await.is_empty(),
        "another certificate hides nothing"
    );
    kept.request((READ, 0), 2, (0, 4096), b"").await;
    let (cookie, _, payload) = kept.chunk().await;
    assert_eq!((cookie, &payload[8..]), (2, &bytes[..]));
}

/// Also if it has ended its requests, and takes no replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_client_that_takes_no_replies_loses_its_place() {
    let limits = Limits {
        connection_count: 1,
        stall: Duration::from_hours(1),
        ..Limits::default()
    };
    let (serving, authority, directory) = watchful(limits).await;
    let talk = Talk::greet(&serving, 3).await;
    let mut slow = begin_tls(talk, directory.path()).await;
    slow.choose("vm/disk").await;
    // Whole bytes, and not the holes that they are.
    for cookie in 0..2 {
        slow.request((READ, WHOLE), cookie, (0, 32 << 20), b"")
            .await;
    }
    slow.request((DISC, 0), 3, (0, 0), b"").await;
    let other = certificates(&authority);
    authority.issue(other.path(), "client", 3);
    let finds_place = async || {
        let talk = Talk::greet(&serving, 3).await;
        let mut talk = begin_tls(talk, other.path()).await;
        talk.send_option(LIST, b"").await;
        talk.0.read_u64().await.is_ok()
    };
    assert!(!finds_place().await, "there is one place, and it is taken");
    let list = directory.path().join("ca-crl.pem");
    fs::write(&list, authority.revoke(&[2])).expect("written");
    let has_place = async {
        while !finds_place().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, has_place);
    in_time.await.expect("the place is free");
}

#[tokio::test]
async fn a_connection_without_tls_learns_nothing_but_that_it_needs_tls() {
    let (serving, ..) = serving(Limits::default()).await;
    let mut talk = Talk::greet(&serving, 3).await;
    let long = vec![0; (64 << 10) + 1];
    for option in [
        LIST,
        STRUCTURED_REPLY,
        INFO,
        GO,
        9,
        SET_META_CONTEXT,
        11,
        77,
    ] {
        for data in [&go("vm/disk")[..], &long] {
            let replies = talk.option(option, data).await;
            let kinds: Vec<u32> = replies.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [TLS_REQUIRED], "option {option}");
        }
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
        let rest = talk.end().await;
        let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
        let is_reply = rest.windows(8).any(|bytes| bytes == magic);
        assert!(!is_reply, "it is no option any more: {rest:?}");
    }
}

#[tokio::test]
async fn a_client_that_stops_within_tls_gives_its_place_back() {
    let limits = Limits {
        connection_count: 1,
        handshake: Duration::from_secs(3),
        ..Limits::default()
    };
    let (serving, ..) = serving(limits).await;
    let mut stopped_count = 0;
    while stopped_count < 2 {
        let stream = TcpStream::connect(serving.address).await;
        let mut talk = Talk(stream.expect("a server"));
        assert_eq!(talk.bytes(18).await, b"NBDMAGICIHAVEOPT\0\x03");
        let mut begin = 3_u32.to_be_bytes().to_vec();
        begin.extend(b"IHAVEOPT\0\0\0\x05\0\0\0\0");
        // On a slow machine, the limit may pass before TLS begins.
        let _ = talk.0.write_all(&begin).await;
        let mut reply = [0; 20];
        let replied = talk.0.read_exact(&mut reply).await.is_ok();
        talk.end().await;
        if replied {
            assert_eq!(reply[12..16], ACK.to_be_bytes());
            stopped_count += 1;
        }
    }
}

#[tokio::test]
async fn connections_without_a_certificate_take_no_place_and_the_oldest_one_ends() {
    let limits = Limits {
        connection_count: 1,
        entering_count: 3,
        ..Limits::default()
    };
    let (serving, _, directory) = serving(limits).await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        idle.push(Talk::greet(&serving, 3).await);
    }
    let talk = Talk::greet(&serving, 3).await;
    assert!(idle.remove(0).end().await.is_empty(), "the oldest one ends");
    let mut attached = begin_tls(talk, directory.path()).await;
    attached.choose("vm/disk").await;
    // The attached one is none of those that enter, so there is room for one more.
    idle.push(Talk::greet(&serving, 3).await);
    assert_eq!(idle[0].option(START_TLS, b"").await[0].0, ACK);
    idle.push(Talk::greet(&serving, 3).await);
    assert!(idle.remove(0).end().await.is_empty(), "the oldest one ends");
    attached.request((READ, 0), 1, (0, 512), b"").await;
    assert_eq!(attached.chunk().await.0, 1);
    // One with a certificate finds no place.
    let mut second = begin_tls(idle.remove(0), directory.path()).await;
    assert!(second.end().await.is_empty(), "there is one place");
}

/// Begins TLS as a client with a directory's certificates.
async fn begin_tls<S: AsyncRead + AsyncWrite + Unpin>(
    mut talk: Talk<S>,
    directory: &Path,
) -> Talk<TlsStream<S>> {
    assert_eq!(talk.option(START_TLS, b"").await[0].0, ACK);
    let file = |name: &str| fs::read(directory.join(name)).expect("there");
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(&file("ca-cert.pem")).expect("PEM");
    roots.add(authority).expect("a certificate");
    let chain = CertificateDer::pem_slice_iter(&file("client-cert.pem"))
        .collect::<Result<Vec<_>, _>>()
        .expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(&file("client-key.pem")).expect("PEM");
    let crypto = Arc::new(rustls::crypto::ring::default_provider()); // tidy: allow(provider) rustls' name
    let config = ClientConfig::builder_with_provider(crypto) // tidy: allow(provider) rustls' name
        .with_safe_default_protocol_versions()
        .expect("known versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .expect("they belong together");
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(Arc::new(config));
    Talk(connector.connect(name, talk.0).await.expect("agreed"))
}

#[tokio::test]
async fn tls_forgets_all_options_before_it_and_begins_once() {
    let (serving, _, directory) = serving(Limits::default()).await;
    let socket = UnixStream::connect(serving.path("socket")).await;
    let mut talk = Talk(socket.expect("a server"));
    talk.answer_greeting(3).await;
    assert_eq!(talk.option(STRUCTURED_REPLY, b"").await[0].0, ACK);
    let mut talk = begin_tls(talk, directory.path()).await;
    assert_eq!(talk.option(START_TLS, b"").await[0].0, INVALID);
    let query = [&go("vm/disk")[..11], &[0; 4]].concat();
    let refused = talk.option(SET_META_CONTEXT, &query).await;
    assert_eq!(refused[0].0, INVALID, "contexts need structured replies");
    assert_eq!(talk.option(ABORT, b"").await[0].0, ACK);
    assert!(talk.end().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_directions_are_full_at_the_same_time() {
    // Three of these are within a connection's limit.
    const BYTES: u64 = 16 << 20;
    let (serving, _, directory) = serving(Limits::default()).await;
    let talk = Talk::greet(&serving, 3).await;
    let mut talk = begin_tls(talk, directory.path()).await;
    talk.choose("vm/disk").await;
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    // No reply is read until all requests are sent.
    for cookie in 0..2 {
        talk.request((READ, WHOLE), cookie, (0, BYTES), b"").await;
    }
    let range = (BYTES, BYTES);
    talk.request((WRITE, 1 << 5), 2, range, &bytes).await;
    let mut done = [false; 3];
    while done != [true; 3] {
        let (cookie, (flags, _), _) = talk.chunk().await;
        done[cookie as usize] |= flags == 1;
    }
    talk.request((READ, 0), 3, range, b"").await;
    let mut read: Vec<u8> = Vec::new();
    while read.len() < bytes.len() {
        let (_, (_, kind), payload) = talk.chunk().await;
        assert_eq!(kind, 1, "bytes at an offset");
        read.extend(&payload[8..]);
    }
    assert!(read == bytes, "bytes differ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernels_client_lists_exports_by_tls() {
    if !has(&["nbd-client"]) {
        return;
    }
    let (serving, _, directory) = serving(Limits::default()).await;
    let port = serving.address.port().to_string();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (authority, certificate, key) = (
        file("ca-cert.pem"),
        file("client-cert.pem"),
        file("client-key.pem"),
    );
    let whom = [
        "-l",
        "localhost",
        &port,
        "-enable-tls",
        "-tlshostname",
        "localhost",
    ];
    let files = [
        "-cacertfile",
        &authority,
        "-certfile",
        &certificate,
        "-keyfile",
        &key,
    ];
    let said = run("nbd-client", &[whom, files].concat()).await;
    assert!(said.contains("vm/disk"), "{said}");
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
    let damaged = |kind: &str| format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
    let none = "it has no item of its kind in PEM";
    let no_key = "it has no unencrypted key in PEM";
    for (name, kind, reason, no_item) in [
        (
            "server-cert.pem",
            "CERTIFICATE",
            "its first certificate is damaged",
            none,
        ),
        (
            "server-key.pem",
            "PRIVATE KEY",
            "its key is damaged or of an unknown kind",
            no_key,
        ),
        (
            "ca-cert.pem",
            "CERTIFICATE",
            "a certificate is damaged",
            none,
        ),
        ("ca-crl.pem", "X509 CRL", "a list is damaged", none),
    ] {
        let intact = fs::read(path(name)).ok();
        fs::write(path(name), damaged(kind)).expect("written");
        let error = open().expect_err(name);
        let expected = format!("{} is not usable: {reason}", path(name).display());
        assert_eq!(error.to_string(), expected);
        fs::write(path(name), "no PEM").expect("written");
        let error = open().expect_err(name);
        let expected = format!("{} is not usable: {no_item}", path(name).display());
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
