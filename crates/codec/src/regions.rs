//! Chunks as the regions of coefficients: row r of a chunk with w sub-chunks is its r-th w-th part.

use crate::error::CodeError;
use crate::kernel::Coefficients;

/// Checks that all chunks have one length that divides into `sub_chunks`, and returns that length.
///
/// # Errors
/// [`CodeError::UnequalLengths`], [`CodeError::Misaligned`].
pub(crate) fn common_length(
    mut lengths: impl Iterator<Item = usize>,
    sub_chunks: usize,
) -> Result<usize, CodeError> {
    let Some(first) = lengths.next() else {
        return Ok(0);
    };
    if let Some(other) = lengths.find(|&length| length != first) {
        return Err(CodeError::UnequalLengths { first, other });
    }
    if !first.is_multiple_of(sub_chunks) {
        return Err(CodeError::Misaligned {
            length: first,
            alignment: sub_chunks,
        });
    }
    Ok(first)
}

/// Checks the number of chunks.
///
/// # Errors
/// [`CodeError::ChunkCount`].
pub(crate) fn check_count(
    role: &'static str,
    needed: usize,
    given: usize,
) -> Result<(), CodeError> {
    if needed == given {
        Ok(())
    } else {
        Err(CodeError::ChunkCount {
            role,
            needed,
            given,
        })
    }
}

/// Overwrites the outputs with the coefficients' product with the sources, sub-chunk by sub-chunk.
///
/// # Errors
/// [`CodeError::UnequalLengths`], [`CodeError::Misaligned`].
pub(crate) fn combine(
    coefficients: &Coefficients,
    sub_chunks: usize,
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
) -> Result<(), CodeError> {
    let source_lengths = sources.iter().map(|source| source.len());
    let output_lengths = outputs.iter().map(|output| output.len());
    let length = common_length(source_lengths.chain(output_lengths), sub_chunks)?;
    if length == 0 {
        return Ok(());
    }
    if sub_chunks == 1 {
        coefficients.combine(sources, outputs);
        return Ok(());
    }
    let region_bytes = length / sub_chunks;
    let sources: Vec<&[u8]> = sources
        .iter()
        .flat_map(|source| source.chunks_exact(region_bytes))
        .collect();
    let mut outputs: Vec<&mut [u8]> = outputs
        .iter_mut()
        .flat_map(|output| output.chunks_exact_mut(region_bytes))
        .collect();
    coefficients.combine(&sources, &mut outputs);
    Ok(())
}
