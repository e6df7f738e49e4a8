//! The coordinator's certificates: its own, those that it issues, and the revoked ones.

use crate::error::ServerError;
use crate::events::{EventLog, Happening};
use gabion_layout::{ClusterId, NodeId};
use gabion_wire::trust::{
    Authority, Entry, EntryState, Name, PublicKey, Security, Serial, TrustError,
};
use gabion_wire::{
    CertificateReply, CertificateRequest, Connection, Endpoint, Role, Sender, revoked_since,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Weak;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Interval of looking for revoked certificates and changed files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A coordinator's proof of its identity, and its certification of others.
#[derive(Clone, Debug)]
pub enum Protection {
    /// Not at all: on loopback only.
    Insecure,
    /// By an authority of the cluster's own, which the first start makes.
    Managed {
        /// Directory of the authority.
        authority: PathBuf,
        /// Directory of the coordinator's credentials.
        own: PathBuf,
        /// Directory of the credentials of the person who runs the cluster.
        operator: PathBuf,
    },
    /// By credentials that another authority has made, and renews.
    Foreign(Security),
}

impl Protection {
    /// Whether there is none.
    pub fn is_insecure(&self) -> bool {
        matches!(self, Self::Insecure)
    }

    /// The cluster in the certificates that there are.
    ///
    /// # Errors
    /// If the authority cannot be opened.
    pub(crate) fn cluster(&self) -> Result<Option<ClusterId>, TrustError> {
        Ok(match self {
            Self::Managed { authority, .. } if Authority::is_in(authority) => {
                Some(Authority::open(authority)?.cluster())
            }
            Self::Foreign(security) => security.name().map(|name| name.cluster),
            Self::Insecure | Self::Managed { .. } => None,
        })
    }
}

/// The office.
pub(crate) struct CertificateOffice {
    security: Security,
    managed: Option<Managed>,
}

/// An authority of the cluster's own.
struct Managed {
    authority: Authority,
    own: PathBuf,
    /// The list of revoked certificates that this process has taken in.
    revoked: Mutex<String>,
    /// The certificates that the event log knows of.
    logged: Mutex<LoggedCertificates>,
}

/// The certificates that the event log knows of, and the length of the ledger that had them.
#[derive(Default)]
struct LoggedCertificates {
    ledger_bytes: u64,
    states: BTreeMap<Serial, EntryState>,
}

impl CertificateOffice {
    /// Opens the office of a cluster. Makes its authority with `init`, if it has none.
    pub(crate) fn open(
        protection: Protection,
        cluster: ClusterId,
        init: bool,
    ) -> Result<Self, ServerError> {
        let name = Name::of(cluster, Role::Coordinator);
        let (security, managed) = match protection {
            Protection::Insecure => {
                warn_of_insecurity();
                (Security::insecure(), None)
            }
            Protection::Foreign(security) => (security, None),
            Protection::Managed {
                authority,
                own,
                operator,
            } => {
                let authority = if init && !Authority::is_in(&authority) {
                    Authority::create(&authority, cluster)?
                } else {
                    Authority::open(&authority)?
                };
                let of_operator = Name::of(authority.cluster(), Role::Operator);
                authority.refresh(&own, Name::of(authority.cluster(), Role::Coordinator))?;
                authority.refresh(&operator, of_operator)?;
                let security = Security::open(&own)?;
                let managed = Managed {
                    authority,
                    own,
                    revoked: Mutex::default(),
                    logged: Mutex::default(),
                };
                if let Err(error) = managed.news() {
                    tracing::warn!(%error, "cannot report certificates in the event log now");
                }
                (security, Some(managed))
            }
        };
        match security.name() {
            Some(found) if found != name => Err(ServerError::OtherCertificate {
                found: format!("{} of cluster {}", found.holder(), found.cluster),
                wanted: format!("the coordinator of cluster {cluster}"),
            }),
            _ => Ok(Self { security, managed }),
        }
    }

    pub(crate) fn security(&self) -> &Security {
        &self.security
    }

    /// Renews the coordinator's own certificate, takes in what is revoked, and closes connections of such peers, as
    /// long as the endpoint lives.
    pub(crate) async fn keep_fresh(self: Arc<Self>, endpoint: Weak<Endpoint>, log: Arc<EventLog>) {
        if self.security.name().is_none() {
            return;
        }
        let mut last_error = String::new();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (office, log) = (Arc::clone(&self), Arc::clone(&log));
            let looked = tokio::task::spawn_blocking(move || {
                (office.freshen(), office.note_certificates(&log))
            });
            let looked = looked.await;
            let Some(endpoint) = endpoint.upgrade() else {
                return;
            };
            let Ok((fresh, noted)) = looked else {
                continue;
            };
            // Also when the event log does not hear of it.
            if matches!(fresh, Ok(true)) {
                endpoint.close_revoked();
            }
            if let Some(error) = fresh.err().or(noted.err()).map(|error| error.to_string())
                && error != last_error
            {
                tracing::warn!(error, "cannot refresh or report certificates now");
                last_error = error;
            }
        }
    }

    /// Notes certificates that were issued, exchanged or revoked since the last time, by whatever process.
    fn note_certificates(&self, log: &EventLog) -> Result<(), TrustError> {
        if let Some(managed) = &self.managed {
            for event in managed.news()? {
                log.note(event);
            }
        }
        Ok(())
    }

    /// Whether anything has changed.
    fn freshen(&self) -> Result<bool, TrustError> {
        if let Some(managed) = &self.managed {
            let is_due = self.security.credentials().is_some_and(|own| own.is_due());
            let present = managed.authority.revoked()?;
            let mut known = managed
                .revoked
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if is_due {
                let name = Name::of(managed.authority.cluster(), Role::Coordinator);
                managed.authority.refresh(&managed.own, name)?;
            }
            if *known != present {
                if let Some(own) = self.security.credentials() {
                    managed.authority.give_revoked(&own)?;
                }
                *known = managed.authority.revoked()?;
            }
        }
        self.security.reload()
    }

    /// Answers a request, which the table of roles has let pass.
    pub(crate) fn answer(
        &self,
        connection: &Connection,
        request: &CertificateRequest,
    ) -> CertificateReply {
        match request {
            CertificateRequest::Revoked { known } => {
                let own = self.security.credentials();
                revoked_since(own.as_ref().and_then(|own| own.revoked_text()), *known)
            }
            CertificateRequest::Certify { point } => {
                self.certify(connection, point.clone()).map_or_else(
                    |error| CertificateReply::Refused(error.to_string()),
                    |certificate| CertificateReply::Certified { certificate },
                )
            }
        }
    }

    /// The node that joins with the certificate of this connection, if that is a new node's.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub(crate) fn admitted(&self, connection: &Connection) -> Result<Option<NodeId>, TrustError> {
        match self.held_by_new_node(connection) {
            Some(serial) => self.managed()?.authority.admitted(serial),
            None => Ok(None),
        }
    }

    /// Notes durably that a node joins with the certificate of this connection, if that is a new node's.
    ///
    /// # Errors
    /// [`TrustError::Admitted`] if another node does; otherwise if the ledger cannot be written.
    pub(crate) fn admit(&self, connection: &Connection, node: NodeId) -> Result<(), TrustError> {
        match self.held_by_new_node(connection) {
            Some(serial) => self.managed()?.authority.admit(serial, node),
            None => Ok(()),
        }
    }

    /// The serial of the certificate of a new node that the cluster's own authority has made.
    fn held_by_new_node(&self, connection: &Connection) -> Option<Serial> {
        let authority = &self.managed.as_ref()?.authority;
        let certified = connection.certified()?;
        let is_new = certified.name == Name::of_node(authority.cluster(), None);
        certified.serial.filter(|_| is_new)
    }

    fn managed(&self) -> Result<&Managed, TrustError> {
        let foreign = "another authority issues this cluster's certificates";
        let foreign = || TrustError::NotSigned(foreign.to_owned());
        self.managed.as_ref().ok_or_else(foreign)
    }

    fn certify(&self, connection: &Connection, point: Vec<u8>) -> Result<String, TrustError> {
        let refused = |reason: &str| TrustError::NotSigned(reason.to_owned());
        let managed = self.managed()?;
        let serial = connection
            .certified()
            .and_then(|certified| certified.serial);
        let serial = serial
            .ok_or_else(|| refused("this authority did not issue the certificate's serial"))?;
        let key = PublicKey::new(point)?;
        let Sender {
            role,
            node,
            is_token,
            ..
        } = connection.sender();
        if is_token {
            let certificate = managed.authority.exchange(serial, &key)?;
            tracing::info!(target: "cluster", %serial, "a join token was exchanged for a certificate");
            return Ok(certificate);
        }
        // A new node that has connected again since it joined.
        let node = node.or(self.admitted(connection)?);
        let name = Name {
            node,
            ..Name::of(managed.authority.cluster(), role)
        };
        managed.authority.renew(serial, name, &key)
    }
}

impl Managed {
    /// Returns the entries of the ledger that the event log does not know.
    fn news(&self) -> Result<Vec<Happening>, TrustError> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger_bytes = self.authority.ledger_bytes()?;
        if ledger_bytes == logged.ledger_bytes {
            return Ok(Vec::new());
        }
        let mut news = Vec::new();
        for entry in self.authority.register()?.entries {
            let known = logged.states.insert(entry.serial, entry.state);
            if known.is_none() && entry.state != EntryState::Valid {
                // It has changed since the last look, in which it was not there.
                let state = EntryState::Valid;
                news.push(event_of(&Entry { state, ..entry }));
            }
            if known != Some(entry.state) {
                news.push(event_of(&entry));
            }
        }
        logged.ledger_bytes = ledger_bytes;
        Ok(news)
    }
}

/// The event of a certificate's last change.
fn event_of(entry: &Entry) -> Happening {
    let holder = entry.name.holder();
    let (serial, holder) = (entry.serial, holder.trim_start_matches("join/"));
    let (kind, sentence) = match entry.state {
        EntryState::Valid if entry.name.is_token => (
            "token_issued",
            format!("a join token for {holder} was issued ({serial})"),
        ),
        EntryState::Valid => (
            "certificate_issued",
            format!("a certificate of {holder} was issued ({serial})"),
        ),
        EntryState::Used => (
            "token_exchanged",
            format!("the join token {serial} was exchanged for a certificate"),
        ),
        EntryState::Revoked { .. } if entry.name.is_token => (
            "certificate_revoked",
            format!("the join token {serial} for {holder} was revoked"),
        ),
        EntryState::Revoked { .. } => (
            "certificate_revoked",
            format!("the certificate {serial} of {holder} was revoked"),
        ),
    };
    Happening {
        node: entry.name.node,
        ..Happening::plain(kind, sentence)
    }
}

/// Refuses an address that other machines reach.
pub(crate) fn check_loopback(address: SocketAddr) -> Result<(), ServerError> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(ServerError::NotLoopback {
        address: address.to_string(),
    })
}

/// Says at each start that there is no protection.
pub(crate) fn warn_of_insecurity() {
    tracing::warn!(
        "--insecure: any process on this machine can read, change and delete everything in this cluster"
    );
}
