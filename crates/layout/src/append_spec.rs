//! What is promised of a pool whose parity follows later: how many copies appended bytes have until
//! then, and when it follows at the latest (CAU, sections 3.1 and 3.4).

use serde::{Deserialize, Serialize};

/// The append phases of a pool's stripes. A limit ends them by a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppendSpec {
    /// Interim replicas of each appended byte. PARIX has its own copies and none of these.
    pub replicas: u8,
    /// The most stripes of one primary with appended updates, CAU's `u_s`.
    pub stripes_max: u64,
    /// The most bytes that one primary's stripes have in append logs.
    pub log_bytes_max: u64,
    /// The longest that an update waits for its parity, in seconds.
    pub age_max_s: u64,
}

impl AppendSpec {
    /// Whether there is a phase at all: without a stripe, a byte or a second there is none.
    pub const fn is_valid(&self) -> bool {
        self.stripes_max > 0 && self.log_bytes_max > 0 && self.age_max_s > 0
    }
}

impl Default for AppendSpec {
    /// One replica, as in CAU's section 3.4, and 100 stripes, the largest `u_s` of its section 5.
    fn default() -> Self {
        Self {
            replicas: 1,
            stripes_max: 100,
            log_bytes_max: 64 << 20,
            age_max_s: 3600,
        }
    }
}
