//! Erasure codes over GF(2^8) and the kernels that run them.
//!
//! A [`Code`] is a systematic generator matrix with a family's name. It encodes stripes, determines
//! which sets of chunks suffice, derives the [`Equations`] that rebuild lost chunks, and lists the
//! parity sub-chunks affected by a change of data. [`kernel`] is the arithmetic on whole buffers,
//! chosen at run time for the processor.
//!
//! This crate has no placement, plans, nodes or racks. A chunk here is a number below n, data
//! chunks first, and a byte slice.
//!
//! ```
//! use gabion_codec::Code;
//!
//! let code: Code = "rs(4,2)".parse()?;
//! let data = [b"one ", b"two ", b"thre", b"four"].map(|chunk| chunk.as_slice());
//! let (mut p, mut q) = ([0; 4], [0; 4]);
//! code.encode(&data, &mut [&mut p, &mut q])?;
//!
//! // Chunks 0 and 2 are lost: the rest rebuilds them.
//! let equations = code.decode(&[1, 3, 4, 5], &[0, 2])?;
//! let (mut first, mut third) = ([0; 4], [0; 4]);
//! equations.apply(&[data[1], data[3], &p, &q], &mut [&mut first, &mut third])?;
//! assert_eq!((&first, &third), (b"one ", b"thre"));
//! # Ok::<(), gabion_codec::CodeError>(())
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod code;
mod equations;
mod error;
mod families;
pub mod gf;
pub mod kernel;
mod matrix;
mod regions;
mod rotated;
mod text;

pub use code::{Code, DeltaTarget};
pub use equations::Equations;
pub use error::CodeError;
pub use families::Family;
pub use matrix::Matrix;
