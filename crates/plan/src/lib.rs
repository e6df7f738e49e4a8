//! Plans: the reads, sums, sends and writes of each node. A [`Plan`] is a small DAG of [`Step`]s
//! over streams of slices; planners make it, the checker proves it, the cost counts it, and
//! executors run it. This crate makes no decisions and does no I/O.
//!
//! ```
//! use gabion_codec::Code;
//! use gabion_layout::{ByteRange, ChunkIndex, Geometry, NodeId, Slices, StripeId, Topology};
//! use gabion_plan::{Cost, Goal, Log, PlanBuilder, check};
//!
//! // Update the only data chunk of a mirrored stripe: old and new make the delta.
//! let code: Code = "rs(1,1)".parse().unwrap();
//! let geometry = Geometry::new(1, 1, 1, 4096).unwrap();
//! let (data, parity) = (ChunkIndex(0), ChunkIndex(1));
//! let range = ByteRange::new(100, 50);
//! let mut b = PlanBuilder::new(StripeId(7), geometry, vec![NodeId(0), NodeId(1)]);
//! let slices = Slices::whole(range);
//! let new = b.input(NodeId(0), data, slices);
//! let old = b.read(data, slices);
//! let delta = b.combine(NodeId(0), &[(1, new), (1, old)]);
//! let there = b.send(delta, NodeId(1));
//! let scaled = b.combine(NodeId(1), &[(code.coefficient(1, 0, 0, 0), there)]);
//! b.append(Log::Journal, data, slices, new);
//! b.append(Log::Parity { data }, parity, slices, scaled);
//! let plan = b.finish(Goal::update(data, range));
//!
//! check(&plan, &code).unwrap();
//! assert_eq!(Cost::of(&plan, &Topology::uniform(2, 1)).cross_rack_bytes, 50);
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod builder;
mod check;
mod cost;
mod demand;
mod effect;
mod expression;
mod part;
mod render;
mod step;

pub use builder::PlanBuilder;
pub use check::{CheckError, check};
pub use cost::{Cost, LinkBytes};
pub use part::{Part, PartStep};
pub use render::{DrawnStep, DrawnUse, drawn, graphviz, text, title};
pub use step::{Goal, Keepings, Log, Logged, Plan, Step, StepOrder, Term, ValueId};
