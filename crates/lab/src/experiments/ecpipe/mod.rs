//! `ECPipe`'s experiments on repair: real processes on a testbed with links slow enough to be the limit (its
//! section 6.1 has 17 machines on one switch, section 6.2 regions), and the search for paths.
//!
//! Each figure is a table of trials (`figure`). `bench` turns a trial into plans. Experiments with more hosts than a
//! machine can run use the model of links (`paper_cluster`). `on_hdfs` runs on Hadoop's HDFS.

pub(crate) mod bench;
mod bound;
mod figure;
pub(crate) mod hdfs_times;
mod modelled;
pub(super) mod on_hdfs;
mod paper_cluster;
pub(super) mod paths;
pub(super) mod recovery;
pub(super) mod shaped;
pub(super) mod single;

pub use bench::{
    BenchLinks, Helpers, RepairBench, Selection, Stored, Together, Trial, TrialTime, Work,
};
pub use hdfs_times::{HdfsBench, HdfsTimes};
