//! Bytes for a setting: random stripes, and what an update makes of them by the code's own encoder.

use super::Setting;
use gabion_layout::ChunkRange;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// All chunks of a stripe, one after another.
pub(crate) type Chunks = Vec<Vec<u8>>;

/// A stripe of random data with its parity.
pub(crate) fn random_stripe(setting: &Setting, rng: &mut ChaCha8Rng) -> Chunks {
    let mut data = vec![vec![0; setting.geometry.chunk_bytes() as usize]; setting.geometry.k()];
    for chunk in &mut data {
        rng.fill_bytes(chunk);
    }
    encoded(setting, data)
}

/// Data chunks with the parity chunks that belong to them.
pub(crate) fn encoded(setting: &Setting, mut chunks: Chunks) -> Chunks {
    chunks.truncate(setting.geometry.k());
    let mut parity = vec![vec![0; setting.geometry.chunk_bytes() as usize]; setting.geometry.m()];
    let sources: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    setting
        .code
        .encode(&sources, &mut outputs)
        .expect("k and m chunks of one length");
    chunks.extend(parity);
    chunks
}

/// Chunks with these ranges taken from others; parity stays as it is.
pub(crate) fn overwritten(stored: &Chunks, new: &Chunks, ranges: &[ChunkRange]) -> Chunks {
    let mut chunks = stored.clone();
    for part in ranges {
        let range = part.range.offset as usize..part.range.end() as usize;
        chunks[part.chunk.at()][range.clone()].copy_from_slice(&new[part.chunk.at()][range]);
    }
    chunks
}
