//! One file a command.

pub(crate) mod chaos;
pub(crate) mod cluster;
pub(crate) mod demo;
pub(crate) mod files;
pub(crate) mod lab;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod repair;
pub(crate) mod serve;
