//! One file a command.

pub(crate) mod array_status;
pub(crate) mod attributes;
pub(crate) mod chaos;
pub(crate) mod cluster;
pub(crate) mod copy;
pub(crate) mod demo;
pub(crate) mod df;
pub(crate) mod files;
pub(crate) mod hdfs;
pub(crate) mod health;
pub(crate) mod image;
pub(crate) mod lab;
pub(crate) mod links;
pub(crate) mod mount;
pub(crate) mod nbd;
pub(crate) mod node;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod repair;
pub(crate) mod repair_status;
pub(crate) mod resize;
pub(crate) mod serve;
pub(crate) mod stat;

use crate::arguments::Place;
use crate::failure::Failure;
use gabion_client::{Client, ClientError, ClientOptions};
use gabion_testbed::{LocalCluster, TestbedError};

/// A client of the command's cluster.
async fn connect(place: &Place) -> Result<Client, Failure> {
    connect_with(place, ClientOptions::default()).await
}

/// A client of the command's cluster, with these options.
async fn connect_with(place: &Place, options: ClientOptions) -> Result<Client, Failure> {
    let coordinator = match (&place.coordinator, &place.dir) {
        (Some(coordinator), _) => coordinator.clone(),
        (None, Some(directory)) => LocalCluster::open(directory)?.coordinator()?.to_owned(),
        (None, None) => {
            return Err(Failure::usage(
                "no cluster given; name its directory with --dir (or GABION_DIR), or its coordinator \
                 with --coordinator; 'gabion cluster up --dir D' starts one",
            ));
        }
    };
    Ok(gabion_wire::connect(&coordinator, options).await?)
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
