//! One file a command.

pub(crate) mod array_status;
pub(crate) mod attributes;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod cert;
pub(crate) mod chaos;
pub(crate) mod cluster;
pub(crate) mod console;
pub(crate) mod copy;
pub(crate) mod demo;
pub(crate) mod df;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod files;
pub(crate) mod hdfs;
pub(crate) mod health;
pub(crate) mod image;
pub(crate) mod lab;
pub(crate) mod links;
pub(crate) mod metadata;
pub(crate) mod mount;
pub(crate) mod nbd;
pub(crate) mod node;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod quota;
mod recovery;
pub(crate) mod repair;
pub(crate) mod repair_status;
pub(crate) mod resize;
pub(crate) mod security;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod stat;
pub(crate) mod top;

use crate::arguments::Place;
use crate::failure::Failure;
use gabion_client::{Client, ClientError, ClientOptions};
use gabion_testbed::TestbedError;
use gabion_wire::Role;
use gabion_wire::trust::TrustError;

/// A client of the command's cluster.
async fn connect(place: &Place) -> Result<Client, Failure> {
    connect_with(place, ClientOptions::default()).await
}

/// A client of the command's cluster for a gateway, with the right only to store and read files.
async fn connect_gateway(place: &Place) -> Result<Client, Failure> {
    let (coordinator, security) = security::of_client(place, Role::Client)?;
    Ok(gabion_wire::connect(&coordinator, security, ClientOptions::default()).await?)
}

/// A client of the command's cluster, with these options.
async fn connect_with(place: &Place, options: ClientOptions) -> Result<Client, Failure> {
    let (coordinator, security) = security::of_client(place, Role::Operator)?;
    Ok(gabion_wire::connect(&coordinator, security, options).await?)
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        if error.kind() == gabion_client::ErrorKind::Usage {
            Self::usage(error)
        } else {
            Self::failed(error)
        }
    }
}

impl From<TestbedError> for Failure {
    fn from(error: TestbedError) -> Self {
        if error.is_usage() {
            Self::usage(error)
        } else {
            Self::failed(error)
        }
    }
}

impl From<TrustError> for Failure {
    fn from(error: TrustError) -> Self {
        match error {
            TrustError::UnknownSerial(_)
            | TrustError::NoToken
            | TrustError::NoTokenFile { .. }
            | TrustError::OtherToken(_)
            | TrustError::NoCredentials { .. }
            | TrustError::NoAuthority { .. }
            | TrustError::Occupied { .. }
            | TrustError::AuthorityExists { .. } => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}
