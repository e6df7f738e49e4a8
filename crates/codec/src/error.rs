//! The one error type of the crate.

use std::fmt;

use thiserror::Error;

/// Why a code could not be built, or an operation on chunks could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodeError {
    /// The text of a code names no family that exists.
    #[error(
        "there is no code family called \"{name}\": use rs(k,m), cauchy(k,m), rdp(k), evenodd(k), \
         lrc(k,l,g), rotated(k,m,r) or rep(n)"
    )]
    UnknownFamily {
        /// The name as given.
        name: String,
    },
    /// The text of a code is not a family's name with numbers in parentheses.
    #[error(
        "\"{text}\" is not a code: write {expected}, with whole numbers in parentheses and commas \
         between them"
    )]
    Malformed {
        /// The text as given.
        text: String,
        /// The form that was expected.
        expected: &'static str,
    },
    /// The family exists, but not with these parameters.
    #[error("there is no code {code}: {allowed}")]
    UnsupportedParameters {
        /// The code in its text form.
        code: String,
        /// What the family allows.
        allowed: &'static str,
    },
    /// A chunk's number is not below n.
    #[error("there is no chunk {chunk}: this code's chunks are numbered 0 to {}", n - 1)]
    NoSuchChunk {
        /// The number as given.
        chunk: usize,
        /// The code's number of chunks.
        n: usize,
    },
    /// Another number of chunks was handed in than the operation works on.
    #[error("{needed} {role} chunks are needed, and {given} were given")]
    ChunkCount {
        /// What the chunks are for.
        role: &'static str,
        /// How many the operation works on.
        needed: usize,
        /// How many were handed in.
        given: usize,
    },
    /// The chunks of one operation differ in length.
    #[error("all chunks of a stripe are of one length, and these have {first} and {other} bytes")]
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
        /// What its length must be a multiple of.
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
        /// The chunks that were asked for and are not determined.
        wanted: Vec<usize>,
        /// The chunks that were offered.
        available: Vec<usize>,
        /// The chunks that were not offered, any of which may help.
        missing: Vec<usize>,
        /// A lower bound on how many of `missing` would have to be offered as well.
        missing_count: usize,
    },
    /// A matrix has no inverse.
    #[error("a matrix of {size} rows has rank {rank} and no inverse")]
    Singular {
        /// Rows and columns of the matrix.
        size: usize,
        /// How many of its rows are independent.
        rank: usize,
    },
    /// Matrices of shapes that do not go together.
    #[error("matrix shapes do not match: {needed} needed, {given} given")]
    Shape {
        /// The shape that the operation needs.
        needed: String,
        /// The shape that it was given.
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
