//! Calibrated synthetic workloads: request streams from a seed whose statistics come near those of a
//! real volume, so that everything that a trace serves for also works without one.
//!
//! Calibrated are the columns of Table 3.2 of the `CodFS` thesis: writes, working set, updated
//! working set and update writes, as [`crate::stats`] counts them; for [`HARVARD`] also the files of
//! Table 3.1. Nothing else is: times are evenly spaced, and reads appear only where writes alone
//! would not fill the working set.

mod blueprint;
mod class;
mod files;
mod generator;
mod harvard;
mod held_out;
mod sizes;
mod target;
mod volumes;

pub use class::{Class, HeldOut, Ratios};
pub use files::{FileCounts, Files};
pub use generator::Requests;
pub use harvard::HARVARD;
pub use held_out::held_out;
pub use sizes::SizeShare;
pub use target::Target;
pub use volumes::{VOLUMES, Volume};

use crate::error::LabError;
use crate::trace::Request;
use blueprint::Blueprint;

/// A workload: a target, and a seed that decides everything that the target leaves open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    target: Target,
    blueprint: Blueprint,
    seed: u64,
}

impl Workload {
    /// The workload of a target and a seed.
    ///
    /// # Errors
    /// [`LabError::Target`] when no request stream of this kind has such statistics.
    pub fn new(target: Target, seed: u64) -> Result<Self, LabError> {
        Ok(Self {
            target,
            blueprint: Blueprint::new(&target, seed)?,
            seed,
        })
    }

    /// The statistics that the workload is to have.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// The fewest bytes over which the requests can be spread.
    pub const fn least_span_bytes(&self) -> u64 {
        self.blueprint.least_span_sectors() * crate::stats::SECTOR_BYTES
    }

    /// The requests, the same ones each time.
    pub fn requests(&self) -> Requests {
        Requests::new(self.target, self.blueprint, self.seed)
    }

    /// The requests on a file of `file_bytes` bytes instead of a whole volume. The areas move together
    /// to fit the file, which changes neither sizes nor statistics. Where they cannot, addresses are
    /// folded over at the file's end, so that neighbours stay neighbours but at the fold, and a
    /// request that would straddle the end is moved down to stop there.
    ///
    /// # Errors
    /// [`LabError::FileTooSmall`] when a request may be longer than the file.
    pub fn requests_within(
        &self,
        file_bytes: u64,
    ) -> Result<impl Iterator<Item = Request> + use<>, LabError> {
        let writes = self.target.sizes.iter().map(|size| size.length_bytes);
        let reads = blueprint::READ_SECTORS * crate::stats::SECTOR_BYTES;
        let request_bytes = writes.fold(reads, u64::max);
        if request_bytes > file_bytes {
            return Err(LabError::FileTooSmall {
                file_bytes,
                request_bytes,
            });
        }
        let target = Target {
            span_bytes: self.target.span_bytes.min(file_bytes),
            ..self.target
        };
        let requests = Self::new(target, self.seed)?.requests();
        Ok(requests.map(move |request| Request {
            offset_bytes: (request.offset_bytes % file_bytes)
                .min(file_bytes - request.length_bytes),
            ..request
        }))
    }
}

/// The volume of this name, such as `wdev_1`, or the file server `harvard`.
pub fn volume(name: &str) -> Option<&'static Volume> {
    const ALL: &[Volume] = &VOLUMES;
    const SERVER: &[Volume] = &[HARVARD];
    ALL.iter().chain(SERVER).find(|volume| volume.name == name)
}

/// The workload after volume `wdev_1`, a test web server's disk: 1055 small writes to few places,
/// nearly three quarters of them updates.
///
/// # Panics
/// Never: a test makes the workload of every volume.
pub fn wdev_1(seed: u64) -> Workload {
    let volume = volume("wdev_1").expect("wdev_1 is in the table");
    Workload::new(volume.target, seed).expect("wdev_1 has a workload")
}
