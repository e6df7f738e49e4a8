//! Metadata in a database that speaks `PostgreSQL`'s protocol, behind `gabion_meta`'s key-value trait.
//!
//! One process, the *leader*, uses a database at a time. Its transactions run one after another in memory, and those
//! that wait for each other become durable by one SQL transaction, which checks the leadership. The database therefore
//! sees few statements, all of the subset that `PostgreSQL`, `CockroachDB` and `YugabyteDB` share. docs/metadata.md
//! has the argument; each file has its part of it.
//!
//! Operations block: call them from a thread that may wait, never from a task of a tokio run-time.

mod address;
mod cache;
mod connection;
mod error;
mod flush;
mod last_commit;
mod leader;
mod moment;
mod passfile;
mod pending;
mod pool;
mod randomness;
mod schema;
mod statements;
mod store;
mod transaction;

pub use address::{AddressError, DatabaseAddress};
pub use error::SqlError;
pub use leader::LEASE;
pub use schema::{Migration, migrate};
pub use store::{Leadership, PostgresStore, StoreOptions, Traffic};
