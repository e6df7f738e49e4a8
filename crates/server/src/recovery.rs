//! The process of a recovery: an earlier copy of the metadata, a listener, and the protocol's `Recovery`. It has no
//! background work on the cluster, and no metrics.

use crate::certificates::{CertificateOffice, Protection};
use crate::coordinator::{address_of, endpoint};
use crate::error::{ServerError, no_randomness};
use crate::events::{EventLog, Happening, Refusals};
use crate::listening::listen_on;
use crate::metadata::{MetadataPlace, MetadataStore};
use gabion_meta::Meta;
use gabion_protocol::coordinator::{CoordinatorOptions, Recovery};
use gabion_protocol::message::{CoordinatorRequest, Flow};
use gabion_wire::{
    CertificateReply, CertificateRequest, Connection, Endpoint, Handler, NotAdmitted, Options,
    ProcessPorts, Responder, WireError,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::net::TcpListener;

/// Parameters of a recovery's start.
#[derive(Clone, Debug)]
pub struct RecoveryConfig {
    /// Directory of the coordinator's files.
    pub directory: PathBuf,
    /// The place of the earlier copy of the metadata.
    pub metadata: MetadataPlace,
    /// Address to listen on, as `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Its proof of its identity, and its certification of others.
    pub protection: Protection,
}

/// A listening recovery.
pub struct RecoveryProcess {
    recovery: Arc<Recovery<MetadataStore>>,
    endpoint: Arc<Endpoint>,
    listener: TcpListener,
    address: SocketAddr,
    office: Arc<CertificateOffice>,
    log: Arc<EventLog>,
}

/// What a recovery opens.
type Opened = (Meta<MetadataStore>, CertificateOffice, EventLog);

impl RecoveryProcess {
    /// Opens the metadata, and listens.
    ///
    /// # Errors
    /// If the metadata, the certificates or the address cannot be used.
    ///
    /// # Panics
    /// If opening the metadata panics, which is a bug.
    pub async fn start(config: RecoveryConfig) -> Result<Self, ServerError> {
        let listener = listen_on(&config.listen).await?;
        let address = address_of(&listener, &config.listen, &config.protection)?;
        let opening = tokio::task::spawn_blocking(move || open(config));
        let (meta, office, log) = opening.await.expect("opening metadata does not panic")?;
        let (office, log) = (Arc::new(office), Arc::new(log));
        let sentence = "the coordinator has started to recover files, and changes nothing";
        log.note(Happening::plain("started", sentence));
        let handler = Arc::new(RecoveryHandler {
            recovery: OnceLock::new(),
            office: Arc::clone(&office),
            log: Arc::clone(&log),
            refusals: Refusals::default(),
        });
        let served = Arc::clone(&handler) as Arc<dyn Handler>;
        let options = Options {
            security: office.security().clone(),
            ..Options::default()
        };
        let endpoint = endpoint(meta.cluster(), served, options);
        let ports = ProcessPorts::new(None, Arc::clone(&endpoint)).map_err(no_randomness)?;
        let ports = Arc::new(ports);
        // It reads the metadata.
        let options = CoordinatorOptions::default();
        let made = tokio::task::spawn_blocking(move || Recovery::new(meta, ports, options));
        let recovery = made.await.expect("making a recovery does not panic")?;
        assert!(
            handler.recovery.set(Arc::clone(&recovery)).is_ok(),
            "a process is one recovery"
        );
        Ok(Self {
            recovery,
            endpoint,
            listener,
            address,
            office,
            log,
        })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `end`, or until the listener or the metadata fail.
    ///
    /// # Errors
    /// If the metadata failed, or the listener fails.
    pub async fn run_until(self, end: impl Future<Output = ()>) -> Result<(), ServerError> {
        let fresh = Arc::clone(&self.office);
        tokio::spawn(fresh.keep_fresh(Arc::downgrade(&self.endpoint), self.log));
        tokio::select! {
            () = end => Ok(()),
            reason = self.recovery.broken() => Err(reason.into()),
            failed = Arc::clone(&self.endpoint).serve(self.listener) => Err(failed.into()),
        }
    }
}

/// Opens what there is; nothing is made. Blocks.
fn open(config: RecoveryConfig) -> Result<Opened, ServerError> {
    let RecoveryConfig {
        directory,
        metadata,
        protection,
        ..
    } = config;
    let meta = metadata.open_to_read()?;
    let office = CertificateOffice::open(protection, meta.cluster(), false)?;
    let log = EventLog::open(&directory.join("events"), None)?;
    Ok((meta, office, log))
}

/// Routes requests of connections to the recovery.
struct RecoveryHandler {
    recovery: OnceLock<Arc<Recovery<MetadataStore>>>,
    office: Arc<CertificateOffice>,
    log: Arc<EventLog>,
    refusals: Refusals,
}

impl Handler for RecoveryHandler {
    fn coordinator_request(
        &self,
        _: &Arc<Connection>,
        request: CoordinatorRequest,
        responder: Responder<CoordinatorRequest>,
    ) {
        let Some(recovery) = self.recovery.get() else {
            responder.refuse("the coordinator is still starting");
            return;
        };
        let recovery = Arc::clone(recovery);
        tokio::spawn(async move { responder.reply(&recovery.handle(request).await) });
    }

    /// Renews certificates: without them, nothing can be read. No node can join, so it exchanges no token.
    fn certificate_request(
        &self,
        connection: &Arc<Connection>,
        request: CertificateRequest,
        responder: Responder<CertificateRequest>,
    ) {
        if matches!(request, CertificateRequest::Certify { .. }) && connection.sender().is_token {
            let sentence = "this coordinator recovers files and exchanges no join token; use the token when another one leads";
            responder.reply(&CertificateReply::Refused(sentence.to_owned()));
            return;
        }
        let (office, connection) = (Arc::clone(&self.office), Arc::clone(connection));
        tokio::task::spawn_blocking(move || responder.reply(&office.answer(&connection, &request)));
    }

    /// The coordinator moves no data, so it receives none.
    fn flow(&self, _: &Arc<Connection>, _: Flow) {}

    fn not_admitted(&self, connection: &Arc<Connection>, why: NotAdmitted) {
        if why == NotAdmitted::Sender
            && let Some(event) = self.refusals.event_of_request(&connection.sender())
        {
            self.log.note(event);
        }
    }

    fn not_accepted(&self, address: SocketAddr, reason: &WireError) {
        if let Some(event) = self.refusals.event_of(address.ip(), reason) {
            self.log.note(event);
        }
    }
}
