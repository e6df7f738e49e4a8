//! The statements on rows, in SQL that `PostgreSQL`, `CockroachDB` and `YugabyteDB` share, prepared once a connection.

use tokio_postgres::{Client, Error, Statement};

const GET: &str = "SELECT value FROM gabion_rows WHERE key = $1";
const SCAN: &str =
    "SELECT key, value FROM gabion_rows WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3";
const LAST: &str =
    "SELECT key, value FROM gabion_rows WHERE key >= $1 AND key < $2 ORDER BY key DESC LIMIT $3";
const PUT: &str = "INSERT INTO gabion_rows (key, value) SELECT * FROM unnest($1::bytea[], $2::bytea[]) \
                   ON CONFLICT (key) DO UPDATE SET value = excluded.value";
const DELETE: &str = "DELETE FROM gabion_rows WHERE key = ANY($1)";

/// The prepared statements of a connection.
pub(crate) struct Statements {
    /// `key`.
    pub(crate) get: Statement,
    /// `start`, `end`, `limit`.
    pub(crate) scan: Statement,
    /// The same from the end.
    pub(crate) last: Statement,
    /// `keys`, `values`.
    pub(crate) put: Statement,
    /// `keys`.
    pub(crate) delete: Statement,
}

impl Statements {
    pub(crate) async fn prepare(client: &Client) -> Result<Self, Error> {
        let (get, scan, last, put, delete) = futures::try_join!(
            client.prepare(GET),
            client.prepare(SCAN),
            client.prepare(LAST),
            client.prepare(PUT),
            client.prepare(DELETE),
        )?;
        Ok(Self {
            get,
            scan,
            last,
            put,
            delete,
        })
    }
}
