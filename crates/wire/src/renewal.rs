//! Certificates over the wire: a join token's exchange, renewal, and the list of revoked certificates.

use crate::certificate_call::{CertificateReply, CertificateRequest};
use crate::connection::Connection;
use crate::coordinators::Coordinators;
use crate::endpoint::{Endpoint, Options};
use crate::error::WireError;
use crate::handler::Handler;
use crate::hello::Hello;
use crate::meter::TrafficMeter;
use crate::ports::ProcessPorts;
use crate::role::Role;
use crate::trust::{Credentials, Security, Token, TrustError, check_free, remove_token};
use gabion_protocol::message::Flow;
use rcgen::KeyPair;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

/// Timeout of the coordinator's answer about certificates.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// A process asks the coordinator in every third round, and looks at its own files in each.
const ROUNDS: u64 = 3;
/// Rounds without a renewal after one whose certificate is not valid yet: each fills the authority's ledger.
const PAUSE_ROUNDS: u64 = 120;
/// Timeout of the renewal at the start of a client whose certificate is due.
const START_DEADLINE: Duration = Duration::from_secs(2);

/// Causes for which a certificate was not renewed.
#[derive(Debug, Error)]
pub enum RenewalError {
    /// The coordinator cannot be asked.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The files or keys cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The coordinator refuses.
    #[error("the coordinator issued no certificate: {0}")]
    Refused(String),
}

/// Gets a node's certificate for a join token from the coordinator at `coordinator`, and writes it into a directory.
///
/// # Errors
/// If the token was used, has expired, is of another cluster or for another role; if the directory has the certificate
/// of another process; if the coordinator cannot be reached.
pub async fn exchange_token(
    coordinator: &str,
    token: &Token,
    directory: &Path,
) -> Result<(), RenewalError> {
    let kept = directory.join("token");
    let exchanged = async {
        let credentials = token.unpack(&kept)?;
        let name = credentials.name();
        if name.role != Role::Node {
            return Err(TrustError::OtherToken(name.holder()).into());
        }
        check_free(directory, &name.without_token())?;
        let security = Security::with(credentials);
        let options = Options {
            security: security.clone(),
            ..Options::default()
        };
        let hello = Hello::of_user(&security);
        let meter = Arc::<TrafficMeter>::default();
        let endpoint = Endpoint::new(hello, Arc::new(NoFlows) as Arc<dyn Handler>, options, meter);
        let connection = Coordinators::new(coordinator).connect(&endpoint).await?;
        let asking = |request, deadline| {
            let connection = Arc::clone(&connection);
            async move { connection.call(&request, deadline).await }
        };
        let certified = certify(asking, &security, directory).await;
        connection.close("the token is exchanged");
        certified
    };
    let exchanged = exchanged.await;
    remove_token(&kept)?;
    exchanged
}

/// Takes part in no runs.
struct NoFlows;

impl Handler for NoFlows {
    fn flow(&self, _: &Arc<Connection>, _: Flow) {}
}

/// Asks for a certificate of a new key, and writes both into a directory.
async fn certify<F>(
    ask: impl FnOnce(CertificateRequest, Instant) -> F,
    security: &Security,
    directory: &Path,
) -> Result<(), RenewalError>
where
    F: Future<Output = Result<CertificateReply, WireError>>,
{
    let Some(present) = security.credentials() else {
        return Ok(());
    };
    let key = KeyPair::generate().map_err(TrustError::from)?;
    let point = key.public_key_raw().to_vec();
    let request = CertificateRequest::Certify { point };
    match ask(request, Instant::now() + ANSWER_DEADLINE).await? {
        CertificateReply::Certified { certificate } => {
            present.replace_in(directory, &key, &certificate)?;
            Ok(())
        }
        CertificateReply::Refused(why) => Err(RenewalError::Refused(why)),
        CertificateReply::Revoked { .. } => Err(wrong_answer()),
    }
}

fn wrong_answer() -> RenewalError {
    RenewalError::Refused("it has answered something else".to_owned())
}

impl ProcessPorts {
    /// Replaces this process's certificate by one of its present name: a node that has just joined gets its id into
    /// its name. Connections that are opened from now on use it. Without TLS this does nothing.
    ///
    /// # Errors
    /// If the coordinator cannot be asked or refuses.
    pub async fn certify(&self) -> Result<(), RenewalError> {
        let security = self.security();
        let Some(present) = security.credentials() else {
            return Ok(());
        };
        let ask =
            |request, deadline| async move { self.ask_of_certificates(&request, deadline).await };
        certify(ask, &security, present.directory()).await?;
        Ok(self.reload()?)
    }

    /// Renews this process's certificate in time, takes in changed files and newly revoked certificates, and closes
    /// connections of peers with such ones, as long as the ports live. Without TLS this does nothing.
    pub fn keep_fresh(self: &Arc<Self>) {
        if self.security().credentials().is_some() {
            tokio::spawn(keep_fresh(Arc::downgrade(self)));
        }
    }

    /// Renews a certificate that is due, within a short time.
    pub(crate) async fn renew_at_start(&self) {
        let credentials = self.security().credentials();
        if credentials.is_some_and(|credentials| credentials.is_due()) {
            // The present one is still valid; the next attempt follows.
            let _ = timeout(START_DEADLINE, self.certify()).await;
        }
    }

    /// Takes in changed files, and closes connections of peers whose certificates are revoked by now.
    fn reload(&self) -> Result<(), TrustError> {
        if self.security().reload()? {
            self.close_revoked();
        }
        Ok(())
    }

    /// Takes in changed files; asks the coordinator for news if `asks`, and for a certificate that is due if `renews`.
    async fn freshen(&self, asks: bool, renews: bool) -> Result<(), RenewalError> {
        let reloaded = self.reload();
        let credentials = self.security().credentials();
        let Some(present) = credentials.filter(|_| asks) else {
            return Ok(reloaded?);
        };
        let taken = self.take_in_revoked(&present).await;
        // Before the renewal, which may take long or fail.
        let reloaded = self.reload();
        // Neither a list nor files that cannot be used must let the certificate expire: a renewal replaces the files.
        let credentials = self.security().credentials();
        if renews && credentials.is_some_and(|present| present.is_due()) {
            self.certify().await?;
        } else {
            reloaded?;
        }
        taken
    }

    /// Asks the coordinator for a newer list of revoked certificates.
    async fn take_in_revoked(&self, present: &Credentials) -> Result<(), RenewalError> {
        let known = checksum(present.revoked_text());
        let request = CertificateRequest::Revoked { known };
        let deadline = Instant::now() + ANSWER_DEADLINE;
        match self.ask_of_certificates(&request, deadline).await? {
            CertificateReply::Revoked { list: None } => Ok(()),
            CertificateReply::Revoked { list: Some(list) } => Ok(present.keep_revoked(&list)?),
            CertificateReply::Refused(why) => Err(RenewalError::Refused(why)),
            CertificateReply::Certified { .. } => Err(wrong_answer()),
        }
    }
}

/// The list of revoked certificates for a peer that has one with this checksum.
pub fn revoked_since(list: Option<&str>, known: u32) -> CertificateReply {
    let list = list.filter(|list| checksum(Some(list)) != known);
    CertificateReply::Revoked {
        list: list.map(str::to_owned),
    }
}

fn checksum(list: Option<&str>) -> u32 {
    crc_fast::crc32_iscsi(list.unwrap_or_default().as_bytes())
}

async fn keep_fresh(ports: Weak<ProcessPorts>) {
    let mut last_error = String::new();
    let mut renews_from = 0;
    for round in 1_u64.. {
        let Some(interval) = ports.upgrade().map(|ports| ports.refresh_interval()) else {
            return;
        };
        sleep(interval).await;
        let Some(ports) = ports.upgrade() else {
            return;
        };
        let freshened = ports.freshen(round % ROUNDS == 0, round >= renews_from);
        match freshened.await {
            Ok(()) => last_error.clear(),
            Err(error) => {
                if let RenewalError::Trust(TrustError::NotYetValid { .. }) = error {
                    renews_from = round + PAUSE_ROUNDS;
                }
                let error = error.to_string();
                if error != last_error {
                    tracing::warn!(error, "certificates are not refreshed now");
                    last_error = error;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::Responder;
    use crate::hello::PeerIdentity;
    use crate::trust::{Authority, Name, PublicKey};
    use gabion_layout::ClusterId;
    use std::fs;
    use tokio::net::TcpListener;

    const CLUSTER: ClusterId = ClusterId(5);
    /// A certificate of this lifetime is due at once: it is valid from five minutes before it is made.
    const SHORT: Duration = Duration::from_mins(1);

    /// A coordinator that answers by its authority.
    struct Office(Authority);

    impl Handler for Office {
        fn certificate_request(
            &self,
            connection: &Arc<Connection>,
            request: CertificateRequest,
            responder: Responder<CertificateRequest>,
        ) {
            let certified = connection.certified().unwrap();
            responder.reply(&match request {
                CertificateRequest::Certify { point } => {
                    let key = PublicKey::new(point).unwrap();
                    let serial = certified.serial.unwrap();
                    match self.0.renew(serial, certified.name, &key) {
                        Ok(certificate) => CertificateReply::Certified { certificate },
                        Err(error) => CertificateReply::Refused(error.to_string()),
                    }
                }
                CertificateRequest::Revoked { known } => {
                    revoked_since(Some(&self.0.revoked().unwrap()), known)
                }
            });
        }

        fn flow(&self, _: &Arc<Connection>, _: Flow) {}
    }

    fn endpoint(hello: Hello, handler: Arc<dyn Handler>, security: Security) -> Arc<Endpoint> {
        let options = Options {
            security,
            ..Options::default()
        };
        Endpoint::new(hello, handler, options, Arc::default())
    }

    /// A coordinator, and a client of it whose certificate is due, with the directory of that.
    async fn client_of_office(directory: &Path) -> (Arc<Office>, ProcessPorts, Security) {
        let office = Authority::create(&directory.join("ca"), CLUSTER).unwrap();
        let issue = |place: &str, role, lifetime| {
            let (place, name) = (directory.join(place), Name::of(CLUSTER, role));
            office.issue_into(&place, name, lifetime).unwrap();
            Security::open(&place).unwrap()
        };
        let own = issue("coordinator", Role::Coordinator, Authority::LIFETIME);
        let security = issue("client", Role::Client, SHORT);
        let office = Arc::new(Office(office));
        let hello = Hello {
            cluster: Some(CLUSTER),
            role: Role::Coordinator,
            identity: PeerIdentity::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = endpoint(hello, Arc::clone(&office) as Arc<dyn Handler>, own);
        tokio::spawn(serving.serve(listener));
        let hello = Hello::of_user(&security);
        let client = endpoint(hello, Arc::new(NoFlows), security.clone());
        let ports = ProcessPorts::new(Some(address), client).unwrap();
        (office, ports, security)
    }

    #[tokio::test]
    async fn files_that_cannot_be_used_do_not_stop_a_renewal() {
        let directory = tempfile::tempdir().unwrap();
        let (_office, ports, security) = client_of_office(directory.path()).await;
        let at = |name: &str| directory.path().join("client").join(name);
        let other_key = fs::read_to_string(directory.path().join("ca/ca.key")).unwrap();
        for (file, text) in [
            ("key.pem", other_key.as_str()),
            ("revoked.pem", "-----BEGIN X509 CRL-----\n"),
        ] {
            let before = security.credentials().unwrap().serial();
            fs::write(at(file), text).unwrap();
            ports.freshen(false, true).await.unwrap_err();
            ports.freshen(true, true).await.unwrap();
            let renewed = Credentials::open(&at("")).unwrap().serial();
            assert_ne!(renewed, before);
            assert_eq!(security.credentials().unwrap().serial(), renewed);
        }
    }

    #[tokio::test]
    async fn a_renewal_keeps_a_newer_list_in_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let (office, ports, security) = client_of_office(directory.path()).await;
        let place = directory.path().join("other");
        let name = Name::of(CLUSTER, Role::Client);
        let other = office.0.issue_into(&place, name, SHORT).unwrap();
        office.0.revoke(other).unwrap();
        let other = Credentials::open(&place).unwrap().issued();
        let before = security.credentials().unwrap();
        before.keep_revoked(&office.0.revoked().unwrap()).unwrap();
        ports.certify().await.unwrap();
        let after = security.credentials().unwrap();
        assert_ne!(after.serial(), before.serial());
        assert!(after.has_revoked(&other) && !before.has_revoked(&other));
    }

    #[tokio::test]
    async fn a_new_list_counts_also_if_the_renewal_behind_it_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (office, ports, security) = client_of_office(directory.path()).await;
        let own = security.credentials().unwrap().serial();
        office.0.revoke(own).unwrap();
        let refused = ports.freshen(true, true).await.unwrap_err().to_string();
        assert!(refused.contains("revoked"), "{refused}");
        let credentials = security.credentials().unwrap();
        assert!(credentials.has_revoked(&credentials.issued()));
    }
}
