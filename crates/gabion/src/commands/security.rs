//! The credentials of a command's process: its certificate and the certificate's directory.

use crate::arguments::Place;
use crate::failure::Failure;
use gabion_server::Protection;
use gabion_testbed::LocalCluster;
use gabion_wire::trust::{Security, Token, TrustError};
use gabion_wire::{RenewalError, Role, coordinator_addresses, exchange_token};
use std::net::IpAddr;
use std::path::Path;

/// The coordinator's address for a client, and the client's credentials. The directory of a cluster on this machine has
/// certificates for both roles of clients.
pub(crate) fn of_client(place: &Place, role: Role) -> Result<(String, Security), Failure> {
    // A directory that the environment names may be gone; one that nothing is read from does not matter.
    let has_all = place.coordinator.is_some() && (place.insecure || place.tls.is_some());
    let directory = place.dir.as_deref().filter(|_| !has_all);
    let cluster = directory.map(LocalCluster::open).transpose()?;
    let coordinator = match (&place.coordinator, &cluster) {
        (Some(coordinator), _) => coordinator.clone(),
        (None, Some(cluster)) => cluster.coordinator()?.to_owned(),
        (None, None) => {
            return Err(Failure::usage(
                "no cluster given; name its directory with --dir (or GABION_DIR), or its coordinator \
                 with --coordinator; 'gabion cluster up --dir D' starts one",
            ));
        }
    };
    let security = match (&place.tls, cluster) {
        (_, _) if place.insecure => {
            check_loopback(&coordinator)?;
            Security::insecure()
        }
        (Some(directory), _) => open_as_client(directory)?,
        (None, Some(cluster)) => cluster.security_as(role)?,
        (None, None) => {
            return Err(Failure::usage(
                "no certificate given; name its directory with --tls (or GABION_TLS), after 'gabion cert issue' made \
                it; for a cluster on this machine that runs with --insecure, use --insecure",
            ));
        }
    };
    Ok((coordinator, security))
}

/// The credentials of a coordinator with its data in a directory. Certificates elsewhere belong to another authority.
pub(crate) fn of_coordinator(place: &Place, data: &Path) -> Result<Protection, Failure> {
    Ok(match &place.tls {
        _ if place.insecure => Protection::Insecure,
        Some(directory) => {
            Protection::Foreign(open_as(directory, Role::Coordinator, "a coordinator")?)
        }
        None => managed_in(data),
    })
}

/// A coordinator's own authority, and the certificates that it makes for this machine.
fn managed_in(data: &Path) -> Protection {
    Protection::Managed {
        authority: data.join("ca"),
        own: data.join("tls"),
        operator: data.join("operator"),
    }
}

/// The credentials of a node with its data in a directory. A node with a join token exchanges it first, unless it has a
/// certificate of its own: that stays, and so does the token.
pub(crate) async fn of_node(
    place: &Place,
    data: &Path,
    token: Option<&Path>,
    coordinator: &str,
) -> Result<Security, Failure> {
    if place.insecure {
        return Ok(Security::insecure());
    }
    let directory = place.tls.clone().unwrap_or_else(|| data.join("tls"));
    if let Some(file) = token {
        let token = Token::read(file)?;
        match exchange_token(coordinator, &token, &directory).await {
            // A node that starts again with its first command line has used its token.
            Err(RenewalError::Refused(_)) if Security::open(&directory).is_ok() => {}
            Err(RenewalError::Trust(TrustError::Identified { holder, .. })) => {
                tracing::info!("{holder} has its own certificate, so the join token is not used");
            }
            Err(RenewalError::Trust(error)) => return Err(error.into()),
            exchanged => exchanged.map_err(Failure::failed)?,
        }
    }
    open_as(&directory, Role::Node, "a node")
}

/// The credentials in a directory, which must be those of a client or an operator.
fn open_as_client(directory: &Path) -> Result<Security, Failure> {
    if directory.exists() && !directory.is_dir() {
        return Err(Failure::usage(format!(
            "{} is not a directory; name the directory of a certificate with --tls",
            directory.display()
        )));
    }
    let security = Security::open(directory)?;
    match security.name() {
        Some(name) if matches!(name.role, Role::Node | Role::Coordinator) => {
            Err(Failure::usage(format!(
                "{} has the certificate of {}, but this command needs the certificate of an operator or a client; name \
                another directory with --tls, or unset GABION_TLS",
                directory.display(),
                name.holder(),
            )))
        }
        _ => Ok(security),
    }
}

/// The credentials in a directory, which must be those of a server in this role.
fn open_as(directory: &Path, role: Role, wanted: &str) -> Result<Security, Failure> {
    let security = Security::open(directory)?;
    match security.name() {
        Some(name) if name.role != role => Err(Failure::usage(format!(
            "{} has the certificate of {}, but this process needs the certificate of {wanted}; name another directory \
            with --tls, or unset GABION_TLS",
            directory.display(),
            name.holder(),
        ))),
        _ => Ok(security),
    }
}

/// Refuses connections to other machines without certificates.
fn check_loopback(addresses: &str) -> Result<(), Failure> {
    let is_elsewhere = |address: &&str| {
        let host = address.rsplit_once(':').map_or(*address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        !is_loopback && host != "localhost"
    };
    match coordinator_addresses(addresses).find(is_elsewhere) {
        None => Ok(()),
        Some(address) => Err(Failure::usage(format!(
            "--insecure is for loopback only, and {address} is not a loopback address; name a certificate with --tls"
        ))),
    }
}
