//! The error type of the crate.

use std::fmt;

use thiserror::Error;

/// Errors of building a code and of operations on chunks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodeError {
    /// The text names an unknown family.
    #[error(
        "there is no code family \"{name}\": use rs(k,m), cauchy(k,m), polynomial(k,m), powers(k,m), rdp(k), \
         evenodd(k), lrc(k,l,g), rotated(k,m,r) or rep(n)"
    )]
    UnknownFamily {
        /// The given name.
        name: String,
    },
    /// The text of a code is not a family's name with numbers in parentheses.
    #[error(
        "\"{text}\" is not a code: write {expected}, with whole numbers in parentheses and commas \
         between them"
    )]
    Malformed {
        /// The given text.
        text: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The family exists, but not with these parameters.
    #[error("there is no code {code}: {allowed}")]
    UnsupportedParameters {
        /// The code in its text form.
        code: String,
        /// The parameters that the family allows.
        allowed: &'static str,
    },
    /// A chunk's number is not below n.
    #[error("there is no chunk {chunk}: this code's chunks are numbered 0 to {}", n - 1)]
    NoSuchChunk {
        /// The given number.
        chunk: usize,
        /// The code's number of chunks.
        n: usize,
    },
    /// The number of chunks passed in is wrong.
    #[error("{needed} {role} chunks are needed, but {given} were given")]
    ChunkCount {
        /// The role of the chunks.
        role: &'static str,
        /// The number required.
        needed: usize,
        /// The number passed in.
        given: usize,
    },
    /// The chunks of one operation differ in length.
    #[error(
        "all chunks of a stripe must have the same length, but these have {first} and {other} bytes"
    )]
    UnequalLengths {
        /// Bytes of the first chunk.
        first: usize,
        /// Bytes of a chunk that differs from it.
        other: usize,
    },
    /// A chunk cannot be divided into the code's sub-chunks.
    #[error("a chunk of {length} bytes is not a multiple of this code's {alignment} sub-chunks")]
    Misaligned {
        /// Bytes of the chunk.
        length: usize,
        /// The unit of its length.
        alignment: usize,
    },
    /// The available chunks do not determine the wanted ones.
    #[error(
        "{} cannot be rebuilt from {}: at least {missing_count} more of {} needed",
        Chunks(wanted),
        Chunks(available),
        ChunksAre(missing)
    )]
    NotSufficient {
        /// The requested chunks that are not determined.
        wanted: Vec<usize>,
        /// The offered chunks.
        available: Vec<usize>,
        /// The chunks that were not offered, any of which may help.
        missing: Vec<usize>,
        /// A lower bound on the number of further chunks of `missing` that are required.
        missing_count: usize,
    },
    /// A matrix has no inverse.
    #[error("a matrix of {size} rows has rank {rank} and no inverse")]
    Singular {
        /// Rows and columns of the matrix.
        size: usize,
        /// Number of its independent rows.
        rank: usize,
    },
    /// Matrices with mismatched shapes.
    #[error("matrix shapes do not match: {needed} needed, {given} given")]
    Shape {
        /// The required shape.
        needed: String,
        /// The given shape.
        given: String,
    },
}

/// Renders chunk numbers as "no chunk", "chunk 3" or "chunks 3, 5, 7".
struct Chunks<'a>(&'a [usize]);

impl fmt::Display for Chunks<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => formatter.write_str("no chunk"),
            [chunk] => write!(formatter, "chunk {chunk}"),
            [first, rest @ ..] => {
                write!(formatter, "chunks {first}")?;
                rest.iter()
                    .try_for_each(|chunk| write!(formatter, ", {chunk}"))
            }
        }
    }
}

/// Renders chunk numbers with the verb that agrees with them.
struct ChunksAre<'a>(&'a [usize]);

impl fmt::Display for ChunksAre<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.0.len() > 1 { "are" } else { "is" };
        write!(formatter, "{} {verb}", Chunks(self.0))
    }
}
