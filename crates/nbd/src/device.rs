//! The devices behind the server: small traits, so that the protocol runs on anything.

use crate::message::{Context, Descriptor, Errno, Part};
use bytes::Bytes;
use futures::future::BoxFuture;
use gabion_layout::ByteRange;
use std::sync::Arc;
use thiserror::Error;

/// The failure of an operation on a device.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{sentence}")]
pub struct DeviceError {
    /// The error that the client gets.
    pub errno: Errno,
    /// One plain sentence.
    pub sentence: String,
}

/// A block device. The server keeps ranges within the size that a client has seen, and reads and writes to 32 MiB.
///
/// Operations run concurrently. Each must be durable, and visible to all later ones, when it has succeeded: the
/// server's flush does nothing.
pub trait Device: Send + Sync {
    /// Its size as of now, and whether it refuses writes.
    fn shape(&self) -> ExportShape;

    /// Reads a range: parts in order, which cover it exactly.
    fn read(&self, range: ByteRange) -> BoxFuture<'_, Result<Vec<Part>, DeviceError>>;

    /// Writes bytes, at least one.
    fn write(&self, offset: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), DeviceError>>;

    /// Makes a range zero. If it must keep its space, it may not become a hole.
    fn zero(&self, range: ByteRange, keeps_space: bool) -> BoxFuture<'_, Result<(), DeviceError>>;

    /// Whether [`Device::zero`] without space surely takes less time than a write of the range.
    fn zeroes_fast(&self, range: ByteRange) -> bool;

    /// Frees the space of a range, or of parts of it; its bytes may be any afterwards.
    fn trim(&self, range: ByteRange) -> BoxFuture<'_, Result<(), DeviceError>>;

    /// The states of a range from its offset on, in order: at least one descriptor and at most `count_max`. They
    /// may end before the range does, not behind it.
    fn status(
        &self,
        context: Context,
        range: ByteRange,
        count_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Descriptor>, DeviceError>>;
}

/// The reason why an export cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum OpenError {
    /// There is none of this name.
    #[error("there is no export of this name")]
    Unknown,
    /// It cannot be served: one plain sentence.
    #[error("{0}")]
    Failed(String),
}

/// The facts about an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportShape {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub is_read_only: bool,
}

/// The exports of a server.
pub trait Exports: Send + Sync {
    /// Their names, for people who look for one.
    fn names(&self) -> BoxFuture<'_, Result<Vec<String>, OpenError>>;

    /// The facts about an export, without opening it for writes. The empty name is that of the default export.
    fn look<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ExportShape, OpenError>>;

    /// Opens an export to serve it to a connection, with its present size.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Device>, OpenError>>;
}
