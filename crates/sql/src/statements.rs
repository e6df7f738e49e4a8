//! The statements on rows, in SQL that `PostgreSQL`, `CockroachDB` and `YugabyteDB` share, prepared once a connection.

use tokio_postgres::{Client, Error, Statement};

// Each query also reads the leader's row, in the same view: one row without a key or value if it finds nothing.
const GET: &str = "SELECT leader.term, leader.sequence, found.value FROM gabion_leader AS leader \
                   LEFT JOIN gabion_rows AS found ON found.key = $1 WHERE leader.id = 1";
const SCAN: &str = "SELECT leader.term, leader.sequence, found.key, found.value FROM gabion_leader AS leader LEFT JOIN \
                    (SELECT key, value FROM gabion_rows WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3) AS found \
                    ON true WHERE leader.id = 1 ORDER BY found.key";
const LAST: &str = "SELECT leader.term, leader.sequence, found.key, found.value FROM gabion_leader AS leader LEFT JOIN \
                    (SELECT key, value FROM gabion_rows WHERE key >= $1 AND key < $2 ORDER BY key DESC LIMIT $3) AS found \
                    ON true WHERE leader.id = 1 ORDER BY found.key DESC";
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
