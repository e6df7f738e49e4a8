//! A server of network block devices (NBD): it exports the cluster's images to any NBD client.
//!
//! The handshake is fixed newstyle; replies are simple, structured or extended, as the client negotiates. `message/`
//! has the protocol's messages without I/O, `handshake.rs` and `session.rs` the two phases of a connection, and
//! `server.rs` the listeners. The server is generic over [`Exports`] and [`Device`], so tests run it on memory;
//! [`Images`] are a cluster's files behind these traits. docs/nbd.md has the semantics and limits.
//!
//! Requests of one connection run concurrently and are answered in any order. A write is acknowledged when it is
//! durable, so a flush has nothing to do, and several connections of one server may share an export.
//!
//! A server opens each image exclusively, so a second server of it fences the first one out. With [`Tls`], clients show
//! certificates, and all bytes are encrypted.

mod budget;
mod device;
mod entering;
mod execute;
mod handshake;
mod image;
mod image_name;
mod images;
mod message;
mod metrics;
mod outgoing;
mod pace;
mod patience;
mod range_lock;
mod server;
mod session;
mod socket;
mod tls;

pub use device::{Device, DeviceError, ExportShape, Exports, OpenError};
pub use image::Image;
pub use image_name::{ImageName, ImageNameError};
pub use images::{Images, ServeOptions};
pub use message::{Context, Descriptor, Errno, Part};
pub use server::{Limits, Server};
pub use tls::{Tls, TlsClients, TlsError};
