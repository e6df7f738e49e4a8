//! Cells: 512 bytes that identify the operation that wrote them and their place.
//!
//! All bytes of a cell follow from its identity. So bytes at a wrong place, bytes of several writes
//! and bytes decoded from chunks of different updates are not valid cells.

/// Bytes of a cell.
pub(crate) const CELL_BYTES: u64 = 512;
const NAME_BYTES: usize = 20;

/// An operation of a client. Operation 0 stored the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OperationId(pub(crate) u64);

/// The identity of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    /// The client that wrote it.
    pub(crate) client: u32,
    /// The write.
    pub(crate) operation: OperationId,
    /// Its place: the file's number in the upper half, the cell's in the lower.
    pub(crate) place: u64,
}

/// The place of a cell of a file.
pub(crate) const fn place(file: u32, cell: u64) -> u64 {
    ((file as u64) << 40) | cell
}

impl Cell {
    /// Appends the cell's bytes.
    pub(crate) fn append(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend_from_slice(&self.client.to_le_bytes());
        bytes.extend_from_slice(&self.operation.0.to_le_bytes());
        bytes.extend_from_slice(&self.place.to_le_bytes());
        let mut state = mix(self.operation.0 ^ mix(self.place) ^ u64::from(self.client));
        while bytes.len() < start + CELL_BYTES as usize {
            state = mix(state);
            let rest = start + CELL_BYTES as usize - bytes.len();
            bytes.extend_from_slice(&state.to_le_bytes()[..rest.min(8)]);
        }
    }

    /// Decodes a cell; none if the bytes are not a valid cell.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let name = bytes.get(..NAME_BYTES)?;
        let (client, rest) = name.split_first_chunk::<4>()?;
        let (operation, rest) = rest.split_first_chunk::<8>()?;
        let (place, _) = rest.split_first_chunk::<8>()?;
        let cell = Self {
            client: u32::from_le_bytes(*client),
            operation: OperationId(u64::from_le_bytes(*operation)),
            place: u64::from_le_bytes(*place),
        };
        let mut expected = Vec::with_capacity(CELL_BYTES as usize);
        cell.append(&mut expected);
        (expected == bytes).then_some(cell)
    }
}

/// The bytes of `count` cells of a file from `first` on.
pub(crate) fn fill(
    file: u32,
    client: u32,
    operation: OperationId,
    first: u64,
    count: u64,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((count * CELL_BYTES) as usize);
    for cell in first..first + count {
        let place = place(file, cell);
        let cell = Cell {
            client,
            operation,
            place,
        };
        cell.append(&mut bytes);
    }
    bytes
}

/// Steele, Lea and Flood's finaliser: it is not linear over GF(2), so a sum of cells is not a valid
/// cell.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_names_its_write_and_its_place() {
        let bytes = fill(3, 7, OperationId(9), 100, 2);
        assert_eq!(bytes.len(), 1024);
        let cell = Cell::parse(&bytes[512..]).expect("a cell");
        assert_eq!(
            (cell.client, cell.operation, cell.place),
            (7, OperationId(9), place(3, 101))
        );
    }

    #[test]
    fn changed_shifted_and_summed_bytes_are_invalid() {
        let one = fill(0, 1, OperationId(2), 5, 2);
        let other = fill(0, 1, OperationId(3), 5, 2);
        let sum: Vec<u8> = one.iter().zip(&other).map(|(a, b)| a ^ b).collect();
        assert_eq!(Cell::parse(&sum[..512]), None);
        assert_eq!(Cell::parse(&one[8..520]), None);
        for at in [0, 19, 20, 511] {
            let mut changed = one[..512].to_vec();
            changed[at] ^= 1;
            assert_eq!(Cell::parse(&changed), None, "byte {at}");
        }
        assert_eq!(Cell::parse(&[]), None);
    }
}
