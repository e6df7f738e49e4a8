//! The reasons why a database cannot be used, and the failures of a statement.

use crate::address::DatabaseAddress;
use gabion_meta::MetaError;
use std::path::PathBuf;
use thiserror::Error;
use tokio_postgres::error::SqlState;

/// Errors for which a database cannot be used for metadata.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SqlError {
    /// No connection, or no login.
    #[error(
        "cannot connect to the database {address}: {reason}; check that the database runs, and check user and password"
    )]
    Unreachable {
        /// The database, without a password.
        address: String,
        /// The reason.
        reason: String,
    },
    /// The database has none of the tables.
    #[error(
        "the database {address} has no tables for metadata; run gabion metadata migrate --to '{address}' first"
    )]
    NoSchema {
        /// The database, without a password.
        address: String,
    },
    /// The tables are of another version.
    #[error(
        "the database {address} has tables of version {found}, but this program needs version {needed}; {advice}"
    )]
    OtherSchema {
        /// The database, without a password.
        address: String,
        /// The version of the tables.
        found: i64,
        /// The version that this program needs.
        needed: i64,
        /// The advice.
        advice: String,
    },
    /// The database is an older state of itself.
    #[error(
        "the database {address} lacks metadata that this coordinator had committed: its last commit is {found}, and \
         {needed} is noted in {}; find the server that has them, or see 'Lost commits' in docs/deploy.md", noted.display()
    )]
    LostCommits {
        /// The database, without a password.
        address: String,
        /// The number of its last transaction.
        found: i64,
        /// That of the last one that was committed.
        needed: i64,
        /// The file in which that is noted.
        noted: PathBuf,
    },
    /// The file of the last commit cannot be used.
    #[error("cannot use {}, the file of the last commit ({reason}); check the disk and the file's permissions", path.display())]
    LastCommit {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Another process uses the metadata.
    #[error("the metadata in {address} is in use by {holder}; stop that process first")]
    InUse {
        /// The database, without a password.
        address: String,
        /// The process that uses it.
        holder: String,
    },
    /// A statement failed.
    #[error("the database {address} could not {operation}: {reason}")]
    Failed {
        /// The database, without a password.
        address: String,
        /// The operation.
        operation: &'static str,
        /// The server's message.
        reason: String,
    },
}

/// The failure of a statement. The outcome of a transaction is unknown after each of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The connection is lost, or the answer is late.
    Lost(String),
    /// The server may do it another time.
    Again(String),
    /// The server will not do it.
    Final { code: String, reason: String },
    /// This process does not lead any longer, or the database has lost commits.
    Superseded(Box<MetaError>),
}

impl Fault {
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Lost(reason) | Self::Again(reason) | Self::Final { reason, .. } => reason.clone(),
            Self::Superseded(error) => error.to_string(),
        }
    }

    /// Whether the same may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Again(_))
    }

    /// Whether the table does not exist.
    pub(crate) fn is_no_table(&self) -> bool {
        matches!(self, Self::Final { code, .. } if code == SqlState::UNDEFINED_TABLE.code())
    }
}

/// Classes and codes of errors that pass: the server is short of something, shuts down, starts, is a standby, or has
/// aborted the transaction in favour of another.
const PASSING: [&str; 8] = ["08", "40", "53", "57", "58", "25006", "25P0", "55P03"];

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(said) = error.as_db_error() else {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let reason =
                cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
            return Self::Lost(reason);
        };
        let code = said.code().code();
        let reason = format!("{} ({code})", said.message());
        if PASSING.iter().any(|passing| code.starts_with(passing)) {
            Self::Again(reason)
        } else {
            let code = code.to_owned();
            Self::Final { code, reason }
        }
    }
}

/// The error of an operation for the users of the store.
pub(crate) fn storage(operation: &'static str, reason: impl Into<String>) -> MetaError {
    MetaError::Storage {
        operation,
        reason: reason.into(),
    }
}

/// The error of a database that cannot be connected to.
pub(crate) fn unreachable(address: &DatabaseAddress) -> impl FnOnce(Fault) -> SqlError {
    let address = address.to_string();
    move |fault| SqlError::Unreachable {
        address,
        reason: fault.reason(),
    }
}

/// The error of an operation on a database.
pub(crate) fn failed(
    address: &DatabaseAddress,
    operation: &'static str,
) -> impl FnOnce(Fault) -> SqlError {
    let address = address.to_string();
    move |fault| SqlError::Failed {
        address,
        operation,
        reason: fault.reason(),
    }
}
