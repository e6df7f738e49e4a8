//! The communication of Gabion's processes: frames, connections, and links emulated on one machine.
//!
//! `docs/wire.md` specifies the format. An [`Endpoint`] is a process's side of all its connections: it
//! introduces itself with a [`Hello`] and passes messages to a [`Handler`]. [`Peers`] opens connections on
//! demand; [`Endpoint::serve`] accepts them. On a [`Connection`] requests are called with a deadline, and
//! slices flow with back-pressure.
//!
//! [`ProcessPorts`] are the protocol's ports over these connections, and [`connect`] makes a client of them.
//!
//! Other crates decide what to send and when to retry. The meaning of messages is in
//! `gabion_protocol::message`.

mod admission;
mod body;
mod certificate_call;
mod client;
mod clock;
mod connection;
mod coordinators;
mod disk_watch;
mod endpoint;
mod error;
pub mod frame;
mod handler;
mod handshake;
mod hello;
mod intake;
mod link;
mod link_rates;
mod meter;
mod peers;
mod permission;
mod ports;
mod randomness;
mod rate;
mod reader;
mod renewal;
mod role;
mod silent_link;
mod stream;
mod tls;
mod toll;
mod transcript;
pub mod trust;
mod usage;
mod versions;
mod wall_clock;
mod writer;

pub use admission::{ConnectionLimit, ConnectionLimits};
pub use body::{Frame, Rpc};
pub use certificate_call::{CertificateReply, CertificateRequest};
pub use client::{connect, connect_with};
pub use connection::Connection;
pub use coordinators::coordinator_addresses;
pub use endpoint::{Endpoint, Options};
pub use error::WireError;
pub use handler::{Handler, NotAdmitted, Responder};
pub use hello::{Hello, PeerIdentity};
pub use link::{LinkSpec, LinkTable};
pub use link_rates::{LinkRates, probe_links};
pub use meter::TrafficMeter;
pub use peers::Peers;
pub use permission::Sender;
pub use ports::{ArrayLook, Observer, Own, ProcessPorts};
pub use randomness::random_bytes;
pub use rate::{RateError, parse_rate};
pub use renewal::{RenewalError, exchange_token, revoked_since};
pub use role::Role;
pub use transcript::Transcript;
pub use versions::{FIRST_VERSION, OLDEST_VERSION, VERSION, Versions};
pub use wall_clock::{system_wall_clock, wall_time};
