//! Certificates: the names in them, the authority that signs them, and the files of a process's credentials.
//!
//! `docs/security.md` states the guarantees. A cluster has one [`Authority`]; each process has [`Credentials`] that the
//! authority signed, and a [`Security`] that endpoints share and that takes renewed credentials without a restart. No
//! verifier of our own decides on a chain of signatures: that is `rustls`' work. This module reads the [`Name`] from a
//! certificate that has passed.

mod authority;
mod credentials;
mod error;
mod files;
mod ledger;
mod name;
mod security;
mod token;

pub(crate) use authority::check_free;
pub use authority::{Authority, PublicKey};
#[cfg(test)]
pub(crate) use credentials::Issued;
pub(crate) use credentials::server_name;
pub use credentials::{Certified, Credentials};
pub use error::TrustError;
pub use ledger::{Entry, EntryState, Register, Serial};
pub use name::{Name, NameError};
pub use security::Security;
pub use token::Token;
pub(crate) use token::remove_token;
